"""Slots and the line in front of them: random histories against the rule written out plainly."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from datetime import timedelta
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.config.settings import Settings
from yukta_rx.control.queue_view import EXACT
from yukta_rx.control.scheduler import Scheduler
from yukta_rx.control.tickets import Outlook, Ticket
from yukta_rx.control.waiting_line import Cap, Caps, Place, WaitingLine
from yukta_rx.durability.memory.queued_starts import MemoryQueuedStartStore
from yukta_rx.durability.stores.queued_starts import QueuedStart
from yukta_rx.errors import ConflictError, EngineError, RejectedError, UnavailableError, YuktaError
from yukta_rx.metrics import Meters
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.model.events import ExecutionEvent

pytestmark = pytest.mark.feature("ADM-01")


# --- the rule, written out plainly -------------------------------------------------------------


@dataclass
class Model:
    """Every start in one list, looked through from the beginning each time."""

    caps: Caps
    ageing: float
    held: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[Place] = field(default_factory=list)
    served: dict[str, float] = field(default_factory=dict)

    def fits(self, session: str, workflow: str) -> bool:
        held = self.held
        of_session = sum(s == session for s, _ in held)
        counts = (
            (len(held), self.caps.total),
            (of_session, self.caps.session),
            (held.count((session, workflow)), self.caps.workflow),
        )
        return all(not cap or running < cap for running, cap in counts)

    def rank(self, place: Place) -> tuple[float, int]:
        """Within a session: the smaller first."""
        worth = place.priority * self.ageing if self.ageing else place.priority
        return (place.since - worth if self.ageing else -worth), place.seq

    def next(self, now: float) -> Place | None:
        sessions: dict[str, list[Place]] = {}
        for place in self.waiting:
            if self.fits(place.session_id, place.workflow_id):
                sessions.setdefault(place.session_id, []).append(place)
        offers = []
        for session, places in sessions.items():
            first = min(places, key=self.rank)
            began = max(self.served.get(session, -math.inf), first.since)
            age = math.floor((now - began) / self.ageing) if self.ageing else 0
            claim = max(first.priority + age, *(place.priority for place in places))
            running = sum(s == session for s, _ in self.held)
            offers.append((-claim, running, first.seq, first))
        return min(offers, key=lambda offer: offer[:3])[3] if offers else None

    def give(self, session: str, workflow: str, now: float) -> None:
        self.held.append((session, workflow))
        self.served[session] = now

    def end(self, session: str, workflow: str) -> None:
        self.held.remove((session, workflow))
        if not any(s == session for s, _ in self.held) and not any(
            place.session_id == session for place in self.waiting
        ):
            self.served.pop(session, None)


def step() -> st.SearchStrategy[tuple[Any, ...]]:
    name = st.sampled_from("abc")
    return st.one_of(
        st.tuples(st.just("start"), name, name, st.integers(-2, 3)),
        st.tuples(st.just("start"), name, name, st.just(0)),
        st.tuples(st.just("end"), st.integers(0, 50)),
        st.tuples(st.just("end"), st.integers(0, 50)),
        st.tuples(st.just("withdraw"), st.integers(0, 50)),
        st.tuples(st.just("move"), st.integers(0, 50), st.integers(-2, 3)),
        st.tuples(st.just("caps"), *[st.integers(0, 3)] * 3),
        st.tuples(st.just("wait"), st.integers(1, 64)),
    )


@settings(max_examples=400, deadline=None)
@given(
    caps=st.tuples(*[st.integers(0, 3)] * 3),
    ageing=st.sampled_from([0, 1, 8, 32]),
    steps=st.lists(step(), max_size=60),
)
def test_whatever_happens_the_line_gives_slots_as_the_rule_says(
    caps: tuple[int, int, int], ageing: int, steps: list[tuple[Any, ...]]
) -> None:
    first = Caps(total=caps[0], workflow=caps[1], session=caps[2])
    line, model = WaitingLine(first, ageing), Model(first, ageing)
    now, seq = 0.0, 0

    def fill() -> None:
        while (place := line.next(now)) is not None:
            assert place is model.next(now)
            model.waiting.remove(place)
            model.give(place.session_id, place.workflow_id, now)
        # No start that fits waits while a slot is free.
        assert model.next(now) is None

    for kind, *given_ in steps:
        if kind == "start":
            session, workflow, priority = given_
            seq += 1
            place = Place(str(seq), session, workflow, priority=priority, since=now, seq=seq)
            assert (line.blocker(session, workflow) is None) == model.fits(session, workflow)
            if line.blocker(session, workflow) is None:
                line.take(session, workflow, now)
                model.give(session, workflow, now)
            else:
                line.add(place)
                model.waiting.append(place)
        elif kind == "end" and model.held:
            session, workflow = model.held[given_[0] % len(model.held)]
            model.end(session, workflow)
            line.release(session, workflow)
        elif kind == "withdraw" and model.waiting:
            place = model.waiting.pop(given_[0] % len(model.waiting))
            line.remove(place)
        elif kind == "move" and model.waiting:
            place = model.waiting[given_[0] % len(model.waiting)]
            line.move(place, given_[1])
        elif kind == "caps":
            total, of_workflow, of_session = given_
            line.caps = Caps(total=total, workflow=of_workflow, session=of_session)
            model.caps = line.caps
        elif kind == "wait":
            now += given_[0]
        fill()
        assert line.running == len(model.held)
        assert line.waiting == len(model.waiting)
        assert {place.execution_id for place in line.order(now)} == {
            place.execution_id for place in model.waiting
        }

    # Nothing leaks: with no limits and every run over, nothing is left.
    line.caps = model.caps = Caps()
    fill()
    for session, workflow in model.held:
        line.release(session, workflow)
    assert (line.running, line.waiting, line.order(now)) == (0, 0, [])
    assert line._sessions == {}


# --- the order, case by case -------------------------------------------------------------------


class Slots:
    """A line with one slot, which is taken."""

    def __init__(self, ageing: float = 30, **caps: int) -> None:
        self.line = WaitingLine(Caps(**{"total": 1, **caps}), ageing)
        self.line.take("busy", "w", 0)
        self.now = 0.0
        self.seq = 0
        self.last = ("busy", "w")

    def start(self, name: str, session: str, priority: float = 0, workflow: str = "w") -> Place:
        self.seq += 1
        place = Place(name, session, workflow, priority=priority, since=self.now, seq=self.seq)
        self.line.add(place)
        return place

    def next(self) -> str | None:
        """The run ends, and this is the next one."""
        self.line.release(*self.last)
        place = self.line.next(self.now)
        if place is None:
            return None
        self.last = place.session_id, place.workflow_id
        return place.execution_id

    def rest(self) -> list[str]:
        found = []
        while (name := self.next()) is not None:
            found.append(name)
        return found


def test_higher_priority_goes_first_then_who_came_first() -> None:
    slots = Slots()
    for name, priority in (("a", 0), ("b", 1), ("c", -1), ("d", 1), ("e", 0.5)):
        slots.start(name, "s", priority)

    assert [place.execution_id for place in slots.line.order(0)] == ["b", "d", "e", "a", "c"]
    assert slots.rest() == ["b", "d", "e", "a", "c"]


def test_a_session_with_fewer_running_runs_goes_first() -> None:
    slots = Slots(total=3)
    for session in ("one", "one"):
        slots.line.take(session, "w", 0)
    slots.start("1", "one")
    slots.start("2", "two")
    slots.start("3", "busy")

    # `busy` has no run any more once its own has ended.
    assert slots.next() == "2"


def test_priority_counts_more_than_fairness() -> None:
    slots = Slots(total=2)
    slots.line.take("full", "w", 0)
    slots.start("fair", "empty")
    slots.start("high", "full", priority=1)

    assert slots.next() == "high"


def test_what_is_blocked_by_its_own_limit_holds_nobody_up() -> None:
    slots = Slots(total=2, workflow=1)
    slots.line.take("s", "w", 0)
    slots.start("blocked", "s", priority=9)
    slots.start("free", "s", workflow="other")

    assert slots.next() == "free"
    assert slots.line.blocker("s", "w") is Cap.PER_WORKFLOW


@pytest.mark.parametrize("ageing", [0.0, 30.0])
def test_case_51_one_start_of_a_session_does_not_wait_for_the_hundred_of_another(
    ageing: float,
) -> None:
    slots = Slots(ageing, total=2)
    slots.line.take("flood", "w", 0)
    for i in range(100):
        slots.start(f"flood-{i}", "flood")
    # However long they have waited before: the session was served all the time.
    for _ in range(10):
        slots.now += 10
        slots.next()
    slots.start("single", "quiet")

    assert slots.line.order(slots.now)[0].execution_id == "single"
    assert slots.next() == "single"


@pytest.mark.parametrize("same_session", [True, False])
def test_case_51_a_start_of_low_priority_gets_its_turn_among_endless_higher_ones(
    same_session: bool,
) -> None:
    slots = Slots(ageing=30)
    slots.start("patient", "s")
    came = 0
    while True:
        slots.start(f"high-{came}", "s" if same_session else f"t{came}", priority=1)
        slots.now += 1
        came += 1
        if slots.next() == "patient":
            break

    # One level of priority is 30 seconds; a session may have to wait for its next step.
    assert 30 <= slots.now <= 61


def test_without_ageing_endless_higher_ones_go_first() -> None:
    slots = Slots(ageing=0)
    slots.start("patient", "s")
    for i in range(2000):
        slots.start(f"high-{i}", "s", priority=1)
        slots.now += 1
        assert slots.next() == f"high-{i}"


@given(
    high=st.integers(1, 4),
    every=st.integers(1, 20),
    length=st.integers(1, 20),
    sessions=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_nobody_waits_longer_than_ageing_allows(
    high: int, every: int, length: int, sessions: int
) -> None:
    ageing = 16.0
    slots = Slots(ageing=ageing)
    slots.start("patient", "s")
    ahead = 0
    came = 0
    while True:
        # More comes than can be worked off, all of it more important.
        for _ in range(1 + length // every):
            slots.start(f"high-{came}", f"t{came % sessions}", priority=high)
            came += 1
        slots.now += length
        if slots.next() == "patient":
            break
        ahead += 1
        assert ahead < 10_000

    # When it has aged beyond them, each other session goes at most once more before it.
    assert slots.now <= (high + 1) * ageing + (sessions + 1) * length


def test_the_order_that_is_shown_is_the_order_of_slots() -> None:
    slots = Slots()
    for i in range(40):
        slots.start(str(i), "abcd"[i * 7 % 4], priority=i * 5 % 3)
    shown = [place.execution_id for place in slots.line.order(0)]

    # While all slots come free at once, and nothing ends, that is just what happens.
    slots.line.caps = Caps(total=100)
    given_ = []
    while (place := slots.line.next(0)) is not None:
        given_.append(place.execution_id)
    assert given_ == shown


@pytest.mark.parametrize("sessions", [1, 100, 10_000])
def test_ten_thousand_that_wait_cost_little_each(sessions: int) -> None:
    slots = Slots(ageing=30, total=10)
    for _ in range(9):
        slots.line.take("busy", "w", 0)
    began = process_time()
    for i in range(10_000):
        slots.now = i * 0.01
        slots.start(str(i), f"s{i % sessions}", priority=i % 3, workflow=f"w{i % 7}")
    added = process_time() - began
    began = process_time()
    for i in range(10_000):
        slots.now += 0.01
        assert slots.next() is not None, i
    given_ = process_time() - began

    # 10 to 40 us each on a quiet machine: the bar is for what grows with the square.
    assert added < 5
    assert given_ < 10


# --- the scheduler -----------------------------------------------------------------------------


class World:
    """A scheduler, and what it says."""

    def __init__(self, store: Any = None, **group: Any) -> None:
        self.events: list[ExecutionEvent] = []
        self.meters = Meters()
        self.store = store or MemoryQueuedStartStore()
        self.clock = LoopClock(asyncio.get_running_loop())
        self.ended: dict[str, tuple[TaskStatus, YuktaError]] = {}
        self.scheduler = Scheduler(
            Settings(execution=group), self.clock, self.store, self.meters, self.events.append
        )

    def admit(
        self, name: str, session: str = "s", workflow: str = "w", priority: float = 0
    ) -> Ticket:
        def refused(status: TaskStatus, error: YuktaError) -> None:
            self.ended[name] = status, error

        return self.scheduler.admit(name, session, workflow, priority=priority, refused=refused)

    async def queue(self, name: str, **more: Any) -> Ticket:
        ticket = self.admit(name, **more)
        row = QueuedStart(
            execution_id=name,
            session_id=ticket.place.session_id,
            workflow_id=ticket.place.workflow_id,
            definition_version="v",
            priority=ticket.place.priority,
            queued_at=ticket.queued_at,
            request={},
        )
        await self.scheduler.store(ticket, row)
        return ticket

    def rejected(self, reason: str) -> float:
        return self.meters.counter("yukta.executions.rejected", reason=reason).value

    @property
    def counts(self) -> tuple[int, int]:
        limits = self.scheduler.limits()
        return limits["running"], limits["queued"]


@virtual_time
async def test_a_slot_that_is_released_twice_comes_free_once() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    b, c = world.admit("b"), world.admit("c")

    world.scheduler.release("a")
    world.scheduler.release("a")
    world.scheduler.release("never-had-one")

    assert (b.waiting, c.waiting) == (False, True)
    assert world.counts == (1, 1)


@virtual_time
async def test_without_limits_everything_runs_and_is_counted() -> None:
    world = World()
    tickets = [world.admit(str(i)) for i in range(50)]

    assert not any(ticket.waiting for ticket in tickets)
    assert world.counts == (50, 0)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"max_concurrent": 1, "on_limit": "REJECT"}, "limit"),
        ({"max_concurrent": 1, "queue_capacity": 1}, "queue_full"),
        ({"max_concurrent": 1, "queue_capacity_per_workflow": 1}, "workflow_queue_full"),
        ({"max_concurrent": 1, "queue_capacity": 0}, "queue_full"),
    ],
)
@virtual_time
async def test_what_may_not_wait_is_refused_with_the_reason(
    group: dict[str, Any], reason: str
) -> None:
    world = World(**group)
    world.admit("a")
    if reason != "limit" and group.get("queue_capacity") != 0:
        world.admit("b")
    before = world.counts

    with pytest.raises(RejectedError) as error:
        world.admit("c")

    assert error.value.code == reason
    assert "1 of 1 runs go on" in error.value.detail
    assert world.rejected(reason) == 1
    [event] = world.events
    assert (event.type, event.data) == (
        "scheduler.rejected",
        {"reason": reason, "sessionId": "s", "workflowId": "w"},
    )
    assert world.counts == before
    assert world.scheduler.outlook("s", "w") is Outlook.WOULD_REJECT


@virtual_time
async def test_the_time_to_try_again_is_guessed_from_the_last_ends() -> None:
    world = World(max_concurrent=1, on_limit="REJECT")
    for i in range(5):
        world.admit(str(i))
        await asyncio.sleep(8)
        world.scheduler.release(str(i))
    world.admit("last")

    with pytest.raises(RejectedError) as error:
        world.admit("one more")

    assert error.value.retry_after == pytest.approx(8)


@virtual_time
async def test_a_start_that_waits_too_long_ends_timed_out() -> None:
    world = World(max_concurrent=1, queue_timeout=timedelta(seconds=10))
    world.admit("a")
    await asyncio.sleep(5)
    late, later = await world.queue("b"), world.admit("c")
    await asyncio.sleep(9)
    assert late.waiting

    await asyncio.sleep(2)

    with pytest.raises(RejectedError, match="waited 10 s"):
        await late.granted
    status, error = world.ended["b"]
    assert status is TaskStatus.TIMED_OUT
    assert (error.code, error.members) == ("queue_timeout", {"executionId": "b"})
    assert world.rejected("queue_timeout") == 2
    assert not later.waiting
    assert world.counts == (1, 0)
    world.scheduler.release("a")
    assert world.counts == (0, 0)


@virtual_time
async def test_who_got_a_slot_is_not_timed_out_later() -> None:
    world = World(max_concurrent=1, queue_timeout=timedelta(seconds=10))
    world.admit("a")
    b = world.admit("b")
    world.scheduler.release("a")
    await asyncio.sleep(60)

    assert b.granted.done()
    assert world.ended == {}


@virtual_time
async def test_a_withdrawn_start_ends_cancelled_and_leaves_the_store() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    b, c = await world.queue("b"), await world.queue("c")

    assert await world.scheduler.withdraw("b")

    with pytest.raises(ConflictError) as error:
        await b.granted
    assert error.value.code == "execution_not_running"
    assert world.ended["b"][0] is TaskStatus.CANCELLED
    assert [row.execution_id for row in await world.store.list()] == ["c"]
    assert not await world.scheduler.withdraw("b")
    assert not await world.scheduler.withdraw("a")
    world.scheduler.release("a")
    assert not c.waiting


class Broken(MemoryQueuedStartStore):
    """Gives no answer while it is broken."""

    broken = True

    async def put(self, start: QueuedStart) -> None:
        await self._answer()
        await super().put(start)

    async def remove(self, execution_id: str) -> bool:
        await self._answer()
        return await super().remove(execution_id)

    async def _answer(self) -> None:
        await asyncio.sleep(1)
        if self.broken:
            raise OSError("no answer")


@virtual_time
async def test_a_start_that_cannot_be_stored_does_not_wait_and_holds_no_slot() -> None:
    world = World(Broken(), max_concurrent=1)
    world.admit("a")
    with pytest.raises(OSError, match="no answer"):
        await world.queue("b")
    assert world.counts == (1, 0)

    # Also if its slot came while it was being stored.
    async def free() -> None:
        await asyncio.sleep(0.5)
        world.scheduler.release("a")

    async with asyncio.TaskGroup() as group:
        group.create_task(free())
        with pytest.raises(OSError, match="no answer"):
            await world.queue("c")
    assert world.counts == (0, 0)


@virtual_time
async def test_a_start_that_cannot_be_taken_back_keeps_its_place() -> None:
    store = Broken()
    store.broken = False
    world = World(store, max_concurrent=1)
    world.admit("a")
    b, c = await world.queue("b"), await world.queue("c")
    store.broken = True

    async def free() -> None:
        await asyncio.sleep(0.5)
        world.scheduler.release("a")
        # It is on its way out, so the slot goes to the next.
        assert (b.waiting, c.waiting) == (True, False)

    async with asyncio.TaskGroup() as group:
        group.create_task(free())
        with pytest.raises(OSError, match="no answer"):
            await world.scheduler.withdraw("b")

    assert b.waiting
    world.scheduler.release("c")
    assert not b.waiting


@virtual_time
async def test_a_start_whose_row_somebody_else_took_does_not_begin() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    b = await world.queue("b")
    await world.store.claim("b")
    world.scheduler.release("a")

    with pytest.raises(EngineError, match="no longer in the queue"):
        await world.scheduler.claim(b)


@virtual_time
async def test_a_start_that_just_got_its_slot_can_still_be_stopped() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    b = await world.queue("b")
    world.scheduler.release("a")

    assert world.scheduler.pending("b") is not None
    assert await world.scheduler.withdraw("b")
    assert world.ended["b"][0] is TaskStatus.CANCELLED
    with pytest.raises(ConflictError):
        await world.scheduler.claim(b)
    assert world.scheduler.pending("b") is None
    # Whoever tried to begin it gives the slot back.
    world.scheduler.drop(b)
    assert world.counts == (0, 0)


@virtual_time
async def test_why_a_start_waits_names_the_limit_that_holds_it() -> None:
    world = World(max_concurrent=4, max_concurrent_per_workflow=1, max_concurrent_per_session=2)
    world.admit("1", "s", "w")
    world.admit("2", "s", "v")
    world.admit("3", "t", "w")
    world.admit("by-workflow", "t", "w")
    world.admit("by-session", "s", "u")
    world.admit("4", "u", "w")
    world.admit("by-total", "v", "w")

    shown = {row.ticket.place.execution_id: row for row in world.scheduler.queue()}

    assert {name: str(row.reason) for name, row in shown.items()} == {
        "by-workflow": "PER_WORKFLOW",
        "by-session": "PER_SESSION",
        "by-total": "MAX_CONCURRENT",
    }
    assert shown["by-workflow"].detail == "1 of 1 runs of workflow t/w go on"
    assert shown["by-session"].detail == "2 of 2 runs of session s go on"
    assert shown["by-total"].detail == "4 of 4 runs go on"
    # When its own limit has room, what is left is the one of all.
    world.scheduler.release("3")
    assert world.counts == (4, 2)


@virtual_time
async def test_new_limits_are_in_force_at_once() -> None:
    world = World(max_concurrent=1)
    tickets = [world.admit(str(i), workflow=f"w{i % 2}") for i in range(6)]
    assert world.scheduler.limits()["source"] == "CONFIG"

    assert world.scheduler.set_limits(4, 0)

    assert [ticket.waiting for ticket in tickets] == [False] * 4 + [True] * 2
    assert world.scheduler.limits()["source"] == "LOG"
    [event] = world.events
    assert (event.type, event.data["maxConcurrent"]) == ("scheduler.limits_changed", 4)
    assert not world.scheduler.set_limits(4, 0)

    # Fewer: who runs goes on, and nobody comes until there is room.
    world.scheduler.set_limits(2, 0)
    assert world.counts == (4, 2)
    world.scheduler.release("0")
    world.scheduler.release("1")
    assert world.counts == (2, 2)
    world.scheduler.release("2")
    assert world.counts == (2, 1)
    world.scheduler.set_limits(0, 1)
    assert world.counts == (2, 1)
    world.scheduler.set_limits(0, 0)
    assert world.counts == (3, 0)


@virtual_time
async def test_a_priority_moves_a_start_and_keeps_its_age() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    for name in ("b", "c", "d"):
        await world.queue(name)

    assert await world.scheduler.set_priority("d", 5)
    assert not await world.scheduler.set_priority("d", 5)

    order = [row.ticket.place.execution_id for row in world.scheduler.queue()]
    assert order == ["d", "b", "c"]
    assert [row.priority for row in await world.store.list()] == [0, 0, 5]
    for name in ("a", "gone"):
        with pytest.raises(ConflictError) as error:
            await world.scheduler.set_priority(name, 1)
        assert error.value.code == "not_queued"


@virtual_time
async def test_shutdown_refuses_what_waits_and_what_comes() -> None:
    world = World(max_concurrent=1)
    world.admit("a")
    b = await world.queue("b")

    world.scheduler.close()

    with pytest.raises(UnavailableError):
        await b.granted
    with pytest.raises(UnavailableError) as error:
        world.admit("c")
    assert error.value.code == "shutting_down"
    assert world.ended["b"][0] is TaskStatus.CANCELLED
    assert world.rejected("shutdown") == 2
    assert world.scheduler.outlook("s", "w") is Outlook.WOULD_REJECT
    world.scheduler.release("a")
    assert world.counts == (0, 0)


@virtual_time
async def test_places_in_a_very_long_queue_are_a_second_old_at_most() -> None:
    world = World(max_concurrent=1, queue_capacity=EXACT + 10)
    world.admit("a")
    for i in range(EXACT + 1):
        world.admit(str(i))

    def place(name: str) -> int:
        shown = world.scheduler.waiting(name)
        assert shown is not None
        return shown.position

    assert place("7") == 8
    world.admit("urgent", priority=9)
    assert place("urgent") == EXACT + 2
    assert world.scheduler.queue()[0].ticket.place.execution_id == "urgent"
    assert (place("urgent"), place("7")) == (1, 9)
    world.admit("more urgent", priority=10)
    assert place("more urgent") == EXACT + 3
    await asyncio.sleep(1)
    assert place("more urgent") == 1
