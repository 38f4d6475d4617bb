"""HTTP_REQUEST: against real servers, well-behaved and otherwise."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import shutil
import socket
import ssl
import subprocess
import tracemalloc
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web as aiohttp_web

from yukta_rx.errors import BadInputError, DefinitionError
from yukta_rx.model.codec import encode
from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.nodes._addresses import PUBLIC_ONLY, AddressPolicy, not_public
from yukta_rx.nodes._http_client import (
    MAX_REDIRECTS,
    HttpError,
    HttpStatusError,
    HttpTimeoutError,
    acquire,
    release,
)
from yukta_rx.nodes.http_request import http_request
from yukta_rx.plugins.contract import bind_config, check_config, check_environment, spec_of
from yukta_rx.security.variables import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.feature("ENG-04")
SEC = pytest.mark.feature("SEC-03")

SPEC = spec_of(http_request)
OPEN = {"yukta.http-request.allow-private": True}
WAIT = 10
"""Seconds in which what a test waits for has to happen."""


class Asking:
    """One node, called as the engine calls it."""

    def __init__(self, b: Any) -> None:
        self.b = b

    async def __call__(self, url: str, payload: Any = None, **config: Any) -> Any:
        """Send one request; `_msg` and `_attempt` say for which message and attempt."""
        msg = config.pop("_msg", None) or Message.of(payload)
        self.b.ctx.attempt = config.pop("_attempt", 1)
        bound = bind_config(SPEC, {"url": url} | config)
        return await http_request(msg, bound.resolve(Scope(msg)), self.b.ctx)


@pytest.fixture
async def ask(bench) -> AsyncIterator[Asking]:
    """A node that may connect to this machine."""
    b = bench(**OPEN)
    await SPEC.open(None, b.ctx)
    yield Asking(b)
    await SPEC.close(None, b.ctx)


@pytest.fixture
async def ask_public(bench) -> AsyncIterator[Asking]:
    """A node that may connect to public addresses only."""
    b = bench()
    await SPEC.open(None, b.ctx)
    yield Asking(b)
    await SPEC.close(None, b.ctx)


# --- what comes back -----------------------------------------------------------------------------


async def test_the_answer_is_status_headers_and_body(web, ask) -> None:
    url = await web.serve({"body": b'{"a": [1, 2]}', "content_type": "application/json"})

    answer = await ask(url)

    assert answer["status"] == 200
    assert answer["headers"]["content-type"] == "application/json"
    assert answer["body"] == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("content_type", "body", "value"),
    [
        ("application/problem+json; charset=utf-8", b'{"n": 12345678901234567890123}', None),
        ("application/json", b"", ""),
        ("application/json", b"{nope", "{nope"),
        ("application/json", b'{"a": NaN}', '{"a": NaN}'),
        ("application/json", b"\xff\xfe", b"\xff\xfe"),
        ("application/json; charset=utf-16", '{"ä": 1}'.encode("utf-16"), {"ä": 1}),
        ("text/plain", b'{"a": 1}', '{"a": 1}'),
        ("text/plain; charset=latin-1", b"caf\xe9", "café"),
        ("text/plain; charset=punycode", b"abc-", "abc-"),
        ("text/plain; charset=none-such", b"abc", "abc"),
        ("text/plain; charset=zlib", b"abc", "abc"),
        ("text/plain", b"a\0b\r\n", "a\0b\r\n"),
        ("image/png", b"\x89PNG\r\n", b"\x89PNG\r\n"),
    ],
)
async def test_a_body_is_its_json_value_else_text_else_bytes(
    web, ask, content_type, body, value
) -> None:
    url = await web.serve({"body": body, "headers": {"Content-Type": content_type}})

    answer = await ask(url)

    assert answer["body"] == (json.loads(body) if value is None else value)
    assert type(answer["body"]) is (dict if value is None else type(value))


async def test_json_that_is_none_is_counted(web, ask) -> None:
    url = await web.serve({"body": b"<html>", "content_type": "application/json"})

    await ask(url)

    assert ask.b.counts == [("not_json", 1)]


async def test_a_large_body_comes_whole(web, ask) -> None:
    values = list(range(100_000))
    url = await web.serve({"text": json.dumps(values), "content_type": "application/json"})

    assert (await ask(url))["body"] == values


async def test_repeated_headers_are_joined_and_odd_bytes_replaced(web, ask) -> None:
    url = await web.raw(
        b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nSet-Cookie: a=1, b\r\nSet-Cookie: c=2\r\n"
        b"X-Odd: caf\xe9\r\nContent-Length: 0\r\n\r\n"
    )

    answer = await ask(url)

    assert answer["headers"]["x-a"] == "1, 2"
    assert answer["headers"]["set-cookie"] == "a=1, b\nc=2"
    assert answer["headers"]["x-odd"] == "caf\ufffd"
    assert encode(answer)


async def test_an_answer_without_a_body_has_an_empty_one(web, ask) -> None:
    url = await web.serve({"status": 204})

    assert (await ask(url))["body"] == ""
    assert (await ask(url, method="HEAD"))["body"] == ""


TEXT = "some text, " * 100_000


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(TEXT.encode())),
        ("GZIP", gzip.compress(TEXT[:7].encode()) + gzip.compress(TEXT[7:].encode())),
        ("deflate", zlib.compress(TEXT.encode())),
        ("identity", TEXT.encode()),
    ],
)
async def test_a_compressed_body_is_unpacked(web, ask, encoding, packed) -> None:
    headers = {"Content-Encoding": encoding, "Content-Type": "text/plain"}
    url = await web.serve({"body": packed, "headers": headers})

    answer = await ask(url, maxResponseBytes=len(TEXT))

    assert answer["body"] == TEXT
    assert web.requests[0][2]["accept-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("encoding", "body", "complaint"),
    [
        ("gzip", gzip.compress(TEXT.encode())[:-1], "its packed form has no end"),
        ("gzip", gzip.compress(TEXT.encode())[:-50], "its packed form has no end"),
        ("gzip", b"plain", "it cannot be unpacked"),
        ("br", b"x", "encoded as 'br', which was not asked for"),
    ],
)
async def test_a_compressed_body_that_is_not_whole_is_an_error_that_may_pass(
    web, ask, encoding, body, complaint
) -> None:
    url = await web.serve({"body": body, "headers": {"Content-Encoding": encoding}})

    with pytest.raises(HttpError, match=complaint):
        await ask(url, maxResponseBytes=10_000_000)


# --- what is sent --------------------------------------------------------------------------------


async def test_method_headers_query_and_body_are_sent(web, ask) -> None:
    url = await web.serve({})

    await ask(
        f"{url}/a b?x=1",
        {"id": 7, "tags": ["ä&", "c"]},
        method="PUT",
        headers={"X-Id": "${payload.id}", "X-Number": 1.5},
        query={"tag": "${payload.tags:json}", "on": True, "none": None, "x": 2},
        body={"id": "${payload.id:json}"},
    )

    (method, path, headers, body), *_ = web.requests
    assert (method, path) == ("PUT", "/a%20b?x=1&tag=%C3%A4%26&tag=c&on=true&x=2")
    assert (headers["x-id"], headers["x-number"]) == ("7", "1.5")
    assert (headers["content-type"], body) == ("application/json", b'{"id":7}')
    assert headers["user-agent"].startswith("yukta_rx/")


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        ("text ä", "text ä".encode(), "text/plain; charset=utf-8"),
        (b"\0\xff", b"\0\xff", "application/octet-stream"),
        ([1, None], b"[1,null]", "application/json"),
        (False, b"false", "application/json"),
        (None, b"", None),
    ],
)
async def test_a_body_is_sent_by_its_kind(web, ask, body, sent, content_type) -> None:
    url = await web.serve({})

    await ask(url, {"b": body}, method="POST", body="${payload.b:json}")

    assert web.requests[0][3] == sent
    assert web.requests[0][2].get("content-type") == content_type


async def test_a_content_type_of_ones_own_stays(web, ask) -> None:
    url = await web.serve({})

    await ask(url, method="POST", body="<a/>", headers={"content-type": "application/xml"})

    assert web.requests[0][2]["content-type"] == "application/xml"


async def test_a_large_body_is_sent_whole(web, ask) -> None:
    async def length(request: Any) -> Any:
        return aiohttp_web.Response(text=request.headers["Content-Length"])

    url = await web.serve(length)

    answer = await ask(url, "x" * 900_000, method="POST", body="${payload}${payload}")

    assert answer["body"] == "1800000"


async def test_user_and_password_in_a_url_are_sent_as_a_header(web, ask) -> None:
    url = await web.serve({})

    await ask(url.replace("://", "://me:s%20t@"))

    assert web.requests[0][2]["authorization"] == "Basic bWU6cyB0"


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], object()])
async def test_a_body_that_cannot_be_written_is_bad_input(web, ask, value) -> None:
    url = await web.serve({})

    with pytest.raises(BadInputError, match=r"^option `body`: "):
        await ask(url, {"b": value}, method="POST", body="${payload.b:json}")

    assert web.requests == []


async def test_cookies_of_one_answer_are_not_sent_with_the_next_request(web, ask) -> None:
    url = await web.serve({"headers": {"Set-Cookie": "a=1"}})

    await ask(url)
    await ask(url)

    assert "cookie" not in web.requests[1][2]


# --- the idempotency key -------------------------------------------------------------------------


async def keys(web: Any, name: str = "idempotency-key") -> list[str | None]:
    return [headers.get(name) for _, _, headers, _ in web.requests]


async def test_every_attempt_at_a_message_sends_the_same_key_and_another_message_another(
    web, ask
) -> None:
    url = await web.serve({})
    msg = Message.of(1, id="m1")

    await ask(url, _msg=msg)
    await ask(url, _msg=msg, _attempt=2)
    await ask(url, _msg=Message.of(1, id="m2"))

    first, again, other = await keys(web)
    assert first == again != other
    assert len(first) == 32


async def test_another_node_and_another_run_send_another_key(web, ask) -> None:
    url = await web.serve({})
    msg = Message.of(1, id="m1")
    await ask(url, _msg=msg)

    ask.b.ctx.node_id = "other"
    await ask(url, _msg=msg)
    ask.b.ctx.lineage = "run-2"
    await ask(url, _msg=msg)

    assert len(set(await keys(web))) == 3


async def test_the_key_goes_by_the_name_that_is_given_or_not_at_all(web, ask) -> None:
    url = await web.serve({})

    await ask(url, idempotencyHeader="X-Key")
    await ask(url, idempotencyHeader="")
    await ask(url, headers={"idempotency-key": "mine"})

    assert [key is None for key in await keys(web, "x-key")] == [False, True, True]
    assert await keys(web) == [None, None, "mine"]


# --- not twice -----------------------------------------------------------------------------------

ONCE = pytest.mark.feature("DUR-02")


@ONCE
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_change_whose_answer_is_recorded_is_not_asked_for_again(web, ask, method) -> None:
    url = await web.serve({"body": b'{"id": 7}', "content_type": "application/json"})
    msg, other = Message.of(1, id="m1"), Message.of(1, id="m2")

    first = await ask(url, _msg=msg, method=method, body="x")
    again = await ask(url, _msg=msg, method=method, body="x", _attempt=2)
    await ask(url, _msg=other, method=method, body="x")

    assert first == again
    assert first["body"] == {"id": 7}
    assert len(web.requests) == 2
    assert len(set(await keys(web))) == 2


@ONCE
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_what_only_reads_is_asked_again(web, ask, method) -> None:
    url = await web.serve({})
    for _ in range(2):
        await ask(url, _msg=Message.of(1, id="m1"), method=method)

    assert len(web.requests) == 2


@ONCE
async def test_an_answer_that_was_not_expected_is_not_recorded(web, ask) -> None:
    async def answer(request: Any) -> Any:
        return aiohttp_web.Response(status=503 if len(web.requests) == 1 else 200, body=b"done")

    url = await web.serve(answer)
    msg = Message.of(1, id="m1")
    with pytest.raises(HttpStatusError):
        await ask(url, _msg=msg, method="POST")

    given = [await ask(url, _msg=msg, method="POST", _attempt=2) for _ in range(2)]

    assert [one["status"] for one in given] == [200, 200]
    assert len(web.requests) == 2
    assert len(set(await keys(web))) == 1


@ONCE
@pytest.mark.parametrize("size", [1024 * 1024, 1024 * 1024 + 1])
async def test_a_large_answer_is_not_recorded_and_counted(web, ask, size) -> None:
    url = await web.serve({"body": b"\xff" * size, "content_type": "image/png"})
    msg = Message.of(1, id="m1")
    recorded = size == 1024 * 1024

    given = [await ask(url, _msg=msg, method="POST", maxResponseBytes=2 * size) for _ in range(2)]

    assert [len(one["body"]) for one in given] == [size, size]
    assert len(web.requests) == (1 if recorded else 2)
    assert ask.b.counts == ([] if recorded else [("not_recorded", 1)] * 2)


@ONCE
async def test_what_is_out_already_is_waited_for(web, ask) -> None:
    came, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: Any) -> Any:
        came.set()
        await go_on.wait()
        return aiohttp_web.Response(text="done")

    url = await web.serve(answer)
    msg = Message.of(1, id="m1")
    async with asyncio.timeout(WAIT), asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(url, _msg=msg, method="POST")) for _ in range(5)]
        await came.wait()
        go_on.set()

    assert [one.result()["body"] for one in asked] == ["done"] * 5
    assert len(web.requests) == 1


# --- statuses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422])
async def test_a_status_that_blames_the_request_is_bad_input(web, ask, status) -> None:
    url = await web.serve({"status": status})

    with pytest.raises(BadInputError) as refused:
        await ask(f"{url}/x")

    assert str(refused.value).startswith(f"GET {url}/x answered {status} ")
    assert str(refused.value).endswith(", expected 2xx")


@pytest.mark.parametrize("status", [304, 408, 425, 429, 500, 502, 503, 599])
async def test_any_other_status_may_pass_by_itself(web, ask, status) -> None:
    url = await web.serve({"status": status})

    with pytest.raises(HttpStatusError) as failed:
        await ask(f"{url}/x")

    assert failed.value.status == status
    assert failed.value.retry_after is None
    assert not isinstance(failed.value, ValueError)
    assert f"GET {url}/x answered {status}" in str(failed.value)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_asks_to_wait_is_heard(web, ask, status) -> None:
    url = await web.serve({"status": status, "headers": {"Retry-After": "7"}})

    with pytest.raises(HttpStatusError, match=r"; the server asks to wait 7 s$") as failed:
        await ask(url)

    assert failed.value.retry_after == 7


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("in an hour", 3000, 3601),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("99999999999999999999", 86_400, 86_400),
    ],
)
async def test_a_server_may_name_a_date_and_no_wait_is_beyond_a_day(
    web, ask, value, least, most
) -> None:
    if value == "in an hour":  # of the test, not of when the tests were collected
        value = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    url = await web.serve({"status": 503, "headers": {"Retry-After": value}})

    with pytest.raises(HttpStatusError) as failed:
        await ask(url)

    assert least <= failed.value.retry_after <= most


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "", "٣", "Wed, 99 Oct"])
async def test_a_wait_that_cannot_be_read_is_none(web, ask, value) -> None:
    url = await web.serve({"status": 503, "headers": {"Retry-After": value}})

    with pytest.raises(HttpStatusError) as failed:
        await ask(url)

    assert failed.value.retry_after is None


@pytest.mark.parametrize(
    ("expected", "emitted", "refused"),
    [
        (201, [201], [200, 204]),
        ("4xx", [400, 404, 429], [200, 500]),
        ([200, 404], [200, 404], [204, 400]),
        (["2xx", "5xx", 302], [200, 503, 302], [404]),
    ],
)
async def test_what_is_expected_may_be_said(web, ask, expected, emitted, refused) -> None:
    async def echo(request: Any) -> Any:
        return aiohttp_web.Response(status=int(request.path[1:]), headers={"Location": "/200"})

    url = await web.serve(echo)

    for status in emitted:
        assert (await ask(f"{url}/{status}", expectStatus=expected))["status"] == status
    for status in refused:
        with pytest.raises((BadInputError, HttpStatusError)):
            await ask(f"{url}/{status}", expectStatus=expected)


# --- secrets -------------------------------------------------------------------------------------


@SEC
@pytest.mark.parametrize("status", [401, 500, 302])
async def test_no_error_shows_a_header_a_user_or_a_query(web, ask, status) -> None:
    url = await web.serve({"status": status, "headers": {"Location": "/x?code=hush-4"}})
    told = url.replace("://", "://me:hush-1@") + "/p?key=hush-2"

    with pytest.raises((BadInputError, HttpError)) as failed:
        await ask(told, headers={"Authorization": "Bearer hush-3"}, query={"q": "hush-5"})

    shown = "".join(map(str, (failed.value, failed.value.__dict__)))
    assert "hush" not in shown
    assert f"{url}/" in shown


@SEC
@pytest.mark.parametrize("answer", [b"garbage hush\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-L"])
async def test_no_error_of_a_connection_shows_a_query(web, ask, answer) -> None:
    url = await web.raw(answer)

    with pytest.raises(HttpError) as failed:
        await ask(f"{url}/p?key=secret")

    assert "secret" not in str(failed.value)
    assert "\n" not in str(failed.value)


# --- header injection (cases 31 and 32) ----------------------------------------------------------


@SEC
@pytest.mark.parametrize("value", ["a\r\nX-B: 1", "a\nb", "a\rb", "a\0b", "a\x1bb", "\ud800"])
async def test_case_31_a_header_from_a_message_carries_no_further_one(web, ask, value) -> None:
    url = await web.serve({})

    with pytest.raises(BadInputError, match=r"option `headers\.X-A` .*control sign") as refused:
        await ask(url, {"v": value}, headers={"X-A": "${payload.v}"})

    assert "X-B" not in str(refused.value)
    assert web.requests == []


@SEC
async def test_case_32_a_line_separator_in_a_header_splits_nothing(web, ask) -> None:
    url = await web.serve({})

    await ask(url, {"v": "a\u2028b"}, headers={"X-A": "${payload.v}"})

    assert web.requests[0][2]["x-a"].encode("utf-8", "surrogateescape").decode() == "a\u2028b"


@SEC
@pytest.mark.parametrize("path", ["a\r\nHost: x", "a\nb", "a\tb"])
async def test_a_line_break_in_a_url_is_refused_and_not_left_out(ask, path) -> None:
    with pytest.raises(BadInputError, match="option `url` holds a line break"):
        await ask("http://127.0.0.1:1/${payload}", path)


# --- redirects -----------------------------------------------------------------------------------


def redirecting(target: str, status: int = 302) -> Any:
    async def answer(request: Any) -> Any:
        if request.path == "/end":
            return aiohttp_web.Response(text="here")
        return aiohttp_web.Response(status=status, headers={"Location": target})

    return answer


async def test_redirects_are_followed(web, ask) -> None:
    url = await web.serve(redirecting("/end"))

    assert (await ask(f"{url}/a"))["body"] == "here"


async def test_ten_redirects_are_followed_and_no_more(web, ask) -> None:
    async def down(request: Any) -> Any:
        left = int(request.path[1:])
        if left == 0:
            return aiohttp_web.Response(text="here")
        return aiohttp_web.Response(status=307, headers={"Location": f"/{left - 1}"})

    url = await web.serve(down)

    assert (await ask(f"{url}/{MAX_REDIRECTS}"))["body"] == "here"
    with pytest.raises(HttpError, match="redirected more than 10 times"):
        await ask(f"{url}/{MAX_REDIRECTS + 1}")


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (302, "PUT", "PUT"),
    ],
)
async def test_a_redirect_keeps_or_drops_the_body_as_its_status_says(
    web, ask, status, method, then
) -> None:
    url = await web.serve(redirecting("/end", status))

    await ask(f"{url}/a", method=method, body=[1])

    seen = [(m, path, headers.get("content-type"), body) for m, path, headers, body in web.requests]
    kept = then != "GET"
    assert seen == [
        (method, "/a", "application/json", b"[1]"),
        (then, "/end", "application/json" if kept else None, b"[1]" if kept else b""),
    ]


@SEC
async def test_only_harmless_headers_go_to_another_server(web, ask) -> None:
    there = await web.serve({"text": "here"})
    url = await web.serve(redirecting(f"{there}/end"))
    headers = {"X-Api-Key": "s", "Cookie": "s", "Accept": "text/plain", "Proxy-Authorization": "s"}

    await ask(url.replace("://", "://me:s@") + "/a", headers=headers)

    (_, _, first, _), (_, _, second, _) = web.requests
    assert {"authorization", "x-api-key", "cookie", "proxy-authorization"} <= set(first)
    assert set(second) == {"host", "accept", "accept-encoding", "user-agent", "idempotency-key"}
    assert first["idempotency-key"] == second["idempotency-key"]


@SEC
async def test_all_headers_go_to_another_path_of_the_same_server(web, ask) -> None:
    url = await web.serve(redirecting("/end"))

    await ask(f"{url}/a", headers={"Authorization": "s"})

    assert [headers["authorization"] for _, _, headers, _ in web.requests] == ["s", "s"]


@SEC
@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://x/y", "javascript:1", "http://h:x/"]
)
async def test_a_redirect_out_of_the_web_is_not_followed(web, ask, target) -> None:
    url = await web.serve(redirecting(target))

    with pytest.raises((BadInputError, HttpError), match="redirected to"):
        await ask(f"{url}/a")


async def test_a_redirect_without_a_target_is_a_status_like_any_other(web, ask) -> None:
    url = await web.serve({"status": 302})

    with pytest.raises(HttpStatusError, match="302 Found"):
        await ask(url)


# --- addresses -----------------------------------------------------------------------------------


@SEC
@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.255.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"),
        *("100.64.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1"),
        *("2002:7f00:1::", "2002:a00:1::", "3fff::1", "100::1", "5f00::1", "not an address"),
    ],
)
def test_an_address_that_is_not_public_is_known(address) -> None:
    assert not_public(address)


@SEC
@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_known(address) -> None:
    assert not_public(address) is None


@SEC
@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0"),
        *("[::1]", "[::ffff:127.0.0.1]", "LOCALHOST", "127.0.0.1.", "localhost."),
    ],
)
async def test_no_way_to_write_this_machine_gets_to_it(web, ask_public, host) -> None:
    port = (await web.raw(b"HTTP/1.1 200 OK\r\n\r\n")).rpartition(":")[2]

    with pytest.raises((BadInputError, HttpError)) as refused:
        await ask_public(f"http://{host}:{port}/")

    # Odd forms are refused by the client or not known to the system, all others by their address.
    plain = host in ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]")
    expected = "allow-private" if plain else "allow-private|cannot be sent|cannot connect"
    assert re.search(expected, str(refused.value))
    assert web.connections == 0


@SEC
async def test_a_setting_allows_this_machine_also_by_name(web, ask) -> None:
    url = await web.serve({"text": "here"})

    assert (await ask(url.replace("127.0.0.1", "localhost")))["body"] == "here"


@SEC
async def test_a_redirect_to_an_address_that_is_refused_is_not_followed(web, bench) -> None:
    inside = await web.serve({"text": "secret"}, host="127.0.0.2")
    outside = await web.serve(redirecting(f"{inside}/end", 307))
    # To this policy all of this machine is public but for the one address.
    policy = AddressPolicy(lambda address: "a private" if address == "127.0.0.2" else None)
    b = bench()
    b.ctx.state = acquire(policy)

    try:
        with pytest.raises(BadInputError, match=r"127\.0\.0\.2 is a private address"):
            await Asking(b)(f"{outside}/a", method="POST", body="x")
    finally:
        await SPEC.close(None, b.ctx)

    assert [path for _, path, _, _ in web.requests] == ["/a"]


@SEC
@pytest.mark.parametrize("url", ["http://10.0.0.1/x", "https://[::1]/", "http://169.254.169.254"])
def test_an_address_that_is_refused_is_told_before_the_run(bench, url) -> None:
    (fault,) = check_environment(SPEC, {"url": url}, settings=bench().ctx.settings, base_dir=None)
    allowed = bench(**OPEN).ctx.settings

    assert (fault.option, fault.code) == ("url", "address_not_allowed")
    assert check_environment(SPEC, {"url": url}, settings=allowed, base_dir=None) == []


@SEC
def test_without_settings_only_public_addresses_are_allowed() -> None:
    (fault,) = check_environment(SPEC, {"url": "http://127.0.0.1"}, settings=None, base_dir=None)

    assert fault.code == "address_not_allowed"


# --- servers that misbehave ----------------------------------------------------------------------


async def test_an_answer_larger_than_the_limit_is_refused_and_its_connection_closed(
    web, ask
) -> None:
    closed = asyncio.Event()

    async def endless(reader: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except ConnectionError:
            closed.set()

    url = await web.raw(endless)

    with pytest.raises(BadInputError) as refused:
        await ask(f"{url}/", maxResponseBytes=100_000)

    assert str(refused.value) == (
        f"option `maxResponseBytes`: the answer to GET {url}/ is larger than 100000 bytes"
    )
    await asyncio.wait_for(closed.wait(), WAIT)


@pytest.mark.parametrize(("size", "fits"), [(1000, True), (1001, False)])
async def test_an_answer_of_just_the_limit_fits(web, ask, size, fits) -> None:
    url = await web.serve({"body": b"x" * size})

    if fits:
        assert len((await ask(url, maxResponseBytes=1000))["body"]) == size
    else:
        with pytest.raises(BadInputError, match="maxResponseBytes"):
            await ask(url, maxResponseBytes=1000)


@SEC
async def test_a_bomb_is_not_unpacked_beyond_the_limit(web, ask) -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    url = await web.serve({"body": bomb, "headers": {"Content-Encoding": "gzip"}})
    assert len(bomb) < 60_000
    tracemalloc.start()

    try:
        with pytest.raises(BadInputError, match="larger than 60000 bytes"):
            await ask(url, maxResponseBytes=60_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3_000_000


async def test_a_server_that_never_answers_is_given_up(web, ask) -> None:
    async def silent(reader: Any, writer: Any) -> None:
        await reader.read()

    url = await web.raw(silent)

    with pytest.raises(HttpTimeoutError) as failed:
        await ask(f"{url}/", timeoutMs=50)

    assert str(failed.value) == f"GET {url}/: no whole answer within 50 ms (timeoutMs)"
    assert isinstance(failed.value, TimeoutError)


async def test_a_server_that_dribbles_is_given_up_too(web, ask) -> None:
    async def dribble(reader: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    url = await web.raw(dribble)

    with pytest.raises(HttpTimeoutError, match="within 100 ms"):
        await ask(url, timeoutMs=100)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"", "the server closed the connection without an answer"),
        (b"HTTP/1.1 200", "the server closed the connection without an answer"),
        (b"HELLO\r\n\r\n", "the answer is no HTTP"),
        (b"\0\xff\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 abc OK\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "the answer broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "the answer broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "GET http"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "GET http"),
    ],
)
async def test_an_answer_that_is_cut_or_no_http_is_an_error_that_may_pass(
    web, ask, answer, complaint
) -> None:
    url = await web.raw(answer)

    with pytest.raises(HttpError) as failed:
        await ask(f"{url}/p")

    assert complaint in str(failed.value)
    assert f"{url}/p" in str(failed.value)
    assert not isinstance(failed.value, ValueError | HttpStatusError)


async def half_closed(reader: Any, writer: Any) -> None:
    writer.write_eof()
    await reader.read()


async def reset(reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize("server", [half_closed, reset])
async def test_a_connection_that_is_closed_on_the_way_is_an_error_that_may_pass(
    web, ask, server
) -> None:
    url = await web.raw(server)

    with pytest.raises(HttpError, match=rf"GET {url}"):
        await ask(url)


async def test_nobody_there_is_an_error_that_may_pass(ask) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

        with pytest.raises(HttpError, match=rf"GET http://127\.0\.0\.1:{port}/: cannot connect: "):
            await ask(f"http://127.0.0.1:{port}/")


async def test_a_server_that_speaks_no_tls_is_an_error_that_may_pass(web, ask) -> None:
    url = (await web.serve({})).replace("http:", "https:")

    with pytest.raises(HttpError, match=r"cannot connect: .*SSL"):
        await ask(url)


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = "openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=x"
    subprocess.run(made.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


@SEC
async def test_a_certificate_that_nobody_vouches_for_is_refused(web, ask, self_signed) -> None:
    url = await web.serve({}, tls=self_signed)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    with pytest.raises(HttpError, match=r"cannot connect: .*certificate verify failed"):
        await ask(url)

    assert web.requests == []


async def test_a_name_that_cannot_be_looked_up_is_bad_input(ask) -> None:
    with pytest.raises(BadInputError, match="cannot be sent"):
        await ask(f"http://{'a' * 70}.example/")


async def test_a_call_that_is_cancelled_closes_its_connection(web, ask) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: Any, writer: Any) -> None:
        asked.set()
        with suppress(ConnectionError):
            await reader.read()
        closed.set()

    url = await web.raw(silent)
    call = asyncio.create_task(ask(url))
    await asyncio.wait_for(asked.wait(), WAIT)

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert await asyncio.wait_for(closed.wait(), WAIT)


# --- the shared client ---------------------------------------------------------------------------


async def test_nodes_with_one_policy_share_a_client_until_the_last_one_closes(bench) -> None:
    first, second, open_ = bench(), bench(), bench(**OPEN)
    for b in (first, second, open_):
        await SPEC.open(None, b.ctx)
    client = first.ctx.state

    assert second.ctx.state is client
    assert open_.ctx.state is not client
    await SPEC.close(None, first.ctx)
    assert not client._session.closed
    await SPEC.close(None, second.ctx)
    assert client._session.closed
    await SPEC.close(None, open_.ctx)

    again = acquire(PUBLIC_ONLY)
    assert again is not client
    await release(again)


async def test_a_connection_serves_one_request_after_the_other(web, ask) -> None:
    async def talk(reader: Any, writer: Any) -> None:
        while True:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            await reader.readuntil(b"\r\n\r\n")

    url = await web.raw(talk)

    for _ in range(5):
        assert (await ask(url))["body"] == "hi"

    assert web.connections == 1


async def test_a_node_that_was_never_opened_can_be_closed(bench) -> None:
    b = bench()

    await SPEC.close(None, b.ctx)

    assert b.ctx.state is None


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({}, "url"),
        ({"url": "ftp://x/"}, "url"),
        ({"url": "x"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http://h:99999/"}, "url"),
        ({"url": "http://h:x/"}, "url"),
        ({"url": "http://a%3Ab:c@h/"}, "url"),
        ({"url": "http://h/\r\nX: 1"}, "url"),
        ({"method": "get"}, "method"),
        ({"method": "TRACE"}, "method"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"X A": "1"}}, "headers.X A"),
        ({"headers": {"X": "a\nb"}}, "headers.X"),
        ({"headers": {"X": ["a"]}}, "headers.X"),
        ({"headers": {"Content-Length": "1"}}, "headers.Content-Length"),
        ({"headers": {"transfer-encoding": "chunked"}}, "headers.transfer-encoding"),
        ({"timeoutMs": 0}, "timeoutMs"),
        ({"timeoutMs": "5"}, "timeoutMs"),
        ({"expectStatus": "2XX"}, "expectStatus"),
        ({"expectStatus": "200"}, "expectStatus"),
        ({"expectStatus": 99}, "expectStatus"),
        ({"expectStatus": True}, "expectStatus"),
        ({"expectStatus": []}, "expectStatus"),
        ({"expectStatus": [200, "x"]}, "expectStatus"),
        ({"maxResponseBytes": 0}, "maxResponseBytes"),
        ({"idempotencyHeader": "a b"}, "idempotencyHeader"),
        ({"retries": 3}, "retries"),
    ],
)
def test_wrong_options_are_named(config, option) -> None:
    faults = check_config(SPEC, ({"url": "http://h/"} if config else {}) | config)

    assert {fault.option for fault in faults} == {option}


def test_the_idle_timeout_is_that_of_the_exchange_and_five_seconds() -> None:
    timed = SPEC.config(url="http://h/", timeout_ms=1500)

    assert SPEC.timeout(timed) == 6.5
    assert SPEC.timeout(SPEC.config(url="http://h/")) == 35


# --- in whole runs -------------------------------------------------------------------------------

SINK = ("COLLECT_TERMINAL", {})


async def test_each_message_becomes_the_answer_to_its_request(web, line) -> None:
    async def double(request: Any) -> Any:
        return aiohttp_web.json_response({"twice": 2 * int(request.query["n"])})

    url = await web.serve(double)
    config = {"url": url, "query": {"n": "${payload}"}}
    run = line.run(("HTTP_REQUEST", config), SINK, payloads=[1, 2, 3], **OPEN)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [payload["body"] for payload in line.payloads] == [{"twice": n} for n in (2, 4, 6)]
    assert len(set(await keys(web))) == 3


RETRY = {"engine": {"retry": {"maxAttempts": 3, "backoffMs": 0, "maxBackoffMs": 50}}}


async def test_every_attempt_of_a_run_sends_the_same_key_and_waits_as_asked(web, line) -> None:
    async def at_last(request: Any) -> Any:
        busy = len(web.requests) < 3
        headers = {"Retry-After": "7"} if busy else {}
        return aiohttp_web.Response(status=503 if busy else 200, headers=headers)

    url = await web.serve(at_last)
    run = line.run(("HTTP_REQUEST", {"url": url} | RETRY), SINK, payloads=[1], **OPEN)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [payload["status"] for payload in line.payloads] == [200]
    assert len(set(await keys(web))) == 1
    retries = [event.data for event in line.events if event.type == "node.retry"]
    # Asked for 7 s, which the node's own bound cuts to 50 ms.
    assert [retry["delayMs"] for retry in retries] == [50, 50]


async def test_what_blames_the_request_is_not_tried_again(web, line) -> None:
    url = await web.serve({"status": 422})
    run = line.run(("HTTP_REQUEST", {"url": url} | RETRY), SINK, payloads=[1], **OPEN)

    await run.execute()

    assert len(web.requests) == 1
    assert run.nodes["n0"].status is TaskStatus.FAILURE


async def test_a_run_that_fails_names_node_and_url(web, line) -> None:
    url = await web.serve({"status": 404})
    run = line.run(("HTTP_REQUEST", {"url": f"{url}/x"}), SINK, payloads=[1], **OPEN)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.FAILURE
    assert f"GET {url}/x answered 404 Not Found" in outcome.nodes["n0"]["error"]["detail"]


@SEC
async def test_a_run_by_name_to_this_machine_is_refused_when_it_connects(web, line) -> None:
    url = (await web.serve({})).replace("127.0.0.1", "localhost")
    run = line.run(("HTTP_REQUEST", {"url": url}), SINK, payloads=[1])

    await run.execute()

    assert "allow-private" in run.nodes["n0"].failure()["detail"]
    assert web.requests == []


@SEC
def test_a_definition_with_an_address_that_is_refused_is_refused(line) -> None:
    with pytest.raises(DefinitionError) as refused:
        line.prepared(("HTTP_REQUEST", {"url": "http://10.1.2.3/"}), SINK, payloads=[])

    (fault,) = refused.value.errors
    assert (fault.node_id, fault.option, fault.code) == ("n0", "url", "address_not_allowed")


# --- trace context -------------------------------------------------------------------------------

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.feature("OBS-05")
@pytest.mark.parametrize(
    ("headers", "own", "sent"),
    [
        ({"traceparent": PARENT}, {}, PARENT),
        ({"traceparent": "nonsense"}, {}, None),
        ({"traceparent": 7}, {}, None),
        ({}, {}, None),
        ({"traceparent": PARENT}, {"Traceparent": "mine"}, "mine"),
    ],
)
async def test_the_trace_context_of_a_message_is_sent_on(web, ask, headers, own, sent) -> None:
    url = await web.serve({"body": b""})

    await ask(url, headers=own, _msg=Message.of(1, headers))

    assert web.requests[0][2].get("traceparent") == sent
