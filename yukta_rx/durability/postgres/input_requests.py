"""Input requests and early signals in PostgreSQL. Feature: CTL-05."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec
from msgspec.structs import replace

from yukta_rx.durability.postgres import _request_statements as sql
from yukta_rx.durability.postgres._left_out import LeftOut
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.stores.input_requests import Answer, InputRequest, RequestState
from yukta_rx.durability.stores.rows import from_row, to_row
from yukta_rx.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    SignalBufferFullError,
    StaleLeaderError,
    StoreUnavailableError,
)
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.input_requests import EarlySignal
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters

S = TypeVar("S", bound=msgspec.Struct)

KEPT: Final = 10_000
"""Requests of one lineage that are kept once they are closed; beyond it the oldest go."""

log = logging.getLogger(__name__)


class PostgresInputRequestStore:
    """See `InputRequestStore`; a row for each request and each early signal.

    Each call that changes something is one transaction. Whoever asks, or sends a signal early,
    has the turn of the lineage; whoever answers or closes has the row of the request. A closed
    request loses its prompt and preview.

    Args:
        database: where it is, and whose.
        meters: where rows are counted that cannot be read.
        kept: closed requests of one lineage that are kept at least.
    """

    durable = True

    def __init__(
        self, database: Database, *, meters: Meters | None = None, kept: int = KEPT
    ) -> None:
        self._database = database
        self._left_out = LeftOut("input-requests", meters)
        self._kept = kept
        self._closed = 0
        self._lineages: set[str] = set()
        """Those of which something was closed since some were dropped."""

    async def start(self) -> None:
        """Nothing is kept here."""

    async def stop(self) -> None:
        """Nothing waits here; `close` is about a request."""

    async def __aenter__(self) -> Self:
        """Start it."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop it."""

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Rows that could not be read since this server started."""
        return self._left_out.found

    async def ask(
        self, request: InputRequest, now: datetime, live: Collection[str]
    ) -> InputRequest:
        """Write an open request, or find out that it need not wait."""
        asked = await self._database.write(lambda made: self._ask(made, request, now, live))
        if asked.request_id == request.request_id and asked.state is not RequestState.OPEN:
            await self._was_closed(asked)
        return asked

    async def get(self, request_id: str) -> InputRequest | None:
        """A request, None if there is none."""
        row = await self._database.fetchrow(sql.ONE, self._database.part, stored(request_id))
        return None if row is None else self._request(row)

    async def open_requests(self) -> Sequence[InputRequest]:
        """Every open request, the oldest first."""
        rows = await self._database.fetch(sql.OPEN, self._database.part)
        found = [self._read(InputRequest, row["request"], _place(row)) for row in rows]
        return [one for one in found if not isinstance(one, StoreUnavailableError)]

    async def answer(self, request_id: str, answer: Answer) -> InputRequest:
        """Answer an open request."""

        async def work(made: Any) -> InputRequest:
            found = await self._held(made, request_id)
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
            return await self._close(made, _closed(found, RequestState.ANSWERED, answer))

        answered = await self._database.write(work)
        await self._was_closed(answered)
        return answered

    async def close(self, request_id: str, execution_id: str, state: RequestState) -> bool:
        """End an open request without an answer."""

        async def work(made: Any) -> InputRequest | None:
            found = await self._held(made, request_id)
            if found is None or found.state is not RequestState.OPEN:
                return None
            if found.execution_id != execution_id:
                return None
            return await self._close(made, _closed(found, state))

        closed = await self._database.write(work)
        if closed is not None:
            await self._was_closed(closed)
        return closed is not None

    async def keep(self, signal: EarlySignal, now: datetime, limit: int) -> None:
        """Keep a signal that nobody waits for yet."""
        part, epoch = self._database.part, self._database.epoch
        node = (stored(signal.lineage), stored(signal.node_id))
        text = _text(signal.answer)

        async def work(made: Any) -> None:
            await self._turn(made, signal.lineage)
            row = await made.fetchrow(sql.KEPT, part, *node, now)
            if row["kept"] >= limit:
                first = row["first"] or now
                raise SignalBufferFullError(
                    f"node {signal.node_id} keeps {limit} signals that it has not waited for yet",
                    retry_after=(first - now).total_seconds(),
                    nodeId=signal.node_id,
                )
            await made.execute(sql.DROP_EXPIRED, part, *node, now)
            await made.execute(
                sql.KEEP, part, epoch, *node, stored(signal.signal), signal.expires_at, text
            )

        await self._database.write(work)

    async def forget(self, lineage: str) -> None:
        """Remove all requests and signals of a lineage."""

        async def work(made: Any) -> None:
            await self._turn(made, lineage)
            for statement in sql.FORGET:
                await made.execute(statement, self._database.part, stored(lineage))

        await self._database.write(work)
        self._lineages.discard(lineage)

    # -- parts

    async def _turn(self, made: Any, lineage: str) -> None:
        """Wait until nobody else asks anything of a lineage, and keep them waiting."""
        await made.execute(sql.TURN, f"{self._database.part}/{stored(lineage)}")

    async def _ask(
        self, made: Any, request: InputRequest, now: datetime, live: Collection[str]
    ) -> InputRequest:
        await self._turn(made, request.lineage)
        part, epoch, asker = self._database.part, self._database.epoch, request.execution_id
        key = tuple(map(stored, request.key))
        known = [self._request(row) for row in await made.fetch(sql.SAME, part, *key)]
        answered = [one for one in known if one.state is RequestState.ANSWERED]
        # One of the same id is this one, whose answer got lost.
        given_up = (
            one
            for one in known
            if one.execution_id not in live or one.request_id == request.request_id
        )
        for found in (*answered, *given_up):
            taken = replace(found, execution_id=asker)
            place = (stored(found.request_id), stored(asker))
            await made.execute(sql.TAKE_OVER, part, epoch, *place, _text(taken))
            return taken
        early = await self._take_early(made, request, now)
        if early is not None:
            request = _closed(request, RequestState.ANSWERED, early)
        names = (stored(request.request_id), *key, stored(asker), str(request.state))
        await made.execute(sql.ADD, part, epoch, *names, _text(request))
        return request

    async def _take_early(self, made: Any, request: InputRequest, now: datetime) -> Answer | None:
        """The oldest signal that came early and has not expired, which is kept no more."""
        part = self._database.part
        names = map(stored, (request.lineage, request.node_id, request.signal))
        for row in await made.fetch(sql.EARLY, part, *names, now):
            answer = self._read(Answer, row["answer"], f"early_signal, seq {row['seq']}")
            if not isinstance(answer, StoreUnavailableError):
                await made.execute(sql.TAKE_EARLY, part, row["seq"])
                return answer
        return None

    async def _held(self, made: Any, request_id: str) -> InputRequest | None:
        """A request that nobody else changes before the transaction has ended."""
        query = f"{sql.ONE} FOR UPDATE"
        row = await made.fetchrow(query, self._database.part, stored(request_id))
        return None if row is None else self._request(row)

    async def _close(self, made: Any, closed: InputRequest) -> InputRequest:
        part, epoch = self._database.part, self._database.epoch
        place = (stored(closed.request_id), str(closed.state))
        await made.execute(sql.CLOSE, part, epoch, *place, _text(closed))
        return closed

    async def _was_closed(self, closed: InputRequest) -> None:
        """Let the oldest closed ones go, now and then."""
        self._closed += 1
        self._lineages.add(closed.lineage)
        if self._closed <= self._kept // 10:
            return
        self._closed, lineages = 0, self._lineages
        self._lineages = set()
        for lineage in lineages:
            try:
                await self._prune(lineage)
            except (StoreUnavailableError, StaleLeaderError) as error:
                # What the caller asked for is done.
                log.warning("closed requests are not dropped for now: %s", error)
                self._lineages.add(lineage)

    async def _prune(self, lineage: str) -> None:
        args = (self._database.part, stored(lineage), self._kept)
        await self._database.write(lambda made: made.execute(sql.PRUNE, *args))

    def _request(self, row: Any) -> InputRequest:
        """The request of a row.

        Raises:
            StoreUnavailableError: it cannot be read.
        """
        found = self._read(InputRequest, row["request"], _place(row))
        if isinstance(found, StoreUnavailableError):
            raise found
        return found

    def _read(self, kind: type[S], text: str, place: str) -> S | StoreUnavailableError:
        try:
            return from_row(kind, codec.decode(text.encode()))
        except (BadRequestError, msgspec.ValidationError, TypeError) as error:
            reason = error.detail if isinstance(error, BadRequestError) else str(error)
            about = self._left_out.add(place, reason)
            return StoreUnavailableError(str(about), store="input-requests")


def _closed(
    request: InputRequest, state: RequestState, answer: Answer | None = None
) -> InputRequest:
    return replace(
        request, state=state, answer=answer, remaining=None, prompt=None, payload_preview=""
    )


def _text(value: msgspec.Struct) -> str:
    return codec.encode(to_row(value)).decode()


def _place(row: Any) -> str:
    return f"input_request {row['request_id']}"
