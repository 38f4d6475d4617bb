"""Rows of workflows and sessions: read, remembered while their text stays, set apart if unreadable.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec.structs import replace

from yukta_rx.durability.stores.definition_texts import (
    Unreadable,
    read_session,
    read_version,
    session_members,
    version_members,
)
from yukta_rx.durability.stores.quarantine import Quarantined
from yukta_rx.model.codec import encode

if TYPE_CHECKING:
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionRecord
    from yukta_rx.metrics import Meters

log = logging.getLogger(__name__)

Made = TypeVar("Made")

REMEMBERED: Final = 2000
"""Versions of workflows, and sessions, that are not read again as long as their text is the same.
"""


def session_place(session_id: str) -> str:
    """Where a session is, for people."""
    return f"session_config, session {session_id}"


def current_place(session_id: str, workflow_id: str) -> str:
    """Where the current form of a workflow is."""
    return f"workflow_definition, session {session_id}, workflow {workflow_id}"


def version_place(session_id: str, workflow_id: str, version: int) -> str:
    """Where a version is."""
    where = f"session {session_id}, workflow {workflow_id}, version {version}"
    return f"workflow_definition_revision, {where}"


def version_row(record: WorkflowRecord) -> str:
    """Return the text of a version; its note stands beside it, since it changes alone."""
    return encode(version_members(replace(record, note=None))).decode()


def session_row(record: SessionRecord) -> str:
    """Return the text of a session."""
    return encode(session_members(record)).decode()


class _Known(Generic[Made]):
    """What texts say that were read lately, by what they are about."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: OrderedDict[tuple[str, ...], tuple[str, Made]] = OrderedDict()

    def get(self, about: tuple[str, ...], text: str) -> Made | None:
        """What a text says; None if it has to be read."""
        known = self._made.get(about)
        if known is None or known[0] != text:
            return None
        self._made.move_to_end(about)
        return known[1]

    def keep(self, about: tuple[str, ...], text: str, made: Made) -> None:
        """Remember what a text says."""
        self._made[about] = (text, made)
        self._made.move_to_end(about)
        if len(self._made) > REMEMBERED:
            self._made.popitem(last=False)


class Rows:
    """See the module.

    Args:
        meters: where what cannot be read is counted.

    Attributes:
        faults: what cannot be read, by its place.
    """

    def __init__(self, meters: Meters | None = None) -> None:
        self.faults: dict[str, Quarantined] = {}
        self._counter = (
            None if meters is None else meters.counter("yukta.store.quarantined", store="session")
        )
        self._versions: _Known[WorkflowRecord] = _Known()
        self._sessions: _Known[SessionRecord] = _Known()
        self.read = 0
        """Texts that had to be read."""

    def version(
        self, place: str, session_id: str, workflow_id: str, number: int, text: str
    ) -> WorkflowRecord | Quarantined:
        """Return one version, without its note."""
        about = (session_id, workflow_id, str(number))
        made = self._versions.get(about, text)
        if made is None:
            self.read += 1
            try:
                made = read_version(text.encode(), session_id, workflow_id, number, holder="row")
            except Unreadable as error:
                return self.quarantine(place, str(error))
            self._versions.keep(about, text, made)
        self.faults.pop(place, None)
        return made

    def session(self, session_id: str, text: str) -> SessionRecord | Quarantined:
        """Return a session."""
        place = session_place(session_id)
        made = self._sessions.get((session_id,), text)
        if made is None:
            self.read += 1
            try:
                made = read_session(text.encode(), session_id, holder="row")
            except Unreadable as error:
                return self.quarantine(place, str(error))
            self._sessions.keep((session_id,), text, made)
        self.faults.pop(place, None)
        return made

    def quarantine(self, place: str, reason: str) -> Quarantined:
        """Note that a row is not in use; it is logged and counted once."""
        fault = Quarantined(place=place, reason=reason)
        if place not in self.faults:
            log.error("not in use: %s", fault)
            if self._counter is not None:
                self._counter.add(1)
        self.faults[place] = fault
        return fault

    def forget(self, session_id: str, workflow_id: str) -> None:
        """A workflow is gone, with all its versions."""
        self.faults.pop(current_place(session_id, workflow_id), None)
        start = version_place(session_id, workflow_id, 0).removesuffix("0")
        for place in [place for place in self.faults if place.startswith(start)]:
            del self.faults[place]
