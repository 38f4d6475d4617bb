"""Node policies and back-pressure as composable operators, usable with or without the engine.

Each is `Callable[[Flow], Flow]` and goes into `flow.pipe(...)`; those named `on_backpressure_*`
take any Observable. One operator per file; its docstring says when it emits, back-pressures,
completes, fails, cancels and what it discards. Feature: ENG-01, ENG-02.
"""

from yukta_rx.operators._backpressure import (
    on_backpressure_buffer,
    on_backpressure_drop,
    on_backpressure_error,
    on_backpressure_latest,
    prefetch,
)
from yukta_rx.operators._broadcast import broadcast
from yukta_rx.operators._call import call, flat_map, through
from yukta_rx.operators._call import map_ as map
from yukta_rx.operators._claim_check import claim_check
from yukta_rx.operators._deadline import Deadline, deadline
from yukta_rx.operators._edge_buffer import edge_buffer
from yukta_rx.operators._element_timeout import ElementTimeout, element_timeout
from yukta_rx.operators._idle_timeout import IdleClock, idle_timeout
from yukta_rx.operators._kind import BackPressureKind, Operator
from yukta_rx.operators._merge_parents import AllSuccess, AtLeast, merge, merge_parents
from yukta_rx.operators._on_error import FailureLedger, on_error
from yukta_rx.operators._record import record
from yukta_rx.operators._retry import Backoff, retry
from yukta_rx.operators._status import status
from yukta_rx.operators._valve import Valve, valve
from yukta_rx.operators._without_known import without_known

__all__ = [
    "AllSuccess",
    "AtLeast",
    "BackPressureKind",
    "Backoff",
    "Deadline",
    "ElementTimeout",
    "FailureLedger",
    "IdleClock",
    "Operator",
    "Valve",
    "broadcast",
    "call",
    "claim_check",
    "deadline",
    "edge_buffer",
    "element_timeout",
    "flat_map",
    "idle_timeout",
    "map",
    "merge",
    "merge_parents",
    "on_backpressure_buffer",
    "on_backpressure_drop",
    "on_backpressure_error",
    "on_backpressure_latest",
    "on_error",
    "prefetch",
    "record",
    "retry",
    "status",
    "through",
    "valve",
    "without_known",
]
