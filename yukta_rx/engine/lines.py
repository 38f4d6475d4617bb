"""Log lines of a run's plugins on their way to the feed, from the loop and from threads.

Features: EXT-02, OBS-02.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.preview import preview

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from yukta_rx.model.message import Message
    from yukta_rx.streams.plan import Tap

WAITING: Final = 10_000
"""Lines from threads that may wait for the loop; beyond it each node may still have its share."""

ECHOED: Final = 2048
"""Characters of a message that is written to the log."""

EmitLine = Callable[[str, dict[str, Any]], None]
"""(node id, log line as data of a `node.log` event)."""


class LineRelay:
    """Takes lines from any thread and emits them on the loop, each node's in order.

    A burst from a thread costs one wake of the loop. When too many wait, only a node that has less
    than its share may add to them, so that one that writes without end costs no other a line.
    Where lines of a node were dropped, one marker line stands in their place.
    """

    __slots__ = (
        *("_armed", "_emit", "_lock", "_loop", "_of", "_skipped", "_thread", "_waiting"),
        "_writers",
        "dropped",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, emit: EmitLine) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._emit = emit
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, str, str, int]] = []
        self._armed = False
        self._of: dict[str, int] = {}
        """How many lines of each node wait."""
        self._skipped: dict[str, int] = {}
        self._writers: dict[str, None] = {}
        self.dropped = 0

    def sink(self, node_id: str) -> Callable[[str, str, int], None]:
        """What takes `(line, stream, attempt)` of one node's plugin."""
        return _NodeLines(self, node_id)

    def wrote(self, node_id: str) -> None:
        """A node's plugin writes lines of its own."""
        self._writers[node_id] = None

    def echo(self, node_id: str, tap: Tap | None) -> Tap:
        """`tap`, behind one that writes what a node emits to its log.

        A node that has written a line of its own is not echoed from then on.
        """

        def echoed(port: str | None, messages: Sequence[Message]) -> None:
            if node_id not in self._writers:
                for msg in messages:
                    self.write(node_id, preview(msg.payload, ECHOED), "stdout", msg.attempt)
            if tap is not None:
                tap(port, messages)

        return echoed

    def write(self, node_id: str, line: str, stream: str, attempt: int = 1) -> None:
        """Emit `line` now, or have the loop do it."""
        if threading.get_ident() == self._thread:
            if self._waiting:
                self.drain()
            self._say(node_id, line, stream, attempt)
            return
        with self._lock:
            own = self._of.get(node_id, 0)
            if len(self._waiting) >= WAITING and own >= max(1, WAITING // len(self._of)):
                self._skipped[node_id] = self._skipped.get(node_id, 0) + 1
                self.dropped += 1
                return
            self._of[node_id] = own + 1
            self._waiting.append((node_id, line, stream, attempt))
            if self._armed or self._loop.is_closed():
                return
            self._armed = True
        self._loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Emit what waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            skipped, self._skipped = self._skipped, {}
            self._of = {}
            self._armed = False
        for line in waiting:
            self._say(*line)
        # Once a line of a node was dropped, so were all that it wrote since.
        for node_id, n in skipped.items():
            self._say(node_id, f"{n} lines dropped here", "engine", 1)

    @property
    def busy(self) -> bool:
        """Whether lines wait for the loop, or were dropped, which the end of the run will say."""
        return bool(self._waiting or self.dropped)

    def written(self) -> tuple[str, ...]:
        """The nodes that have written lines of their own."""
        return tuple(self._writers)

    def go_on(self, writers: Iterable[str]) -> None:
        """These nodes have written lines of their own before."""
        self._writers.update(dict.fromkeys(writers))

    def losses(self) -> dict[str, int]:
        """Return what the end of the run says about lines that were dropped; nothing if none."""
        return {"droppedLines": self.dropped} if self.dropped else {}

    def _say(self, node_id: str, line: str, stream: str, attempt: int) -> None:
        level = "ERROR" if stream == "stderr" else "WARNING" if stream == "engine" else "INFO"
        self._emit(node_id, {"stream": stream, "level": level, "line": line, "attempt": attempt})


class _NodeLines:
    """Takes the lines of one node's plugin; there is one for each node of each run."""

    __slots__ = ("_node_id", "_relay")

    def __init__(self, relay: LineRelay, node_id: str) -> None:
        self._relay = relay
        self._node_id = node_id

    def __call__(self, line: str, stream: str, attempt: int) -> None:
        self._relay.wrote(self._node_id)
        self._relay.write(self._node_id, line, stream, attempt)
