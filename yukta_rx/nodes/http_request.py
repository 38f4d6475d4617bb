"""HTTP_REQUEST: sends a request for each message and emits the answer.

Features: ENG-04, ENG-05, OBS-05, SEC-03.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from yarl import URL

from yukta_rx.errors import BadInputError
from yukta_rx.model.trace_context import TRACEPARENT, parse_traceparent
from yukta_rx.nodes._addresses import policy_of
from yukta_rx.nodes._http_body import (
    BodyTooLargeError,
    decoded,
    encoded,
    read_body,
    shown_headers,
)
from yukta_rx.nodes._http_client import (
    HttpTimeoutError,
    Request,
    acquire,
    release,
    status_error,
)
from yukta_rx.nodes._http_options import Headers, Url, check_url, header_name
from yukta_rx.nodes._types import DAY_MS
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_CHANGES: Final = frozenset(("POST", "PUT", "PATCH", "DELETE"))
"""Methods whose request is not sent again once its answer is recorded."""

_RECORDED: Final = 1024 * 1024
"""A body of more bytes is not recorded."""

_LARGE: Final = 256 * 1024
"""A body beyond this many bytes is read in a thread, so that it does not hold up the loop."""


def _statuses(value: Any) -> Any:
    for one in value if isinstance(value, list) and value else [value]:
        number = type(one) is int and 200 <= one <= 599
        if not number and one not in ("2xx", "3xx", "4xx", "5xx"):
            raise ValueError(
                'takes a status such as 200, a class such as "2xx", or an array of them'
            )
    return value


def _name_or_none(name: str) -> str:
    return header_name(name) if name else name


_Scalar = str | int | float | bool | None
_STATUS: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 200, "maximum": 599},
        {"type": "string", "enum": ["2xx", "3xx", "4xx", "5xx"]},
    ]
}


class HttpRequestConfig(PluginConfig):
    """Options of HTTP_REQUEST."""

    url: Url = Field(description="Where to; http or https.")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] = Field(
        "GET", description="The method."
    )
    headers: Headers = Field(default_factory=dict, description="Names and values of headers.")
    query: dict[str, _Scalar | list[_Scalar]] = Field(
        default_factory=dict,
        description="Added to the query of the URL; an array repeats its name, null adds nothing.",
    )
    body: Any = Field(
        None, description="Text is sent as it is, any other value as JSON, null as no body."
    )
    timeout_ms: Annotated[int, Field(strict=True, ge=1, le=DAY_MS)] = Field(
        30_000, description="Longest time for the whole exchange, with redirects and body, in ms."
    )
    expect_status: Annotated[
        Any,
        AfterValidator(_statuses),
        WithJsonSchema(
            {"anyOf": [*_STATUS["anyOf"], {"type": "array", "items": _STATUS, "minItems": 1}]}
        ),
    ] = Field(
        "2xx", description='What is emitted: a status, a class such as "2xx", or an array of them.'
    )
    max_response_bytes: Annotated[int, Field(strict=True, ge=1, le=1024**3)] = Field(
        1024 * 1024, description="Largest body of an answer in bytes, decompressed."
    )
    idempotency_header: Annotated[str, AfterValidator(_name_or_none)] = Field(
        "Idempotency-Key",
        description="Header that tells the server which requests are one; empty for none.",
    )

    def expects(self, status: int) -> bool:
        """Whether an answer with this status is emitted."""
        wanted = self.expect_status
        return any(
            one in (status, f"{status // 100}xx")
            for one in (wanted if isinstance(wanted, list) else [wanted])
        )

    def expected(self) -> str:
        """What is expected, in words."""
        wanted = self.expect_status
        return " or ".join(map(str, wanted if isinstance(wanted, list) else [wanted]))


async def _open(cfg: HttpRequestConfig | None, ctx: NodeContext) -> None:
    ctx.state = acquire(policy_of(ctx.settings))


async def _close(cfg: HttpRequestConfig | None, ctx: NodeContext) -> None:
    if ctx.state is not None:
        await release(ctx.state)


@processor(
    "HTTP_REQUEST",
    config=HttpRequestConfig,
    default_timeout=lambda cfg: cfg.timeout_ms / 1000 + 5,
    pure=True,
    exact=True,
    check=check_url,
    open=_open,
    close=_close,
    example={
        "url": "https://api.example.com/orders/${payload.orderId}",
        "method": "PUT",
        "headers": {"Authorization": "Bearer ${decrypted:orders}"},
        "body": "${payload.order:json}",
        "expectStatus": [200, 201],
    },
)
async def http_request(msg: Message, cfg: HttpRequestConfig, ctx: NodeContext) -> dict[str, Any]:
    """Send a request for each message and emit `{status, headers, body}` of the answer.

    `body` is the value if the answer is JSON by type and content, else text, or bytes if it is no
    text in its charset; an answer of JSON type that is none is counted as `not_json`. Names of
    `headers` are in lower case. Up to 10 redirects are followed, unless their status is expected;
    to another server go only harmless headers. The idempotency key is derived from run, node and
    message: the same on every attempt. The answer to a POST, PUT, PATCH or DELETE is recorded, so
    a message that comes again, in a resumed run too, is answered without another request; a body
    above 1 MiB is not recorded, and counted as `not_recorded`.

    Raises:
        BadInputError: never retried: the request cannot be sent, its address is refused, the
            answer is a 4xx other than 408, 425 and 429, or larger than `maxResponseBytes`.
        HttpStatusError: another status that is not expected; `retry_after` as the server asks.
        HttpTimeoutError: there was no whole answer within `timeoutMs`.
        HttpError: there was no connection, or the answer broke off or is no HTTP.
    """
    request = _request(msg, cfg, ctx)
    if request.method not in _CHANGES:
        return (await _exchange(request, cfg, ctx))[0]

    async def send() -> dict[str, Any]:
        answer, size = await _exchange(request, cfg, ctx)
        if size > _RECORDED:
            raise _TooLargeToRecord(answer)
        return answer

    try:
        answer: dict[str, Any] = await ctx.once("request", send, msg)
    except _TooLargeToRecord as given:
        ctx.count("not_recorded")
        return given.answer
    return answer


class _TooLargeToRecord(Exception):
    """An answer that is emitted, but not kept for a repeat."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__()
        self.answer = answer


async def _exchange(
    request: Request, cfg: HttpRequestConfig, ctx: NodeContext
) -> tuple[dict[str, Any], int]:
    """The answer, and how many bytes its body has."""
    try:
        async with asyncio.timeout(cfg.timeout_ms / 1000):
            async with ctx.state.exchange(request, cfg.expects) as response:
                if not cfg.expects(response.status):
                    raise status_error(request, response, cfg.expected(), ctx.wall())
                data = await read_body(response, cfg.max_response_bytes)
    except BodyTooLargeError:
        raise BadInputError(
            f"option `maxResponseBytes`: the answer to {request.name()} is larger than"
            f" {cfg.max_response_bytes} bytes",
            option="maxResponseBytes",
        ) from None
    except TimeoutError as error:
        raise HttpTimeoutError(
            f"{request.name()}: no whole answer within {cfg.timeout_ms} ms (timeoutMs)"
        ) from error
    answer = {
        "status": response.status,
        "headers": dict(shown_headers(response)),
        "body": await _body(data, response, ctx),
    }
    return answer, len(data)


def _request(msg: Message, cfg: HttpRequestConfig, ctx: NodeContext) -> Request:
    headers = {name: str(value) for name, value in cfg.headers.items()}
    known = {name.lower() for name in headers}
    body: bytes | None = None
    if cfg.body is not None:
        body, content_type = encoded(cfg.body)
        if "content-type" not in known:
            headers["Content-Type"] = content_type
    key = cfg.idempotency_header
    if key and key.lower() not in known:
        headers[key] = _key(msg, ctx)
    traceparent = parse_traceparent(msg.headers.get(TRACEPARENT))
    if traceparent is not None and TRACEPARENT not in known:
        headers[TRACEPARENT] = traceparent
    try:
        url = URL(cfg.url).extend_query(_pairs(cfg.query))
    except UnicodeEncodeError:
        detail = "option `query`: a text in it holds half of a surrogate pair"
        raise BadInputError(detail, option="query") from None
    return Request(cfg.method, url, headers, body, frozenset((key.lower(), TRACEPARENT)))


def _key(msg: Message, ctx: NodeContext) -> str:
    # With the run, since a plugin may give the same id again in another one; with the node, since
    # two of them may send requests for one message.
    origin = "\0".join((ctx.lineage, ctx.node_id, msg.id))
    return blake2b(origin.encode(), digest_size=16).hexdigest()


def _pairs(query: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, {True: "true", False: "false"}[one] if isinstance(one, bool) else str(one))
        for name, value in query.items()
        for one in (value if isinstance(value, list) else [value])
        if one is not None
    ]


async def _body(data: bytes, response: ClientResponse, ctx: NodeContext) -> Any:
    meant = data, response.content_type, response.charset
    body, good = await ctx.blocking(decoded, *meant) if len(data) > _LARGE else decoded(*meant)
    if not good:
        ctx.count("not_json")
    return body
