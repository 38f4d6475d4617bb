"""Node outputs in two tables: rows, and what is known of each node.  Features: DUR-02, DUR-04.

One writer for all nodes of all runs: what waits is one statement, rows and end markers and the
fence together. Rows are read page by page, so an output never is in memory as a whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from yukta_rx.durability.postgres._arrays import arrays
from yukta_rx.durability.postgres._checkpoint_apart import keep_apart, put_apart
from yukta_rx.durability.postgres._checkpoint_outputs import Output, Record, Run, Told
from yukta_rx.durability.postgres._checkpoint_pages import DamagedRowError, pages
from yukta_rx.durability.postgres._checkpoint_statements import (
    BEGIN,
    CLEAR,
    COPY_ROWS,
    COPY_STATES,
    GIVE_UP,
    GOING,
    HELD,
    ROW_COLUMNS,
    RUNS,
    STATE_COLUMNS,
    STATES,
    STEP,
    WRITE,
)
from yukta_rx.durability.postgres._quarantine import Quarantine
from yukta_rx.durability.postgres._texts import named, stored
from yukta_rx.durability.postgres._writer import MOST_ROWS, Writer
from yukta_rx.durability.postgres.database import COMMAND, columns
from yukta_rx.durability.postgres.fence import hold_fence, stale
from yukta_rx.durability.stores.blobs import Owner, checked, opened
from yukta_rx.durability.stores.checkpoints import (
    DAMAGED,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    NodeCheckpoint,
    encode_row,
)
from yukta_rx.durability.stores.claims import STORE, claims_of, references_in, without
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError, UnserialisablePayloadError

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Awaitable,
        Collection,
        Mapping,
        Sequence,
    )

    import asyncpg

    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.durability.stores.quarantine import Quarantined
    from yukta_rx.metrics import Meters
    from yukta_rx.model.codec import Blob

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

log = logging.getLogger(__name__)

PATIENCE: Final = 60.0
"""Seconds that rows wait for a database that gives no answer, before their outputs are given up."""

EPOCH_BITS: Final = 40
"""Rows of one epoch that can be counted before those of the next: 2 to the power of it."""


class PostgresNodeCheckpointStore:
    """See `NodeCheckpointStore`.

    Args:
        database: where they are.
        blobs: keeps payloads that are too large for a row; None keeps every payload in its row.
        claim_bytes: size from which on a payload is; 0 for none.
        meters: where rows are counted that cannot be read.
        patience: seconds that rows wait for a database that gives no answer.
        most_rows: rows that are written in one statement.
        step: rows that are copied or removed in one transaction.
    """

    durable = True
    synchronous = False

    def __init__(
        self,
        database: Database,
        *,
        blobs: PostgresBlobStore | None = None,
        claim_bytes: int = 0,
        meters: Meters | None = None,
        patience: float = PATIENCE,
        most_rows: int = MOST_ROWS,
        step: int = STEP,
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._claim_bytes = claim_bytes if blobs is not None else 0
        self._runs: dict[str, Run] = {}
        self._owed: dict[Output, None] = {}
        """Outputs that were given up, and that could not be written."""
        self._quarantine = Quarantine("restart", meters)
        self._patience = patience
        self._most_rows = most_rows
        self._step = step
        self._writer: Writer[Record] | None = None
        self._apart: set[str] = set()
        """Runs that are forgotten, but for what is kept apart of them."""
        self._seq = 0
        self._held = 0

    async def start(self) -> None:
        """Look how much there is.

        Raises:
            StoreUnavailableError: the database gives no answer.
        """
        [held] = await self._database.fetch(HELD, self._database.part)
        self._held = held["bytes"]
        self._seq = max(held["seq"], self._database.epoch << EPOCH_BITS)
        writer: Writer[Record] = Writer(
            self._database,
            "checkpoints",
            self._write,
            self._lost,
            patience=self._patience,
            most_rows=self._most_rows,
        )
        self._writer = await writer.__aenter__()
        if self._blobs is not None:
            await self._blobs.start()
            await self._blobs.keep(STORE, await self.runs())

    async def close(self) -> None:
        """Write what waits."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.__aexit__()
        if self._blobs is not None:
            await self._blobs.close()

    @property
    def claim_bytes(self) -> int:
        """Size from which on payloads are kept apart."""
        return self._claim_bytes

    async def payload(self, blob: Blob) -> Any:
        """A payload that is kept apart."""
        return checked(blob, None) if self._blobs is None else await opened(self._blobs, blob)

    @property
    def bytes(self) -> int:
        """Bytes of rows and of blobs."""
        return self._held + (self._blobs.size if self._blobs is not None else 0)

    @property
    def quarantined(self) -> Sequence[Quarantined]:
        """Rows that could not be read, since this server started."""
        return self._quarantine.found

    @property
    def stale(self) -> int:
        """Rows and marks that were refused because another server leads."""
        return 0 if self._writer is None else self._writer.stale

    # -- taking over

    @property
    def full(self) -> bool:
        """Whether nodes should be held back."""
        return self._writer is not None and self._writer.full

    async def room(self) -> None:
        """Wait until it is not `full`."""
        if self._writer is not None:
            await self._writer.room()

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        """Take a row over; False if the output of the node is not kept."""
        output = self._run(execution_id).output(node_id)
        if output.complete or output.ending is not None or output.reason is not None:
            return False
        return self._take(output, row, done=False) is not None

    def _take(self, output: Output, row: CheckpointRow, *, done: bool) -> Record | None:
        """Have a row written; None if it cannot be."""
        try:
            references = references_in(row) if self._claim_bytes else {}
            light = without(row, references)
            text = encode_row(light)
            large = self._claim_bytes and len(text) > self._claim_bytes
            claims = claims_of(light, self._claim_bytes) if large else {}
        except UnserialisablePayloadError as error:
            log.warning("the output of node %s is not kept: %s", output.node_id, error)
            self._give_up(output, UNSERIALISABLE)
            return None
        record = Record(output, self._next(), done=done)
        record.messages, record.inputs = len(row), len(row.inputs)
        if claims or references:
            record.keep_later(row, claims, references)
        else:
            record.keep(text)
        return self._submit(record)

    def _submit(self, record: Record) -> Record:
        if self._writer is None:
            raise _not_open()
        record.output.last = record.output.run.last = record
        self._writer.put(record, 200 + record.size + record.apart)
        return record

    def mark_complete(
        self, execution_id: str, node_id: str, row: CheckpointRow | None = None
    ) -> Awaitable[None] | None:
        """Write the last row and the end marker together; None if that is done already."""
        output = self._run(execution_id).output(node_id)
        if output.reason == WRITE_FAILED:
            raise output.unwritten()
        if output.complete or output.reason is not None:
            return None
        if output.ending is None:
            if row is not None:
                output.ending = self._take(output, row, done=True)
            else:
                output.ending = self._submit(Record(output, self._next(), done=True))
        return output.ending

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        """Give up the output of a node for good."""
        output = self._run(execution_id).output(node_id)
        if not output.complete and output.reason is None:
            self._give_up(output, reason)

    def _give_up(self, output: Output, reason: str) -> None:
        output.reason = reason
        record = Record(output, self._next())
        record.reason = reason
        self._submit(record)

    def written(self, execution_id: str, node_id: str) -> Awaitable[None] | None:
        """Wait until all rows of a node that were appended are written; None if they are."""
        run = self._runs.get(execution_id)
        output = None if run is None else run.outputs.get(node_id)
        if output is None:
            return None
        if output.reason == WRITE_FAILED:
            raise output.unwritten()
        return None if output.last is None or output.last.settled else output.last

    def _run(self, execution_id: str) -> Run:
        run = self._runs.get(execution_id)
        if run is None:
            run = self._runs[execution_id] = Run(execution_id)
        return run

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    # -- writing; in the writer's task

    async def _write(self, made: Connection, records: Sequence[Record]) -> None:
        """Write records, and tell those who wait; called again if there was no answer."""
        database, owed = self._database, tuple(self._owed)
        live = [record for record in records if not record.output.lost]
        heavy = [record for record in live if record.apart]
        for record in heavy:
            if record.row is not None and self._blobs is not None:
                await keep_apart(record, record.row, self._blobs)
        apart = [record for record in heavy if record.keeps]
        if owed or apart:
            async with made.transaction():
                await hold_fence(made, database.part, database.epoch)
                await self._write_owed(made, owed)
                fresh = await put_apart(made, self._blobs, apart)
                await self._put(made, live)
            self._written_owed(owed)
            if self._blobs is not None:
                self._blobs.size += fresh
        else:
            await self._put(made, live)
        for record in heavy:
            for claim in record.references.values():
                claim.kept(record.output.run.id)
        for record in live:
            self._held += record.size
            if record.done:
                record.output.complete, record.output.ending = True, None
            record.settle(None)
        for record in records:
            if not record.settled:
                record.settle(record.output.unwritten())

    async def _put(self, made: Connection, records: Sequence[Record]) -> None:
        """Write rows and states in one statement."""
        database = self._database
        if not records:
            return
        rows: list[tuple[Any, ...]] = []
        told: dict[Output, Told] = {}
        for record in records:
            output = record.output
            if record.text is not None:
                blobs = " ".join(sorted(record.blobs)) if record.blobs else None
                rows.append((output.run.column, output.column, record.seq, record.text, blobs))
            if output not in told:
                told[output] = Told()
            told[output].add(record)
        states = [
            (
                *(output.run.column, output.column, one.done, one.reason),
                *(one.messages, one.inputs, one.bytes, one.seq),
            )
            for output, one in told.items()
        ]
        given = (*arrays(rows, *ROW_COLUMNS), *arrays(states, *STATE_COLUMNS))
        if not await made.fetchval(WRITE, database.part, database.epoch, *given):
            raise stale(database.part, database.epoch)

    async def _write_owed(self, made: Connection, owed: Sequence[Output]) -> None:
        """What could not be written before and has to be before anything else."""
        database = self._database
        still = [(one.run.column, one.column, one.reason) for one in owed if not one.run.gone]
        if still:
            given = (database.part, database.epoch, self._seq, *columns(still, 3))
            await made.execute(GIVE_UP, *given)

    def _written_owed(self, owed: Sequence[Output]) -> None:
        for output in owed:
            self._owed.pop(output, None)

    def _lost(self, records: Sequence[Record], error: BaseException) -> None:
        """Records could not be written: what they say of a node is not so."""
        for record in records:
            output = record.output
            if record.done:
                output.ending = None
            if not output.lost:
                log.warning("the output of node %s is given up: %s", output.node_id, error)
                output.failed = True
                output.reason = output.reason or WRITE_FAILED
                if not isinstance(error, StaleLeaderError):
                    self._owed[output] = None
            record.settle(error)

    # -- reading

    async def _settled(self, run: Run | None) -> None:
        """Wait until all that was taken over for a run is written, or has failed.

        Raises:
            StoreUnavailableError: the database gives no answer, so nobody knows.
        """
        if self._writer is None:
            raise _not_open()
        if run is not None and run.last is not None and not run.last.settled:
            _, waits = await asyncio.wait((run.last.over(),), timeout=COMMAND)
            if waits:
                raise StoreUnavailableError(
                    f"the outputs of run {run.id} wait to be written: the database gives no answer",
                    store="checkpoints",
                )

    async def states(self, execution_id: str) -> Mapping[str, NodeCheckpoint]:
        """What is known of each node of a run, by node id."""
        run = self._runs.get(execution_id)
        await self._settled(run)
        column = stored(execution_id)
        found: dict[str, NodeCheckpoint] = {}
        for row in await self._database.fetch(STATES, self._database.part, column):
            if row["reason"] == GOING:
                continue
            state = NodeCheckpoint(row["complete"], None, row["messages"], row["inputs"])
            if row["reason"] is not None:
                state = NodeCheckpoint(False, row["reason"])
            found[named(row["node_id"])] = state
        if found:
            self._learn(self._run(execution_id), found)
        for node_id, output in () if run is None else run.outputs.items():
            if output.reason is not None:
                found[node_id] = NodeCheckpoint(False, output.reason)
        return found

    def _learn(self, run: Run, found: Mapping[str, NodeCheckpoint]) -> None:
        """What an earlier process said of nodes, so that what comes for them changes nothing."""
        for node_id, state in found.items():
            output = run.output(node_id)
            if output.last is None:
                output.complete, output.reason = state.complete, state.reason

    async def read(
        self, execution_id: str, node_id: str, *, whole: bool = True
    ) -> AsyncGenerator[CheckpointRow, None]:
        """The rows of a node, drawn as they are asked for."""
        run = self._runs.get(execution_id)
        output = None if run is None else run.outputs.get(node_id)
        if self._writer is None:
            raise _not_open()
        if output is not None and output.reason is not None:
            return
        try:
            reader = None if whole else self.payload
            read = pages(self._database, self._blobs, execution_id, node_id, reader)
            async with aclosing(read) as rows:
                async for row in rows:
                    yield row
        except DamagedRowError as error:
            self._quarantine.add(error.place, "the row is damaged; its output is no use")
            await self._damaged(self._run(execution_id).output(node_id))
            raise

    async def _damaged(self, output: Output) -> None:
        """Give an output up, even if it was complete."""
        output.complete, output.failed, output.reason = False, True, DAMAGED
        self._owed[output] = None
        # If it cannot be written now, it is before anything else.
        with contextlib.suppress(StoreUnavailableError, StaleLeaderError):
            await self._database.write(lambda made: self._write_owed(made, (output,)))
            self._written_owed((output,))

    async def runs(self) -> Collection[str]:
        """Ids of all runs of which anything is kept."""
        found = await self._database.fetch(RUNS, self._database.part)
        return {named(row["execution_id"]) for row in found} | self._runs.keys()

    # -- whole runs

    async def carry_over(self, execution_id: str, into: str, nodes: Collection[str]) -> None:
        """Let a run begin with what is known of nodes of another one."""
        await self._settled(self._runs.get(execution_id))
        database, owed = self._database, tuple(self._owed)
        ids = (stored(execution_id), stored(into), list(map(stored, nodes)))
        given = (database.part, database.epoch, *ids)
        place, more = ("", 0), True

        async def step(made: Connection) -> tuple[tuple[str, int], int | None]:
            await self._write_owed(made, owed)
            rows = await made.fetch(COPY_ROWS, *given, *place, self._step)
            hashes = {one for row in rows for one in (row["blobs"] or "").split()}
            if hashes and self._blobs is not None:
                await self._blobs.share_with(made, Owner(STORE, into), hashes)
            if len(rows) == self._step:
                await made.execute(BEGIN, *given)
                return (rows[-1]["node_id"], rows[-1]["seq"]), None
            return place, await made.fetchval(COPY_STATES, *given)

        try:
            while more:
                place, size = await database.write(step)
                self._written_owed(owed)
                self._held += size or 0
                more = size is None
        except StoreUnavailableError:
            with contextlib.suppress(StoreUnavailableError):
                await self.clear(into)
            raise

    async def clear(self, *execution_ids: str) -> None:
        """Forget runs."""
        runs = [run for name in execution_ids if (run := self._runs.get(name)) is not None]
        for run in runs:
            # What waits is passed over; what is being written comes to its end.
            run.gone = True
        for run in runs:
            await self._settled(run)
            self._runs.pop(run.id, None)
        columns, more = list(map(stored, execution_ids)), True
        lost: list[None] = []
        while more:
            row = await self._database.statement(
                CLEAR, columns, self._step, lost=lambda: lost.append(None)
            )
            more = row["more"]
            self._held -= row["bytes"]
            self._apart.update(map(named, row["apart"]))
        if lost:
            # How much went nobody heard.
            self._held = (await self._database.fetch(HELD, self._database.part))[0]["bytes"]
        for name in self._apart.intersection(execution_ids):
            if self._blobs is not None:
                await self._blobs.forget(Owner(STORE, name))
            self._apart.discard(name)


def _not_open() -> StoreUnavailableError:
    return StoreUnavailableError("the store of outputs is not open", store="checkpoints")
