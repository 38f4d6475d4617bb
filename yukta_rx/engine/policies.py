"""NodePolicies: what the engine does about one node's failures and time, joined to its run.

Decides nothing itself: the operators' handles do. It makes them from the policy and says what they
did, as events. Features: ENG-04, ENG-05.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from yukta_rx import operators as ops
from yukta_rx.errors import (
    BadInputError,
    DeadlineExceededError,
    EngineError,
    IdleTimeoutError,
    UpstreamFailedError,
    YuktaError,
)
from yukta_rx.model.message import Message, copy_payload
from yukta_rx.model.policy import NodePolicy, OnError
from yukta_rx.model.status import TaskStatus
from yukta_rx.model.times import rfc3339
from yukta_rx.model.weight import weigh
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.attempts import Hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from yukta_rx.definitions.prepare import PreparedNode
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.security.variables import Scope, Template
    from yukta_rx.streams.clock import Clock
    from yukta_rx.streams.plan import Limit, Retry
    from yukta_rx.streams.plan import OnError as OnErrorRule


class Timers(Protocol):
    """Limits of a node that only its first message tells; callable from any thread."""

    def retime(self, limit: float | None) -> None:
        """The idle timeout in seconds, None for none."""

    def set_deadline(self, limit: float) -> None:
        """The node deadline in seconds from its first activity on."""


STATUS_OF_ERROR: Final[tuple[tuple[type[BaseException], TaskStatus], ...]] = (
    (UpstreamFailedError, TaskStatus.UPSTREAM_FAILED),
    (IdleTimeoutError, TaskStatus.TIMED_OUT),
    (DeadlineExceededError, TaskStatus.TIMED_OUT),
    (EngineError, TaskStatus.ERROR),
)
"""How a node ends that fails with an error of this class; FAILURE with any other."""


@dataclass(frozen=True, slots=True)
class RetryWait:
    """A message that waits for its next attempt.

    Attributes:
        message_id: the message.
        attempt: the attempt that comes.
        since: when the wait began.
        due: when it ends, in seconds of the node's clock.
        error: what the last attempt failed with.
    """

    message_id: str
    attempt: int
    since: datetime
    due: float
    error: str


class Attempts(NamedTuple):
    """What a node's plan has around its call; nothing where no policy asks for it."""

    limit: Limit | None = None
    retry: Retry | None = None
    on_error: OnErrorRule | None = None


PLAIN_CALL: Final = Attempts()


def describe(error: BaseException) -> str:
    """One line that says what an error is about, without a traceback."""
    text = str(error)
    return text if text else type(error).__name__


def guarded(policy: NodePolicy) -> bool:
    """Whether a node's plugin is called in attempts, whose failure has a policy."""
    return (
        policy.retry is not None
        or policy.on_error is not OnError.FAIL
        or policy.element_timeout_ms is not None
    )


def copies(node: PreparedNode, *, shared: bool) -> bool:
    """Whether a node's plugin gets copies of the payloads; `shared` says that others hold them."""
    # A further attempt, and a dead letter, are of the message as it came.
    return not node.spec.pure and (
        shared or node.spec.kind is PluginKind.TERMINAL or guarded(node.policy)
    )


def milliseconds(text: Any, template: Template, scope: Scope) -> float:
    """The seconds that `text`, an expression of milliseconds, gives.

    Raises:
        BadInputError: it gives no number from 1 on.
    """
    value = template.resolve(scope)
    if not value >= 1:
        raise BadInputError(f"`{text}` gives {value}, but a time limit is 1 ms at least")
    return float(value) / 1000


def root_of(node: NodeRuntime) -> NodeRuntime:
    """The failed node that made this one end UPSTREAM_FAILED; itself otherwise."""
    while node.status is TaskStatus.UPSTREAM_FAILED:
        failed = [parent for parent in node.parents if parent.error is not None]
        if not failed:
            break
        node = failed[0]
    return node


class NodePolicies:
    """The policies of one node in one run.

    Args:
        node_id: the node.
        policy: its `engine` object.
        clock: the node's pausable time.
        wall: the time of day.
        say: says an event of the node: type and data.
        held_bytes: what one attempt may hold back.

    Attributes:
        on_failed: told the id of the message of each attempt that has failed.
    """

    __slots__ = (
        "_clock",
        "_discarded",
        "_held_bytes",
        "_mask",
        "_node_id",
        "_policy",
        "_say",
        "_waits",
        "_wall",
        "on_failed",
    )

    def __init__(
        self,
        node_id: str,
        policy: NodePolicy,
        clock: Clock,
        *,
        wall: Callable[[], datetime],
        say: Callable[[str, dict[str, Any]], None],
        held_bytes: int,
        mask: Callable[[str], str],
    ) -> None:
        self.on_failed: Callable[[str], None] | None = None
        self._node_id = node_id
        self._policy = policy
        self._clock = clock
        self._wall = wall
        self._say = say
        self._held_bytes = held_bytes
        self._mask = mask
        self._discarded: dict[str, int] = {}
        """Outputs of the failed attempt at a message, by its id, until they are told."""
        self._waits: tuple[RetryWait, ...] = ()
        """Waits for further attempts; some of them are over."""

    def hold(self) -> Hold:
        """How much an attempt may hold back."""
        return Hold(_weigh, self._held_bytes, self._note)

    def around_call(self, element_timeout: float | Callable[[Message], float] | None) -> Attempts:
        """What is done around the call, as far as the policy asks for it."""
        policy = self._policy
        limit: Limit | None = None
        again: Retry | None = None
        if element_timeout is not None:
            limit = ops.ElementTimeout(self._clock, element_timeout)
        if policy.retry is not None:
            again = ops.Backoff(
                policy.retry, self._clock, numbered=Message.numbered, on_retry=self._retried
            )
        ledger = ops.FailureLedger(
            policy.on_error,
            policy.failure_budget,
            self._clock,
            letter=self._letter,
            on_failure=self.failed,
        )
        return Attempts(limit, again, ledger)

    # -- told by the operators

    def _note(self, msg: Message, outputs: int) -> None:
        # From a thread, where the plugin runs in one.
        self._discarded[msg.id] = outputs

    def _retried(self, msg: Message, error: BaseException, attempt: int, seconds: float) -> None:
        outputs = self._discarded.pop(msg.id, 0)
        data: dict[str, Any] = {"messageId": msg.id, "attempt": attempt - 1, "outputs": outputs}
        self._say("node.attempt_discarded", data)
        delay = {"delayMs": round(seconds * 1000), "error": self._shown(error)}
        self._say("node.retry", {"messageId": msg.id, "attempt": attempt, **delay})
        now, told = self._clock.now(), self._mask(describe(error))
        wait = RetryWait(msg.id, attempt, self._wall(), now + seconds, told)
        self._waits = (*(other for other in self._waits if other.due > now), wait)
        if self.on_failed is not None:
            self.on_failed(msg.id)

    def waits(self) -> list[tuple[RetryWait, datetime]]:
        """The messages that wait for another attempt, and when that is due if nothing pauses."""
        now, wall = self._clock.now(), self._wall()
        return [
            (wait, wall + timedelta(seconds=wait.due - now))
            for wait in self._waits
            if wait.due > now
        ]

    def failed(self, msg: Message, error: BaseException, attempts: int, action: OnError) -> None:
        """Say that a message was given up; also of a node without a policy, which fails by it."""
        outputs = self._discarded.pop(msg.id, 0)
        if outputs:
            data = {"messageId": msg.id, "attempt": attempts, "outputs": outputs}
            self._say("node.attempt_discarded", data)
        self._say(
            "node.message_failed",
            {
                "messageId": msg.id,
                "attempts": attempts,
                "error": self._shown(error),
                "action": str(action),
            },
        )
        if action is OnError.ROUTE:
            exception = type(error).__name__
            self._say("node.dead_letter", {"messageId": msg.id, "exception": exception})
        if self.on_failed is not None:
            self.on_failed(msg.id)

    def _letter(self, msg: Message, error: BaseException, attempts: int) -> Message:
        """The message as it came, tagged, and with an id that tells it from the message itself."""
        headers = {
            **msg.headers,
            "failure.attempts": attempts,
            "failure.exception": type(error).__name__,
            "failure.time": rfc3339(self._wall()),
            "origDest": self._node_id,
            "failureReason": self._mask(describe(error)),
        }
        return msg.derive(self._node_id, -1, copy_payload(msg.payload), headers)

    def _shown(self, error: BaseException) -> dict[str, Any]:
        shown = {"exception": type(error).__name__, "detail": self._mask(describe(error))}
        return shown | ({"code": error.code} if isinstance(error, YuktaError) else {})


def _weigh(output: Any) -> int:
    return 0 if output is None else weigh(getattr(output, "payload", output))
