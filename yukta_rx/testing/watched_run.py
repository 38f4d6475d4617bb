"""WatchedRun: a run of the engine itself whose every output is seen, in virtual time.

Features: EXT-01, ENG-05.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.engine.run import Run
from yukta_rx.testing.clock import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.message import Message
    from yukta_rx.streams.plan import Tap


PATIENCE: Final = 3600.0
"""Seconds of virtual time that a harness waits for something."""


class Watch(Protocol):
    """Told of each batch that a node emits, before its children are; of a terminal, what it took.

    Called on the loop; must not block and must not keep the list.
    """

    def __call__(self, node_id: str, port: str | None, messages: Sequence[Message]) -> None:
        """Look."""


class WatchedRun(Run):
    """A run that shows what every node emits to `watch`; otherwise as `Run`."""

    def __init__(
        self,
        prepared: PreparedWorkflow,
        *,
        watch: Watch,
        emit: Callable[[ExecutionEvent], None],
        **options: Any,
    ) -> None:
        super().__init__(prepared, emit=emit, **options)
        self._watch = watch

    def tap_of(self, node: NodeRuntime) -> Tap:
        """A tap on every node, where a run has them on its terminals."""
        watch, node_id = self._watch, node.id
        return lambda port, messages: watch(node_id, port, messages)


def virtual_loop(wanted: str) -> VirtualLoop:
    """The running loop, which has to be in virtual time for `wanted`.

    Raises:
        TypeError: it is not.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise TypeError(f"{wanted} needs virtual time: run the test with run_virtual")
    return loop
