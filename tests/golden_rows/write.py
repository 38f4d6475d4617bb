"""Adds a sample of rows as this version writes them; those that are there are never written again.

    python -m tests.golden_rows.write 0.1.0

makes `tests/golden_rows/<label>/`: `rows.json`, every row of every table that is not empty, and
`expected.json`, what the stores read of them today. See `tests/golden/write.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tests.contract.definitions import record
from tests.contract.execution_log import started
from tests.contract.queued_starts import start
from tests.contract.results import result
from tests.contract.sessions import session
from tests.databases import empty_database, server_or_skip
from yukta_rx.durability.postgres import migrate
from yukta_rx.durability.postgres.blobs import PostgresBlobStore
from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
from yukta_rx.durability.postgres.fence import raise_epoch
from yukta_rx.durability.postgres.histories import PostgresHistoryStore
from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore
from yukta_rx.durability.postgres.queued_starts import PostgresQueuedStartStore
from yukta_rx.durability.postgres.results import PostgresResultStore
from yukta_rx.durability.postgres.sessions import PostgresSessionConfigStore
from yukta_rx.durability.postgres.tables import metadata
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.histories import HistoryKey, Turn
from yukta_rx.durability.stores.sessions import SessionChange
from yukta_rx.model.codec import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE: Final = Path(__file__).parent
ROWS: Final = "rows.json"
EXPECTED: Final = "expected.json"

AT: Final = datetime(2026, 3, 1, 12, 0, 0, 125_001, tzinfo=UTC)
KEYS: Final = ("plain", "odd \0\\ 名前")
ONCE: Final = EffectKey("line", "n", "m", "op")
RUN: Final = "01930000-0000-7000-8000-000000000001"
LARGE: Final = {"text": "groß " * 60, "big": 2**70, "pair": (1, b"\0")}
CHAT: Final = HistoryKey("s", "chat \0")


async def fill(database: Database) -> None:
    """Write something of every kind."""
    definitions = PostgresWorkflowDefinitionStore(database)
    sessions = PostgresSessionConfigStore(definitions)
    whole = session("s", name="Größe 名前", tags={"a": "b"}, initiated_time=AT)
    values = [1, 1.0, 2**70, "a\0b", Decimal("1.10"), None]
    first = replace(record("w", values), base_dir=Path("/folder"), updated_at=AT)
    await sessions.commit([SessionChange(session_id="s", record=whole, put=(first,))])
    await definitions.write("s", [record("w", 2), record("gone", 1)])
    await definitions.annotate("s", "w", 1, "a note \0")
    await definitions.write("s", [], ["gone"])
    async with PostgresKeyValueStore(database) as held:
        for key in KEYS:
            await held.put("s", key, {"b": values, "a": b"\0\xff"}, cap=9)
        await held.incr("s", "n", 5, cap=9, effect=ONCE)
    async with PostgresHistoryStore(database) as histories:
        for text in ("hello", "ä \0 😀"):
            await histories.append(CHAT, Turn("user", text, AT), 9)
    claims = _claims(database)
    async with PostgresQueuedStartStore(database, **claims) as queue:
        await queue.put(start(RUN, request={"payload": LARGE}))
    async with PostgresExecutionLogStore(database, 500, 10_000, **claims) as history:
        await history.append_start(started(RUN, LARGE))
    async with PostgresResultStore(database, **claims) as results:
        await results.append(RUN, [result(1, LARGE, h="ä"), result(2, {"n": 1})])


def _claims(database: Database) -> dict[str, Any]:
    """What a store needs to keep large payloads apart."""
    return {"blobs": PostgresBlobStore(database, asyncio.to_thread), "claim_bytes": 200}


async def _large(database: Database) -> dict[str, Any]:
    """The payloads that are kept apart, as the stores give them."""
    claims = _claims(database)
    queue = PostgresQueuedStartStore(database, **claims)
    waiting = [await queue.opened(one) for one in await queue.list()]
    async with (
        PostgresExecutionLogStore(database, 500, 10_000, **claims) as history,
        PostgresResultStore(database, **claims) as results,
    ):
        begun, part = await history.start_of(RUN), await results.read(RUN)
    return {
        "waiting": [one.request for one in waiting],
        "started": None if begun is None else begun.payload,
        "results": [] if part is None else [[one.cursor, one.payload] for one in part.items],
    }


async def read(database: Database) -> Any:
    """What the stores read, as it is in JSON."""
    definitions = PostgresWorkflowDefinitionStore(database)
    await definitions.open()
    sessions = PostgresSessionConfigStore(definitions)
    versions = await definitions.versions("s", "w")
    [again] = await definitions.write("s", [record("gone", 1)])
    async with PostgresKeyValueStore(database) as held, PostgresHistoryStore(database) as turns:
        found = {
            "unreadable": [str(one) for one in definitions.quarantined],
            "sessions": [
                [one.config.model_dump(mode="json", exclude_unset=True), str(one.created_at)]
                for one in await sessions.list()
            ],
            "versions": [
                [one.as_row(current=False), one.document, str(one.base_dir)] for one in versions
            ],
            "numberAfterRemoval": again.version,
            "values": [_value(await held.get("s", key)) for key in (*KEYS, "n")],
            "once": await held.incr("s", "n", 5, cap=9, effect=ONCE),
            "kept": [held.kept, turns.kept],
            "apart": await _large(database),
            "turns": [[one.role, one.text, str(one.at)] for one in await turns.load(CHAT, 9)],
        }
    return json.loads(encode(found))


def _value(found: Any) -> Any:
    return ["nothing"] if found is None else [found.value]


async def dump(database: Database) -> dict[str, list[Any]]:
    """Every row, as JSON has it."""
    found = {}
    for table in metadata.sorted_tables:
        sql = f"SELECT row_to_json(t)::text FROM {table.name} t ORDER BY t"
        if rows := await database.fetch(sql):
            found[table.name] = [json.loads(row[0]) for row in rows]
    return found


async def load(database: Database, tables: Mapping[str, Sequence[Any]]) -> None:
    """Put rows where they were; columns that there are not yet keep their defaults."""

    async def put(made: Any) -> None:
        for table, rows in tables.items():
            for row in rows:
                names = ", ".join(f'"{name}"' for name in row)
                await made.execute(
                    f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} "
                    f"FROM json_populate_record(null::{table}, $1::json)",
                    json.dumps(row),
                )

    await database.change(put)


async def _made(url: str) -> tuple[Any, Any]:
    async with Database(url) as database:
        database.epoch = await database.change(lambda made: raise_epoch(made, 0, "sample"))
        await fill(database)
        rows = await dump(database)
        del rows["leader_epoch"]
        return rows, await read(database)


def main() -> None:
    """Make the sample of a version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("label", help="the version that writes so")
    sample = HERE / parser.parse_args().label
    sample.mkdir()
    with server_or_skip() as server, empty_database(server) as url:
        migrate.upgrade(url)
        for name, value in zip((ROWS, EXPECTED), asyncio.run(_made(url)), strict=True):
            text = json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True)
            (sample / name).write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
