"""SupervisorHost: runs supervisors, each isolated, bounded, and with a switch.

One task reads the feed and hands every event to the inboxes; each supervisor of this process has a
task of its own that waits for its inbox. Neither a run nor the tracker ever waits for one of them.
Without supervisors the feed is not even read.

Feature: CTL-07.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.commands.base import Command
from yukta_rx.control.external import ExternalSupervisors
from yukta_rx.control.seat import Floor, Seat
from yukta_rx.control.supervision import Proposal, drive, event_of, supervisor_of
from yukta_rx.errors import ConfigError, Fault, ValidationError
from yukta_rx.model.codec import loads_external
from yukta_rx.model.events import EVENT_TYPES, SAMPLE_TYPES
from yukta_rx.observe.event_ids import parse_id
from yukta_rx.observe.feed import CAPACITY, Entry
from yukta_rx.observe.filters import EventFilter
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.rx import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from yukta_rx.control.inbox import Inbox
    from yukta_rx.control.supervision import Supervises
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.observe.frames import Frame
    from yukta_rx.observe.subscription import FeedSubscription
    from yukta_rx.streams.clock import LoopClock

log = logging.getLogger(__name__)

REVIEWER: Final = "CONTROL_PLANE"
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 60.0
GOOD_WHILE: Final = 60.0
"""Seconds without failure after which the next retry is the first again."""

GRACE: Final = 1.0
"""Seconds that supervisors get to end when the host closes."""

_PER_TURN: Final = CAPACITY
"""Events that are handed on before others get their turn: more than come in a turn, so one that
keeps up loses nothing, and no more than an inbox has room for."""

_FACTS: Final = EventFilter(types=EVENT_TYPES - SAMPLE_TYPES)


class Backoff:
    """How long to wait before the next try: doubled each time, capped, with jitter.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures = 0
        self._began = now()

    def begin(self) -> None:
        """A try begins."""
        self._began = self._now()

    def after_failure(self) -> float:
        """Seconds to wait after a try that failed."""
        if self._now() - self._began >= GOOD_WHILE:
            self._failures = 0
        longest = min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return longest * random.uniform(0.5, 1)


class _Resident(Seat):
    """A supervisor of this process."""

    def __init__(
        self, floor: Floor, supervisor: Supervises, on_stop: Callable[[_Resident], None]
    ) -> None:
        super().__init__(
            floor,
            supervisor.id,
            order=getattr(supervisor, "order", 0),
            outcomes=getattr(supervisor, "outcomes", True),
            on_stop=lambda: on_stop(self),
        )
        self.supervisor = supervisor
        self.filters = EventFilter(types=frozenset(getattr(supervisor, "types", ())))
        self.state = "RUNNING"
        self.task: asyncio.Task[None] | None = None

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"state": self.state}


class SupervisorHost:
    """The supervisors of a server, and its reviewers where they are listed.

    Args:
        floor: what supervisors work with.
        reviewers: name and order of each reviewer.
    """

    def __init__(self, floor: Floor, reviewers: Callable[[], list[tuple[str, int]]]) -> None:
        self._floor = floor
        self._reviewers = reviewers
        self._seats: dict[str, Seat] = {}
        self._broken: dict[str, str] = {}
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._source: FeedSubscription | None = None
        self._samples = False
        self._closed = False
        self.external = ExternalSupervisors(floor, self._seats, self._taken, self._tune)

    @property
    def clock(self) -> LoopClock:
        """Tells the time."""
        return self._floor.clock

    # -- life

    def start(self, given: Iterable[Any], broken: Iterable[tuple[str, str]] = ()) -> None:
        """Begin to run supervisors: instances, classes or functions.

        Args:
            given: the supervisors.
            broken: id and reason of those that could not be loaded; they are listed.

        Raises:
            ConfigError: one is none, or two have one id.
        """
        scheduler = LoopScheduler(asyncio.get_running_loop())
        made = [supervisor_of(one, scheduler) for one in given]
        self._broken.update(broken)
        twice = {one.id for one in made if [other.id for other in made].count(one.id) > 1}
        taken = {one.id for one in made} & ({name for name, _ in self._reviewers()})
        problems = [f"two supervisors have the id {id}" for id in sorted(twice)]
        problems += [f"{id} is both a supervisor and a reviewer" for id in sorted(taken)]
        if problems:
            raise ConfigError(problems)
        for supervisor in made:
            seat = _Resident(self._floor, supervisor, self._stopped)
            self._seats[seat.id] = seat
            self._run(seat)

    async def close(self) -> None:
        """End every supervisor; what is under way is finished or given up."""
        self._closed = True
        self.external.close()
        for seat in self._seats.values():
            seat.quiet()
            for inbox in tuple(seat.inboxes):
                inbox.finish("shutdown")
        self._tasks.cancel()
        if self._source is not None:
            self._source.close()
        try:
            async with asyncio.timeout(GRACE):
                await self._tasks.ended()
        except TimeoutError:
            log.warning("left behind: %s", ", ".join(self._tasks.names()))

    # -- the supervisors of this process

    def _run(self, seat: _Resident, behind: int | None = None) -> None:
        """Give a supervisor its task; the inbox is there before anything else can happen."""
        inbox = self._opened(seat, behind)
        seat.state = "RUNNING"
        work = self._keep_running(seat, inbox)
        seat.task = self._tasks.spawn(work, f"yukta supervisor {seat.id}")

    def _opened(self, seat: _Resident, behind: int | None) -> Inbox:
        inbox = seat.open(seat.filters)
        if behind is not None:
            inbox.resume(behind)
        self._tune()
        return inbox

    async def _keep_running(self, seat: _Resident, inbox: Inbox) -> None:
        backoff = Backoff(self.clock.now)
        task = asyncio.current_task()

        def take(answer: Any) -> None:
            # One that was cancelled and goes on nevertheless, in a thread maybe, is not heard.
            if seat.task is task and not self._closed:
                self._take(seat, answer)

        while True:
            backoff.begin()
            error: BaseException
            try:
                await drive(seat.supervisor, self._events(inbox), take, seat.settle)
                self._ended(seat, task, inbox)
                return
            except asyncio.CancelledError as cancelled:
                if task is None or task.cancelling():
                    raise
                error = cancelled  # it cancelled itself
            except (Exception, SystemExit) as raised:
                error = raised
            finally:
                seat.close(inbox)
            delay = backoff.after_failure()
            seat.state = "BACKOFF"
            log.debug("supervisor %s failed", seat.id, exc_info=error)
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            seat.failed("error", said, retryMs=round(delay * 1000))
            await self.clock.sleep(delay)
            inbox = self._opened(seat, inbox.last)
            seat.state = "RUNNING"

    def _ended(self, seat: _Resident, task: asyncio.Task[None] | None, inbox: Inbox) -> None:
        """It had no more to say."""
        seat.close(inbox)
        if seat.task is task:
            seat.state = "ENDED"
        self._tune()

    async def _events(self, inbox: Inbox) -> AsyncIterator[ExecutionEvent]:
        handed = 0
        async for entry in inbox:
            yield entry.event
            handed += 1
            if handed % _PER_TURN == 0:
                # One that is far behind would otherwise keep the loop until it has caught up.
                await asyncio.sleep(0)

    def _take(self, seat: Seat, answer: Any) -> None:
        proposal = Proposal(answer) if isinstance(answer, Command) else answer
        if not isinstance(proposal, Proposal) or not isinstance(proposal.command, Command):
            seat.invalid(answer)
            return
        refusal = seat.admit(proposal.command)
        if refusal is not None:
            seat.refuse(proposal, refusal)
            return
        self._tasks.spawn(self._carry_out(seat, proposal), f"yukta command of {seat.id}")

    async def _carry_out(self, seat: Seat, proposal: Proposal) -> None:
        await seat.carry_out(proposal)

    def _stopped(self, seat: _Resident) -> None:
        """One was switched off: it ends now, also if it does not heed that."""
        task, seat.task = seat.task, None
        seat.state = "DISABLED"
        if task is not None:
            task.cancel()
        for inbox in tuple(seat.inboxes):
            seat.close(inbox)
        self._tune()

    # -- the feed

    def _tune(self) -> None:
        """Read of the feed what somebody wants; nothing while nobody does."""
        inboxes = [inbox for seat in self._seats.values() for inbox in seat.inboxes]
        samples = any(inbox.takes_samples for inbox in inboxes)
        source = self._source
        if self._closed or (source is None and not inboxes):
            return
        if source is not None and inboxes and samples == self._samples:
            return
        place = None if source is None else source.position
        self._source, self._samples = None, samples
        if source is not None:
            source.close()
        if inboxes:
            self._source = self._floor.feed.subscribe(
                EventFilter() if samples else _FACTS,
                after=place,
                capacity=self._floor.settings.streaming.replay_events,
                stored=False,
            )
            self._tasks.spawn(self._hand_out(self._source), "yukta supervisors")

    async def _hand_out(self, source: FeedSubscription) -> None:
        while frames := await source.frames(_PER_TURN):
            for frame in frames:
                self._hand(frame)
            await asyncio.sleep(0)
        if self._source is source:
            # The feed has ended.
            self._source = None
            for seat in self._seats.values():
                for inbox in tuple(seat.inboxes):
                    inbox.finish("shutdown")

    def _hand(self, frame: Frame) -> None:
        if frame.type == "stream.gap":
            gap = loads_external(frame.data)
            for seat in self._seats.values():
                for inbox in seat.inboxes:
                    inbox.skipped(gap["from"], gap["to"], gap["dropped"])
            return
        if frame.type.startswith("stream."):
            return
        seq = None
        entry: Entry | None
        if frame.id is None:
            entry = Entry(event_of(loads_external(frame.data)), None)
        else:
            place = parse_id(frame.id)
            seq = place[1] if place is not None else 0
            entry = self._floor.feed.entry(seq)
        if entry is not None:
            for seat in tuple(self._seats.values()):
                seat.hear(seq, entry)

    # -- what others read and change

    def _taken(self, id: str) -> bool:
        """Whether a reviewer has an id, or a supervisor that could not be loaded."""
        return id in self._broken or any(name == id for name, _ in self._reviewers())

    def list(self) -> list[dict[str, Any]]:
        """Reviewers and supervisors, in order."""
        shown = [_reviewer(name, order) for name, order in self._reviewers()]
        shown += [_broken(id, why) for id, why in self._broken.items()]
        shown += [seat.as_dict() for seat in self._seats.values()]
        shown.sort(key=lambda one: (one["kind"], one["order"], one["id"]))
        return shown

    def get(self, id: str) -> dict[str, Any]:
        """One of them.

        Raises:
            NotFoundError: there is none of that id.
        """
        if id in self._seats:
            return self._seats[id].as_dict()
        for shown in self.list():
            if shown["id"] == id:
                return shown
        raise self.external.unknown(id)

    def change(
        self,
        id: str,
        *,
        enabled: bool | None = None,
        dry_run: bool | None = None,
        rate: int | None = None,
    ) -> dict[str, Any]:
        """Switch a supervisor on or off, or change its bounds; None leaves a thing as it is.

        One that is switched off is stopped at once: its commands under way are finished, and no
        other is taken. Switched on again it begins with what happens from then on.

        Raises:
            NotFoundError: there is none of that id.
            ValidationError: it is a reviewer, or could not be loaded.
        """
        seat = self._seats.get(id)
        if seat is None:
            kind = self.get(id)["kind"]
            what = "a reviewer" if kind == REVIEWER else "a supervisor that could not be loaded"
            detail = f"{id} is {what}, which cannot be changed while the server runs"
            raise ValidationError([Fault("", "invalid_value", detail)])
        if dry_run is not None:
            seat.dry_run = dry_run
        if rate is not None:
            seat.bucket.rate = rate
        if enabled is not None and enabled != seat.enabled:
            seat.switch(enabled)
            if isinstance(seat, _Resident) and enabled:
                self._run(seat)
        return seat.as_dict()


def _reviewer(name: str, order: int) -> dict[str, Any]:
    return _bare(name, REVIEWER, order) | {"enabled": True}


def _broken(id: str, why: str) -> dict[str, Any]:
    return _bare(id, "SUPERVISOR", 0) | {"enabled": False, "state": "FAILED", "lastError": why}


def _bare(id: str, kind: str, order: int) -> dict[str, Any]:
    return {
        "id": id,
        "kind": kind,
        "order": order,
        "dryRun": False,
        "maxCommandsPerSecond": None,
        "counts": {},
        "droppedEvents": 0,
        "external": False,
    }
