"""A durable checkpoint store: a list of what was written, of which a crash leaves a beginning.

What the contract says of durable stores is tried on it, and what the engine makes of crashes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.blobs import checked
from yukta_rx.durability.stores.checkpoints import (
    CheckpointRow,
    NodeCheckpoint,
    decode_row,
    encode_row,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Collection, Mapping

    from yukta_rx.model.codec import Blob

Line = tuple[Any, ...]
"""("row" | "done" | "lost" | "clear" | "carried", run, ...)."""


class LoggedCheckpointStore:
    """A `NodeCheckpointStore` over a log.

    Args:
        log: what was written before; not changed.
        delay: seconds until a line is written; None: at once.
    """

    durable = True
    claim_bytes = 0
    full = False
    bytes = 0

    def __init__(self, log: Collection[Line] = (), delay: float | None = None) -> None:
        self.log: list[Line] = list(log)
        self.delay = delay
        self.rows: dict[str, dict[str, list[bytes]]] = {}
        self.known: dict[str, dict[str, NodeCheckpoint]] = {}
        self.coming: deque[tuple[Line, asyncio.Future[None]]] = deque()
        self.last: asyncio.Future[None] | None = None
        for line in self.log:
            self.apply(line)

    @property
    def synchronous(self) -> bool:
        return self.delay is None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def room(self) -> None: ...

    # -- writing

    def write(self, *line: Any) -> asyncio.Future[None] | None:
        """Write a line; what is given back is done once it is there."""
        self.log.append(line)
        if self.delay is None:
            self.apply(line)
            return None
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self.last = done
        self.coming.append((line, done))
        loop.call_later(self.delay, self.there)
        return done

    def there(self) -> None:
        """The next line is written: timers of the same moment come in any order, lines do not."""
        line, done = self.coming.popleft()
        self.apply(line)
        done.set_result(None)

    def apply(self, line: Line) -> None:
        """Do what a line says."""
        kind, run, *rest = line
        if kind == "clear":
            self.rows.pop(run, None)
            self.known.pop(run, None)
            return
        rows, known = self.rows.setdefault(run, {}), self.known.setdefault(run, {})
        if kind == "carried":
            source, nodes = rest
            for node in nodes:
                if node in self.known.get(source, {}):
                    known[node] = self.known[source][node]
                    rows[node] = list(self.rows[source].get(node, ()))
            return
        node, value = rest
        state = known.setdefault(node, NodeCheckpoint())
        if state.complete or state.reason is not None:
            return
        if kind == "lost":
            known[node] = NodeCheckpoint(False, value)
            rows.pop(node, None)
            return
        messages, inputs = state.messages, state.inputs
        if value is not None:
            row = decode_row(value, node)
            rows.setdefault(node, []).append(value)
            messages, inputs = messages + len(row), inputs + len(row.inputs)
        known[node] = NodeCheckpoint(kind == "done", None, messages, inputs)

    def given_up(self, run: str, node: str) -> bool:
        """Whether no more of a node is kept."""
        state = self.known.get(run, {}).get(node, NodeCheckpoint())
        return state.complete or state.reason is not None

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        if self.given_up(execution_id, node_id):
            return False
        self.write("row", execution_id, node_id, encode_row(row))
        return True

    def mark_complete(
        self, execution_id: str, node_id: str, row: CheckpointRow | None = None
    ) -> Awaitable[None] | None:
        line = None if row is None else encode_row(row)
        return self.write("done", execution_id, node_id, line)

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        self.write("lost", execution_id, node_id, reason)

    def written(self, execution_id: str, node_id: str) -> Awaitable[None] | None:
        return None if self.last is None or self.last.done() else self.last

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        done = self.write("carried", into, execution_id, tuple(nodes))
        if done is not None:
            await done

    async def clear(self, execution_id: str) -> None:
        done = self.write("clear", execution_id)
        if done is not None:
            await done

    # -- reading

    async def runs(self) -> Collection[str]:
        return tuple(self.known)

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        return dict(self.known.get(execution_id, {}))

    async def payload(self, blob: Blob) -> Any:
        return checked(blob, None)

    async def read(
        self, execution_id: str, node_id: str, *, whole: bool = True
    ) -> AsyncGenerator[CheckpointRow, None]:
        for line in tuple(self.rows.get(execution_id, {}).get(node_id, ())):
            yield decode_row(line, node_id)
