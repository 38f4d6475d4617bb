"""Client: asks a server, or the one of several that leads.  Feature: OBS-01.

An address that cannot be reached, or that is a standby, sends the request on to the next one; a
standby that knows who leads sends it there, with the key, which a redirect would lose. What
changes something is never sent twice when its connection breaks: it may have done its work.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp

from yukta_rx import __version__
from yukta_rx.cli.console import EXIT_FAILED, EXIT_UNREACHABLE, EXIT_USAGE, CliError
from yukta_rx.cli.refusals import problem_in, refusal_of
from yukta_rx.cli.target import base_url
from yukta_rx.model.codec import dumps_plain
from yukta_rx.model.ids import id_fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from yukta_rx.cli.target import Target

    Query = Sequence[tuple[str, str]]

CONNECT_TIMEOUT: Final = 10.0
"""Seconds in which an address has to answer the call."""

READ_TIMEOUT: Final = 60.0
"""Seconds of silence after which an answer counts as lost."""

MAX_HOPS: Final = 8
"""Addresses that one request is sent to at most, hints of standbys included."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer, read to its end."""

    status: int
    data: bytes
    url: str

    def json(self) -> Any:
        """Return its JSON value.

        Raises:
            CliError: it has none, so this is no server of ours.
        """
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            raise CliError(
                f"{self.url}: what came back is not JSON; is this a yukta server?",
                exit_code=EXIT_FAILED,
                code="internal",
            ) from None


class Client:
    """Sends requests; use it as an async context manager.

    Args:
        target: the servers and the key.
    """

    def __init__(self, target: Target) -> None:
        self._urls = list(target.urls)
        self._headers = {"User-Agent": f"yukta-cli/{__version__}"}
        if target.key is not None:
            self._headers["Authorization"] = f"Bearer {target.key}"
        self._session: aiohttp.ClientSession | None = None

    @property
    def url(self) -> str:
        """The address that is asked first: the one that answered last."""
        return self._urls[0]

    async def __aenter__(self) -> Self:
        """Open."""
        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, query: Query = ()) -> Answer:
        """Ask for JSON; see `open` for the errors."""
        async with self.open("GET", path, query) as response:
            return await self._read(response)

    async def post(
        self, path: str, query: Query = (), body: Any = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        """Send JSON; see `open` for the errors."""
        return await self.send("POST", path, query, body, headers)

    async def send(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Any = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        """Send JSON with any method; see `open` for the errors."""
        async with self.open(method, path, query, body=body, headers=headers) as response:
            return await self._read(response)

    @asynccontextmanager
    async def open(
        self,
        method: str,
        path: str,
        query: Query = (),
        *,
        body: Any = None,
        headers: Mapping[str, str] = {},
        silence: float = READ_TIMEOUT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request to the first address that takes it; the answer is a good one.

        Args:
            method: the HTTP method.
            path: below the base address.
            query: names and values.
            body: a JSON value; None sends none.
            headers: further headers.
            silence: seconds without a byte after which the answer counts as lost.

        Raises:
            CliError: no address can be reached (exit code 8), or the server refuses.
        """
        sent = {"Accept": "application/json", **headers}
        data = None
        if body is not None:
            data, sent["Content-Type"] = dumps_plain(body), "application/json"
        waiting, tried, said = deque(self._urls), set[str](), list[str]()
        while waiting and len(tried) < MAX_HOPS:
            base = waiting.popleft()
            if base in tried:
                continue
            tried.add(base)
            try:
                response = await self._send(method, base + path, query, data, sent, silence)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                said.append(f"{base}: {_why(error)}")
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise lost(base, error) from error
            async with response:
                if response.status < 300:
                    self.prefer(base)
                    try:
                        yield response
                    except (aiohttp.ClientError, TimeoutError) as error:
                        raise lost(base, error) from error
                    return
                problem = await self._body(response)
            if response.status == 503 and problem_in(problem).get("code") == "not_leader":
                said.append(f"{base}: a standby")
                if hint := leader_in(problem_in(problem)):
                    said[-1] += f" of {hint}"
                    waiting.appendleft(hint)
                continue
            raise refusal_of(response.status, problem, base + path)
        raise CliError(*said, exit_code=EXIT_UNREACHABLE, code="unreachable")

    def prefer(self, url: str) -> None:
        """Ask this address first from now on."""
        self._urls = [url, *(other for other in self._urls if other != url)]

    async def _send(
        self,
        method: str,
        url: str,
        query: Query,
        data: bytes | None,
        headers: Mapping[str, str],
        silence: float,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open")
        times = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        return await self._session.request(
            method,
            url,
            params=list(query),
            data=data,
            headers=headers,
            timeout=times,
            allow_redirects=False,
        )

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        return Answer(response.status, await response.read(), str(response.url))

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, TimeoutError):
            return b""  # the status alone says enough


def lost(url: str, error: BaseException) -> CliError:
    """Return a connection that broke as a refusal."""
    return CliError(
        f"{url}: the connection was lost: {_why(error)}",
        exit_code=EXIT_UNREACHABLE,
        code="unreachable",
    )


def leader_in(found: Mapping[str, Any]) -> str | None:
    """Return the address of the leader that a standby names, None if it names none."""
    leader = found.get("leader")
    url = leader.get("url") if isinstance(leader, dict) else None
    try:
        return base_url(url) if isinstance(url, str) and url else None
    except CliError:
        return None


def _why(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "no such host"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused; is `yukta serve` running there?"
    if isinstance(cause, TimeoutError):
        return "no answer"
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(str(text).split()).lower()


def checked_id(kind: str, text: str) -> str:
    """Return an id of the command line, which becomes part of a path.

    Raises:
        CliError: it cannot be one.
    """
    fault = id_fault(kind, text)
    if fault is not None:
        raise CliError(fault, exit_code=EXIT_USAGE)
    return text


def with_client(target: Target, work: Callable[[Client], Awaitable[int]]) -> int:
    """Run `work` with a client; returns its exit code."""

    async def main() -> int:
        async with Client(target) as client:
            return await work(client)

    return asyncio.run(main())
