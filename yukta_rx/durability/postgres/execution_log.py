"""The execution log in PostgreSQL. Feature: DUR-01."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self, cast

from msgspec.structs import replace

from yukta_rx.durability.postgres import _log_statements as sql
from yukta_rx.durability.postgres._arrays import arrays, texts
from yukta_rx.durability.postgres._claim_check import MARK, ClaimCheck, Needed
from yukta_rx.durability.postgres._log_quarantine import LogQuarantine, Unreadable
from yukta_rx.durability.postgres._log_retention import LogRetention
from yukta_rx.durability.postgres._texts import stored
from yukta_rx.durability.postgres._writer import Writer
from yukta_rx.durability.postgres.fence import check
from yukta_rx.durability.stores.execution_log import CHILDREN, LogEntry, LoggedRun, parent_of
from yukta_rx.errors import BadRequestError, StoreUnavailableError
from yukta_rx.model.execution_log import (
    IdempotencyKey,
    LogEvent,
    RunAborted,
    RunFinished,
    RunStarted,
    decode_event,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.durability.stores.writing import Writing
    from yukta_rx.metrics import Meters

Scope = tuple[str, str, str]

STORE: Final = "execution-log"
"""As the owner of blobs."""

PLACES: Final = 512
"""Places that are fetched at a time; a server that ends leaves so many unused at the most."""


class _Write:
    """Events that are written together, and what came of it.

    Args:
        events: in their order.
        claim: the last of them is the key that a start needs; without it nothing is written.
        first: the line of the first of them, if it is made already.
    """

    __slots__ = ("events", "key", "lines", "places", "refused", "size")

    def __init__(
        self, events: Sequence[LogEvent], *, claim: bool = False, first: str | None = None
    ) -> None:
        self.events = tuple(events)
        done = [] if first is None else [first]
        self.lines = done + [encode_event(event).decode() for event in events[len(done) :]]
        self.size = sum(map(len, self.lines)) + 100
        self.places: list[int] = []
        self.key = cast("IdempotencyKey", events[-1]) if claim else None
        self.refused = False

    @property
    def apart(self) -> str | None:
        """The run whose payload is kept apart, if it is."""
        return self.events[0].execution_id if self.lines[0].startswith(MARK) else None

    @property
    def appended(self) -> list[tuple[int, str, IdempotencyKey]]:
        """Keys that change what is known of them, whatever that is: place, line and key."""
        if self.key is not None:
            return []
        return [
            (seq, line, event)
            for seq, line, event in zip(self.places, self.lines, self.events, strict=True)
            if isinstance(event, IdempotencyKey)
        ]

    @property
    def scopes(self) -> set[Scope]:
        return {event.scope for event in self.events if isinstance(event, IdempotencyKey)}


class PostgresExecutionLogStore:
    """See `ExecutionLogStore`; rows of events, each with its line, and what is known of each run.

    Everything that waits is one transaction. `run` is kept by the same statements, and says where
    the start, the end and the newest entry of each run are. A row that cannot be read is moved to
    `execution_log_quarantine` by whoever comes upon it.

    Args:
        database: where it is, and whose.
        retained: runs that are kept at least.
        compact_after: events after which older runs are dropped.
        meters: where rows are counted that cannot be read, and children that went for their number.
        children: runs that others started and that are kept beside those.
        blobs: keeps start payloads that are too large for a row; None keeps all in their rows.
        claim_bytes: size from which on a payload is; 0 for none.
    """

    durable = True

    def __init__(
        self,
        database: Database,
        retained: int,
        compact_after: int,
        *,
        meters: Meters | None = None,
        children: int = CHILDREN,
        blobs: PostgresBlobStore | None = None,
        claim_bytes: int = 0,
    ) -> None:
        self._database = database
        self._payloads = ClaimCheck(STORE, database, blobs, claim_bytes, Needed("run"))
        self._children, self._meters = children, meters
        self._retained = retained
        self._compact_after = compact_after
        self._quarantine = LogQuarantine(database, meters)
        self._places: deque[int] = deque()
        self._claims: dict[Scope, Writing] = {}
        """Keys that are being written."""
        self._writer: Writer[_Write] | None = None
        self._retention: LogRetention | None = None

    async def start(self) -> None:
        """Begin; the database is open."""
        kept = self._retained, self._compact_after, self._children
        await self._payloads.sweep()
        self._retention = LogRetention(self._database, *kept, self._meters, self._payloads.sweep)
        writer = Writer(self._database, "execution-log", self._commit)
        self._writer = await writer.__aenter__()

    async def close(self) -> None:
        """Write what waits."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__()
        if self._retention is not None:
            await self._retention.close()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close it."""
        await self.close()

    async def settled(self) -> None:
        """Wait until all is dropped that is no longer kept."""
        if self._retention is not None:
            await self._retention.settled()

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Rows that could not be read since this server started."""
        return self._quarantine.found

    # -- writes

    async def append_start(
        self, started: RunStarted, key: IdempotencyKey | None = None
    ) -> IdempotencyKey | None:
        """Write a start with its key; see the Protocol."""
        run, line = started.execution_id, encode_event(started).decode()
        text = self._payloads.text_of(started.payload, len(line))
        if text is None:
            return await self._append_start(started, line, key)
        with self._payloads.writing(run):
            apart = replace(started, payload=await self._payloads.put(run, text))
            line = MARK + encode_event(apart).decode()[1:]
            # What fails may be there all the same; if it is not, a `sweep` finds that out.
            known = await self._append_start(apart, line, key)
            if known is not None:
                await self._payloads.forget(run)
            return known

    async def _append_start(
        self, started: RunStarted, line: str, key: IdempotencyKey | None
    ) -> IdempotencyKey | None:
        if key is None:
            await self._put(_Write((started,), first=line))
            return None
        while True:
            write = _Write((started, key), claim=True, first=line)
            if (claim := self._claimed(key.scope)) is None:
                await self._put(write)
                if not write.refused:
                    return None
            else:
                await claim.over()
            known = await self._known(key.scope)
            if known is not None and started.time < known.expires_at:
                return known

    async def append(self, events: Sequence[LogEvent]) -> None:
        """Write events in one write."""
        write = _Write(events)
        while claims := [one for scope in write.scopes if (one := self._claimed(scope))]:
            await claims[0].over()
        if events:
            await self._put(write)

    def _claimed(self, scope: Scope) -> Writing | None:
        """A key that is being written."""
        claim = self._claims.get(scope)
        # Of one that has failed the store is told a moment later.
        return None if claim is None or claim.settled else claim

    def _put(self, write: _Write) -> Writing:
        if self._writer is None:
            raise _closed()
        done = self._writer.put(write, write.size)
        for scope in write.scopes:
            self._claims[scope] = done
        if write.apart is not None:
            # Whoever waits for it may give up.
            self._payloads.begin(write.apart)
        done.tell(lambda error: self._written(write, done, error))
        return done

    def _written(self, write: _Write, done: Writing, error: BaseException | None) -> None:
        for scope in write.scopes:
            if self._claims.get(scope) is done:
                del self._claims[scope]
        if write.apart is not None:
            self._payloads.done(write.apart)
        if error is None and not write.refused and self._retention is not None:
            self._retention.grown(len(write.events), write.events[-1].time)

    async def _commit(self, made: Any, writes: Sequence[_Write]) -> None:
        """Write a batch; what was written the last time keeps its places, and is not doubled."""
        await self._give_places(made, writes)
        changed = [one for write in writes for one in write.appended]
        if not changed:
            await self._insert(made, writes)
            return
        async with made.transaction():
            await self._insert(made, writes)
            for seq, line, key in changed:
                await self._change_key(made, seq, line, key)

    async def _give_places(self, made: Any, writes: Sequence[_Write]) -> None:
        missing = [write for write in writes if not write.places]
        count = sum(len(write.events) for write in missing)
        if count > len(self._places):
            more = max(PLACES, count - len(self._places))
            _, places = await made.fetchrow(sql.PLACES, more)
            self._places.extend(map(int, places.split()))
        for write in missing:
            write.places = [self._places.popleft() for _ in write.events]

    async def _insert(self, made: Any, writes: Sequence[_Write]) -> None:
        rows: list[tuple[Any, ...]] = []
        keys: list[tuple[Any, ...]] = []
        below: list[tuple[Any, ...]] = []
        for write in writes:
            claim = 0
            if write.key is not None:
                claim = write.places[-1]
                keys.append(_key_row(claim, write.lines[-1], write.key, write.events[0].time))
            for event, seq, line in zip(write.events, write.places, write.lines, strict=True):
                rows.append((stored(event.execution_id), seq, event.TYPE, line, claim))
                if (parent := parent_of(event)) is not None:
                    below.append((stored(event.execution_id), stored(parent)))
        part, epoch = self._database.part, self._database.epoch
        given = (
            *arrays(rows, *sql.ROW_COLUMNS),
            *arrays(keys, *sql.KEY_COLUMNS),
            *arrays(below, texts, texts),
        )
        said = await made.fetch(sql.WRITE, part, epoch, *given)
        check(said, part, epoch)
        claimed = set(map(int, said[0]["claimed"].split()))
        for write in writes:
            write.refused = write.key is not None and write.places[-1] not in claimed

    async def _change_key(self, made: Any, seq: int, line: str, key: IdempotencyKey) -> None:
        part, row = self._database.part, _key_row(seq, line, key, key.time)
        if key.time < key.expires_at:
            await made.execute(sql.REMEMBER, part, self._database.epoch, *row)
        else:
            await made.execute(sql.SET_FREE, part, *row[:4])

    # -- reads

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[LogEntry]:
        """Entries behind a place."""
        self._check()
        name = stored(stream)
        found: list[LogEntry] = []
        while True:
            left = limit - len(found)
            rows = await self._database.fetch(sql.PAGE, self._database.part, name, after, left)
            bad: list[Unreadable] = []
            for row in rows:
                event = _event(row["event"], "execution_log", name, row["seq"], bad)
                if event is not None:
                    found.append(LogEntry(row["seq"], event))
            if not bad:
                return found
            await self._quarantine.set_aside(bad)
            # In their place there are others, perhaps.
            after = rows[-1]["seq"]

    async def runs(self) -> Sequence[LoggedRun]:
        """Every run, in the order of their newest entries."""
        rows = await self._readable(sql.RUNS, ("started", "ended"))
        return [
            LoggedRun(
                started=started,
                ended=cast("RunFinished | RunAborted | None", ended),
                resumed=row["resumed"],
                last_seq=row["last_seq"],
            )
            for row, (started, ended) in rows
            if isinstance(started, RunStarted)
        ]

    async def start_of(self, execution_id: str) -> RunStarted | None:
        """The start of a run with its payload."""
        name = stored(execution_id)
        for row, (started,) in await self._readable(sql.START, ("started",), name):
            if isinstance(started, RunStarted) and row["started"].startswith(MARK):
                what = f"the start payload of run {execution_id}"
                try:
                    payload = await self._payloads.opened(started.payload, what)
                except StoreUnavailableError:
                    if await self._database.fetch(sql.START, self._database.part, name):
                        raise
                    # It had to go meanwhile.
                    return None
                return replace(started, payload=payload)
            if isinstance(started, RunStarted):
                return started
        return None

    async def unfinished(self) -> Sequence[RunStarted]:
        """The starts of runs without an end."""
        rows = await self._readable(sql.UNFINISHED, ("started",))
        return [started for _, (started,) in rows if isinstance(started, RunStarted)]

    async def _readable(
        self, query: str, names: Sequence[str], *args: str
    ) -> list[tuple[Any, list[LogEvent | None]]]:
        """Rows of `run`, each with the events of its columns `names`."""
        self._check()
        while True:
            rows = await self._database.fetch(query, self._database.part, *args)
            bad: list[Unreadable] = []
            read = [
                [
                    _event(row[name], "execution_log", row["execution_id"], row[f"{name}_seq"], bad)
                    for name in names
                ]
                for row in rows
            ]
            if not bad or not await self._quarantine.set_aside(bad):
                return list(zip(rows, read, strict=True))

    async def idempotency_keys(self, now: datetime) -> Sequence[IdempotencyKey]:
        """The keys that have not expired."""
        self._check()
        return await self._keys(sql.KEYS, now)

    async def _known(self, scope: Scope) -> IdempotencyKey | None:
        """What is known of a key."""
        found = await self._keys(sql.KEY, *map(stored, scope))
        return found[0] if found else None

    async def _keys(self, query: str, *args: Any) -> list[IdempotencyKey]:
        rows = await self._database.fetch(query, self._database.part, *args)
        bad: list[Unreadable] = []
        read = [
            _event(row["event"], "idempotency_key", row["execution_id"], row["seq"], bad)
            for row in rows
        ]
        if bad:
            await self._quarantine.set_aside(bad)
        return [key for key in read if isinstance(key, IdempotencyKey)]

    def _check(self) -> None:
        if self._writer is None:
            raise _closed()


def _key_row(seq: int, line: str, key: IdempotencyKey, given_at: datetime) -> tuple[Any, ...]:
    names = (*key.scope, key.execution_id)
    return *map(stored, names), seq, line, given_at, key.expires_at


def _event(
    line: str | None, table: str, execution_id: str, seq: int, bad: list[Unreadable]
) -> LogEvent | None:
    """The event of a row; None where there is none, or it is one of the `bad` ones."""
    if line is None:
        return None
    try:
        return decode_event(line.encode())
    except BadRequestError as error:
        bad.append(Unreadable(table, execution_id, seq, error.detail))
        return None


def _closed() -> StoreUnavailableError:
    return StoreUnavailableError("the execution log is not open", store="execution-log")
