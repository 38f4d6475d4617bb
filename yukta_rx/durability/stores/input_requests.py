"""InputRequestStore: questions to people and programs, their answers, and answers that came early.

Feature: CTL-05.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class RequestState(StrEnum):
    """Where a request stands; only an open one ever changes."""

    OPEN = "OPEN"
    ANSWERED = "ANSWERED"
    EXPIRED = "EXPIRED"
    CANCELLED = "CANCELLED"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody answered.

    Attributes:
        decision: their word; `reject` in any case refuses, any other word approves.
        data: any JSON value.
        comment: what they said about it.
        answered_by: the actor of the command.
        answered_at: when the command was applied, aware.
    """

    decision: str
    data: Any = None
    comment: str | None = None
    answered_by: str
    answered_at: datetime


class RequestKey(NamedTuple):
    """What a request is about: the same again when a run is repeated."""

    lineage: str
    node_id: str
    message_id: str
    signal: str


class InputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a node that waits, or waited, for a signal.

    Attributes:
        request_id: unique; sorts by the time of asking.
        session_id: the session of the run.
        workflow_id: its workflow.
        execution_id: the run that asks, or asked last.
        lineage: what the message ids of that run are derived from.
        node_id: the node.
        message_id: the message.
        signal: name of the signal.
        asked_at: when it was first asked, aware.
        remaining: seconds of waiting, pauses apart, that were left when this was written; None if
            there is no limit.
        prompt: what is asked, for people.
        payload_preview: the beginning of the message's payload, as text.
        state: where it stands.
        answer: what was answered; None unless the state is ANSWERED.
    """

    request_id: str
    session_id: str
    workflow_id: str
    execution_id: str
    lineage: str
    node_id: str
    message_id: str
    signal: str
    asked_at: datetime
    remaining: float | None = None
    prompt: str | None = None
    payload_preview: str = ""
    state: RequestState = RequestState.OPEN
    answer: Answer | None = None

    @property
    def key(self) -> RequestKey:
        """What it is about."""
        return RequestKey(self.lineage, self.node_id, self.message_id, self.signal)

    def as_dict(self, expires_at: datetime | None = None) -> dict[str, Any]:
        """API.md's `Approval`.

        Args:
            expires_at: when it will, if that is known.
        """
        shown: dict[str, Any] = {
            "approvalId": self.request_id,
            "executionId": self.execution_id,
            "sessionId": self.session_id,
            "workflowId": self.workflow_id,
            "nodeId": self.node_id,
            "messageId": self.message_id,
            "signal": self.signal,
            "since": rfc3339(self.asked_at),
            "payloadPreview": self.payload_preview,
        }
        if expires_at is not None:
            shown["expiresAt"] = rfc3339(expires_at)
        if self.prompt is not None:
            shown["prompt"] = self.prompt
        return shown


class EarlySignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that came before its node asked for it.

    Attributes:
        lineage: of the run it was sent to.
        node_id: the node.
        signal: its name.
        answer: what it says.
        expires_at: from when on it is worth nothing, aware.
    """

    lineage: str
    node_id: str
    signal: str
    answer: Answer
    expires_at: datetime


class InputRequestStore(Protocol):
    """Keeps requests and early signals.

    Guarantees:
        I1. A read shows a write as soon as the write has returned.
        I2. `ask` is one step. If a request of the same key was answered, it returns that, changed
            only in who asks. Else it takes over an open one of the same key that a run asked
            which is not live any more: id, `asked_at` and `remaining` stay. Else the oldest early
            signal of that node and name that has not expired becomes the answer and is kept no
            more. Else the request is open. What it returns is what is stored.
        I3. `answer` changes an open request only, so of several answers exactly one is taken.
        I4. `close` changes a request only while it is open and asked by that run; it never undoes
            an answer.
        I5. `keep` keeps at most `limit` early signals per lineage and node that have not expired.
            None is taken twice, and an expired one never.
        I6. `open_requests` has every open request, the oldest first.
        I7. `forget` removes everything of a lineage, and nothing else.
        I8. A failure raises; no answer is never taken for "there is none".
    """

    async def ask(
        self, request: InputRequest, now: datetime, live: Collection[str]
    ) -> InputRequest:
        """Write an open request, or find out that it need not wait; see I2.

        Args:
            request: the request, open.
            now: the time, for what expires.
            live: execution ids of the runs that wait for what they asked.
        """

    async def get(self, request_id: str) -> InputRequest | None:
        """A request, None if there is none."""

    async def open_requests(self) -> Sequence[InputRequest]:
        """Every open request."""

    async def answer(self, request_id: str, answer: Answer) -> InputRequest:
        """Answer an open request; returns it answered.

        Raises:
            NotFoundError: there is none of that id.
            ConflictError: it is not open.
        """

    async def close(self, request_id: str, execution_id: str, state: RequestState) -> bool:
        """End an open request that `execution_id` asks, without an answer.

        Returns:
            False if it was not open, or somebody else asks it by now.
        """

    async def keep(self, signal: EarlySignal, now: datetime, limit: int) -> None:
        """Keep a signal that nobody waits for yet.

        Raises:
            SignalBufferFullError: `limit` are kept for that node.
        """

    async def forget(self, lineage: str) -> None:
        """Remove all requests and signals of a lineage."""
