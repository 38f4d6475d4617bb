"""NodeRuntime: one node of one run: its status, valve, clock, context and counters.

Features: ENG-02, ENG-06.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from yukta_rx import operators as ops
from yukta_rx.engine.drops import Drops
from yukta_rx.engine.fronts import buffer_of, drain, in_front
from yukta_rx.engine.host import PluginCounts
from yukta_rx.engine.policies import PLAIN_CALL, STATUS_OF_ERROR, NodePolicies, describe, guarded
from yukta_rx.engine.progress import node_known
from yukta_rx.engine.rates import RateMeter, over_life
from yukta_rx.errors import ConflictError, UpstreamFailedError, YuktaError
from yukta_rx.model.message import Message
from yukta_rx.model.policy import OnError
from yukta_rx.model.status import TaskStatus, advance
from yukta_rx.model.times import rfc3339
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.buffer import DROPPED_PORT
from yukta_rx.streams.circuit import StopMode
from yukta_rx.streams.clock import PausableClock
from yukta_rx.streams.plan import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.definitions.prepare import PreparedNode
    from yukta_rx.engine.breakpoints import Breakpoint
    from yukta_rx.engine.claims import NodeClaims
    from yukta_rx.engine.host import NodeHost
    from yukta_rx.engine.policies import Attempts
    from yukta_rx.engine.resume import Prelude
    from yukta_rx.plugins.contract import NodeContext
    from yukta_rx.streams.attempts import Hold
    from yukta_rx.streams.edge import Edge
    from yukta_rx.streams.stage import Stage

COUNTERS: Final = ("in", "out", "failed", "retried", "dropped", "deadLettered", "skipped")
"""Names of what is counted at a node."""


class NodeRuntime:
    """The state of one node while its run lasts; an observer of its stage."""

    __slots__ = (
        "_deadline",
        "_gave_up",
        "_host",
        "_policies",
        "began",
        "breakpoints",
        "buffer",
        "claims",
        "clock",
        "context",
        "counted",
        "drops",
        "ended_at",
        "error",
        "fronts",
        "held_alone",
        "held_at",
        "id",
        "idle",
        "kind",
        "meter",
        "on_dropped",
        "outcome",
        "parents",
        "passed_round",
        "paused",
        "paused_at",
        "prelude",
        "prepared",
        "replaying",
        "stage",
        "started_at",
        "status",
        "stopped_alone",
        "valve",
    )

    def __init__(self, prepared: PreparedNode, host: NodeHost) -> None:
        self.prepared = prepared
        self.id = prepared.node.node_id
        self.kind = prepared.spec.kind
        self._host = host
        self.clock = PausableClock(host.clock)
        self.valve = ops.Valve()
        self.passed_round: Callable[[Message], Message] | None = None
        """Makes of a message what goes on when the node is skipped; the message itself if None."""
        self._policies: NodePolicies | None = None
        self.drops: Drops | None = None
        buffer = prepared.policy.edge_buffer
        if buffer is not None and buffer.overflow.drops:
            self.drops = Drops(host.clock, host.say_of(self.id), str(buffer.overflow))
        self.on_dropped: Callable[[str | None, list[Message]], None] | None = None
        """Told of what its buffer dropped, with the port that this leaves by; None: it is gone."""
        self.claims: NodeClaims | None = None
        """How its large payloads travel; None where they travel as they are."""
        self.breakpoints: tuple[Breakpoint, ...] = ()
        self.fronts: tuple[Stage, ...] = ()
        self.buffer: Stage | None = None
        """The stage of the buffer in front of it, if it has one."""
        self.prelude: Prelude | None = None
        """What leaves it first, where it goes on behind inputs that it had finished."""
        self.replaying = False
        """Whether what it emits just now is on the record already."""
        self._deadline: ops.Deadline | None = None
        self.parents: tuple[NodeRuntime, ...] = ()
        self.paused = False
        self.paused_at: str | None = None
        self.held_at: str | None = None
        self.held_alone = False
        """Paused by a breakpoint and by nothing else, so it goes on when that lets go."""
        self.stopped_alone = False
        """Stopped by a command of its own: its children see a normal end, not a cut."""
        self.status = TaskStatus.PENDING
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.stage: Stage | None = None
        self.context: NodeContext | None = None
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.counted = PluginCounts()
        """What its plugin counts."""
        self._gave_up = 0
        """Messages that failed the node, where no policy says what becomes of them."""
        self.idle: ops.IdleClock | None = None
        self.began = 0.0
        self.meter: RateMeter | None = None

    def say(self, kind: str, data: dict[str, Any]) -> None:
        """Say an event of this node."""
        self._host.say(kind, data, self.id)

    @property
    def policies(self) -> NodePolicies:
        """What is done about its failures; made at first use, since most nodes never need it."""
        if self._policies is None:
            self._policies = NodePolicies(
                self.id,
                self.prepared.policy,
                self.clock,
                wall=self._host.wall,
                say=self._host.say_of(self.id),
                held_bytes=self._host.held_bytes,
                mask=self._host.mask,
            )
        return self._policies

    def wired(self, stage: Stage) -> None:
        """The stage that runs it is made."""
        self.stage = stage
        if self.prelude is not None or self.prepared.policy.edge_buffer is not None:
            self.fronts = in_front(stage)
            self.buffer = buffer_of(self.fronts)

    def edge_buffer(self) -> ops.Operator | None:
        """What keeps messages in front of it; None if the policy asks for nothing."""
        buffer = self.prepared.policy.edge_buffer
        if buffer is None:
            return None
        told: dict[str, Any] = {} if self.drops is None else {"on_drop": self._dropped}
        told["flatten"] = Message.flattened
        if self.claims is not None:
            told |= {"flatten": self.claims.flattened, "restore": self.claims.restored}
        return ops.edge_buffer(buffer.size, buffer.overflow, **told, folder=self._host.spill_dir)

    def _dropped(self, edge: Edge, messages: list[Message]) -> None:
        if self.drops is not None:
            self.drops.add(edge, messages)
        if self.on_dropped is not None:
            self.on_dropped(DROPPED_PORT, messages)

    def attempts(self, element_timeout: float | Callable[[Message], float] | None) -> Attempts:
        """What is done around each call, as far as the policy asks for it."""
        if not guarded(self.prepared.policy):
            return PLAIN_CALL
        return self.policies.around_call(element_timeout)

    def hold(self) -> Hold | None:
        """How much an attempt may hold back; None where nothing is held back."""
        return self.policies.hold() if guarded(self.prepared.policy) else None

    def clocks(self) -> tuple[ops.IdleClock | None, ops.Deadline | None]:
        """The clocks that end this node, idle timeout and deadline, as far as it has limits."""
        prepared, context = self.prepared, self.context
        limit = prepared.idle_timeout
        if context is not None and not (limit is None and prepared.timeout_template is None):
            limit = math.inf if limit is None else limit
            self.idle = ops.IdleClock(self.clock, limit, context.latest_beat)
        given = prepared.policy.deadline_ms
        if given is not None:
            known = None if isinstance(given, str) else given / 1000
            self._deadline = ops.Deadline(self.clock, known)
        return self.idle, self._deadline

    def retime(self, limit: float | None) -> None:
        """Give the idle clock another limit in seconds, None for none; from any thread."""
        self._host.loop.call_soon_threadsafe(self._retime, limit)

    def set_deadline(self, limit: float) -> None:
        """Give the deadline, in seconds from its first activity on; from any thread."""
        if self._deadline is not None:
            self._host.loop.call_soon_threadsafe(self._deadline.retime, limit)

    def _retime(self, limit: float | None) -> None:
        if self.idle is not None:
            self.idle.retime(limit)

    @property
    def publishes(self) -> bool:
        """Whether what reaches this node goes to the results channel."""
        return self.kind is PluginKind.TERMINAL and self.prepared.spec.type != "NULL_TERMINAL"

    @property
    def counts(self) -> dict[str, int]:
        """What its plugin has counted, by outcome."""
        return self.counted.total

    # -- told by the stage (streams.plan.Observer)

    def touched(self, stage: Stage) -> None:
        """First activity: the node is RUNNING."""
        self.stage = stage
        self.advance(TaskStatus.RUNNING)

    def ended(self, stage: Stage, outcome: Outcome, error: BaseException | None) -> None:
        """The stage ended: work out the node's status, before its children hear of it."""
        self.stage = stage
        self.outcome = outcome
        if self.context is not None:
            self.context.cancelled = True
        if self.prelude is not None:
            self.prelude.cancel()
        if self.drops is not None:
            self.drops.flush()
        if outcome is Outcome.FAILED and error is not None:
            self.error = error
            for kind, status in STATUS_OF_ERROR:
                if isinstance(error, kind):
                    self.advance(status)
                    return
            if isinstance(stage.culprit, Message) and not stage.plan.guarded:
                self._gave_up = 1
                self.policies.failed(stage.culprit, error, 1, OnError.FAIL)
            self.advance(TaskStatus.FAILURE)
        elif outcome is Outcome.CANCELLED:
            self.advance(TaskStatus.CANCELLED)
        elif outcome is Outcome.STOPPED or self.cut_short():
            self.advance(TaskStatus.STOPPED)
        elif stage.skipped and stage.skipped == stage.received:
            self.advance(TaskStatus.SKIPPED)
        else:
            self.advance(TaskStatus.SUCCESS)

    def cut_short(self) -> bool:
        """Whether a parent was stopped by a drain, so that this node did not get all input."""
        for parent in self.parents:
            if parent.status is TaskStatus.STOPPED and not parent.stopped_alone:
                return True
        return False

    def advance(self, status: TaskStatus) -> None:
        """Move forward to `status`; a step back changes nothing."""
        previous = self.status
        self.status = advance(previous, status)
        if self.status is previous:
            return
        if status is TaskStatus.RUNNING:
            self.started_at = self._host.wall()
            self.began = self._host.loop.time()
        elif status.terminal:
            self.ended_at = self._host.wall()
            self.paused = self.held_alone = False
            self.paused_at = None
        self._host.changed(self, previous)

    # -- steering

    def pause(self) -> bool:
        """Take no new message and stop the node's clock; False if it was paused already."""
        if self.paused or self.status.terminal:
            # One that a breakpoint has paused now stays so when the breakpoint lets go.
            was_held_alone, self.held_alone = self.held_alone, False
            return was_held_alone
        self.paused = True
        self.paused_at = rfc3339(self._host.wall())
        self.valve.pause()
        self.clock.pause()
        return True

    def resume(self) -> bool:
        """Undo `pause`; False if it was not paused."""
        if not self.paused:
            return False
        self.paused = self.held_alone = False
        self.paused_at = None
        self.clock.resume()
        self.valve.resume()
        return True

    def step(self, n: int) -> None:
        """Let `n` messages through and stay paused."""
        self.pause()
        if not self.status.terminal:
            self.valve.step(n)

    def check_skippable(self) -> None:
        """Raise ConflictError if it is no processor."""
        if self.kind is not PluginKind.PROCESSOR:
            raise ConflictError(
                f"node {self.id} is a {self.kind.lower()}; only a processor can be skipped",
                code="node_kind_not_skippable",
                nodeId=self.id,
            )

    def skip(self, on: bool) -> bool:
        """Let messages go round the plugin from the next one on, or into it again; False if so.

        Raises:
            ConflictError: it is no processor.
        """
        self.check_skippable()
        if self.valve.skipping is on or self.status.terminal:
            return False
        self.valve.round_trip = self._round
        self.valve.skip(on)
        return True

    def _round(self, msg: Message) -> Message:
        return msg if self.passed_round is None else self.passed_round(msg)

    def check_takes_messages(self) -> None:
        """Raise ConflictError if it is a trigger."""
        if self.kind is PluginKind.TRIGGER:
            raise ConflictError(
                f"node {self.id} is a trigger, which takes no messages that could be held",
                code="node_takes_no_messages",
                nodeId=self.id,
            )

    def set_breakpoint(self, breakpoint: Breakpoint) -> bool:
        """Hold the node before the messages that `breakpoint` is about; False if that was so.

        Raises:
            ConflictError: it is a trigger.
        """
        self.check_takes_messages()
        if self.status.terminal or any(breakpoint.same(other) for other in self.breakpoints):
            return False
        self.breakpoints = (*self.breakpoints, breakpoint)
        self.valve.on_hold = self._held
        points, claims = self.breakpoints, self.claims
        self.valve.break_at(points if claims is None else claims.judged(points))
        return True

    def clear_breakpoints(self) -> bool:
        """Hold it no more; False if it has no breakpoint. What is held stays so."""
        had = bool(self.breakpoints)
        self.breakpoints = ()
        self.valve.break_at(())
        return had

    def _held(self, msg: Message) -> None:
        """A breakpoint holds a message: the node is paused until it is resumed or stepped."""
        alone = not self.paused
        self.pause()
        self.held_alone, self.held_at = alone, rfc3339(self._host.wall())
        self.say("node.breakpoint_hit", {"messageId": msg.id})

    def stop(self, mode: StopMode) -> bool:
        """End this node alone; its children see a normal end. False if it has ended."""
        if self.status.terminal or self.stage is None or self.stage.draining:
            return False
        if mode is StopMode.DRAIN:
            self.clear_breakpoints()
            self.resume()
            self.stopped_alone = True
            drain(self.stage, self.fronts)
        else:
            self.stage.end(Outcome.CANCELLED)
        return True

    # -- what others read

    @property
    def counters(self) -> dict[str, int]:
        """Messages in, out, failed, retried, dropped, dead-lettered and skipped, so far."""
        stage = self.stage
        if stage is None:
            return dict.fromkeys(COUNTERS, 0)
        return {
            "in": 0 if self.kind is PluginKind.TRIGGER else stage.received,
            "out": 0 if self.kind is PluginKind.TERMINAL else stage.emitted,
            "failed": stage.failed or self._gave_up,
            "retried": stage.retried,
            "dropped": self.dropped,
            "deadLettered": stage.dead_lettered,
            "skipped": stage.skipped,
        }

    @property
    def dropped(self) -> int:
        """Messages that came to nothing in it, in its buffer or for want of a child, so far."""
        stage = self.stage
        if stage is None:
            return 0
        dropped = stage.discarded + stage.unrouted
        if self.drops is not None:
            dropped += self.drops.total
        if self.fronts:
            dropped += sum(front.discarded for front in self.fronts)
        return dropped

    def state(self) -> dict[str, Any]:
        """The node as API.md's `NodeState`."""
        stage, valve = self.stage, self.valve
        shown = node_known(self.prepared, self)
        shown |= self.counters
        shown["attempt"] = 1 if stage is None else stage.attempt
        shown["ratePerSec"] = self.rate()
        shown["paused"] = self.paused
        shown["skipping"] = valve.skipping
        if (held := valve.held) is not None:
            shown["held"] = {"messageId": held.id, "since": self.held_at, "reason": "breakpoint"}
        if self.error is not None:
            shown["error"] = self.failure()
        return shown

    def rate(self) -> float:
        """Messages per second lately; over its whole life once it has ended."""
        if self.stage is None or self.started_at is None:
            return 0.0
        count = max(self.stage.received, self.stage.emitted)
        if self.ended_at is None:
            if self.meter is None:
                self.meter = RateMeter(self.began)
            return self.meter.read(self._host.loop.time(), count)
        return over_life(count, self.started_at, self.ended_at)

    def failure(self) -> dict[str, Any]:
        """The node's error: `{exception, detail, messageId?, attempts}`."""
        error = self.error
        if error is None:
            return {}
        shown: dict[str, Any] = {
            "exception": type(error).__name__,
            "detail": self._host.mask(describe(error)),
            "attempts": 1 if self.stage is None else self.stage.attempt,
        }
        culprit = self.stage.culprit if self.stage is not None else None
        if isinstance(culprit, Message) and not isinstance(error, UpstreamFailedError):
            shown["messageId"] = culprit.id
        return shown

    def run_error(self) -> dict[str, Any]:
        """The error of a run that this node makes fail: `{code, detail, nodeId}`."""
        error = self.error
        code = error.code if isinstance(error, YuktaError) else "node_failed"
        detail = str(self.status) if error is None else self._host.mask(describe(error))
        return {"code": code, "detail": detail, "nodeId": self.id}
