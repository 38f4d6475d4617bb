"""Recent runs in a file, `archive.jsonl`. Features: CTL-04, DUR-02."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from yukta_rx.durability.file._claim_check import ClaimCheck
from yukta_rx.durability.file._journaled import Journaled, at_once
from yukta_rx.durability.memory.archive import MemoryExecutionArchiveStore
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.file.blobs import FileBlobStore
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

NAME: Final = "archive.jsonl"

STORE: Final = "archive"
"""As the owner of blobs."""

SLACK: Final = 20
"""Each line holds a whole workflow, so few are kept beyond need."""

_ALL: Final = ""
"""All runs are one scope: a put may drop others."""


class FileExecutionArchiveStore:
    """See `ExecutionArchiveStore`; the memory store over a journal of `put` and `remove`.

    Args:
        folder: where the file is.
        meters: where lines are counted that cannot be read.
        blobs: keeps start payloads that are too large for a line; None keeps all in their lines.
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
        self._journal = Journaled(folder / NAME, STORE, self._state, meters=meters, slack=SLACK)

    async def start(self) -> None:
        """Read the runs that are kept.

        Raises:
            StoreUnavailableError: the file cannot be read or written.
        """
        await self._journal.start()
        try:
            await self._payloads.start(self._state.apart)
        except BaseException:
            await self._journal.close()
            raise
        self._state.left.clear()

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

    async def put(self, run: ArchivedRun, retain: int) -> Sequence[str]:
        """Keep a run among the newest `retain`; the ids of those that had to go."""
        name, change = run.execution_id, {"op": "put", "retain": retain, "run": to_row(run)}
        text = self._payloads.text_of(run.payload, len(codec.encode(change)))
        if text is not None:
            blob = await self._payloads.put(name, text)
            change |= {"run": to_row(replace(run, payload=blob)), "apart": True}
        try:
            gone: Sequence[str] = await self._journal.change(_ALL, change)
        except YuktaError:
            if text is not None and name not in self._state.apart:
                await self._payloads.forget(name)
            raise
        await self._forget_left()
        return gone

    async def _forget_left(self) -> None:
        """Let go of the payloads of runs that are not kept any more."""
        left, self._state.left = self._state.left, []
        for name in left:
            if name not in self._state.apart:
                await self._payloads.forget(name)

    async def get(self, execution_id: str, *, whole: bool = True) -> ArchivedRun | None:
        """A run, None if it is not kept."""
        self._journal.check()
        run = await self._state.get(execution_id)
        if run is None or not whole or execution_id not in self._state.apart:
            return run
        what = f"the start payload of run {execution_id}"
        try:
            payload = await self._payloads.opened(run.payload, what)
        except StoreUnavailableError:
            if execution_id in self._state.apart:
                raise
            # It had to go meanwhile.
            return None
        return replace(run, payload=payload)

    async def ids(self) -> Sequence[str]:
        """The ids of all that are kept, the oldest first."""
        self._journal.check()
        return await self._state.ids()

    async def remove(self, execution_id: str) -> None:
        """Forget a run."""
        self._journal.check()
        if execution_id in self._state or self._journal.waits(_ALL):
            await self._journal.change(_ALL, {"op": "remove", "executionId": execution_id})
            await self._forget_left()


class _State(MemoryExecutionArchiveStore):
    """The runs that are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.apart: set[str] = set()
        """Runs whose start payload is kept apart."""
        self.left: list[str] = []
        """Runs that have no payload apart any more, and may still own one."""

    def __contains__(self, execution_id: str) -> bool:
        return execution_id in self._runs

    def apply(self, change: Mapping[str, Any]) -> Any:
        """Make a change."""
        match change["op"]:
            case "put":
                run = from_row(ArchivedRun, change["run"])
                gone = at_once(self.put(run, change["retain"]))
                self._leave([run.execution_id])
                if change.get("apart") is True:
                    self.apart.add(run.execution_id)
                self._leave(gone)
                return gone
            case "remove":
                self._leave([change["executionId"]])
                return at_once(self.remove(change["executionId"]))
        raise ValueError(f"there is no op {change['op']!r}")

    def _leave(self, runs: Iterable[str]) -> None:
        for name in self.apart.intersection(runs):
            self.apart.remove(name)
            self.left.append(name)

    def needed(self) -> int:
        """One for each run."""
        return len(self._runs)

    def changes(self) -> Iterable[Mapping[str, Any]]:
        """Each run, put again in the order of the puts; none has to go for another."""
        runs, apart = list(self._runs.values()), frozenset(self.apart)
        return (
            {"op": "put", "retain": len(runs), "run": to_row(run)}
            | ({"apart": True} if run.execution_id in apart else {})
            for run in runs
        )
