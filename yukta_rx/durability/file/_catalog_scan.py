"""Finds the workflows and sessions of a folder; what cannot be read is noted, not fatal.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.durability.file._definition_files import (
    Removed,
    Unreadable,
    current_text,
    read_current,
    read_removed,
    read_session,
    read_version,
)
from yukta_rx.durability.file._folder import fsync_dir
from yukta_rx.durability.file._names import id_of, name_of
from yukta_rx.durability.stores.definitions import WorkflowRecord
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.durability.stores.sessions import SessionRecord
from yukta_rx.model.codec import canonical
from yukta_rx.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKFLOWS: Final = "workflows"
SESSIONS: Final = "sessions"
REMOVED: Final = "removed.json"
QUARANTINE: Final = "quarantine"

_NUMBERED = re.compile(r"([1-9][0-9]{0,17})\.json")
_SUFFIX = ".json"


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that can be read.

    Attributes:
        current: its current form.
        numbers: those of all versions that are kept, the current one last.
        noted: of the versions that only a note keeps, those that are known.
    """

    current: WorkflowRecord
    numbers: tuple[int, ...]
    noted: frozenset[int] = frozenset()


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow or session that is there and cannot be read.

    Attributes:
        file: what cannot be read, below the folder.
        fault: the same for people, with the reason.
        numbers: those of the versions in the folder of the workflow.
    """

    file: str
    fault: Quarantined
    numbers: tuple[int, ...] = ()


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A document that a person put in place, which becomes the newest version.

    Attributes:
        session_id: the session that it belongs to.
        definition: the workflow.
        time: when the file was changed last.
    """

    session_id: str
    definition: WorkflowDefinition
    time: datetime


class Found(msgspec.Struct, kw_only=True):
    """What a folder holds.

    Attributes:
        workflows: by session, then by id.
        sessions: by id.
        floor: the number above which new workflows begin.
        last: the last numbers of removed workflows, by session and id; the oldest removal first.
        faults: what cannot be read, by path below the folder.
        taken: documents that people put in place.
        restored: documents that are missing although their versions are there, by path.
    """

    workflows: dict[str, dict[str, Workflow | Broken]] = {}
    sessions: dict[str, SessionRecord | Broken] = {}
    floor: int = 0
    last: dict[tuple[str, str], int] = {}
    faults: dict[str, Quarantined] = {}
    taken: list[Taken] = []
    restored: dict[str, bytes] = {}


def current_path(session_id: str, workflow_id: str) -> str:
    """Where the document of a workflow is, below the folder."""
    return f"{WORKFLOWS}/{name_of(session_id)}/{name_of(workflow_id)}/current.json"


def history_path(session_id: str, workflow_id: str, number: int) -> str:
    """Where a version of a workflow is, below the folder."""
    return f"{WORKFLOWS}/{name_of(session_id)}/{name_of(workflow_id)}/history/{number}.json"


def session_path(session_id: str) -> str:
    """Where a session is, below the folder."""
    return f"{SESSIONS}/{name_of(session_id)}.json"


def read(path: Path) -> bytes:
    """Return what is in a file. Blocks.

    Raises:
        Unreadable: the system does not give it.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror or error}") from error


def scan(base: Path) -> Found:
    """Return what a folder holds; folders that people named otherwise get their names. Blocks.

    Raises:
        OSError: a folder cannot be read.
    """
    found = _Scan(base)
    found.removed()
    found.sessions()
    found.workflows()
    found.set_aside()
    return found.found


class _Scan:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.found = Found()

    def removed(self) -> None:
        if not (self.base / REMOVED).exists():
            return
        try:
            removed = read_removed(read(self.base / REMOVED))
        except Unreadable as error:
            self._fault(self.base / REMOVED, str(error))
            # None of the numbers that are known is given again at least.
            known = (self._number(path) for path in self.base.glob(f"{WORKFLOWS}/*/*/history/*"))
            removed = Removed(floor=max(known, default=0))
        self.found.floor = removed.floor
        self.found.last = {(item[0], item[1]): item[2] for item in removed.last}

    def set_aside(self) -> None:
        """Show what was set aside earlier, until somebody takes it away."""
        for path in sorted((self.base / QUARANTINE).rglob("*")):
            if path.is_file():
                self._fault(path, "was set aside: correct and save it, or remove the file")

    # -- sessions

    def sessions(self) -> None:
        for path in _visible(self.base / SESSIONS):
            session_id = id_of(path.name.removesuffix(_SUFFIX))
            if not path.name.endswith(_SUFFIX) or session_id is None or not path.is_file():
                self._fault(path, "is not the file of a session: that would be <id>.json")
                continue
            own = self._own_name(path, f"{name_of(session_id)}{_SUFFIX}")
            if own is None:
                continue
            try:
                self.found.sessions[session_id] = read_session(read(own), session_id)
            except Unreadable as error:
                self.found.sessions[session_id] = self._broken(own, str(error))

    # -- workflows

    def workflows(self) -> None:
        for session_id, folder in self._folders(self.base / WORKFLOWS, "session"):
            workflows: dict[str, Workflow | Broken] = {}
            for workflow_id, below in self._folders(folder, "workflow"):
                kept = self._workflow(session_id, workflow_id, below)
                if kept is not None:
                    workflows[workflow_id] = kept
            if workflows:
                self.found.workflows[session_id] = workflows

    def _workflow(
        self, session_id: str, workflow_id: str, folder: Path
    ) -> Workflow | Broken | None:
        numbers = tuple(sorted(self._numbers(folder / "history")))
        file = folder / "current.json"
        if not numbers and not file.exists():
            return None
        newest, unreadable = self._newest(session_id, workflow_id, folder, numbers)
        if newest is not None and not file.exists():
            self.found.restored[self._below(file)] = current_text(newest.definition)
            return Workflow(current=newest, numbers=numbers)
        try:
            data = read(file)
            if newest is not None and data == current_text(newest.definition):
                return Workflow(current=newest, numbers=numbers)
            definition = read_current(data, workflow_id)
        except Unreadable as error:
            return self._broken(file, str(error), numbers)
        if newest is not None and _same(definition, newest.definition):
            return Workflow(current=newest, numbers=numbers)
        time = datetime.fromtimestamp(file.stat().st_mtime, UTC)
        self.found.taken.append(Taken(session_id=session_id, definition=definition, time=time))
        if newest is not None:
            return Workflow(current=newest, numbers=numbers)
        return unreadable

    def _newest(
        self, session_id: str, workflow_id: str, folder: Path, numbers: tuple[int, ...]
    ) -> tuple[WorkflowRecord | None, Broken | None]:
        if not numbers:
            return None, None
        file = folder / "history" / f"{numbers[-1]}{_SUFFIX}"
        try:
            return read_version(read(file), session_id, workflow_id, numbers[-1]), None
        except Unreadable as error:
            return None, self._broken(file, str(error), numbers)

    def _numbers(self, folder: Path) -> Iterator[int]:
        for path in _visible(folder):
            if number := self._number(path):
                yield number
            else:
                self._fault(path, "is not a version: that would be <number>.json")

    @staticmethod
    def _number(path: Path) -> int:
        name = _NUMBERED.fullmatch(path.name)
        return int(name[1]) if name else 0

    # -- names

    def _folders(self, folder: Path, kind: str) -> Iterator[tuple[str, Path]]:
        for path in _visible(folder):
            legal_id = id_of(path.name)
            if legal_id is None or not path.is_dir():
                self._fault(path, f"is not the folder of a {kind}: that would be named for its id")
                continue
            own = self._own_name(path, name_of(legal_id))
            if own is not None:
                yield legal_id, own

    def _own_name(self, path: Path, name: str) -> Path | None:
        """Give a file or folder that a person named the name that is used here."""
        own = path.with_name(name)
        if path.name == name:
            return path
        if own.exists():
            self._fault(path, f"is for the same id as {name}, which is in use")
            return None
        path.rename(own)
        fsync_dir(own.parent)
        return own

    def _below(self, path: Path) -> str:
        return path.relative_to(self.base).as_posix()

    def _fault(self, path: Path, reason: str) -> Quarantined:
        fault = Quarantined(place=str(path), reason=reason)
        self.found.faults[self._below(path)] = fault
        return fault

    def _broken(self, path: Path, reason: str, numbers: tuple[int, ...] = ()) -> Broken:
        return Broken(file=self._below(path), fault=self._fault(path, reason), numbers=numbers)


def _visible(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _same(read_back: WorkflowDefinition, written: WorkflowDefinition) -> bool:
    """Whether a document for people says what the version says."""
    shown: Any = read_current(current_text(written), written.workflow_id).as_document()
    return canonical(read_back.as_document()) == canonical(shown)
