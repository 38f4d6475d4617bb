"""The streams core: edges with credit, stages, the pump, and Flow as their face.

Feature: ENG-01.
"""

from yukta_rx.streams.circuit import Circuit, StopMode
from yukta_rx.streams.flow import Flow, from_async_iterable, from_iterable
from yukta_rx.streams.plan import Outcome
from yukta_rx.streams.protocol import UNBOUNDED, FlowSubscriber, FlowSubscription
from yukta_rx.streams.rx import LoopScheduler, OverflowStrategy, from_rx, to_rx

__all__ = [
    "UNBOUNDED",
    "Circuit",
    "Flow",
    "FlowSubscriber",
    "FlowSubscription",
    "LoopScheduler",
    "Outcome",
    "OverflowStrategy",
    "StopMode",
    "from_async_iterable",
    "from_iterable",
    "from_rx",
    "to_rx",
]
