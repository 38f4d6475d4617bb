"""WaitingLine: who holds slots, and which waiting start gets the next one. Pure.

The order. Of the starts that fit the limits of their own workflow and session, the session goes
first that claims the highest priority, of these the one with the fewest running runs, of these the
one whose start came first. Within a session the higher priority goes first, then the earlier one.

Ageing, so that nobody waits for ever: a start overtakes one of its session whose priority is `d`
higher if that came more than `d` times `ageing` later. A session claims one level more than the
priority of its next start for each `ageing` that this start has waited, counted at most from when
the session last got a slot: so one that is served does not gain on those that are not.

A choice costs a heap step and a look at the workflows of the sessions that changed since the last.

Feature: ADM-01.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SLACK: Final = 64
"""Entries of a heap that may be out of date before it is made anew."""


class Cap(StrEnum):
    """A limit that a start may have to wait for."""

    MAX_CONCURRENT = "MAX_CONCURRENT"
    PER_WORKFLOW = "PER_WORKFLOW"
    PER_SESSION = "PER_SESSION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Runs that may hold slots at the same time; 0 is no limit.

    Attributes:
        total: in all.
        workflow: of one workflow.
        session: of one session.
    """

    total: int = 0
    workflow: int = 0
    session: int = 0


class Place:
    """A start in the line.

    Attributes:
        execution_id: the run that it will be.
        session_id: its session.
        workflow_id: its workflow.
        priority: higher goes first.
        since: when it came, in seconds.
        seq: grows with each start that came.
    """

    __slots__ = (
        "execution_id",
        "key",
        "priority",
        "seq",
        "session_id",
        "since",
        "stamp",
        "workflow_id",
    )

    def __init__(
        self,
        execution_id: str,
        session_id: str,
        workflow_id: str,
        *,
        priority: float,
        since: float,
        seq: int,
    ) -> None:
        self.execution_id = execution_id
        self.session_id = session_id
        self.workflow_id = workflow_id
        self.priority = priority
        self.since = since
        self.seq = seq
        self.key = (0.0, seq)
        """The order within its session, the smaller first."""
        self.stamp = 0
        """Grows when it changes or leaves, so that what heaps hold of it is out of date."""


class _Workflow:
    """One workflow of a session: its running runs, and its waiting starts in their order."""

    __slots__ = ("heap", "priorities", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0
        self.heap: list[tuple[tuple[float, int], int, Place]] = []
        self.priorities: Counter[float] = Counter()

    def push(self, place: Place) -> None:
        self.waiting += 1
        self.priorities[place.priority] += 1
        heappush(self.heap, (place.key, place.stamp, place))

    def drop(self, place: Place) -> None:
        self.waiting -= 1
        self.priorities[place.priority] -= 1
        if not self.priorities[place.priority]:
            del self.priorities[place.priority]
        place.stamp += 1
        if len(self.heap) > 2 * self.waiting + _SLACK:
            self.heap = [entry for entry in self.heap if entry[1] == entry[2].stamp]
            heapify(self.heap)

    def head(self) -> Place:
        while self.heap[0][1] != self.heap[0][2].stamp:
            heappop(self.heap)
        return self.heap[0][2]

    def places(self) -> Iterable[Place]:
        return (place for _, stamp, place in self.heap if stamp == place.stamp)


class _Session:
    """One session: its workflows that run or wait, and what it claims."""

    __slots__ = ("best", "running", "served", "version", "workflows")

    def __init__(self) -> None:
        self.running = 0
        self.served = -math.inf
        """When it last got a slot."""
        self.workflows: dict[str, _Workflow] = {}
        self.best: Place | None = None
        self.version = 0


_Entry: TypeAlias = "tuple[float, int, int, int, _Session]"
_Claim: TypeAlias = "Callable[[float, float, float, float], float]"


class WaitingLine:
    """The slots and the line in front of them.

    Args:
        caps: how many slots there are.
        ageing: seconds of waiting that count as one level of priority; 0 is no ageing.
    """

    def __init__(self, caps: Caps, ageing: float) -> None:
        self._caps = caps
        self._ageing = ageing
        self._sessions: dict[str, _Session] = {}
        self._ready: list[_Entry] = []
        """Sessions with a start that fits: (-claim, running, seq, version, session).

        No two entries have one version, and one that is not its session's is out of date.
        """
        self._due: list[_Entry] = []
        """When the claim of a session next grows: (time, 0, seq, version, session)."""
        self._changed: set[str] = set()
        self._version = 0
        self.running = 0
        self.waiting = 0

    @property
    def caps(self) -> Caps:
        """How many slots there are; setting it takes none away from who holds one."""
        return self._caps

    @caps.setter
    def caps(self, caps: Caps) -> None:
        self._caps = caps
        self._changed.update(self._sessions)

    # -- what is there

    def blocker(self, session_id: str, workflow_id: str) -> Cap | None:
        """The limit that a start of a workflow does not fit now, its own first; None if it does."""
        session = self._sessions.get(session_id)
        if session is not None:
            workflow = session.workflows.get(workflow_id)
            if workflow is not None and _full(workflow.running, self._caps.workflow):
                return Cap.PER_WORKFLOW
            if _full(session.running, self._caps.session):
                return Cap.PER_SESSION
        return Cap.MAX_CONCURRENT if _full(self.running, self._caps.total) else None

    def running_of(self, session_id: str, workflow_id: str | None = None) -> int:
        """Runs of a session, or of one workflow of it, that hold slots."""
        session = self._sessions.get(session_id)
        if session is None:
            return 0
        if workflow_id is None:
            return session.running
        workflow = session.workflows.get(workflow_id)
        return 0 if workflow is None else workflow.running

    def waiting_of(self, session_id: str, workflow_id: str) -> int:
        """Starts of a workflow that wait."""
        session = self._sessions.get(session_id)
        workflow = None if session is None else session.workflows.get(workflow_id)
        return 0 if workflow is None else workflow.waiting

    def order(self, now: float) -> list[Place]:
        """The waiting starts in the order of slots that come free one after the other just now.

        It passes over what each of them waits for besides; what runs is taken to go on.
        """
        lines = []
        for session in self._sessions.values():
            places = [place for flow in session.workflows.values() for place in flow.places()]
            if places:
                places.sort(key=lambda place: place.key)
                lines.append(_Queue(places, session.running, session.served))
        heap = [line.entry(self._claim, now) for line in lines]
        heapify(heap)
        found = []
        while heap:
            line = heappop(heap)[3]
            found.append(line.take(now))
            if line.left:
                heappush(heap, line.entry(self._claim, now))
        return found

    # -- what changes

    def take(self, session_id: str, workflow_id: str, now: float) -> None:
        """Give a slot to a start that does not wait."""
        session, workflow = self._parts(session_id, workflow_id)
        self._give(session_id, session, workflow, now)

    def release(self, session_id: str, workflow_id: str) -> None:
        """Take a slot back."""
        session = self._sessions[session_id]
        session.workflows[workflow_id].running -= 1
        session.running -= 1
        self.running -= 1
        self._changed.add(session_id)
        self._tidy(session_id, workflow_id)

    def add(self, place: Place) -> None:
        """Let a start wait."""
        place.key = self._key(place)
        self._parts(place.session_id, place.workflow_id)[1].push(place)
        self.waiting += 1
        self._changed.add(place.session_id)

    def move(self, place: Place, priority: float) -> None:
        """Give a waiting start another priority."""
        workflow = self._parts(place.session_id, place.workflow_id)[1]
        workflow.drop(place)
        place.priority = priority
        place.key = self._key(place)
        workflow.push(place)
        self._changed.add(place.session_id)

    def remove(self, place: Place) -> None:
        """Let a start wait no more."""
        self._sessions[place.session_id].workflows[place.workflow_id].drop(place)
        self.waiting -= 1
        self._changed.add(place.session_id)
        self._tidy(place.session_id, place.workflow_id)

    def next(self, now: float) -> Place | None:
        """Give the next slot, if one is free that a waiting start fits; returns that start."""
        place = self._choose(now)
        if place is not None:
            session = self._sessions[place.session_id]
            workflow = session.workflows[place.workflow_id]
            workflow.drop(place)
            self.waiting -= 1
            self._give(place.session_id, session, workflow, now)
        return place

    # -- parts

    def _choose(self, now: float) -> Place | None:
        if _full(self.running, self._caps.total) or not self.waiting:
            return None
        due = self._due
        while due and due[0][0] <= now:
            *_, version, session = heappop(due)
            if version == session.version and session.best is not None:
                self._changed.add(session.best.session_id)
        for session_id in self._changed:
            if (found := self._sessions.get(session_id)) is not None:
                self._evaluate(found, now)
        self._changed.clear()
        ready = self._ready
        while ready:
            *_, version, session = ready[0]
            if version == session.version:
                return session.best
            heappop(ready)
        return None

    def _evaluate(self, session: _Session, now: float) -> None:
        """Find out what a session claims, and for which start."""
        self._version += 1
        session.version = self._version
        best: Place | None = None
        top = -math.inf
        if not _full(session.running, self._caps.session):
            for workflow in session.workflows.values():
                if workflow.waiting and not _full(workflow.running, self._caps.workflow):
                    head = workflow.head()
                    top = max(top, *workflow.priorities)
                    if best is None or head.key < best.key:
                        best = head
        session.best = best
        if best is None:
            return
        began = max(session.served, best.since)
        claim = self._claim(best.priority, top, began, now)
        entry = (-claim, session.running, best.seq, session.version, session)
        self._ready = _pushed(self._ready, entry, len(self._sessions))
        if self._ageing:
            steps = math.floor((now - began) / self._ageing) + 1
            grows = (began + steps * self._ageing, 0, best.seq, session.version, session)
            self._due = _pushed(self._due, grows, len(self._sessions))

    def _key(self, place: Place) -> tuple[float, int]:
        if not self._ageing:
            return -place.priority, place.seq
        return place.since - place.priority * self._ageing, place.seq

    def _claim(self, priority: float, top: float, began: float, now: float) -> float:
        age = math.floor((now - began) / self._ageing) if self._ageing else 0
        return max(top, priority + age)

    def _give(self, session_id: str, session: _Session, workflow: _Workflow, now: float) -> None:
        workflow.running += 1
        session.running += 1
        session.served = now
        self.running += 1
        self._changed.add(session_id)

    def _parts(self, session_id: str, workflow_id: str) -> tuple[_Session, _Workflow]:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session()
        workflow = session.workflows.get(workflow_id)
        if workflow is None:
            workflow = session.workflows[workflow_id] = _Workflow()
        return session, workflow

    def _tidy(self, session_id: str, workflow_id: str) -> None:
        """Forget what neither runs nor waits."""
        session = self._sessions[session_id]
        workflow = session.workflows[workflow_id]
        if not (workflow.running or workflow.waiting):
            del session.workflows[workflow_id]
        if not session.workflows:
            del self._sessions[session_id]
            # What heaps hold of it is out of date.
            session.version = -1


class _Queue:
    """The waiting starts of one session, for working out the order of all."""

    __slots__ = ("_at", "_places", "_running", "_served", "_tops")

    def __init__(self, places: list[Place], running: int, served: float) -> None:
        self._places = places
        self._running = running
        self._served = served
        self._at = 0
        # The highest priority from each place on.
        tops = [place.priority for place in places]
        for i in range(len(tops) - 2, -1, -1):
            tops[i] = max(tops[i], tops[i + 1])
        self._tops = tops

    @property
    def left(self) -> bool:
        return self._at < len(self._places)

    def entry(self, claim: _Claim, now: float) -> tuple[float, int, int, _Queue]:
        place = self._places[self._at]
        began = max(self._served, place.since)
        claimed = claim(place.priority, self._tops[self._at], began, now)
        return -claimed, self._running, place.seq, self

    def take(self, now: float) -> Place:
        place = self._places[self._at]
        self._at += 1
        self._running += 1
        self._served = now
        return place


def _full(running: int, cap: int) -> bool:
    return 0 < cap <= running


def _pushed(heap: list[_Entry], entry: _Entry, live: int) -> list[_Entry]:
    """Push onto a heap of sessions; one with many entries out of date is made anew without."""
    heappush(heap, entry)
    if len(heap) > 2 * live + _SLACK:
        heap = [item for item in heap if item[3] == item[4].version]
        heapify(heap)
    return heap
