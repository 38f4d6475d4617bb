"""Workflows and sessions in a folder: what is in force in memory, every change in files first.

Everything but what is in force is read when somebody asks for it. Methods that touch files block
and take turns; the others are for the loop, and see a change once it is durable.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from yukta_rx.durability.file._catalog_scan import (
    REMOVED,
    Broken,
    Found,
    Workflow,
    current_path,
    history_path,
    read,
    scan,
    session_path,
)
from yukta_rx.durability.file._commit import CommitFolder
from yukta_rx.durability.file._definition_files import (
    Removed,
    Unreadable,
    current_text,
    read_version,
    removed_text,
    session_text,
    version_text,
)
from yukta_rx.durability.stores.definitions import DAMAGED, WorkflowRecord
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.session import SessionConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from yukta_rx.durability.file._catalog_scan import Taken

log = logging.getLogger(__name__)

REMEMBERED: Final = 10_000
"""Removed workflows whose last number is known; the others go on above the highest of them."""


class Catalog:
    """See the module.

    Args:
        path: the folder.
        keep: how many of the newest versions of a workflow stay.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self.keep = keep
        self._files = CommitFolder(path)
        self._turn = threading.RLock()
        self._open = False
        self.found = Found()

    def open(self) -> None:
        """Carry out what was decided before a crash, and read what is in force. Blocks.

        Raises:
            StoreUnavailableError: the folder cannot be used; names the file and the reason.
        """
        with self._turn:
            try:
                self._files.recover()
                self.found = scan(self.path)
            except OSError as error:
                place = error.filename or self.path
                raise StoreUnavailableError(
                    f"{place}: cannot be read: {error.strerror or error}"
                ) from error
            for fault in self.found.faults.values():
                log.error("not in use: %s", fault)
            plan = Plan(self)
            for taken in self.found.taken:
                plan.take(taken)
            plan.put |= self.found.restored
            self._carry_out(plan)
            self._open = True

    def close(self) -> None:
        """Give no more answers."""
        self._open = False

    def check_open(self) -> None:
        """Raise StoreUnavailableError unless the store is open."""
        if not self._open:
            raise StoreUnavailableError(f"{self.path}: the store is not open")

    # -- what is in force

    def current(self, session_id: str, workflow_id: str) -> WorkflowRecord | None:
        """The current form, None if there is none."""
        self.check_open()
        kept = self.found.workflows.get(session_id, {}).get(workflow_id)
        return None if kept is None else _usable(kept).current

    def currents(self, session_id: str) -> list[WorkflowRecord]:
        """The current form of every workflow of a session that can be read, by id."""
        self.check_open()
        workflows = sorted(self.found.workflows.get(session_id, {}).items())
        return [kept.current for _, kept in workflows if isinstance(kept, Workflow)]

    def session(self, session_id: str) -> SessionRecord | None:
        """The session, None if there is none."""
        self.check_open()
        kept = self.found.sessions.get(session_id)
        if isinstance(kept, Broken):
            raise _refused(kept)
        return kept

    def sessions(self) -> list[SessionRecord]:
        """Every session that can be read, by id."""
        self.check_open()
        found = sorted(self.found.sessions.items())
        return [kept for _, kept in found if isinstance(kept, SessionRecord)]

    # -- versions

    def versions(self, session_id: str, workflow_id: str) -> list[WorkflowRecord]:
        """Every version that can be read, newest first. Blocks."""
        with self._turn:
            self.check_open()
            kept = self.found.workflows.get(session_id, {}).get(workflow_id)
            if kept is None:
                return []
            made = [self._version(_usable(kept), number) for number in reversed(kept.numbers)]
            return [item for item in made if isinstance(item, WorkflowRecord)]

    def version(self, session_id: str, workflow_id: str, number: int) -> WorkflowRecord | None:
        """One version, None if it is not kept (any more). Blocks.

        Raises:
            StoreUnavailableError: its file cannot be read; names it, the place and the reason.
        """
        with self._turn:
            self.check_open()
            kept = self.found.workflows.get(session_id, {}).get(workflow_id)
            if kept is None or number not in _usable(kept).numbers:
                return None
            made = self._version(_usable(kept), number)
            if isinstance(made, Quarantined):
                raise StoreUnavailableError(str(made))
            return made

    def _version(self, kept: Workflow, number: int) -> WorkflowRecord | Quarantined:
        if number == kept.current.version:
            return kept.current
        session_id, workflow_id = kept.current.session_id, kept.current.workflow_id
        path = history_path(session_id, workflow_id, number)
        try:
            return read_version(read(self.path / path), session_id, workflow_id, number)
        except Unreadable as error:
            return self.quarantine(path, str(error))

    def quarantine(self, path: str, reason: str) -> Quarantined:
        """Note that a file cannot be read; it is logged once."""
        fault = Quarantined(place=str(self.path / path), reason=reason)
        if path not in self.found.faults:
            log.error("not in use: %s", fault)
        self.found.faults = {**self.found.faults, path: fault}
        return fault

    # -- changes

    def change(self, changes: Iterable[SessionChange]) -> list[WorkflowRecord]:
        """Carry out all changes or none; see `SessionConfigStore.commit`. Blocks.

        Raises:
            StoreUnavailableError: nothing has changed; names the file and the reason.
        """
        with self._turn:
            self.check_open()
            plan = Plan(self)
            current = [record for change in changes for record in plan.change(change)]
            self._carry_out(plan)
            return current

    def annotate(
        self, session_id: str, workflow_id: str, number: int, note: str | None
    ) -> WorkflowRecord | None:
        """Set or take away the note of a version; None if it is not kept. Blocks.

        Raises:
            StoreUnavailableError: nothing has changed; names the file and the reason.
        """
        with self._turn:
            before = self.version(session_id, workflow_id, number)
            if before is None:
                return None
            plan = Plan(self)
            noted = plan.annotate(replace(before, note=note or None))
            self._carry_out(plan)
            return noted

    def _carry_out(self, plan: Plan) -> None:
        plan.finish()
        if plan.put or plan.remove or plan.move:
            self._files.commit(plan.put, plan.remove, plan.move.items())
        self.found = plan.outcome()


def _refused(broken: Broken) -> StoreUnavailableError:
    members: dict[str, Any] = {DAMAGED: broken.fault.place}
    return StoreUnavailableError(
        f"{broken.fault}; correct the file and start the server again, or save it anew", **members
    )


def _usable(kept: Workflow | Broken) -> Workflow:
    """A workflow that can be read.

    Raises:
        StoreUnavailableError: it is one that cannot; names the file, the place and the reason.
    """
    if isinstance(kept, Broken):
        raise _refused(kept)
    return kept


class Plan:
    """What becomes of the files and of what is in force by some changes; nothing happens yet.

    Attributes:
        put: by path, new contents of files.
        remove: files that go.
        move: files that go elsewhere, by where they are.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        found = catalog.found
        self._workflows = dict(found.workflows)
        self._copied: set[str] = set()
        self._sessions = dict(found.sessions)
        self._aside: dict[str, Quarantined] = {}
        self._floor = found.floor
        self._last: dict[tuple[str, str], int] | None = None
        self.put: dict[str, bytes] = {}
        self.remove: dict[str, None] = {}
        self.move: dict[str, str] = {}

    def finish(self) -> None:
        """Add what follows from all changes together."""
        if self._last is not None:
            if (fault := self._catalog.found.faults.get(REMOVED)) is not None:
                self._set_aside(Broken(file=REMOVED, fault=fault))
            last = tuple((*place, number) for place, number in self._last.items())
            self._write(REMOVED, removed_text(Removed(floor=self._floor, last=last)))

    def outcome(self) -> Found:
        """What is in force once the files have changed."""
        found = self._catalog.found
        gone = {*self.move, *self.remove, *self.put}
        faults = {path: fault for path, fault in found.faults.items() if path not in gone}
        return Found(
            workflows={name: kept for name, kept in self._workflows.items() if kept},
            sessions=self._sessions,
            floor=self._floor,
            last=found.last if self._last is None else self._last,
            faults=faults | self._aside,
        )

    # -- steps

    def change(self, change: SessionChange) -> Sequence[WorkflowRecord]:
        """Change one session; return what is current now of what was put."""
        session_id = change.session_id
        workflows = self._of(session_id)
        broken = [name for name, kept in workflows.items() if isinstance(kept, Broken)]
        # Who removes a session names the workflows that can be read.
        for workflow_id in dict.fromkeys((*change.remove, *(broken if change.gone else ()))):
            self._take_away(session_id, workflow_id)
        path = session_path(session_id)
        if change.gone or change.record is not None:
            self._set_aside(self._sessions.pop(session_id, None))
            self._drop(path)
        if change.record is not None and not change.gone:
            self._sessions[session_id] = change.record
            self._write(path, session_text(change.record))
        return [self.add(session_id, record) for record in change.put]

    def take(self, taken: Taken) -> None:
        """Make what a person put into a file the newest version."""
        session_id = taken.session_id
        found = self._workflows.get(session_id, {}).get(taken.definition.workflow_id)
        before = found.current if isinstance(found, Workflow) else None
        record = WorkflowRecord(
            session_id=session_id,
            definition=taken.definition,
            created_at=taken.time if before is None else before.created_at,
            updated_at=taken.time,
            base_dir=None if before is None else before.base_dir,
            actor="file",
        )
        self.add(session_id, record)
        if session_id not in self._sessions:
            config = SessionConfig(session_id=session_id)
            session = SessionRecord(config=config, created_at=taken.time, updated_at=taken.time)
            self._sessions[session_id] = session
            self._write(session_path(session_id), session_text(session))

    def add(self, session_id: str, record: WorkflowRecord) -> WorkflowRecord:
        """Put a workflow; return what is current now of it."""
        workflow_id = record.workflow_id
        workflows = self._of(session_id)
        kept = workflows.get(workflow_id)
        if isinstance(kept, Workflow) and record.same_as(kept.current):
            return kept.current
        self._set_aside(kept)
        numbers = () if kept is None else kept.numbers
        last = max(numbers) if numbers else self._last_of(session_id, workflow_id)
        numbered = replace(record, session_id=session_id, version=last + 1)
        if isinstance(kept, Broken):
            numbers = tuple(
                item for item in numbers if history_path(session_id, workflow_id, item) != kept.file
            )
        self._write(current_path(session_id, workflow_id), current_text(record.definition))
        self._write(history_path(session_id, workflow_id, last + 1), version_text(numbered))
        noted = kept.noted if isinstance(kept, Workflow) else frozenset()
        workflows[workflow_id] = self._retained(
            Workflow(current=numbered, numbers=(*numbers, last + 1), noted=noted)
        )
        return numbered

    def annotate(self, noted: WorkflowRecord) -> WorkflowRecord:
        """Put a version whose note has changed."""
        workflows = self._of(noted.session_id)
        kept = workflows[noted.workflow_id]
        assert isinstance(kept, Workflow)
        path = history_path(noted.session_id, noted.workflow_id, noted.version)
        self._write(path, version_text(noted))
        current = noted if noted.version == kept.current.version else kept.current
        workflows[noted.workflow_id] = self._retained(
            replace(kept, current=current, noted=kept.noted - {noted.version})
        )
        return noted

    # -- parts of them

    def _of(self, session_id: str) -> dict[str, Workflow | Broken]:
        """The workflows of a session, to be changed."""
        if session_id not in self._copied:
            self._workflows[session_id] = dict(self._workflows.get(session_id, {}))
            self._copied.add(session_id)
        return self._workflows[session_id]

    def _retained(self, kept: Workflow) -> Workflow:
        """Drop old versions without a note, by the rule of `retained`."""
        record = kept.current
        old = kept.numbers[: -self._catalog.keep]
        noted = frozenset(
            number for number in old if number in kept.noted or self._has_note(record, number)
        )
        for number in set(old) - noted:
            self._drop(history_path(record.session_id, record.workflow_id, number))
        numbers = tuple(item for item in kept.numbers if item in noted or item not in old)
        return Workflow(current=record, numbers=numbers, noted=noted)

    def _has_note(self, record: WorkflowRecord, number: int) -> bool:
        """Whether an old version has a note; one that cannot be read is not thrown away."""
        path = history_path(record.session_id, record.workflow_id, number)
        try:
            data = self.put[path] if path in self.put else read(self._catalog.path / path)
            version = read_version(data, record.session_id, record.workflow_id, number)
        except Unreadable as error:
            self._catalog.quarantine(path, str(error))
            return True
        return version.note is not None

    def _take_away(self, session_id: str, workflow_id: str) -> None:
        kept = self._of(session_id).pop(workflow_id, None)
        if kept is None:
            return
        self._set_aside(kept)
        self._drop(current_path(session_id, workflow_id))
        for number in kept.numbers:
            self._drop(history_path(session_id, workflow_id, number))
        if kept.numbers:
            self._remember(session_id, workflow_id, max(kept.numbers))

    def _set_aside(self, kept: object) -> None:
        """Move a file that cannot be read out of the way of a new one; it is not lost."""
        if not isinstance(kept, Broken):
            return
        number = 1
        while (self._catalog.path / (to := f"quarantine/{kept.file}.{number}")).exists():
            number += 1
        self.move[kept.file] = to
        reason = f"was set aside, since its place was wanted: {kept.fault.reason}"
        self._aside[to] = Quarantined(place=str(self._catalog.path / to), reason=reason)

    def _last_of(self, session_id: str, workflow_id: str) -> int:
        """The last number of a workflow that is not there."""
        last = self._catalog.found.last if self._last is None else self._last
        return max(self._floor, last.get((session_id, workflow_id), 0))

    def _remember(self, session_id: str, workflow_id: str, number: int) -> None:
        if self._last is None:
            self._last = dict(self._catalog.found.last)
        # To the end, since those removed longest ago are forgotten first.
        self._last.pop((session_id, workflow_id), None)
        self._last[session_id, workflow_id] = number
        if len(self._last) > REMEMBERED:
            self._floor = max(self._floor, self._last.pop(next(iter(self._last))))

    def _write(self, path: str, data: bytes) -> None:
        self.put[path] = data
        self.remove.pop(path, None)

    def _drop(self, path: str) -> None:
        self.put.pop(path, None)
        self.remove[path] = None
