"""A real server with a real engine on a free port, and a client that checks every answer."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.errors import ERRORS
from yukta_rx.http.errors import status_of
from yukta_rx.http.openapi import openapi_document
from yukta_rx.http.server import HttpServer
from yukta_rx.http.sse import StreamTimes
from yukta_rx.http.table import ROUTES
from yukta_rx.model.codec import dumps_plain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

PATIENCE = 15.0
DOCUMENT = json.loads(dumps_plain(openapi_document(ROUTES)))


# --- workflows -----------------------------------------------------------------------------------


def line(
    workflow_id: str = "w", *, count: int = 3, every_ms: int = 0, size: int = 0
) -> dict[str, Any]:
    """A workflow of three nodes in a line: `count` numbers, 0 for ever."""
    filler = {"text": "x" * size} if size else {}
    return {
        "workflowId": workflow_id,
        "nodes": [
            {
                "nodeId": "numbers",
                "type": "SEQUENCE_TRIGGER",
                "config": {"count": count, "intervalMs": every_ms},
            },
            {
                "nodeId": "double",
                "type": "TRANSFORM",
                "config": {"set": {"seen": True, **filler}},
            },
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [
            {"source": "numbers", "target": "double"},
            {"source": "double", "target": "out"},
        ],
    }


def chatty(workflow_id: str = "chatty", *, count: int = 3, every_ms: int = 0) -> dict[str, Any]:
    """A workflow that writes a log line, which is a fact of the feed, per message."""
    return {
        "workflowId": workflow_id,
        "nodes": [
            {
                "nodeId": "numbers",
                "type": "SEQUENCE_TRIGGER",
                "config": {"count": count, "intervalMs": every_ms},
            },
            {"nodeId": "say", "type": "CONSOLE_TERMINAL", "config": {"prefix": "said "}},
        ],
        "edges": [{"source": "numbers", "target": "say"}],
    }


def echo(workflow_id: str = "echo") -> dict[str, Any]:
    """A workflow that logs its start payload."""
    return {
        "workflowId": workflow_id,
        "nodes": [
            {"nodeId": "start", "type": "API_TRIGGER"},
            {"nodeId": "say", "type": "CONSOLE_TERMINAL"},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "start", "target": "say"}, {"source": "start", "target": "out"}],
    }


@dataclass
class Workflows:
    """Makers of the documents above."""

    line: Callable[..., dict[str, Any]] = line
    chatty: Callable[..., dict[str, Any]] = chatty
    echo: Callable[..., dict[str, Any]] = echo


@pytest.fixture
def make() -> Workflows:
    return Workflows()


# --- event streams -------------------------------------------------------------------------------


@dataclass
class Event:
    """One event, as a browser would dispatch it."""

    type: str
    data: str
    id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


@dataclass
class Parser:
    """The event stream format of the HTML standard: CR, LF or CRLF, and nothing assumed."""

    id: str = ""
    retry: int | None = None
    comments: int = 0
    _rest: bytes = b""
    _data: list[str] = field(default_factory=list)
    _type: str = ""
    _skip_lf: bool = False

    def feed(self, chunk: bytes) -> list[Event]:
        found = (self._line(line.decode()) for line in self._lines(chunk))
        return [event for event in found if event is not None]

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._skip_lf:
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._skip_lf = chunk.endswith(b"\r")
        *lines, self._rest = re.split(rb"\r\n|\r|\n", self._rest + chunk)
        return lines

    def _line(self, text: str) -> Event | None:
        if not text:
            data, kind = self._data, self._type
            self._data, self._type = [], ""
            return Event(kind or "message", "\n".join(data), self.id) if data else None
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments += 1
        elif name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self.id = value
        elif name == "retry" and value.isdecimal():
            self.retry = int(value)
        return None


class Stream:
    """An open event stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.parser = Parser()
        self.events: list[Event] = []
        self._ready: list[Event] = []

    async def next(self) -> Event | None:
        """The next event, None at the end of the stream."""
        while not self._ready:
            async with asyncio.timeout(PATIENCE):
                chunk = await self.response.content.readany()
            if not chunk:
                return None
            self._ready = self.parser.feed(chunk)
        event = self._ready.pop(0)
        self.events.append(event)
        return event

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Read on up to an event that is wanted."""
        while (event := await self.next()) is not None:
            if wanted(event):
                return event
        raise AssertionError(f"the stream ended after {[e.type for e in self.events][-20:]}")

    async def type(self, name: str) -> Event:
        """Read on up to an event of a type."""
        return await self.until(lambda event: event.type == name)

    async def rest(self) -> list[Event]:
        """Read to the end and return all events of the stream."""
        while await self.next() is not None:
            pass
        return self.events


# --- client --------------------------------------------------------------------------------------


@dataclass
class Answer:
    """An answer whose shape was checked against the OpenAPI document."""

    status: int
    headers: Any
    body: Any

    @property
    def code(self) -> str | None:
        return self.body.get("code") if isinstance(self.body, dict) else None


class Client:
    """Talks to a server and checks every answer against the OpenAPI document."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.seen: set[tuple[str, str]] = set()

    async def __call__(
        self, method: str, path: str, body: Any = None, *, checked: bool = True, **options: Any
    ) -> Answer:
        if body is not None:
            options["data"] = dumps_plain(body)
            options.setdefault("headers", {}).setdefault("Content-Type", "application/json")
        async with asyncio.timeout(PATIENCE):
            async with self.session.request(method, path, **options) as response:
                raw = await response.read()
        is_json = raw and "json" in response.headers.get("Content-Type", "")
        answer = Answer(response.status, response.headers, json.loads(raw) if is_json else raw)
        if checked:
            check_headers(answer)
            check_problem(answer)
            self.check_shape(method, response.url.path, answer)
        return answer

    def check_shape(self, method: str, path: str, answer: Answer) -> None:
        """The status and the body must be among those that the document announces."""
        operation = operation_of(method, path)
        if operation is None:
            return
        template, described = operation
        self.seen.add((method, template))
        announced = described["responses"].get(str(answer.status))
        assert announced, f"{method} {template} does not announce {answer.status}: {answer.body}"
        content = announced.get("content", {})
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        if answer.body and kind in content and "json" in kind:
            errors = list(validator(content[kind]["schema"]).iter_errors(answer.body))
            assert not errors, f"{method} {template}: {errors[0].message} at {errors[0].json_path}"

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The body of a good answer."""
        answer = await self(method, path, body, **options)
        assert 200 <= answer.status < 300, answer.body
        return answer.body

    async def session_with(self, *documents: dict[str, Any], session: str = "s") -> None:
        await self.ok("PUT", f"/api/sessions/{session}", {"workflows": list(documents)})

    async def start(self, workflow: str = "w", payload: Any = None, session: str = "s") -> str:
        made = await self.ok("POST", f"/api/workflow/{session}/{workflow}/start", payload or {})
        return str(made["executionId"])

    async def ended(self, execution_id: str) -> dict[str, Any]:
        shown = await self.ok("GET", f"/api/executions/{execution_id}/wait?timeout=15")
        assert shown, f"{execution_id} did not end"
        return dict(shown)

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[Stream]:
        """An open event stream; the header names use `_` for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named = {"Accept": "text/event-stream", **named}
        async with self.session.get(path, headers=named) as response:
            assert response.status == 200, await response.text()
            assert response.headers["Content-Type"] == "text/event-stream"
            yield Stream(response)


def check_headers(answer: Answer) -> None:
    assert answer.headers["X-Request-Id"]
    assert answer.headers["Yukta-Version"]
    assert answer.headers["Yukta-Leader"] == "true"
    assert answer.headers["Cache-Control"] in ("no-store", "no-cache")
    assert answer.headers["Server"] == "yukta"


def check_problem(answer: Answer) -> None:
    if answer.status < 400 or answer.body == b"":
        return
    assert answer.headers["Content-Type"].startswith("application/problem+json"), answer.body
    body = answer.body
    assert body["status"] == answer.status
    assert body["type"] == f"urn:yukta:problem:{body['code']}"
    assert body["instance"] == answer.headers["X-Request-Id"]
    assert body["title"]
    assert body["detail"]
    assert "Traceback" not in json.dumps(body)
    assert (status_of(ERRORS[body["code"]]) or 500) == answer.status
    if answer.status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1


def operation_of(method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    parts = path.split("/")
    for template, operations in sorted(DOCUMENT["paths"].items(), key=lambda item: "{" in item[0]):
        pieces = template.split("/")
        if len(pieces) == len(parts) and all(
            piece == part or piece.startswith("{")
            for piece, part in zip(pieces, parts, strict=True)
        ):
            found = operations.get(method.lower())
            return (template, found) if found else None
    return None


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


# --- fixtures ------------------------------------------------------------------------------------


@pytest.fixture
def settings() -> Settings:
    # A test may leave a run behind that never ends.
    return Settings(execution={"shutdown_timeout": timedelta(milliseconds=100)})


@pytest.fixture
def times() -> StreamTimes:
    return StreamTimes()


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    async with Engine(settings) as made:
        yield made


@pytest.fixture
async def server(engine: Engine, times: StreamTimes) -> AsyncIterator[HttpServer]:
    async with HttpServer(engine, port=0, times=times) as made:
        yield made


@pytest.fixture
def checking_client() -> Callable[[HttpServer], Client]:
    """Makes a client whose session its caller closes."""

    def made(server: HttpServer) -> Client:
        return Client(aiohttp.ClientSession(server.url))

    return made


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Any]]:
    """Opens clients of any server."""
    async with AsyncExitStack() as stack:

        async def open_client(server: HttpServer, **options: Any) -> Client:
            session = aiohttp.ClientSession(
                server.url,
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                **options,
            )
            return Client(await stack.enter_async_context(session))

        yield open_client


@pytest.fixture
async def client(server: HttpServer, connect: Callable[..., Any]) -> Client:
    made: Client = await connect(server)
    return made
