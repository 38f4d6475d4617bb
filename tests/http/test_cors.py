"""CORS: pages of allowed origins read answers and ask first; cookies are never part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from multidict import CIMultiDict

from yukta_rx.config.settings import Settings
from yukta_rx.http import cors
from yukta_rx.http.host_origin import HostOrigin
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.http.server import HttpServer

pytestmark = pytest.mark.feature("SEC-01")

KEY = "a-key-that-may-do-everything"
PAGE = "https://page.example"
ASKS = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "x-api-key"}


@pytest.fixture
def settings() -> Settings:
    return Settings(api_key=KEY, allowed_origins=[PAGE])


@pytest.fixture
async def page(server: HttpServer, connect: Callable[..., Any]) -> Any:
    """A client that says what a page of the allowed origin would have a browser say."""
    return await connect(server, headers={"Origin": PAGE})


async def test_an_allowed_page_may_ask_first_without_a_key(page: Any) -> None:
    """A browser sends no key with the question, so it has to be answered without one."""
    answer = await page("OPTIONS", "/api/sessions/s", headers=ASKS, checked=False)

    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    allowed = set(answer.headers["Access-Control-Allow-Methods"].split(", "))
    assert allowed >= {route.method for route in ROUTES}
    assert "X-API-Key" in answer.headers["Access-Control-Allow-Headers"]
    assert answer.headers["Vary"] == "Origin"


@pytest.mark.parametrize(
    "origin", ["https://page.example.evil", "http://page.example", "https://a.page.example", "null"]
)
async def test_a_page_of_another_origin_learns_nothing(origin: str, page: Any) -> None:
    asked = await page("OPTIONS", "/api/sessions/s", headers={**ASKS, "Origin": origin})
    read = await page("GET", "/api/whoami", headers={"Origin": origin, "X-API-Key": KEY})

    assert asked.status >= 400
    for answer in (asked, read):
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]


async def test_an_allowed_page_reads_answers_and_problems(page: Any) -> None:
    good = await page("GET", "/api/whoami", headers={"X-API-Key": KEY})
    problem = await page("GET", "/api/whoami")
    missing = await page("GET", "/nowhere")

    assert [good.status, problem.status, missing.status] == [200, 401, 404]
    for answer in (good, problem, missing):
        assert answer.headers["Access-Control-Allow-Origin"] == PAGE
        assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]
        assert "Origin" in answer.headers["Vary"]


async def test_no_answer_lets_a_page_bring_a_cookie(page: Any) -> None:
    for method, headers in (("GET", {}), ("OPTIONS", ASKS), ("GET", {"Cookie": "yukta_session=x"})):
        answer = await page(method, "/api/whoami", headers=headers, checked=False)
        assert "Access-Control-Allow-Credentials" not in answer.headers
        assert answer.headers["Access-Control-Allow-Origin"] != "*"


async def test_what_varies_already_varies_by_origin_too() -> None:
    doors = HostOrigin((), (PAGE,))
    headers = CIMultiDict({"Vary": "Accept"})

    cors.let_read(doors, PAGE, headers)
    cors.let_read(doors, PAGE, headers)

    assert headers["Vary"] == "Accept, Origin"
