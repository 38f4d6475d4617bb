"""SSE_TRIGGER: a message per event of an event stream.  Features: ENG-01, SEC-03."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field
from yarl import URL

from yukta_rx.errors import BadInputError, YuktaError
from yukta_rx.model.codec import loads_external
from yukta_rx.model.sse_parser import EventTooLargeError, SseEvent, SseParser
from yukta_rx.nodes._addresses import policy_of
from yukta_rx.nodes._http_client import (
    HttpError,
    HttpStatusError,
    Request,
    acquire,
    release,
    status_error,
)
from yukta_rx.nodes._http_options import Headers, Url, check_url, header_value
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from aiohttp import ClientResponse

MAX_EVENT: Final = 1024 * 1024
"""Bytes of an event's data, and of any line, at most."""

_HEAD_TIMEOUT: Final = 30.0
"""Seconds that a server has to begin its answer; after that a stream may be silent for ever."""

EVENT_ID: Final = "sse.id"
"""Header with the id of the event."""

_FIRST_WAIT: Final = 1.0
_LEAST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 60.0
_LONGEST_ASKED: Final = 3600.0
_NO_CONTENT: Final = 204
_LAST_ID: Final = "last-event-id"
_DEFAULTS: Final = {
    "accept": "text/event-stream",
    "accept-encoding": "identity",
    "cache-control": "no-cache",
}


def _without_id(headers: dict[str, str]) -> dict[str, str]:
    if any(name.lower() == _LAST_ID for name in headers):
        raise ValueError("takes no Last-Event-ID, which changes with each event; use lastEventId")
    return headers


class SseTriggerConfig(PluginConfig):
    """Options of SSE_TRIGGER."""

    url: Url = Field(description="The event stream; http or https.")
    events: list[str] | None = Field(
        None, description="Names of the events to take; all by default, unnamed ones are `message`."
    )
    last_event_id: Annotated[str, AfterValidator(header_value)] | None = Field(
        None, description="Begin behind the event that has this id."
    )
    headers: Annotated[Headers, AfterValidator(_without_id)] = Field(
        default_factory=dict, description="Names and values of headers."
    )


async def _open(cfg: SseTriggerConfig, ctx: NodeContext) -> None:
    ctx.state = acquire(policy_of(ctx.settings))


async def _close(cfg: SseTriggerConfig, ctx: NodeContext) -> None:
    if ctx.state is not None:
        await release(ctx.state)


@trigger(
    "SSE_TRIGGER",
    config=SseTriggerConfig,
    pure=True,
    check=check_url,
    open=_open,
    close=_close,
    example={"url": "https://example.com/prices", "events": ["price"], "lastEventId": "1042"},
)
async def sse_trigger(cfg: SseTriggerConfig, ctx: NodeContext) -> AsyncIterator[Message]:
    """Subscribe to an event stream and emit `{event, data, id?}` for each of its events.

    `data` is the value if it is JSON, else text; the id is also the header `sse.id`. Events with
    other names than `events` lists are counted as `unwanted`. Nothing is read while nobody asks
    for a message, so the server has to wait.

    When the connection ends or fails, the next one goes on behind the last event (Last-Event-ID),
    for ever: after the time that the server asks for, at first 1 s, doubled with each attempt that
    brings no event, up to 60 s, plus up to a half by chance. Each is logged and counted as
    `reconnect`. Status 204 ends the trigger. A run that goes on after a crash goes on behind the
    last event on its record.

    Raises:
        BadInputError: the address is refused, the answer is a 4xx other than 408, 425 and 429, it
            is no event stream, or an event is larger than 1 MiB.
    """
    stream = _Stream(cfg, ctx)
    while not stream.stopped:
        try:
            async with aclosing(stream.events()) as events:
                async for event in events:
                    if cfg.events is None or event.type in cfg.events:
                        yield _message(event)
                    else:
                        ctx.count("unwanted")
        except HttpError as error:
            stream.failed = error
        if not stream.stopped:
            await stream.wait()


class _Stream:
    """One connection after the other, and what has to be known from one to the next."""

    def __init__(self, cfg: SseTriggerConfig, ctx: NodeContext) -> None:
        self.stopped = False
        """The server said that there will be no more."""
        self.failed: HttpError | None = None
        self._ctx = ctx
        self._url = URL(cfg.url)
        self._headers = {**_DEFAULTS, **{k.lower(): str(v) for k, v in cfg.headers.items()}}
        # Of a run that goes on after a crash: behind the last event that it has on record.
        recorded = ctx.emitted_headers.get(EVENT_ID)
        self._parser = SseParser(recorded or cfg.last_event_id or "")
        self._asked = _FIRST_WAIT
        self._fruitless = 0

    async def events(self) -> AsyncGenerator[SseEvent, None]:
        """Connect and give the events of one connection, read as they are asked for."""
        self._parser = SseParser(self._parser.last_id, MAX_EVENT)
        request = self._request()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_HEAD_TIMEOUT):
                    exchange = self._ctx.state.exchange(request)
                    response = await stack.enter_async_context(exchange)
            except TimeoutError:
                raise HttpError(f"{request.name()}: no answer within {_HEAD_TIMEOUT:g} s") from None
            self._check(request, response)
            async for chunk in response.content.iter_any():
                for event in self._parsed(chunk, request):
                    self._fruitless = 0
                    yield event

    def _parsed(self, chunk: bytes, request: Request) -> list[SseEvent]:
        try:
            return self._parser.feed(chunk)
        except EventTooLargeError as error:
            raise BadInputError(f"{request.name()}: {error}") from None

    async def wait(self) -> None:
        """Wait before the next connection, as long as the server and the failures so far ask."""
        if self._parser.retry_ms is not None:
            self._asked = min(max(self._parser.retry_ms / 1000, _LEAST_WAIT), _LONGEST_ASKED)
        error, self.failed = self.failed, None
        # The exponent is bounded so that years of failures give no number too large.
        grown = self._asked * 2 ** min(self._fruitless, 20)
        seconds = min(grown, max(self._asked, _LONGEST_WAIT)) * random.uniform(1, 1.5)
        if error is not None and error.retry_after is not None:
            seconds = max(seconds, min(error.retry_after, _LONGEST_ASKED))
        self._fruitless += 1
        what = error or f"{self._request().name()}: the stream ended"
        self._ctx.count("reconnect")
        self._ctx.log(f"{what}; connecting again in {seconds:.1f} s", "stderr")
        await self._ctx.clock.sleep(seconds)

    def _request(self) -> Request:
        headers = dict(self._headers)
        if self._parser.last_id:
            headers[_LAST_ID] = self._parser.last_id
        return Request("GET", self._url, headers, None, frozenset((*_DEFAULTS, _LAST_ID)))

    def _check(self, request: Request, response: ClientResponse) -> None:
        """Refuse an answer that is no event stream.

        Raises:
            BadInputError: it will not be one the next time either.
            HttpStatusError: it may be one the next time.
        """
        if response.status == _NO_CONTENT:
            self.stopped = True
        elif response.status != 200:
            error = status_error(request, response, "200", self._ctx.wall())
            raise error if _may_pass(error) else BadInputError(str(error))
        elif response.content_type != "text/event-stream":
            raise BadInputError(
                f"{request.name()} answered with {response.content_type!a}, no event stream"
            )
        elif response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise BadInputError(f"{request.name()} answered with a packed stream, not asked for")


def _may_pass(error: Exception) -> bool:
    return isinstance(error, HttpStatusError) and not 200 <= error.status < 400


def _message(event: SseEvent) -> Message:
    try:
        data: Any = loads_external(event.data)
    except YuktaError:
        data = event.data
    payload = {"event": event.type, "data": data}
    if not event.id:
        return Message.of(payload)
    return Message.of({**payload, "id": event.id}, {EVENT_ID: event.id})
