"""Keys over HTTP: who comes in, by which header, to which route; and the cookie of a browser."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.reviewers import Hold
from yukta_rx.http.auth import ATTEMPTS, COOKIE
from yukta_rx.http.route import Body, Media, Reach, Role, Route
from yukta_rx.http.server import HttpServer
from yukta_rx.http.table import ROUTES
from yukta_rx.security.api_keys import hashed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


pytestmark = pytest.mark.feature("SEC-01")

MASTER = "the-master-key-of-this-server"
KEYS = {
    "viewer": "a-key-that-may-only-look",
    "operator": "a-key-that-may-also-steer",
    "second": "another-key-that-may-steer",
    "admin": "a-key-that-may-do-everything",
    "late": "a-key-that-was-good-once",
}
RANKS = {"viewer": Role.VIEWER, "operator": Role.OPERATOR, "admin": Role.ADMIN}
PAST = datetime.now(UTC) - timedelta(days=1)


class TwoPersons:
    """Every stop needs a second actor."""

    id = "two-persons"

    async def review(self, request: Any) -> Any:
        return Hold("two have to agree") if request.command.name() == "StopWorkflow" else None


@pytest.fixture
def settings() -> Settings:
    def key(name: str, role: Role, **more: Any) -> dict[str, Any]:
        return {"name": name, "key": KEYS[name], "role": str(role), **more}

    return Settings(
        api_key=MASTER,
        api_keys=[
            key("viewer", Role.VIEWER),
            {**key("operator", Role.OPERATOR), "key": hashed(KEYS["operator"])},
            key("second", Role.OPERATOR),
            key("admin", Role.ADMIN, expires=datetime.now(UTC) + timedelta(days=1)),
            key("late", Role.ADMIN, expires=PAST),
        ],
        metrics={"auth": True},
        execution={"shutdown_timeout": timedelta(milliseconds=100)},
    )


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    async with Engine(settings, reviewers=[TwoPersons()]) as made:
        yield made


@pytest.fixture
async def nobody(server: HttpServer, connect: Callable[..., Any]) -> Any:
    """A client without a key."""
    return await connect(server, cookie_jar=aiohttp.DummyCookieJar())


@pytest.fixture
async def as_key(server: HttpServer, connect: Callable[..., Any]) -> Callable[..., Any]:
    """Opens a client that shows a key."""

    async def opened(name: str) -> Any:
        return await connect(server, headers={"Authorization": f"Bearer {KEYS[name]}"})

    return opened


def address(route: Route) -> str:
    path = route.path
    for name in route.placeholders:
        path = path.replace("{" + name + "}", "nothing")
    return path


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


# --- keys ----------------------------------------------------------------------------------------


async def test_every_route_but_the_open_ones_is_closed_without_a_key(nobody: Any) -> None:
    opened = set()
    for route in ROUTES:
        data = b"no JSON at all" if route.body is not Body.NONE else None
        answer = await nobody(route.method, address(route), data=data)
        if answer.code == "unauthenticated":
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        else:
            opened.add(route.path)

    health = {"/health", "/health/live", "/health/ready", "/health/leader"}
    assert opened == {*health, "/api/version", "/openapi.json", "/api/auth/session"}


@pytest.mark.parametrize("name", RANKS)
async def test_a_role_is_refused_before_the_body_is_looked_at(name: str, as_key: Any) -> None:
    client = await as_key(name)
    refused = 0
    for route in ROUTES:
        if route.role is None or RANKS[name].rank >= route.role.rank:
            continue
        data = b"no JSON at all" if route.body is not Body.NONE else None
        answer = await client(route.method, address(route), data=data)
        assert (answer.status, answer.code) == (403, "forbidden"), named(route)
        assert answer.body["requiredRole"] == str(route.role)
        refused += 1

    assert (refused > 0) is (name != "admin")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {KEYS['viewer']}"},
        {"Authorization": f"bearer   {KEYS['viewer']}"},
        {"X-API-Key": KEYS["viewer"]},
        # The scheme of a proxy in front says nothing of us.
        {"Authorization": "Basic dXNlcjpwYXNz", "X-API-Key": KEYS["viewer"]},
    ],
)
async def test_a_key_is_taken_from_either_header(headers: dict[str, str], nobody: Any) -> None:
    shown = await nobody.ok("GET", "/api/whoami", headers=headers)

    assert shown == {
        "actor": "key:viewer",
        "key": "viewer",
        "role": "VIEWER",
        "sessions": None,
        "expiresAt": None,
        "cookie": False,
    }


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {hashed(KEYS['operator'])}"},
        {"Authorization": f"Basic {KEYS['viewer']}"},
        {"X-API-Key": ""},
        {"X-API-Key": KEYS["viewer"] + " x"},
        {"X-API-Key": "\udcff"},
        # What a header says counts, also when another one would have been right.
        {"Authorization": "Bearer nonsense", "X-API-Key": KEYS["viewer"]},
    ],
)
async def test_a_key_that_is_not_known_is_refused(headers: dict[str, str], nobody: Any) -> None:
    answer = await nobody("GET", "/api/whoami", headers=headers)

    assert (answer.status, answer.code) == (401, "unauthenticated")


async def test_a_key_in_an_address_is_no_key_and_appears_in_no_answer(nobody: Any) -> None:
    for name in ("key", "api_key", "apiKey", "access_token"):
        answer = await nobody("GET", f"/api/executions?{name}={MASTER}")
        assert answer.status == 401
        assert MASTER not in str(answer.body)


async def test_a_key_that_stands_as_a_hash_is_known_by_its_text(as_key: Any) -> None:
    client = await as_key("operator")

    assert (await client.ok("GET", "/api/whoami"))["role"] == "OPERATOR"


async def test_a_key_whose_time_is_over_is_refused_and_told_so(as_key: Any) -> None:
    client = await as_key("late")

    answer = await client("GET", "/api/whoami")

    assert answer.status == 401
    assert "expired" in answer.body["detail"]


@pytest.mark.parametrize("path", ["/api/events/stream", "logs"])
async def test_a_stream_ends_when_the_key_of_its_reader_does(
    path: str, connect: Any, make: Any
) -> None:
    end = datetime.now(UTC) + timedelta(seconds=0.5)
    keys = [{"name": "soon", "key": KEYS["late"], "role": "ADMIN", "expires": end}]
    soon = Settings(api_key=MASTER, api_keys=keys)
    async with Engine(soon) as engine, HttpServer(engine, port=0) as server:
        admin = await connect(server, headers={"X-API-Key": MASTER})
        client = await connect(server, headers={"X-API-Key": KEYS["late"]})
        await admin.session_with(make.chatty(count=0, every_ms=10))
        run = await admin.start("chatty")
        place = f"/api/executions/{run}/logs" if path == "logs" else path
        async with client.stream(place) as stream:
            with suppress(aiohttp.ClientPayloadError):
                await stream.rest()
        after = await client("GET", "/api/whoami")

    assert datetime.now(UTC) >= end
    assert stream.events
    assert after.status == 401


async def test_the_one_key_may_do_everything(nobody: Any) -> None:
    shown = await nobody.ok("GET", "/api/whoami", headers={"X-API-Key": MASTER})

    assert (shown["actor"], shown["role"]) == ("key:default", "ADMIN")


async def test_probes_need_no_key_and_say_no_more_than_they_must(nobody: Any) -> None:
    for path in ("/health/live", "/health/ready", "/health/leader", "/health"):
        for headers in ({}, {"X-API-Key": "wrong"}):
            assert await nobody.ok("GET", path, headers=headers) == {"status": "UP"}
    whole = await nobody.ok("GET", "/health", headers={"X-API-Key": KEYS["viewer"]})
    assert "components" in whole


async def test_meters_need_a_key_when_the_setting_says_so(nobody: Any, as_key: Any) -> None:
    client = await as_key("viewer")

    assert (await nobody("GET", "/metrics")).status == 401
    assert (await client("GET", "/metrics")).status == 200


async def test_with_keys_any_host_is_answered(nobody: Any) -> None:
    """The Host check keeps strangers from a server without keys; a key does that better."""
    headers = {"Host": "yukta.example", "X-API-Key": KEYS["viewer"]}

    assert (await nobody("GET", "/api/whoami", headers=headers)).status == 200


async def test_a_body_that_would_be_refused_is_not_even_asked_for(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(
        b"POST /api/workflow/start HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()

    assert head.startswith(b"HTTP/1.1 401")


# --- the actor -----------------------------------------------------------------------------------


async def test_the_audit_names_the_key_and_another_key_may_decide_about_a_held_command(
    as_key: Any, make: Any
) -> None:
    admin, first, second = [await as_key(name) for name in ("admin", "operator", "second")]
    await admin.session_with(make.line("endless", count=0, every_ms=5))
    execution_id = await first.start("endless")

    held = await first("POST", f"/api/executions/{execution_id}/stop?mode=KILL")
    place = f"/api/control/held/{held.body['commandId']}"
    own = await first("POST", place, {"decision": "approve"})
    other = await second("POST", place, {"decision": "approve", "reason": "seen"})

    assert held.status == 202
    assert (own.status, own.code) == (403, "forbidden")
    assert other.body["outcome"] == "APPLIED"
    rows = (await first.ok("GET", f"/api/executions/{execution_id}/commands"))["items"]
    assert {row["actor"] for row in rows} == {"key:operator"}
    assert {row["requestId"] for row in rows} == {held.headers["X-Request-Id"]}
    assert "approved by key:second: seen" in rows[-1]["reason"]
    run = await first.ok("GET", f"/api/executions/{execution_id}")
    assert run["actor"] == "key:operator"


async def test_a_viewer_may_not_decide_about_a_held_command(as_key: Any, make: Any) -> None:
    admin, viewer = await as_key("admin"), await as_key("viewer")
    await admin.session_with(make.line("endless", count=0, every_ms=5))
    execution_id = await admin.start("endless")
    held = await admin("POST", f"/api/executions/{execution_id}/stop")

    answer = await viewer(
        "POST", f"/api/control/held/{held.body['commandId']}", {"decision": "approve"}
    )

    assert (answer.status, answer.code) == (403, "forbidden")


async def test_a_request_id_is_in_answer_and_problem(nobody: Any) -> None:
    answer = await nobody("GET", "/api/whoami", headers={"X-Request-Id": "mine-7"})

    assert answer.headers["X-Request-Id"] == answer.body["instance"] == "mine-7"


# --- the cookie of a browser ---------------------------------------------------------------------


@pytest.fixture
async def browser(server: HttpServer, connect: Callable[..., Any]) -> Any:
    """A client that keeps cookies, as a page of this server would be sent from."""
    jar = aiohttp.CookieJar(unsafe=True)
    return await connect(server, cookie_jar=jar, headers={"Sec-Fetch-Site": "same-origin"})


async def test_a_browser_swaps_a_key_for_a_cookie_that_no_script_reads(browser: Any) -> None:
    answer = await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})

    cookie = answer.headers["Set-Cookie"]
    assert answer.status == 204
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert KEYS["operator"] not in cookie
    shown = await browser.ok("GET", "/api/whoami")
    assert (shown["actor"], shown["cookie"]) == ("key:operator", True)


async def test_behind_tls_the_cookie_is_sent_by_tls_only(browser: Any) -> None:
    answer = await browser(
        "POST",
        "/api/auth/session",
        {"key": KEYS["operator"]},
        headers={"X-Forwarded-Proto": "https"},
    )

    assert "Secure" in answer.headers["Set-Cookie"]


async def test_a_wrong_key_gets_no_cookie(browser: Any) -> None:
    answer = await browser("POST", "/api/auth/session", {"key": "wrong"})

    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert "Set-Cookie" not in answer.headers


async def test_after_many_wrong_keys_an_address_has_to_wait(browser: Any) -> None:
    for _ in range(ATTEMPTS):
        assert (await browser("POST", "/api/auth/session", {"key": "wrong"})).status == 401

    answer = await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})

    assert (answer.status, answer.code) == (429, "rate_limited")
    assert 1 <= int(answer.headers["Retry-After"]) <= 60


async def test_a_cookie_is_good_until_it_is_taken_back(browser: Any) -> None:
    await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})
    token = next(iter(browser.session.cookie_jar)).value

    answer = await browser("DELETE", "/api/auth/session")

    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["Set-Cookie"]
    again = await browser("GET", "/api/whoami", headers={"Cookie": f"{COOKIE}={token}"})
    assert (again.status, again.code) == (401, "unauthenticated")


async def test_a_cookie_that_is_none_of_ours_opens_nothing(nobody: Any) -> None:
    for token in ("", "x", KEYS["admin"], "\xff"):
        answer = await nobody("GET", "/api/whoami", headers={"Cookie": f"{COOKIE}={token}"})
        assert answer.status == 401


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Origin": "http://127.0.0.1:{port}"}, True),
        ({"Origin": "http://127.0.0.1:{other}"}, False),
        ({"Origin": "http://localhost:3000"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:{port}"}, False),
        ({}, False),
    ],
)
async def test_a_cookie_changes_something_only_for_a_page_of_this_server(
    headers: dict[str, str], allowed: bool, server: HttpServer, connect: Any
) -> None:
    browser = await connect(server, cookie_jar=aiohttp.CookieJar(unsafe=True))
    await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})
    sent = {
        name: text.format(port=server.port, other=server.port + 1) for name, text in headers.items()
    }

    changing = await browser("POST", "/api/commands", {"commands": []}, headers=sent)
    reading = await browser("GET", "/api/whoami", headers=sent)

    assert (changing.status, changing.code) == (
        (422, "validation") if allowed else (403, "origin_not_allowed")
    )
    assert reading.status == 200


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
async def test_a_foreign_page_can_log_nobody_in_or_out(
    headers: dict[str, str], browser: Any, nobody: Any
) -> None:
    given = await nobody("POST", "/api/auth/session", {"key": KEYS["viewer"]}, headers=headers)
    await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})
    taken = await browser("DELETE", "/api/auth/session", headers={"Sec-Fetch-Site": "", **headers})

    assert (given.status, given.code) == (403, "origin_not_allowed")
    assert "Set-Cookie" not in given.headers
    assert taken.status == 403
    assert (await browser("GET", "/api/whoami")).status == 200


async def test_a_key_beside_the_cookie_decides(browser: Any) -> None:
    await browser("POST", "/api/auth/session", {"key": KEYS["operator"]})

    shown = await browser.ok("GET", "/api/whoami", headers={"X-API-Key": KEYS["viewer"]})

    assert (shown["actor"], shown["cookie"]) == ("key:viewer", False)


# --- settings ------------------------------------------------------------------------------------


async def test_the_settings_are_shown_to_an_admin_without_their_secrets(as_key: Any) -> None:
    answer = await (await as_key("admin")).ok("GET", "/api/config")

    values = {item["name"]: item for item in answer["items"]}
    assert values["yukta.api-key"]["value"] == "***"
    assert [row["name"] for row in values["yukta.api-keys"]["value"]] == list(KEYS)
    assert {row["key"] for row in values["yukta.api-keys"]["value"]} == {"***"}
    assert values["yukta.metrics.auth"]["value"] is True
    assert not any(key in str(answer) for key in (MASTER, *KEYS.values(), hashed(MASTER)))


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=named)
def test_every_route_says_what_a_limited_key_gets_or_is_closed_to_it(route: Route) -> None:
    if route.bound:
        assert route.reach is Reach.CLOSED, "its path is looked at, so this says nothing"
    if route.reach is Reach.OPEN:
        assert not route.guarded, "what changes something is never the same for all"


def test_streams_are_limited_too() -> None:
    streams = [route for route in ROUTES if route.media in (Media.EVENTS, Media.EITHER)]

    assert streams
    assert all(route.bound or route.reach is Reach.OWN for route in streams)
