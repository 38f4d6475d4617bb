"""One HTTP client per event loop and address policy, shared by all nodes that send requests.

It follows redirects by itself, so that every hop is checked and no header meant for one server is
told to another. Errors say in one sentence what went wrong with which URL; none shows a header.
Features: SEC-03, ENG-04.
"""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import aiohttp
from yarl import URL

from yukta_rx import __version__
from yukta_rx.errors import BadInputError
from yukta_rx.nodes._addresses import AddressPolicy, AddressRefusedError
from yukta_rx.nodes._http_options import SCHEMES, refusal, shown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime

    from aiohttp import ClientResponse

MAX_REDIRECTS: Final = 10

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_KEPT_ELSEWHERE: Final = frozenset(("accept", "accept-language", "content-type", "user-agent"))
"""Headers that are sent on to another server; any other may be meant for the first one only."""

_LATER: Final = frozenset((408, 425, 429))
"""Statuses of 4xx that say nothing against the request."""

_LONGEST_WAIT: Final = 86_400.0
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None, sock_connect=None)
_SHOWN: Final = 200


class HttpError(Exception):
    """An exchange failed in a way that may pass by itself.

    Attributes:
        retry_after: seconds after which the server asks to try again; None if it does not say.
    """

    def __init__(self, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class HttpStatusError(HttpError):
    """The server answered with a status that was not expected; `status` is that status."""

    def __init__(self, detail: str, status: int, *, retry_after: float | None = None) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.status = status


class HttpTimeoutError(HttpError, TimeoutError):
    """An exchange took longer than it may."""


@dataclass(frozen=True)
class Request:
    """What is sent.

    Attributes:
        method: in upper case.
        url: where to; a user and password in it become an Authorization header.
        headers: names and values, checked.
        body: None to send none.
        portable: names, in lower case, of further headers that another server may get as well.
    """

    method: str
    url: URL
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    portable: frozenset[str] = frozenset()

    def name(self) -> str:
        """Return method and URL, for logs and errors."""
        return f"{self.method} {shown(self.url)}"

    def without_user(self) -> Request:
        """Return the request with user and password as a header, unless it has that already."""
        url = self.url
        if url.raw_user is None and url.raw_password is None:
            return self
        headers = dict(self.headers)
        if not any(name.lower() == "authorization" for name in headers):
            login = aiohttp.encode_basic_auth(url.user or "", url.password or "")
            headers["Authorization"] = login
        return replace(self, url=url.with_user(None), headers=headers)

    def redirected(self, status: int, location: str) -> Request:
        """Return the request that a redirect asks for.

        Raises:
            BadInputError: it leads to something else than a web server.
            HttpError: it leads nowhere.
        """
        try:
            url = self.url.join(URL(location)).with_user(None).with_fragment(None)
            host = url.host
        except ValueError:
            raise HttpError(f"{self.name()} was redirected to something that is no URL") from None
        if url.scheme not in SCHEMES or not host:
            raise BadInputError(
                f"{self.name()} was redirected to a URL that begins with"
                f" {url.scheme[:20]!a}; only http and https are followed"
            )
        method, body, headers = self.method, self.body, dict(self.headers)
        if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
            method, body = "GET", None
            headers = {k: v for k, v in headers.items() if k.lower() != "content-type"}
        if url.origin() != self.url.origin():
            kept = _KEPT_ELSEWHERE | self.portable
            headers = {k: v for k, v in headers.items() if k.lower() in kept}
        return replace(self, method=method, url=url, headers=headers, body=body)


class HttpClient:
    """The client of one event loop and policy; see `acquire`."""

    def __init__(self, policy: AddressPolicy) -> None:
        self.policy = policy
        self.users = 0
        self._session = aiohttp.ClientSession(
            # How many requests are out is for the nodes to say; waiting here would cost them time.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=policy.open_socket),
            # Runs and nodes have nothing in common that a server could put into a cookie.
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"yukta_rx/{__version__}", "Accept-Encoding": "gzip"},
            # Its own way of unpacking takes a compressed body that is cut short for a whole one.
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),
            timeout=_NO_LIMIT,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @asynccontextmanager
    async def exchange(
        self, request: Request, final: Callable[[int], bool] = lambda status: False
    ) -> AsyncIterator[ClientResponse]:
        """Send a request, follow redirects, and give the answer; its body is not read or unpacked.

        At the end the connection is kept if all of the answer was read, and closed otherwise, at
        once when the caller is cancelled. Errors while the body is read become `HttpError` too.

        Args:
            request: what to send.
            final: whether a status is an answer even though it is that of a redirect.

        Raises:
            BadInputError: the request must not be sent, or cannot be.
            HttpError: there is no answer, or it broke off.
        """
        request = request.without_user()
        response: ClientResponse | None = None
        try:
            for _ in range(MAX_REDIRECTS + 1):
                response = await self._send(request)
                location = response.headers.get("Location")
                status = response.status
                if location is None or status not in _REDIRECTS or final(status):
                    break
                response.close()
                request = request.redirected(status, location)
            else:
                raise HttpError(f"{request.name()}: redirected more than {MAX_REDIRECTS} times")
            yield response
        except (aiohttp.ClientError, OSError) as error:
            raise _told(request, error) from error
        finally:
            if response is not None and not response.content.at_eof():
                response.close()
            elif response is not None:
                response.release()

    async def _send(self, request: Request) -> ClientResponse:
        # Read in pieces: the loop is not held up by a large body.
        data = None if request.body is None else io.BytesIO(request.body)
        try:
            return await self._session.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                data=data,
                allow_redirects=False,
            )
        except ValueError as error:
            if isinstance(
                error, OSError
            ):  # a certificate that is refused is an error of both kinds
                raise
            # Such as a host with a part that no name service takes.
            raise BadInputError(f"{request.name()} cannot be sent: {_line(error)}") from error


_CLIENTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[AddressPolicy, HttpClient]]] = (
    WeakKeyDictionary()
)


def acquire(policy: AddressPolicy) -> HttpClient:
    """Return the client of the running loop and this policy, for a user that will `release` it."""
    clients = _CLIENTS.setdefault(asyncio.get_running_loop(), {})
    client = clients.get(policy)
    if client is None:
        client = clients[policy] = HttpClient(policy)
    client.users += 1
    return client


async def release(client: HttpClient) -> None:
    """Give a client back; the last user closes it."""
    client.users -= 1
    if client.users == 0:
        del _CLIENTS[asyncio.get_running_loop()][client.policy]
        await client.close()


def status_error(
    request: Request, response: ClientResponse, wanted: str, now: datetime
) -> BadInputError | HttpStatusError:
    """Return the error for a status that was not expected.

    A 4xx is bad input, but for 408, 425 and 429; all others may pass by themselves.

    Args:
        request: what was sent.
        response: the answer.
        wanted: what was expected.
        now: the time of day, for a server that says when to try again.
    """
    status = response.status
    known = status in HTTPStatus.__members__.values()
    phrase = f" {HTTPStatus(status).phrase}" if known else ""
    told = f"{request.name()} answered {status}{phrase}, expected {wanted}"
    if 400 <= status < 500 and status not in _LATER:
        return BadInputError(told)
    wait = _retry_after(response.headers.get("Retry-After", "").strip(), now)
    if wait is not None:
        told += f"; the server asks to wait {wait:g} s"
    return HttpStatusError(told, status, retry_after=wait)


def _retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds that a Retry-After header asks for, by number or date."""
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), _LONGEST_WAIT)
    try:
        seconds = (parsedate_to_datetime(value) - now).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, seconds), _LONGEST_WAIT)


def _told(request: Request, error: Exception) -> Exception:
    """Return an error of the client library in our own words."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, AddressRefusedError):
            return BadInputError(f"{request.name()}: {refusal(cause.address, cause.kind)}")
        return HttpError(f"{request.name()}: cannot connect: {cause.strerror or _line(cause)}")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return HttpError(f"{request.name()}: the server closed the connection without an answer")
    if isinstance(error, aiohttp.ClientResponseError):
        return HttpError(f"{request.name()}: the answer is no HTTP: {_line(error.message)}")
    if isinstance(error, aiohttp.ClientPayloadError):
        return HttpError(f"{request.name()}: the answer broke off: {_line(error)}")
    return HttpError(f"{request.name()}: {type(error).__name__}: {_line(error)}")


def _line(said: Any) -> str:
    text = " ".join(str(said).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
