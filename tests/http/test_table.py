"""The table of routes and what is made from it: checks for every line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from yarl import URL

from yukta_rx.control.commands import COMMANDS
from yukta_rx.errors import ERRORS
from yukta_rx.http.document import reference_page
from yukta_rx.http.errors import status_of
from yukta_rx.http.openapi import openapi_document, possible_codes, shown_paths
from yukta_rx.http.route import Body, Media, Route
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Client = Callable[..., Awaitable[Any]]

ROOT = Path(__file__).parents[2]
BAD_IDS = ["a/b", "x:y@z", "é", "a\nb", "x" * 300, "..", ".", "-a", "a b", "a\x00b", "..\\x", "'"]
WRITING = {"POST", "PUT", "PATCH", "DELETE"}
CHANGES_NOTHING = {"validate", "validate-config"}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


EVERY = pytest.mark.parametrize("route", ROUTES, ids=named)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document(ROUTES)


@pytest.mark.feature("SEC-03")
def test_the_document_is_openapi_3_1(document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(document).validate()

    assert document["openapi"] == "3.1.0"


@EVERY
def test_every_route_is_documented(route: Route, document: dict[str, Any]) -> None:
    for path in shown_paths(route):
        for method in (route.method, *route.also):
            described = document["paths"][path][method.lower()]
            assert described["summary"]
            assert set(described["responses"]) > {str(status) for status in route.responses}


def test_no_two_routes_meet() -> None:
    places = [
        (method, path)
        for route in ROUTES
        for path in route.paths
        for method in (route.method, *route.also)
    ]

    assert len(places) == len(set(places))


def test_every_operation_has_a_name_of_its_own(document: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]

    assert len(names) == len(set(names))


@EVERY
def test_every_path_parameter_is_documented_as_an_id(
    route: Route, document: dict[str, Any]
) -> None:
    for path in shown_paths(route):
        parameters = document["paths"][path][route.method.lower()]["parameters"]
        ids = {item["name"] for item in parameters if item["in"] == "path"}
        assert ids == set(Route.placeholders_of(path))


@EVERY
def test_every_code_of_a_route_is_in_the_registry(route: Route) -> None:
    assert set(possible_codes(route)) <= ERRORS.keys()
    assert all(status_of(ERRORS[code]) or code == "internal" for code in possible_codes(route))


@EVERY
def test_what_changes_something_survives_its_client_and_what_reads_does_not(route: Route) -> None:
    examines = route.path.rpartition("/")[2] in CHANGES_NOTHING
    # `run` waits for the end of its run, so it guards only the start.
    waits = route.path.endswith("/run")

    assert route.guarded is (route.method in WRITING and not examines and not waits)


@EVERY
def test_a_body_belongs_to_methods_that_have_one(route: Route) -> None:
    assert (route.body is Body.NONE) or route.method in {"POST", "PUT", "PATCH"}


@EVERY
def test_only_probes_and_documents_are_open_to_all(route: Route) -> None:
    open_to_all = ("/health", "/metrics", "/openapi.json", "/api/version", "/api/auth/session")

    assert (route.role is None) is route.path.startswith(open_to_all)
    changes = route.method in {"PUT", "DELETE", "PATCH"} and route.role is not None
    if changes and route.tag != "commands":
        assert str(route.role) == "ADMIN"


@pytest.mark.feature("CTL-01")
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_route(name: str) -> None:
    command = COMMANDS[name]
    method, end = command.route
    [route] = [
        route for route in ROUTES if (route.method, route.path) == (method, command.scope + end)
    ]

    assert route.role == command.role
    in_query = set(command.own_fields()) - command.body_only
    assert {query.name for query in route.query} == {*in_query, "reason", "dryRun"}


def test_the_older_paths_are_served_beside_their_twins() -> None:
    start = next(route for route in ROUTES if "/workflow/start" in route.paths)

    assert set(start.paths) == {"/workflow/start", "/api/workflow/start"}
    assert shown_paths(start) == ("/api/workflow/start",)


# --- the same, asked of a server -----------------------------------------------------------------


async def test_the_document_is_served(client: Client, document: dict[str, Any]) -> None:
    answer = await client("GET", "/openapi.json")

    assert answer.body["paths"].keys() == document["paths"].keys()
    again = await client("GET", "/openapi.json", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status == 304


@pytest.mark.slow
@pytest.mark.feature("DEF-02")
async def test_case_37_a_bad_id_is_refused_on_every_route(client: Client) -> None:
    refused = 0
    for route in ROUTES:
        for path in route.paths:
            for name in Route.placeholders_of(path):
                for bad in BAD_IDS:
                    refused += await refuses(client, route, path, name, bad)

    assert refused == len(BAD_IDS) * sum(len(ids) for ids in placeholders())


def placeholders() -> list[tuple[str, ...]]:
    return [Route.placeholders_of(path) for route in ROUTES for path in route.paths]


async def refuses(client: Client, route: Route, path: str, name: str, bad: str) -> int:
    for other in Route.placeholders_of(path):
        text = quote(bad, safe="") if other == name else "good"
        path = path.replace("{" + other + "}", text.replace(".", "%2E") if other == name else text)
    url = URL(str(client.session._base_url).rstrip("/") + path, encoded=True)
    headers = {"Accept": "application/json"} if route.media is Media.EITHER else {}
    answer = await client(route.method, url, checked=False, headers=headers)

    assert answer.status == 400, (route.method, path, answer.body)
    assert answer.body["code"] == "invalid_parameter"
    assert answer.body["parameter"] == name
    return 1


@pytest.mark.feature("SEC-01")
@pytest.mark.parametrize("path", ["/api/executions/a/b/c/d", "/nothing", "/api//executions", "/"])
async def test_a_path_that_is_no_route_is_a_problem(client: Client, path: str) -> None:
    answer = await client("GET", path)

    assert (answer.status, answer.code) == (404, "route_not_found")


async def test_a_method_that_a_path_has_not_is_a_problem_with_allow(client: Client) -> None:
    answer = await client("DELETE", "/api/executions", checked=False)

    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert "GET" in answer.headers["Allow"]


def test_the_reference_page_is_made_from_the_table() -> None:
    page = (ROOT / "docs/reference/rest.md").read_text(encoding="utf-8")

    assert page == reference_page()
    assert all(f"`{route.method} {path}`" in page for route in ROUTES for path in route.paths)
