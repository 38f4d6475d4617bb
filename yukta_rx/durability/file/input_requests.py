"""Input requests in a file, `input-requests.jsonl`. Feature: CTL-05."""

from __future__ import annotations

from collections import Counter, deque
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from yukta_rx.durability.file._journaled import Journaled, at_once
from yukta_rx.durability.memory.input_requests import MemoryInputRequestStore
from yukta_rx.durability.stores.input_requests import (
    Answer,
    EarlySignal,
    InputRequest,
    RequestState,
)
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.model.times import exact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.input_requests import RequestKey
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

NAME: Final = "input-requests.jsonl"


class FileInputRequestStore:
    """See `InputRequestStore`; the memory store over a journal of what it was asked to do.

    A question that nobody has answered, and an answer that nobody has asked for yet, are there
    again after a restart.

    Args:
        folder: where the file is.
        meters: where lines are counted that cannot be read.
    """

    durable = True

    def __init__(self, folder: Path, *, meters: Meters | None = None) -> None:
        self._state = _State()
        self._journal = Journaled(folder / NAME, "input-requests", self._state, meters=meters)
        self._asking: Counter[tuple[RequestKey, str]] = Counter()
        """Keys, and the runs that ask, of questions that are being written."""

    async def start(self) -> None:
        """Read what is there.

        Raises:
            StoreUnavailableError: the file cannot be read or written.
        """
        await self._journal.start()

    async def stop(self) -> None:
        """Write what waits, and close the file; `close` is about a request."""
        await self._journal.close()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop it."""
        await self.stop()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Lines that could not be read when the file was opened."""
        return self._journal.quarantined

    async def ask(
        self, request: InputRequest, now: datetime, live: Collection[str]
    ) -> InputRequest:
        """Write an open request, or find out that it need not wait."""
        # Only those matter that ask the same, now or once all that waits is written.
        askers = self._state.askers(request.key)
        askers |= {asker for key, asker in self._asking if key == request.key}
        change = {
            "op": "ask",
            "request": to_row(request),
            "now": exact(now),
            "live": sorted(asker for asker in askers if asker in live),
        }
        about = (request.key, request.execution_id)
        self._asking[about] += 1
        try:
            asked: InputRequest = await self._journal.change(request.lineage, change)
        finally:
            self._asking[about] -= 1
            if not self._asking[about]:
                del self._asking[about]
        return asked

    async def get(self, request_id: str) -> InputRequest | None:
        """A request, None if there is none."""
        self._journal.check()
        return await self._state.get(request_id)

    async def open_requests(self) -> Sequence[InputRequest]:
        """Every open request, the oldest first."""
        self._journal.check()
        return await self._state.open_requests()

    async def answer(self, request_id: str, answer: Answer) -> InputRequest:
        """Answer an open request."""
        answered: InputRequest = await self._journal.change(
            request_id, {"op": "answer", "requestId": request_id, "answer": to_row(answer)}
        )
        return answered

    async def close(self, request_id: str, execution_id: str, state: RequestState) -> bool:
        """End an open request without an answer."""
        self._journal.check()
        if self._state.has_ended(request_id):
            return False
        change = {"requestId": request_id, "executionId": execution_id, "state": str(state)}
        closed: bool = await self._journal.change(request_id, {"op": "close", **change})
        return closed

    async def keep(self, signal: EarlySignal, now: datetime, limit: int) -> None:
        """Keep a signal that nobody waits for yet."""
        change = {"op": "keep", "signal": to_row(signal), "now": exact(now), "limit": limit}
        await self._journal.change(signal.lineage, change)

    async def forget(self, lineage: str) -> None:
        """Remove all requests and signals of a lineage."""
        self._journal.check()
        if self._state.knows(lineage) or self._journal.waits(lineage):
            await self._journal.change(lineage, {"op": "forget", "lineage": lineage})


class _State(MemoryInputRequestStore):
    """The requests and signals as they are."""

    def askers(self, key: RequestKey) -> set[str]:
        """The runs whose requests of a key are open or answered."""
        return {self._requests[one].execution_id for one in self._by_key.get(key, ())}

    def has_ended(self, request_id: str) -> bool:
        """Whether a request is known, and not open; it never is again."""
        return request_id in self._requests and request_id not in self._open

    def knows(self, lineage: str) -> bool:
        """Whether there is anything of a lineage."""
        return lineage in self._of_lineage or lineage in self._early

    def apply(self, change: Mapping[str, Any]) -> Any:
        """Make a change."""
        match change["op"]:
            case "ask":
                request = from_row(InputRequest, change["request"])
                return at_once(self.ask(request, _time(change["now"]), change["live"]))
            case "answer":
                answer = from_row(Answer, change["answer"])
                return at_once(self.answer(change["requestId"], answer))
            case "close":
                state = RequestState(change["state"])
                return at_once(self.close(change["requestId"], change["executionId"], state))
            case "keep":
                signal = from_row(EarlySignal, change["signal"])
                return at_once(self.keep(signal, _time(change["now"]), change["limit"]))
            case "forget":
                return at_once(self.forget(change["lineage"]))
            case "asked":
                return self._asked(from_row(InputRequest, change["request"]))
            case "closed":
                return self._was_closed(from_row(InputRequest, change["request"]))
            case "kept":
                return self._kept(from_row(EarlySignal, change["signal"]))
        raise ValueError(f"there is no op {change['op']!r}")

    def needed(self) -> int:
        """Two for a request that is closed: it was asked and it was closed, each in its order."""
        early = sum(len(kept) for nodes in self._early.values() for kept in nodes.values())
        return 2 * len(self._requests) - len(self._open) + early

    def changes(self) -> Iterable[Mapping[str, Any]]:
        """What was asked, then what was closed, then what came early."""
        requests = list(self._requests.values())
        closed = [self._requests[one] for ids in self._closed.values() for one in ids]
        early = [one for nodes in self._early.values() for kept in nodes.values() for one in kept]
        return _changes(requests, closed, early)

    def _asked(self, request: InputRequest) -> None:
        self._by_key.setdefault(request.key, []).append(request.request_id)
        self._open[request.request_id] = None
        self._put(request)

    def _was_closed(self, request: InputRequest) -> None:
        del self._open[request.request_id]
        if request.state is not RequestState.ANSWERED:
            self._unlink(request)
        self._closed.setdefault(request.lineage, deque()).append(request.request_id)
        self._put(request)

    def _kept(self, signal: EarlySignal) -> None:
        nodes = self._early.setdefault(signal.lineage, {})
        nodes.setdefault(signal.node_id, deque()).append(signal)


def _changes(
    requests: Iterable[InputRequest],
    closed: Iterable[InputRequest],
    early: Iterable[EarlySignal],
) -> Iterator[Mapping[str, Any]]:
    for request in requests:
        asked = replace(request, state=RequestState.OPEN, answer=None)
        yield {"op": "asked", "request": to_row(asked)}
    for request in closed:
        yield {"op": "closed", "request": to_row(request)}
    for signal in early:
        yield {"op": "kept", "signal": to_row(signal)}


def _time(said: str) -> datetime:
    return datetime.fromisoformat(said)
