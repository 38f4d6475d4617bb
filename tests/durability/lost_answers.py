"""What goes wrong with a PostgreSQL: answers that are lost, no answer at all, somebody else leads.

A lost answer is one to what was done, of which nobody hears.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from yukta_rx.durability.postgres.database import Database
from yukta_rx.durability.postgres.fence import raise_epoch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

READY = b"Z\x00\x00\x00\x05I"
"""The end of an answer outside of a transaction: what was asked is committed."""


class Way:
    """Passes on what is said between one side and the other.

    Attributes:
        losing: answers that are lost from now on, each with its connection.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self.losing = 0

    async def __call__(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        server, there = await asyncio.open_connection(self._host, self._port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(client, there))
                group.create_task(self._answer(server, back))
        except* ConnectionError:
            pass
        finally:
            for side in (there, back):
                side.close()
                with contextlib.suppress(ConnectionError):
                    await side.wait_closed()

    async def _ask(self, client: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
        while data := await client.read(1 << 16):
            there.write(data)
            await there.drain()
        raise ConnectionResetError

    async def _answer(self, server: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        while data := await server.read(1 << 16):
            if self.losing and data.endswith(READY):
                self.losing -= 1
                raise ConnectionResetError
            back.write(data)
            await back.drain()
        raise ConnectionResetError


@asynccontextmanager
async def losing_answers(postgres: Database) -> AsyncIterator[tuple[Database, Way]]:
    """The same database, led by the same, over such a way."""
    parts = urlsplit(postgres._url)
    way = Way(parts.hostname or "127.0.0.1", parts.port or 5432)
    listening = await asyncio.start_server(way, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    url = parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
    async with listening, Database(url, part=postgres.part, size=2) as database:
        database.epoch = postgres.epoch
        yield database, way


async def take_over(postgres: Database) -> int:
    """Somebody else leads from now on; the epoch."""
    return await postgres.change(lambda made: raise_epoch(made, postgres.part, "the next one"))


def lost_database() -> Database:
    """A database that gives no answer."""
    return Database("postgresql://nobody@127.0.0.1:9/nothing")
