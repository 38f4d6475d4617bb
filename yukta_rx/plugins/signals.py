"""SignalWaits: who waits for which signal, and signals that came before anybody did.

A wait is a request in the store before anything waits for it, and an answer is in the store
before the waiting plugin has it. What concerns one node is done one step after the other, so a
signal never falls between "nobody waits" and "somebody waits".

Feature: CTL-05.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.stores.input_requests import EarlySignal, InputRequest, RequestState
from yukta_rx.errors import BadInputError, SignalTimeoutError, YuktaError
from yukta_rx.model.ids import id_fault, new_execution_id
from yukta_rx.model.message import copy_payload
from yukta_rx.model.preview import preview
from yukta_rx.plugins.waits import Desk, Place, Wait, not_open, not_registered
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.clock import PausableClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from yukta_rx.durability.stores.input_requests import Answer, InputRequestStore
    from yukta_rx.model.message import Message
    from yukta_rx.plugins.waits import Say
    from yukta_rx.streams.clock import LoopClock

    Mask = Callable[[str], str]

KEEP_SECONDS: Final = 600.0
"""How long a signal that came early is kept."""

KEPT: Final = 100
"""Early signals that one node keeps; one more is refused."""

log = logging.getLogger(__name__)

APPROVE: Final = "approve"
"""The decision of a signal that names none."""


def rejects(decision: str) -> bool:
    """Whether a decision is a no; every other word is a yes."""
    return decision.strip().lower() == "reject"


@dataclass(frozen=True, slots=True)
class Signal:
    """What a wait gives.

    Attributes:
        name: the signal's name.
        decision: the word of whoever answered, as they wrote it; `approve` if they gave none.
        data: any JSON value that came with it; a copy.
        comment: what they said about it.
        answered_by: the actor.
        request_id: the approval.
    """

    name: str
    decision: str
    data: Any
    comment: str | None
    answered_by: str
    request_id: str

    @property
    def rejected(self) -> bool:
        """Whether the answer is a no."""
        return rejects(self.decision)


class SignalWaits:
    """The waits of all runs of an engine. Belongs to the loop.

    Args:
        store: keeps requests, answers and early signals.
        clock: tells the time.
    """

    def __init__(self, store: InputRequestStore, clock: LoopClock) -> None:
        self._store = store
        self._clock = clock
        self._unpaused = PausableClock(clock)
        self._runs: dict[str, dict[str, Desk]] = {}
        self._open: dict[str, Wait] = {}
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    async def close(self) -> None:
        """Wait for what is being closed."""
        await self._tasks.ended()

    def node(
        self, place: Place, clock: PausableClock, say: Say, mask: Mask = lambda text: text
    ) -> NodeSignals:
        """What the plugin of a node waits with.

        Args:
            place: the node.
            clock: its time, which pauses stop.
            say: says an event of the node.
            mask: takes the secrets out of a text that people will read.
        """
        return NodeSignals(self, place, self._desk(place), clock, say, mask)

    def _desk(self, place: Place) -> Desk:
        desks = self._runs.setdefault(place.execution_id, {})
        return desks.setdefault(place.node_id, Desk(place.lineage))

    async def wait(self, ask: InputRequest, desk: Desk, clock: PausableClock, say: Say) -> Signal:
        """Wait for the answer to a request; see `NodeSignals.wait`."""
        async with desk.turn:
            if desk.closed:
                raise BadInputError(f"run {ask.execution_id} has ended and waits for nothing")
            wait = desk.left(ask.message_id)
            if asked := wait is None:
                found = await self._ask(ask)
                if found.state is RequestState.ANSWERED:
                    return _signal(found)
                wait = Wait(found, clock, self._clock, say)
                desk.waits[wait] = None
                self._open[found.request_id] = wait
            woken = wait.begin()
            desk.stir()
        if asked:
            say("approval.requested", wait.as_dict())
        try:
            await woken
            if wait.answered is None:
                shown = wait.as_dict()
                async with desk.turn:
                    # Answered meanwhile, perhaps.
                    if wait.answered is None:
                        self._drop(wait, desk)
                        await self._expire(wait)
        except asyncio.CancelledError:
            if wait.woken is not woken:
                # It is left to a call that comes.
                raise
            self._drop(wait, desk)
            # A task of its own, since whoever waits may be cancelled once more.
            await asyncio.shield(
                self._tasks.spawn(self._withdraw(wait, desk), "yukta close approval")
            )
            raise
        finally:
            if wait.woken is woken:
                wait.stop()
        if wait.answered is None:
            say("approval.expired", shown)
            raise SignalTimeoutError(
                f"no signal `{ask.signal}` came for message {ask.message_id} in time",
                signal=ask.signal,
                approvalId=wait.request.request_id,
            )
        return _signal(wait.answered)

    async def _withdraw(self, wait: Wait, desk: Desk) -> None:
        async with desk.turn:
            if wait.answered is None and not desk.kept:
                await self._closed(wait.request)

    async def _closed(self, request: InputRequest) -> None:
        """Close a request that nobody waits for any more; that it cannot be is only logged."""
        ids = request.request_id, request.execution_id
        try:
            await self._store.close(*ids, RequestState.CANCELLED)
        except YuktaError as error:
            log.warning("approval %s stays open, and nobody waits for it: %s", ids[0], error)

    async def _ask(self, ask: InputRequest) -> InputRequest:
        try:
            return await self._store.ask(ask, self._clock.wall(), self._runs.keys())
        except asyncio.CancelledError:
            # The store may have written it all the same.
            name = f"yukta close {ask.request_id}"
            await asyncio.shield(self._tasks.spawn(self._closed(ask), name))
            raise

    async def _expire(self, wait: Wait) -> None:
        if not await self._close(wait, RequestState.EXPIRED):
            found = await self._store.get(wait.request.request_id)
            if found is not None and found.state is RequestState.ANSWERED:
                wait.answered = found

    async def _close(self, wait: Wait, state: RequestState) -> bool:
        request = wait.request
        return await self._store.close(request.request_id, request.execution_id, state)

    def _drop(self, wait: Wait, desk: Desk) -> None:
        desk.waits.pop(wait, None)
        desk.stir()
        if self._open.get(wait.request.request_id) is wait:
            del self._open[wait.request.request_id]

    def coming(
        self, place: Place, name: str, request_id: str | None = None
    ) -> AbstractAsyncContextManager[None]:
        """A signal comes to a node of a live run, see `Desk.coming`; that may have ended then."""
        return self._desk(place).coming(name, request_id)

    async def send(
        self, place: Place, name: str, answer: Answer, request_id: str | None = None
    ) -> str | None:
        """Give a signal to a node: to the message that has waited longest for it, or keep it.

        Args:
            place: the node; of a live run, to which a signal is `coming`.
            name: of the signal.
            answer: what it says.
            request_id: answer this request and no other.

        Returns:
            The request that it answers; None if it is kept until the node waits for it.

        Raises:
            ConflictError: the named request is not open, or the run ends.
            SignalBufferFullError: the node keeps as many as it may.
        """
        desk = self._desk(place)
        async with desk.turn:
            wait = desk.find(name, request_id)
            if wait is None:
                if request_id is not None:
                    raise not_open(request_id)
                if desk.closed or desk.kept:
                    # Whoever goes on with the run takes over what is open, and looks for no more.
                    raise not_registered(place, "is ending")
                await self._keep(place, name, answer)
                return None
            shown = wait.as_dict()
            stands, refusal = await wait.answer(self._store, answer)
            self._drop(wait, desk)
        said = {"decision": stands.decision, "answeredBy": stands.answered_by}
        wait.say("approval.answered", {**shown, **said})
        if refusal is not None:
            raise refusal
        return wait.request.request_id

    async def _keep(self, place: Place, name: str, answer: Answer) -> None:
        now = self._clock.wall()
        early = EarlySignal(
            lineage=place.lineage,
            node_id=place.node_id,
            signal=name,
            answer=answer,
            expires_at=now + timedelta(seconds=KEEP_SECONDS),
        )
        await self._store.keep(early, now, KEPT)

    def keep_open(self, execution_id: str) -> None:
        """Leave the requests of a run open when it ends: it is interrupted, and will ask again."""
        for desk in self._runs.get(execution_id, {}).values():
            desk.kept = True

    def ended(self, execution_id: str) -> bool:
        """A run has ended: whatever waits in it is cancelled, and it has no waits any more.

        Returns:
            Whether any of its nodes had to do with signals.
        """
        desks = self._runs.pop(execution_id, {})
        for desk in desks.values():
            desk.closed = True
            for wait in tuple(desk.waits):
                # A plugin that ignored its own cancellation.
                self._drop(wait, desk)
                if wait.woken is not None:
                    wait.woken.cancel()
        return bool(desks)

    # -- runs that are put aside

    def still(self, execution_id: str) -> dict[str, tuple[str, ...]] | None:
        """For each node of a run where messages wait, their ids in order.

        None if anything else goes on with its signals, an answer on its way for one.
        """
        desks = self._runs.get(execution_id, {})
        if not all(desk.still for desk in desks.values()):
            return None
        return {
            node_id: tuple(wait.request.message_id for wait in desk.waits)
            for node_id, desk in desks.items()
        }

    def leave(self, execution_id: str, lags: Mapping[str, float]) -> float:
        """Leave the waits of a run where they are, with nobody behind them.

        Args:
            execution_id: the run, which is `still`.
            lags: the seconds of pauses of each of its nodes.

        Returns:
            When the first of them has to be looked at, in seconds of the loop.
        """
        first = math.inf
        for node_id, desk in self._runs.get(execution_id, {}).items():
            clock = self._aside(lags[node_id])
            for wait in desk.waits:
                due = wait.leave(clock)
                first = first if due is None else min(first, due)
        return first

    def _aside(self, lag: float) -> PausableClock:
        if lag:
            clock = PausableClock(self._clock)
            clock.lag = lag
            return clock
        return self._unpaused

    def attach(self, execution_id: str, node_id: str, clock: PausableClock, say: Say) -> None:
        """A run is there again: its node will ask anew what was left, and gets it back."""
        for wait in self._desk_of(execution_id, node_id):
            wait.attach(clock, say)

    def withdraw(
        self, execution_id: str, node_id: str, message_id: str | None = None
    ) -> asyncio.Task[None] | None:
        """A node never asks again what was left of it, for one message or for all.

        Returns:
            What closes that; None if nothing was left.
        """
        left = [wait for wait in self._desk_of(execution_id, node_id) if wait.left_by(message_id)]
        if not left:
            return None
        desk = self._runs[execution_id][node_id]
        for wait in left:
            self._drop(wait, desk)

        async def close() -> None:
            for wait in left:
                await self._withdraw(wait, desk)

        return self._tasks.spawn(close(), "yukta close approvals")

    def _desk_of(self, execution_id: str, node_id: str) -> tuple[Wait, ...]:
        desk = self._runs.get(execution_id, {}).get(node_id)
        return () if desk is None else tuple(desk.waits)

    def asking(self) -> list[str]:
        """The runs that have nodes which wait for signals."""
        return list(self._runs)

    # -- what others read

    def wall(self) -> datetime:
        """The time of day."""
        return self._clock.wall()

    def get(self, request_id: str) -> InputRequest | None:
        """An open request, None if it is not open."""
        wait = self._open.get(request_id)
        return None if wait is None else wait.request

    def approvals(self, wanted: Callable[[InputRequest], bool]) -> list[dict[str, Any]]:
        """The open requests that are wanted, the oldest first."""
        found = sorted(item for item in self._open.items() if wanted(item[1].request))
        return [wait.as_dict() for _, wait in found]

    def concern(self, lineage: str) -> bool:
        """Whether a live run of this lineage has nodes that wait for signals."""
        return any(
            desk.lineage == lineage for desks in self._runs.values() for desk in desks.values()
        )

    def of_run(self, execution_id: str) -> Iterator[list[InputRequest]]:
        """For each node of a run where messages wait, their requests in order."""
        for desk in self._runs.get(execution_id, {}).values():
            if desk.waits:
                yield [wait.request for wait in desk.waits]


class NodeSignals:
    """What a plugin waits for signals with; `ctx.signals`.

    Args:
        waits: the waits of the engine.
        place: the node.
        desk: its waits.
        clock: its time, which pauses stop.
        say: says an event of the node.
        mask: takes the secrets out of a text that people will read.
    """

    __slots__ = ("_clock", "_desk", "_mask", "_place", "_say", "_waits")

    def __init__(
        self,
        waits: SignalWaits,
        place: Place,
        desk: Desk,
        clock: PausableClock,
        say: Say,
        mask: Mask,
    ) -> None:
        self._waits = waits
        self._place = place
        self._desk = desk
        self._clock = clock
        self._say = say
        self._mask = mask

    @property
    def waiting(self) -> int:
        """How many messages of the node wait now."""
        return len(self._desk.waits)

    @property
    def left(self) -> bool:
        """Whether something is asked here that no call stands behind yet."""
        return any(wait.left for wait in self._desk.waits)

    async def wait(
        self,
        name: str,
        msg: Message,
        *,
        timeout: float | None,  # noqa: ASYNC109  (it is written down, and pauses stop it)
        prompt: str | None = None,
    ) -> Signal:
        """Wait until somebody sends the signal; the node's idle clock does not run meanwhile.

        The answer is written down with the message: where the same message comes again, in a
        further attempt or in a run that goes on from this one, it is given again at once. So
        several waits for one message need different names.

        Args:
            name: of the signal: 1 to 128 of `A-Z a-z 0-9 . _ -`.
            msg: the message that waits.
            timeout: seconds at most, pauses not counted; None waits for ever.
            prompt: what is asked, for people.

        Raises:
            SignalTimeoutError: the time is up.
            BadInputError: the name or the time cannot be used, or the run has ended.
        """
        if fault := id_fault("signal", name):
            raise BadInputError(fault, option="signal")
        if timeout is not None and not 0 < timeout < math.inf:
            raise BadInputError(f"a wait takes a number of seconds above 0, not {timeout!r}")
        place = self._place
        request = InputRequest(
            request_id=new_execution_id(),
            session_id=place.session_id,
            workflow_id=place.workflow_id,
            execution_id=place.execution_id,
            lineage=place.lineage,
            node_id=place.node_id,
            message_id=msg.id,
            signal=name,
            asked_at=self._waits.wall(),
            remaining=timeout,
            prompt=None if prompt is None else self._mask(prompt),
            payload_preview=self._mask(preview(msg.payload)),
        )
        return await self._waits.wait(request, self._desk, self._clock, self._say)


def _signal(answered: InputRequest) -> Signal:
    answer = answered.answer
    assert answer is not None, "an answered request has an answer"
    return Signal(
        name=answered.signal,
        decision=answer.decision,
        data=copy_payload(answer.data),
        comment=answer.comment,
        answered_by=answer.answered_by,
        request_id=answered.request_id,
    )


__all__ = [
    "APPROVE",
    "KEEP_SECONDS",
    "KEPT",
    "NodeSignals",
    "Place",
    "Signal",
    "SignalWaits",
    "not_open",
    "not_registered",
    "rejects",
]
