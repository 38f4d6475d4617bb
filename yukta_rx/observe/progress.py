"""ProgressHistory: snapshots of each run, for who follows it and for who comes late.

Feature: OBS-01.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from yukta_rx.errors import NotFoundError
from yukta_rx.model.codec import loads_external
from yukta_rx.model.status import status_of
from yukta_rx.observe.frames import Frame, state_json
from yukta_rx.observe.journal import Journal, JournalReader, Kept
from yukta_rx.observe.ring import OVERHEAD
from yukta_rx.observe.stores import JournalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.config.settings import Settings
    from yukta_rx.streams.clock import Clock


_USUAL: Final = (
    b'{"version":1,"time":"2026-01-01T00:00:00.000Z","execution":{"executionId":"01","sessionId":"",'
    b'"workflowId":"","definitionVersion":"","status":"PENDING","paused":false,"stepMode":false,'
    b'"actor":"anonymous","labels":{},"depth":0,"durationMs":0,"startTime":"2026-"},"nodes":[{"nodeId":"'
    b'","type":"COLLECT_TERMINAL","kind":"TERMINAL","status":"PENDING","in":0,"out":0,"failed":0,'
    b'"retried":0,"dropped":0,"deadLettered":0,"skipped":0,"attempt":1,"ratePerSec":0.0,"paused":false,'
    b'"skipping":false},{"nodeId":"","type":"WAIT_FOR_SIGNAL","kind":"PROCESSOR","status":"PENDING","in":0,'
    b'"kind":"TRIGGER","status":"SUCCESS","startTime":"","endTime":"","status":"RUNNING"}]}'
)
"""What is in most snapshots; those that are compressed refer to it."""


class ProgressSnapshot(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A run at one moment, encoded.

    Attributes:
        version: grows from snapshot to snapshot of a run.
        terminal: whether the run had ended, so that none follows.
        kept: the snapshot as one line of JSON, compressed where `small`.
        small: whether it is.
    """

    version: int
    terminal: bool
    kept: bytes
    small: bool = False

    @property
    def data(self) -> bytes:
        """The snapshot as one line of JSON."""
        if not self.small:
            return self.kept
        inflating = zlib.decompressobj(zdict=_USUAL)
        return inflating.decompress(self.kept) + inflating.flush()

    def compressed(self) -> ProgressSnapshot:
        """The same, for one that is hardly ever looked at."""
        if self.small:
            return self
        deflating = zlib.compressobj(9, zdict=_USUAL)
        small = deflating.compress(self.kept) + deflating.flush()
        return ProgressSnapshot(self.version, self.terminal, small, True)

    @classmethod
    def of(cls, shown: Mapping[str, Any]) -> Self:
        """Encode API.md's `ProgressSnapshot`."""
        terminal = status_of(shown["execution"]["status"]).terminal
        return cls(shown["version"], terminal, state_json(shown))

    def as_dict(self) -> dict[str, Any]:
        """Return it as API.md's `ProgressSnapshot`."""
        shown: dict[str, Any] = loads_external(self.data)
        return shown


class RunProgress(Journal[ProgressSnapshot]):
    """The newest snapshots of one run, their versions growing."""

    __slots__ = ("newest",)

    def __init__(self, history: ProgressHistory, keep: int) -> None:
        super().__init__(history.budget, keep, keep)
        self.newest: ProgressSnapshot | None = None

    def record(self, snapshot: ProgressSnapshot, at: float) -> bool:
        """Add a snapshot; one that is not newer than the newest is dropped.

        Returns:
            Whether it was added.
        """
        if self.ended or (self.newest is not None and snapshot.version <= self.newest.version):
            return False
        self.newest = snapshot
        self.add(snapshot, at, OVERHEAD + len(snapshot.kept))
        if snapshot.terminal:
            self.end()
        return True

    def compress(self) -> None:
        """Nobody looks at the run for long: keep less of it in memory."""
        _, kept, _ = self.find(None, None, self.last)
        for one in kept:
            one.item, one.frame = one.item.compressed(), None
            self.newest = one.item

    def behind(self, version: int) -> int:
        """Return the cursor behind which only snapshots newer than `version` stand."""
        _, kept, _ = self.find(None, None, self.last)
        return next((one.cursor - 1 for one in kept if one.item.version > version), self.last)

    def show(self, kept: Kept[ProgressSnapshot]) -> ProgressSnapshot:
        """The snapshot itself."""
        return kept.item

    def render(self, kept: Kept[ProgressSnapshot]) -> Frame:
        """The snapshot as `execution.progress`; the id of the frame is its version."""
        snapshot = kept.item
        return Frame("execution.progress", snapshot.data, id=str(snapshot.version))


class ProgressReader(JournalReader[ProgressSnapshot]):
    """Follows the snapshots of one run; those it misses do not matter, so there are no gaps."""

    __slots__ = ()

    _tells_gaps = False


class ProgressHistory(JournalStore[RunProgress]):
    """The snapshots of all runs.

    Args:
        settings: the settings in force.
        clock: tells the time.

    Attributes:
        on_follow: called with an execution id when somebody begins to follow that run.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        group = settings.streaming
        super().__init__(
            clock,
            ttl=group.status_history_ttl_minutes * 60.0,
            capacity=group.status_history_max_executions,
            max_bytes=group.status_history_max_bytes,
            renew=False,
        )
        self._per_run = group.status_history_max_per_run
        self.on_follow: Callable[[str], None] = lambda _id: None

    def record(
        self, execution_id: str, snapshot: ProgressSnapshot, parent: str | None = None
    ) -> bool:
        """Add a snapshot of a run; an older one than is known is dropped.

        Args:
            execution_id: the run.
            snapshot: as it is now.
            parent: the run that started it; None if none did.

        Returns:
            Whether it was added.
        """
        run = self.get(execution_id)
        if run is None:
            run = self.keep(execution_id, RunProgress(self, self._per_run), parent)
        added = run.record(snapshot, self.clock.now())
        if run.ended:
            self.retire(execution_id)
        return added

    def compress(self, execution_id: str) -> None:
        """Nobody looks at a run for long: keep less of it in memory."""
        run = self.get(execution_id)
        if run is not None and not run.in_use:
            run.compress()

    def newest(self, execution_id: str) -> ProgressSnapshot | None:
        """Return the newest snapshot of a run, None if there is none (any more)."""
        run = self.get(execution_id)
        return run.newest if run is not None else None

    def history(self, execution_id: str) -> list[ProgressSnapshot]:
        """Return what is kept of a run, oldest first."""
        run = self.get(execution_id)
        return list(run.page(None, None, run.last).items) if run is not None else []

    def followed(self, execution_id: str) -> bool:
        """Whether somebody follows a run."""
        run = self.get(execution_id)
        return run is not None and run.in_use

    def follow(self, execution_id: str, after: int | None = None) -> ProgressReader:
        """Follow a run until its last snapshot: what is kept of it, then what comes.

        Args:
            execution_id: the run.
            after: version of the newest snapshot that one has; versions go on from there.

        Raises:
            NotFoundError: code `execution_not_found`: no snapshots of it are kept.
        """
        run = self.get(execution_id)
        if run is None:
            raise NotFoundError(
                f"no progress of run {execution_id} is kept",
                code="execution_not_found",
                executionId=execution_id,
            )
        reader = ProgressReader(run, run.behind(after) if after is not None else None)
        self.on_follow(execution_id)
        return reader
