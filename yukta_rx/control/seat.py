"""Seat: what the server keeps of one supervisor: its bounds, its counters, its open inboxes.

Every command of a supervisor, inside the server or outside, goes through `admit` and `carry_out`.

Feature: CTL-07.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.control.commands.base import Command, CommandResult, OfNode, Outcome
from yukta_rx.control.inbox import Inbox
from yukta_rx.control.loop_guard import LoopGuard, TokenBucket
from yukta_rx.errors import ConflictError, EngineError, RateLimitedError, YuktaError
from yukta_rx.model.events import SAMPLE_TYPES, ExecutionEvent
from yukta_rx.observe.feed import Entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.supervision import Proposal
    from yukta_rx.metrics import Count, Meters
    from yukta_rx.observe.feed import EventFeed
    from yukta_rx.observe.filters import EventFilter
    from yukta_rx.streams.clock import LoopClock, Timer

log = logging.getLogger(__name__)

VIA: Final = "SUPERVISOR"
MAX_IN_FLIGHT: Final = 256
"""Commands of one supervisor that may be under way."""

MAX_REFUSED: Final = 256
"""Answers that are refused in a row before the supervisor has to wait."""

FLOOD_PAUSE: Final = 1.0
"""Seconds that it waits then."""

MAX_HELD: Final = 1000
TELL_AFTER: Final = 1.0
"""Seconds over which losses are told as one `supervisor.dropped`."""


class Commands(Protocol):
    """Carries commands out; `ControlGateway` does."""

    async def command(
        self,
        command: Command,
        *,
        actor: str,
        via: str,
        reason: str | None = None,
        dry_run: bool = False,
        command_id: str | None = None,
    ) -> CommandResult:
        """See `ControlGateway.command`."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What all seats share.

    Attributes:
        settings: the settings in force.
        clock: tells the time.
        feed: the events of all runs.
        commands: carries commands out.
        emit: takes `supervisor.failed` and `supervisor.dropped`.
        meters: where commands and losses are counted.
    """

    settings: Settings
    clock: LoopClock
    feed: EventFeed
    commands: Commands
    emit: Callable[[ExecutionEvent], None]
    meters: Meters


class Seat:
    """One supervisor.

    Args:
        floor: what all share.
        id: its name.
        order: its place in lists.
        outcomes: whether it is told what becomes of its commands.
        on_stop: called when it is switched off.

    Attributes:
        enabled: whether it may steer.
        dry_run: whether its commands are only recorded.
        counts: commands by outcome.
        last_error: why it failed last.
        dropped: events that it lost.
        remembers: whether outcomes wait for it while it is away.
    """

    remembers = True

    def __init__(
        self,
        floor: Floor,
        id: str,
        *,
        order: int = 0,
        outcomes: bool = True,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        group, now = floor.settings.supervisor, floor.clock.now
        self.id = id
        self.order = order
        self.enabled = True
        self.dry_run = group.dry_run
        self.counts: dict[str, int] = {}
        self.last_error: str | None = None
        self.dropped = 0
        self.inboxes: set[Inbox] = set()
        self.bucket = TokenBucket(group.max_commands_per_second, now)
        self.guard = LoopGuard(
            group.loop_guard_commands, group.loop_guard_window.total_seconds(), now
        )
        self._floor = floor
        self._outcomes = outcomes
        self._on_stop = on_stop
        self._in_flight = 0
        self._refused = 0
        self._held: dict[str, Command] = {}
        self._missed: deque[Entry] = deque(maxlen=256)
        self._untold = 0
        self._timer: Timer | None = None
        self._complained = float("-inf")
        self._meters: dict[str, Count] = {}

    # -- events

    def open(self, filters: EventFilter, *, framed: bool = False) -> Inbox:
        """A new inbox, that begins with what happens from now on unless it is told otherwise."""
        inbox = Inbox(self._floor.feed, filters, self._foreign, self._lost, framed=framed)
        self.inboxes.add(inbox)
        while self._missed and not framed:
            inbox.tell(self._missed.popleft())
        return inbox

    def close(self, inbox: Inbox) -> None:
        """An inbox is read no more."""
        self.inboxes.discard(inbox)
        inbox.close()

    def hear(self, seq: int | None, entry: Entry) -> None:
        """An event happened."""
        event = entry.event
        if not self._foreign(event):
            # What a second actor decided about a command of its own.
            if (command := self._held.pop(event.data["commandId"], None)) is not None:
                applied = event.type == "control.applied"
                outcome = str(Outcome.APPLIED if applied else Outcome.REJECTED)
                reason = event.data.get("reason")
                self._conclude(command, event.data["commandId"], outcome, reason)
            return
        for inbox in tuple(self.inboxes):
            inbox.offer(seq, entry)

    def _foreign(self, event: ExecutionEvent) -> bool:
        """Whether an event is none that a command of its own gave."""
        if not event.type.startswith("control."):
            return True
        return event.data.get("actor") != self.id or event.data.get("via") != VIA

    def _lost(self, event: ExecutionEvent | None, count: int) -> None:
        self.dropped += count
        kind = "sample" if event is not None and event.type in SAMPLE_TYPES else "event"
        self._floor.meters.counter("yukta.tracker.dropped", type=kind, kind="supervisor").add(count)
        if event is not None and event.type == "supervisor.dropped":
            # To tell of a loss of what tells of losses would go on for ever.
            return
        self._untold += count
        if self._timer is None:
            clock = self._floor.clock
            self._timer = clock.call_at(clock.now() + TELL_AFTER, self._tell_lost)

    def _tell_lost(self) -> None:
        self._timer = None
        count, self._untold = self._untold, 0
        self.say("supervisor.dropped", dropped=count, droppedEvents=self.dropped)

    # -- commands

    def admit(self, command: Command, *, dry_run: bool = False) -> YuktaError | None:
        """Take a command in, to be carried out; the refusal, if it may not even be reviewed.

        What is only tried has no effect that could come back, so the loop guard passes it over.
        """
        refusal: YuktaError | None = None
        if not self.enabled:
            refusal = self.off()
        elif self._in_flight >= MAX_IN_FLIGHT:
            detail = f"supervisor {self.id} has {self._in_flight} commands under way"
            refusal = RateLimitedError(detail, retry_after=1.0)
        elif not self.bucket.take():
            rate = self.bucket.rate
            detail = f"supervisor {self.id} may send {rate} commands per second"
            refusal = RateLimitedError(detail, retry_after=self.bucket.wait())
        elif not (dry_run or self.dry_run or self.guard.passes(command)):
            group = self._floor.settings.supervisor
            limit, seconds = group.loop_guard_commands, group.loop_guard_window.total_seconds()
            detail = (
                f"{command.name()} to the same target more than {limit} times in {seconds:g} s:"
                " supervisor is switched off until somebody switches it on"
            )
            refusal = ConflictError(detail, code="loop_guard", supervisorId=self.id)
            self.switch(False)
            self.failed("loop_guard", detail)
        if refusal is None:
            self._refused = 0
            self._in_flight += 1
        else:
            self._refused += 1
        return refusal

    def off(self) -> ConflictError:
        """The refusal of one that is switched off."""
        detail = f"supervisor {self.id} is switched off"
        return ConflictError(detail, code="supervisor_disabled", supervisorId=self.id)

    def refuse(self, proposal: Proposal, refusal: YuktaError) -> None:
        """Count and tell that a command was not admitted."""
        command_id = proposal.command_id or uuid.uuid4().hex
        self._conclude(proposal.command, command_id, refusal.code, refusal.detail)

    async def carry_out(
        self, proposal: Proposal, *, dry_run: bool = False
    ) -> CommandResult | YuktaError:
        """Give a command that was admitted; the outcome is counted and told."""
        command, command_id = proposal.command, proposal.command_id or uuid.uuid4().hex
        try:
            result = await self._floor.commands.command(
                command,
                actor=self.id,
                via=VIA,
                reason=proposal.reason,
                dry_run=dry_run or self.dry_run,
                command_id=command_id,
            )
        except YuktaError as error:
            self._conclude(command, command_id, str(Outcome.REJECTED), _said(error))
            return error
        except Exception:  # a defect, of which the supervisor is to hear too
            log.exception("supervisor %s: %s failed", self.id, command.name())
            defect = EngineError("something went wrong inside the server; its log says what")
            self._conclude(command, command_id, str(Outcome.REJECTED), _said(defect))
            return defect
        finally:
            self._in_flight -= 1
        if result.outcome is Outcome.HELD:
            self._held[command_id] = command
            if len(self._held) > MAX_HELD:
                del self._held[next(iter(self._held))]
        self._conclude(command, command_id, str(result.outcome), result.reason)
        return result

    async def settle(self) -> None:
        """Let what was answered begin; one that floods has to wait a while."""
        if self._refused < MAX_REFUSED:
            await asyncio.sleep(0)
            return
        self._refused = 0
        await self._floor.clock.sleep(FLOOD_PAUSE)

    def invalid(self, given: Any) -> None:
        """It answered with something that is no command."""
        self._refused += 1
        self._count("invalid")
        now = self._floor.clock.now()
        if now - self._complained >= TELL_AFTER:
            self._complained = now
            detail = (
                given.detail
                if isinstance(given, YuktaError)
                else f"it answered {type(given).__name__}, which is no command: {_short(given)}"
            )
            self.failed("invalid_command", detail)

    def _conclude(
        self, command: Command, command_id: str, outcome: str, reason: str | None
    ) -> None:
        self._count(outcome)
        if not self._outcomes:
            return
        data = {"commandId": command_id, "outcome": outcome}
        if reason is not None:
            data["reason"] = reason
        event = ExecutionEvent(
            type="supervisor.command",
            time=self._floor.clock.wall(),
            session_id="",
            workflow_id="",
            execution_id=command.execution_id,
            node_id=command.node_id if isinstance(command, OfNode) else None,
            data=data,
        )
        entry = Entry(event, None)
        if not self.inboxes and self.remembers:
            self._missed.append(entry)
        for inbox in self.inboxes:
            inbox.tell(entry)

    def _count(self, outcome: str) -> None:
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        meter = self._meters.get(outcome)
        if meter is None:
            meter = self._meters[outcome] = self._floor.meters.counter(
                "yukta.supervisor.commands", id=self.id, outcome=outcome
            )
        meter.add()

    # -- switches and failures

    def switch(self, enabled: bool) -> None:
        """Let it steer, or stop it at once."""
        if enabled and not self.enabled:
            self.guard.clear()
            self._missed.clear()
        self.enabled = enabled
        if not enabled:
            self._on_stop()

    def failed(self, reason: str, detail: str, **members: Any) -> None:
        """Keep and tell why it failed."""
        self.last_error = detail
        log.warning("supervisor %s: %s", self.id, detail)
        self.say("supervisor.failed", reason=reason, detail=detail, **members)

    def say(self, kind: str, **members: Any) -> None:
        """Tell everybody something about it."""
        now: datetime = self._floor.clock.wall()
        self._floor.emit(
            ExecutionEvent(
                type=kind,
                time=now,
                session_id="",
                workflow_id="",
                execution_id="",
                data={"id": self.id, **members},
            )
        )

    def quiet(self) -> None:
        """Tell nothing later."""
        if self._timer is not None:
            self._timer.cancel()

    def as_dict(self) -> dict[str, Any]:
        """It as the API shows it."""
        shown: dict[str, Any] = {
            "id": self.id,
            "kind": VIA,
            "order": self.order,
            "enabled": self.enabled,
            "dryRun": self.dry_run,
            "maxCommandsPerSecond": self.bucket.rate,
            "counts": dict(self.counts),
            "droppedEvents": self.dropped,
            "external": False,
        }
        if self.last_error is not None:
            shown["lastError"] = self.last_error
        return shown


def _said(error: YuktaError) -> str:
    return f"{error.code}: {error.detail}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
