"""Follower: one event stream over any number of connections, resumed by id.

What could not be resumed is said on stderr and never passed over in silence: a gap, a reset, a
lost connection. Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli import texts
from yukta_rx.cli.client import leader_in
from yukta_rx.cli.console import EXIT_FAILED, EXIT_LIMIT, EXIT_UNREACHABLE, CliError
from yukta_rx.model.sse_parser import SseEvent, SseParser

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console

PATIENCE: Final = 60.0
"""Seconds without any contact after which a follower gives up."""

SILENCE: Final = 45.0
"""Seconds without a byte after which a connection counts as lost; a server pings every 15."""

RETRY_MS: Final = 2000
"""Wait before the next connection if the server says nothing else."""

MAX_RETRY_MS: Final = 30_000

_OWN: Final = "stream."


class Follower:
    """Follows one stream of a server.

    Args:
        client: an open client.
        console: where gaps are said.
        path: of the stream.
        query: of the stream.
        live: the stream begins with what happens from now on, as the feed does; without, with the
            first item that is kept, as the items of one run do.
        ended: asked when the server ends the stream; True says that nothing more can come. Without
            it a stream goes on for ever.
        patience: seconds without contact after which to give up.

    Attributes:
        last_id: the place to go on behind; empty at the begin.
    """

    def __init__(
        self,
        client: Client,
        console: Console,
        path: str,
        query: Query = (),
        *,
        live: bool = False,
        ended: Callable[[], Awaitable[bool]] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.last_id = ""
        self._client = client
        self._console = console
        self._path = path
        self._query = query
        self._live = live
        self._ended = ended
        self._patience = patience
        self._retry_ms = RETRY_MS
        self._head = ""
        self._closing = ""
        self._contact = time.monotonic()
        self._said_lost = False

    async def batches(self) -> AsyncGenerator[list[SseEvent], None]:
        """Yield events as they come, all that came together in one list, without `stream.*`.

        Raises:
            CliError: the first connection fails, the server refuses, or there is no contact for
                longer than the patience allows.
        """
        begun = False
        while True:
            self._closing = ""
            try:
                async with aclosing(self._connection()) as connection:
                    async for batch in connection:
                        begun = True
                        if batch:
                            yield batch
                if not self._closing and self._ended is not None and await self._ended():
                    return
                self._lost(self._closing or "the server ended the stream", begun)
            except CliError as error:
                if not begun or not passes(error):
                    raise
                if time.monotonic() - self._contact > self._patience:
                    raise self._given_up(error) from error
                self._lost(error.lines[-1], begun)
            await asyncio.sleep(min(self._retry_ms, MAX_RETRY_MS) / 1000)

    async def _connection(self) -> AsyncGenerator[list[SseEvent], None]:
        """Yield what one connection brings; an empty list once it is there."""
        headers = {"Accept": "text/event-stream"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        parser = SseParser()
        async with self._client.open(
            "GET", self._path, self._query, headers=headers, silence=SILENCE
        ) as response:
            if response.content_type != "text/event-stream":
                raise CliError(
                    f"{response.url}: this is no event stream; is this a yukta server?",
                    exit_code=EXIT_FAILED,
                    code="internal",
                )
            self._contact = time.monotonic()
            yield []
            async for chunk in response.content.iter_any():
                self._contact = time.monotonic()
                batch = [event for event in parser.feed(chunk) if self._take(event)]
                if parser.retry_ms is not None:
                    self._retry_ms = parser.retry_ms
                if batch:
                    self._said_lost = False
                    yield batch

    def _take(self, event: SseEvent) -> bool:
        """Take note of the place; whether the event is one of those that were asked for."""
        if event.id:
            self.last_id = event.id
        if not event.type.startswith(_OWN):
            return True
        data = _object(event.data)
        match event.type.removeprefix(_OWN):
            case "hello":
                self._head = _head(data)
                if self._live and not self.last_id:
                    # Whatever comes behind is resumed even if nothing came before the loss.
                    self.last_id = self._head
            case "gap":
                self._say(event.type, data, texts.gap(data))
            case "reset":
                self._say(event.type, data, _reset(data, self.last_id))
                if self._live and self._head:
                    self.last_id = self._head
            case "closing":
                reason = str(data.get("reason", "closing")).replace("_", " ")
                self._closing = f"the server ended the stream: {reason}"
            case "standby":
                self._closing = "this server is a standby"
                if hint := leader_in(data):
                    self._client.prefer(hint)
            case _:
                pass  # a heartbeat, or something that later versions say
        return False

    def _lost(self, why: str, begun: bool) -> None:
        if begun and not self._said_lost:
            self._said_lost = True
            self._say("client.reconnecting", {"detail": why}, f"{why}; connecting again")

    def _say(self, kind: str, data: dict[str, Any], text: str) -> None:
        if self._console.as_json:
            self._console.say_json({"type": kind, **data})
        else:
            self._console.say(f"yukta: {text}", "yellow")

    def _given_up(self, error: CliError) -> CliError:
        last = f" behind {self.last_id}" if self.last_id else ""
        return CliError(
            *error.lines,
            f"gave up after {self._patience:g} s{last}",
            exit_code=error.exit_code,
            code=error.code,
            members={**error.members, "lastEventId": self.last_id},
        )


def passes(error: CliError) -> bool:
    """Whether a refusal may be over in a moment, so that asking again makes sense."""
    status = error.members.get("status")
    server_fault = isinstance(status, int) and status >= 500
    return server_fault or error.exit_code in (EXIT_UNREACHABLE, EXIT_LIMIT)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _head(data: dict[str, Any]) -> str:
    epoch, head = data.get("epoch"), data.get("headSeq")
    return f"{epoch}:{head}" if epoch is not None and head is not None else ""


def _reset(data: dict[str, Any], last_id: str) -> str:
    reason = f" ({data['reason']})" if "reason" in data else ""
    return (
        f"reset: the server cannot go on behind {last_id or 'the last event'}{reason};"
        " what happened since then is missing here"
    )
