"""A way to the database on which answers get lost, or come late: what was done is done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

FIRST_ROW = "s\0\0\0\4Z\0\0"
"""For `lose`: how an answer ends that has one row, where no more were asked for."""

READY = b"Z\x00\x00\x00\x05I"
"""How an answer ends that leaves no transaction open."""


class Held:
    """An answer that comes late.

    Attributes:
        given: set when the database has given it: what was asked is done.
        go: set it to let the answer go on.
        lost: whether it is lost then.
    """

    def __init__(self) -> None:
        self.given = asyncio.Event()
        self.go = asyncio.Event()
        self.lost = False


class Lossy:
    """A proxy for the server of an address, as an async context.

    Attributes:
        url: where it listens instead.
        lost: how many answers it kept to itself.
    """

    def __init__(self, url: str) -> None:
        self._there = urlsplit(url)
        self._marks: list[bytes] = []
        self._late: list[tuple[bytes, Held]] = []
        self._working: set[asyncio.Task[None]] = set()
        self.url = ""
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        there = self._there
        self.url = there._replace(netloc=f"{there.username}@127.0.0.1:{port}").geturl()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        for task in tuple(self._working):
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    def lose(self, said: str) -> None:
        """Keep the next answer with these words (`COMMIT`) back, and cut the connection."""
        self._marks.append(said.encode() + b"\0")

    def hold(self, said: str) -> Held:
        """Keep the next answer with these words back until it is let go."""
        held = Held()
        self._late.append((said.encode() + b"\0", held))
        return held

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._working.add(task)
        out, back = await asyncio.open_connection(self._there.hostname, self._there.port)
        try:
            asking = asyncio.create_task(self._forward(reader, back))
            answering = asyncio.create_task(self._answer(out, writer))
            both = (asking, answering)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        finally:
            writer.close()
            back.close()
            self._working.discard(task)

    async def _forward(self, reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def _answer(self, reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(65536):
            for mark in self._marks:
                if mark in data:
                    while not data.endswith(READY):
                        data += await reader.read(65536)
                    self._marks.remove(mark)
                    self.lost += 1
                    return
            for one in [late for late in self._late if late[0] in data]:
                self._late.remove(one)
                one[1].given.set()
                await one[1].go.wait()
                if one[1].lost:
                    return
            writer.write(data)
            await writer.drain()
