"""Wait and Desk: one message that waits for a signal, and all of a node that do.

A run of which nothing is kept but what it waits for leaves its waits at their desks: they can be
found and shown, nobody stands behind them, and when the run is there again the calls for the same
messages take them up where they were.

Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from yukta_rx.durability.stores.input_requests import RequestState
from yukta_rx.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime

    from yukta_rx.durability.stores.input_requests import Answer, InputRequest, InputRequestStore
    from yukta_rx.streams.clock import LoopClock, PausableClock, Timer

    Say = Callable[[str, dict[str, Any]], None]

_SAME: Final = 1e-3
"""Seconds within which two times are the same."""


def unheard(_kind: str, _data: dict[str, Any]) -> None:
    """Say nothing: nobody stands behind a wait whose run is asleep."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a run."""

    session_id: str
    workflow_id: str
    execution_id: str
    lineage: str
    node_id: str


class Wait:
    """A message that waits. `woken` is done once it is answered or its time is up.

    Args:
        request: what is asked.
        clock: the time of its node.
        base: the time without pauses.
        say: says an event of its node.
    """

    __slots__ = (
        *("_base", "_clock", "_due", "_expires_at", "_lag", "_timer"),
        *("answered", "request", "say", "woken"),
    )

    def __init__(
        self, request: InputRequest, clock: PausableClock, base: LoopClock, say: Say
    ) -> None:
        self.request = request
        self.say = say
        self.answered: InputRequest | None = None
        self.woken: asyncio.Future[None] | None = None
        self._clock = clock
        self._base = base
        self._lag = -math.inf
        self._expires_at: datetime | None = None
        self._due = None if request.remaining is None else clock.now() + request.remaining
        self._timer: Timer | None = None

    def begin(self) -> asyncio.Future[None]:
        """Somebody waits: the future that they await, which is theirs alone."""
        self.woken = asyncio.get_running_loop().create_future()
        if self._due is not None:
            self._timer = self._clock.call_at(self._due, self.wake)
        return self.woken

    def wake(self) -> None:
        """Let whoever waits go on."""
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    async def answer(
        self, store: InputRequestStore, answer: Answer
    ) -> tuple[Answer, ConflictError | None]:
        """Have it answered; what it goes on with, and why that is another one.

        One may be written already, of which nobody heard.

        Raises:
            ConflictError: it is not open.
        """
        refusal = None
        try:
            answered = await store.answer(self.request.request_id, answer)
        except ConflictError as error:
            found = await store.get(self.request.request_id)
            if found is None or found.state is not RequestState.ANSWERED:
                raise
            answered, refusal = found, error
        self.take(answered)
        stands = answered.answer or answer
        same = replace(stands, answered_at=answer.answered_at) == answer
        return stands, None if same else refusal

    def take(self, answered: InputRequest) -> None:
        """It is answered."""
        self.answered = answered
        self.wake()

    def stop(self) -> None:
        """Its time does not matter any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def over(self) -> bool:
        """Whether it was answered, or its time is up."""
        return self.answered is not None or (self.woken is not None and self.woken.done())

    # -- a run that is put aside

    @property
    def left(self) -> bool:
        """Whether nobody stands behind it, until its run is there again."""
        return self.woken is None

    def left_by(self, message_id: str | None) -> bool:
        """Whether it is left, and of this message; None stands for any.

        A message that is left waits once, so this says which wait it is also where its options
        would give another name by now: people know it by the one that they were shown.
        """
        return self.left and message_id in (None, self.request.message_id)

    def leave(self, clock: PausableClock) -> float | None:
        """Nobody waits for now; `clock` goes on as the node's own.

        Returns:
            When its time is up, in seconds of the loop; None for never.
        """
        self.stop()
        self.woken = None
        self.say = unheard
        self._clock = clock
        return None if self._due is None else self._due + clock.lag

    def attach(self, clock: PausableClock, say: Say) -> None:
        """Its run is there again, and will stand behind it."""
        self._clock, self.say = clock, say

    # -- what others read

    def as_dict(self) -> dict[str, Any]:
        """The approval; while the clock stands still nobody knows when it will expire."""
        if self._due is None or self._clock.paused:
            return self.request.as_dict()
        return self.request.as_dict(self._expiry(self._due))

    def _expiry(self, due: float) -> datetime | None:
        """When the time is up: the same each time, as long as there is no pause."""
        lag = self._base.now() - self._clock.now()
        if abs(lag - self._lag) > _SAME:
            self._lag = lag
            left = max(0.0, due - self._clock.now())
            self._expires_at = self._base.wall() + timedelta(seconds=left)
        return self._expires_at


class Desk:
    """The waits of one node, in the order in which they were asked, and its turn."""

    __slots__ = ("_coming", "_watching", "closed", "kept", "lineage", "turn", "waits")

    def __init__(self, lineage: str) -> None:
        self.kept = False
        self.lineage = lineage
        self.turn = asyncio.Lock()
        self.waits: dict[Wait, None] = {}
        self.closed = False
        self._coming = 0
        self._watching: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def coming(self, name: str, request_id: str | None) -> AsyncIterator[None]:
        """A signal comes: wait until somebody stands behind the wait that it is for.

        Its run was taken up because of that signal, and the call comes in a moment. It is not put
        aside again before the signal has come.
        """
        self._coming += 1
        try:
            await self._attended(name, request_id)
            yield
        finally:
            self._coming -= 1

    async def _attended(self, name: str, request_id: str | None) -> None:
        while (wait := self.find(name, request_id)) is not None and wait.left:
            if self._watching is None or self._watching.done():
                self._watching = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._watching,))

    def stir(self) -> None:
        """Somebody stands behind a wait, or it is gone."""
        watching, self._watching = self._watching, None
        if watching is not None and not watching.done():
            watching.set_result(None)

    def find(self, name: str, request_id: str | None) -> Wait | None:
        """The oldest wait for a signal of this name, or the one that is named."""
        for wait in self.waits:
            request = wait.request
            named = request_id in (None, request.request_id)
            if named and request.signal == name and not wait.over:
                return wait
        return None

    def left(self, message_id: str) -> Wait | None:
        """The wait that was left here by a call for the same message."""
        return next((wait for wait in self.waits if wait.left_by(message_id)), None)

    @property
    def still(self) -> bool:
        """Whether all that goes on here is that messages wait."""
        usual = not (self.turn.locked() or self._coming or self.closed or self.kept)
        return usual and not any(wait.over or wait.left for wait in self.waits)


def not_registered(place: Place, why: str) -> ConflictError:
    """Return the error of a node that takes no signals (any more)."""
    return ConflictError(
        f"node {place.node_id} {why} and waits for no signals",
        code="signal_not_registered",
        executionId=place.execution_id,
        nodeId=place.node_id,
    )


def not_open(request_id: str, state: str | None = None) -> ConflictError:
    """Return the error of an approval that waits for no answer (any more)."""
    said = "it waits no more" if state is None else f"it is {state}"
    members = {} if state is None else {"state": state}
    return ConflictError(
        f"approval {request_id} cannot be answered: {said}",
        code="already_answered",
        approvalId=request_id,
        **members,
    )
