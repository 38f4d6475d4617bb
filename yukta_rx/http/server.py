"""HttpServer: an app on a socket, with problem bodies even for what is not HTTP.

Feature: SEC-01.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web

from yukta_rx.http.app import create_app
from yukta_rx.http.errors import problem
from yukta_rx.http.state import LOG
from yukta_rx.model.log_fields import log_fields

if TYPE_CHECKING:
    from types import TracebackType

    from yukta_rx.http.sse import StreamTimes
    from yukta_rx.http.state import ServedEngine

SHUTDOWN_TIMEOUT: Final = 10.0
"""Seconds that requests under way get at shutdown."""


LINGERING: Final = 2.0
"""Seconds for which the rest of a refused body is read and thrown away, so that its sender sees the
answer; short, because a stranger may send a body that costs much to unpack."""


class _Connection(web.RequestHandler):
    """Answers what the HTTP parser refuses, which no middleware ever sees."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionResetError("the answer was cut off by an error")
        request_id = uuid.uuid4().hex
        if status >= 500:
            told = "request %s failed outside its route"
            LOG.error(told, request_id, exc_info=exc, extra=log_fields(request_id=request_id))
            code, detail = "internal", "something went wrong inside the server"
        else:
            about = log_fields(request_id=request_id)
            LOG.debug("request %s is not HTTP: %s", request_id, exc, extra=about)
            reason = (message or "").partition("\n")[0].strip().rstrip(":")
            code, detail = "invalid_parameter", f"this is not a valid HTTP request: {reason}"
        answer = problem(status, code, detail, request_id, headers={"X-Request-Id": request_id})
        answer.force_close()
        return answer


class _Server(web.Server):
    """A server whose connections are `_Connection`."""

    def __init__(self, inner: web.Server, options: dict[str, Any]) -> None:
        super().__init__(
            inner.request_handler,
            request_factory=inner.request_factory,
            loop=asyncio.get_running_loop(),
            **options,
        )
        self._options = {k: v for k, v in options.items() if k != "handler_cancellation"}

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=asyncio.get_running_loop(), **self._options)


class Runner(web.AppRunner):
    """An AppRunner that answers with problem bodies throughout.

    Handlers are cancelled when their client leaves, so that an event stream ends at once; whatever
    changes something is guarded against that by its route.
    """

    __slots__ = ()

    def __init__(self, app: web.Application, **options: Any) -> None:
        options.setdefault("shutdown_timeout", SHUTDOWN_TIMEOUT)
        options.setdefault("lingering_time", LINGERING)
        options.setdefault("access_log", None)
        super().__init__(app, handler_cancellation=True, **options)

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), {**self._kwargs, "debug": False})


class HttpServer:
    """Serves an engine on one address while the context lasts.

    Args:
        engine: a started engine.
        host: address to listen on; None takes `yukta.http.host`.
        port: port, 0 for a free one; None takes `yukta.http.port`.
        times: ping interval and send timeout of event streams.
    """

    def __init__(
        self,
        engine: ServedEngine,
        *,
        host: str | None = None,
        port: int | None = None,
        times: StreamTimes | None = None,
    ) -> None:
        self._host = engine.settings.http.host if host is None else host
        self._port = engine.settings.http.port if port is None else port
        self.app = create_app(engine, times=times)
        self._runner = Runner(self.app)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        addresses = self._runner.addresses
        return int(addresses[0][1]) if addresses else self._port

    @property
    def url(self) -> str:
        """The base address, `http://127.0.0.1:8080`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            OSError: the address cannot be had.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._runner.cleanup()
