"""Starts that wait for a slot, in a file, `queued-starts.jsonl`. Features: ADM-01, DUR-05."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from yukta_rx.durability.file._claim_check import ClaimCheck
from yukta_rx.durability.file._journaled import Journaled, at_once
from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore
from yukta_rx.durability.stores.queued_starts import QueuedStart
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

NAME: Final = "queued-starts.jsonl"

STORE: Final = "queued-starts"
"""As the owner of blobs."""

_PAYLOAD: Final = "payload"
"""The member of a request that may be kept apart."""


class FileQueuedStartStore:
    """See `QueuedStartStore`; the memory store over a journal of `put`, `take` and `move`.

    Args:
        folder: where the file is.
        meters: where lines are counted that cannot be read.
        blobs: keeps payloads that are too large for a line; None keeps every one in its line.
        claim_bytes: size from which on a payload is; 0 for none.
    """

    durable = True

    def __init__(
        self,
        folder: Path,
        *,
        meters: Meters | None = None,
        blobs: FileBlobStore | None = None,
        claim_bytes: int = 0,
    ) -> None:
        self._payloads = ClaimCheck(STORE, blobs, claim_bytes)
        self._state = _State()
        self._journal = Journaled(folder / NAME, "queued-starts", self._state, meters=meters)

    async def start(self) -> None:
        """Read the starts that wait.

        Raises:
            StoreUnavailableError: the file cannot be read or written.
        """
        await self._journal.start()
        try:
            await self._payloads.start(self._state.apart)
        except BaseException:
            await self._journal.close()
            raise

    async def close(self) -> None:
        """Write what waits, and close the file."""
        await self._journal.close()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        await self.close()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read when the file was opened."""
        return self._journal.quarantined

    async def put(self, start: QueuedStart) -> None:
        """Let a start wait."""
        run, change = start.execution_id, {"op": "put", "start": to_row(start)}
        payload = start.request.get(_PAYLOAD)
        text = self._payloads.text_of(payload, len(codec.encode(change)))
        if text is None:
            await self._journal.change(run, change)
            return
        blob = await self._payloads.put(run, text)
        apart = replace(start, request={**start.request, _PAYLOAD: blob})
        try:
            await self._journal.change(run, {**change, "start": to_row(apart), "apart": True})
        except YuktaError:
            await self._payloads.forget(run)
            raise

    async def claim(self, execution_id: str) -> QueuedStart | None:
        """Take a start that got a slot; None if it does not wait."""
        return await self._take(execution_id)

    async def remove(self, execution_id: str) -> bool:
        """Take a start back; False if it does not wait."""
        return await self._take(execution_id) is not None

    async def _take(self, execution_id: str) -> QueuedStart | None:
        if self._absent(execution_id):
            return None
        apart = execution_id in self._state.apart or self._journal.waits(execution_id)
        taken: QueuedStart | None = await self._journal.change(
            execution_id, {"op": "take", "executionId": execution_id}
        )
        if apart and taken is not None:
            await self._payloads.forget(execution_id)
        return taken

    async def set_priority(self, execution_id: str, priority: float) -> bool:
        """Change the priority; False if the start does not wait."""
        if self._absent(execution_id):
            return False
        moved: bool = await self._journal.change(
            execution_id, {"op": "move", "executionId": execution_id, "priority": priority}
        )
        return moved

    async def list(self) -> Sequence[QueuedStart]:
        """Every start that waits, the earliest first."""
        self._journal.check()
        return await self._state.list()

    async def opened(self, start: QueuedStart) -> QueuedStart:
        """A start that waits, with its payload."""
        self._journal.check()
        if start.execution_id not in self._state.apart:
            return start
        what = f"the payload of queued start {start.execution_id}"
        payload = await self._payloads.opened(start.request.get(_PAYLOAD), what)
        return replace(start, request={**start.request, _PAYLOAD: payload})

    def _absent(self, execution_id: str) -> bool:
        """Whether it is certain that it does not wait, so that nothing has to be written."""
        self._journal.check()
        return execution_id not in self._state and not self._journal.waits(execution_id)


class _State(MemoryQueuedStartStore):
    """The starts as they wait."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: dict[str, None] = {}
        """Those whose payload is kept apart, in their order."""

    def __contains__(self, execution_id: str) -> bool:
        return execution_id in self._starts

    def apply(self, change: Mapping[str, Any]) -> Any:
        """Make a change."""
        match change["op"]:
            case "put":
                start = from_row(QueuedStart, change["start"])
                if change.get("apart") is True:
                    self.apart[start.execution_id] = None
                return at_once(self.put(start))
            case "take":
                self.apart.pop(change["executionId"], None)
                return at_once(self.claim(change["executionId"]))
            case "move":
                return at_once(self.set_priority(change["executionId"], change["priority"]))
        raise ValueError(f"there is no op {change['op']!r}")

    def needed(self) -> int:
        """One for each start."""
        return len(self._starts)

    def changes(self) -> Iterable[Mapping[str, Any]]:
        """Each start, put again in the order of the puts."""
        starts, apart = list(self._starts.values()), frozenset(self.apart)
        return (
            {"op": "put", "start": to_row(start)}
            | ({"apart": True} if start.execution_id in apart else {})
            for start in starts
        )
