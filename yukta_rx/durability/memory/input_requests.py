"""Input requests in memory. Feature: CTL-05."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from yukta_rx.durability.stores.input_requests import RequestState
from yukta_rx.errors import ConflictError, NotFoundError, SignalBufferFullError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from yukta_rx.durability.stores.input_requests import (
        Answer,
        EarlySignal,
        InputRequest,
        RequestKey,
    )

replace = msgspec.structs.replace

KEPT: Final = 10_000
"""Requests of one lineage that are kept once they are closed; beyond it the oldest go."""


class MemoryInputRequestStore:
    """See `InputRequestStore`; lost with the process. Nothing here waits, so each call is a step.

    A closed request loses its prompt and preview.
    """

    durable = False

    def __init__(self) -> None:
        self._requests: dict[str, InputRequest] = {}
        self._open: dict[str, None] = {}
        """Ids of open requests, the oldest first."""
        self._closed: dict[str, deque[str]] = {}
        """Ids of closed requests by lineage, in the order in which they were closed."""
        self._by_key: dict[RequestKey, list[str]] = {}
        """Ids of the requests of a key that are open or answered."""
        self._of_lineage: dict[str, set[str]] = {}
        self._early: dict[str, dict[str, deque[EarlySignal]]] = {}
        """By lineage and node."""

    async def ask(
        self, request: InputRequest, now: datetime, live: Collection[str]
    ) -> InputRequest:
        """Write an open request, or find out that it need not wait."""
        asker = request.execution_id
        known = [self._requests[one] for one in self._by_key.get(request.key, ())]
        for found in known:
            if found.state is RequestState.ANSWERED:
                return self._put(replace(found, execution_id=asker))
        for found in known:
            if found.execution_id not in live:
                return self._put(replace(found, execution_id=asker))
        early = self._take_early(request, now)
        self._by_key.setdefault(request.key, []).append(request.request_id)
        self._open[request.request_id] = None
        self._put(request)
        if early is None:
            return request
        return self._closed_as(request, state=RequestState.ANSWERED, answer=early.answer)

    async def get(self, request_id: str) -> InputRequest | None:
        """A request, None if there is none."""
        return self._requests.get(request_id)

    async def open_requests(self) -> Sequence[InputRequest]:
        """Every open request, the oldest first."""
        return [self._requests[one] for one in self._open]

    async def answer(self, request_id: str, answer: Answer) -> InputRequest:
        """Answer an open request."""
        found = self._requests.get(request_id)
        if found is None:
            raise NotFoundError(
                f"there is no approval {request_id}",
                code="approval_not_found",
                approvalId=request_id,
            )
        if found.state is not RequestState.OPEN:
            raise ConflictError(
                f"approval {request_id} is not open: {found.state}",
                code="already_answered",
                approvalId=request_id,
                state=str(found.state),
            )
        return self._closed_as(found, state=RequestState.ANSWERED, answer=answer)

    async def close(self, request_id: str, execution_id: str, state: RequestState) -> bool:
        """End an open request without an answer."""
        found = self._requests.get(request_id)
        if found is None or found.state is not RequestState.OPEN:
            return False
        if found.execution_id != execution_id:
            return False
        self._unlink(found)
        self._closed_as(found, state=state)
        return True

    async def keep(self, signal: EarlySignal, now: datetime, limit: int) -> None:
        """Keep a signal that nobody waits for yet."""
        kept = self._valid(signal.lineage, signal.node_id, now)
        if len(kept) >= limit:
            first = min(one.expires_at for one in kept) - now
            raise SignalBufferFullError(
                f"node {signal.node_id} keeps {limit} signals that it has not waited for yet",
                retry_after=first.total_seconds(),
                nodeId=signal.node_id,
            )
        kept.append(signal)
        self._early.setdefault(signal.lineage, {})[signal.node_id] = kept

    async def forget(self, lineage: str) -> None:
        """Remove all requests and signals of a lineage."""
        for request_id in self._of_lineage.pop(lineage, ()):
            self._unlink(self._requests.pop(request_id))
            self._open.pop(request_id, None)
        self._closed.pop(lineage, None)
        self._early.pop(lineage, None)

    # -- parts

    def _put(self, request: InputRequest) -> InputRequest:
        self._requests[request.request_id] = request
        self._of_lineage.setdefault(request.lineage, set()).add(request.request_id)
        return request

    def _closed_as(
        self, request: InputRequest, *, state: RequestState, answer: Answer | None = None
    ) -> InputRequest:
        """Close an open request, and let the oldest closed one go if there are too many."""
        del self._open[request.request_id]
        closed = self._closed.setdefault(request.lineage, deque())
        closed.append(request.request_id)
        if len(closed) > KEPT:
            oldest = self._requests.pop(closed.popleft())
            self._of_lineage[oldest.lineage].discard(oldest.request_id)
            self._unlink(oldest)
        return self._put(
            replace(
                request,
                state=state,
                answer=answer,
                remaining=None,
                prompt=None,
                payload_preview="",
            )
        )

    def _unlink(self, request: InputRequest) -> None:
        """Let nobody who asks the same find this request."""
        ids = self._by_key.get(request.key, [])
        if request.request_id in ids:
            ids.remove(request.request_id)
            if not ids:
                del self._by_key[request.key]

    def _take_early(self, request: InputRequest, now: datetime) -> EarlySignal | None:
        kept = self._valid(request.lineage, request.node_id, now)
        taken = next((one for one in kept if one.signal == request.signal), None)
        if taken is not None:
            kept.remove(taken)
            self._early[request.lineage][request.node_id] = kept
        return taken

    def _valid(self, lineage: str, node_id: str, now: datetime) -> deque[EarlySignal]:
        early = self._early.get(lineage, {}).get(node_id, ())
        return deque(one for one in early if one.expires_at > now)
