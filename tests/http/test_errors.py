"""Errors as problem bodies: one table, every code, nothing of the inside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from yukta_rx import errors
from yukta_rx.errors import ERRORS, YuktaError
from yukta_rx.http.errors import problem_internal, problem_of_error, problem_of_http, status_of

ROOT = Path(__file__).parents[2]


def body_of(response: web.Response | None) -> dict[str, Any]:
    assert response is not None
    assert response.content_type == "application/problem+json"
    assert isinstance(response.body, bytes)
    body: dict[str, Any] = json.loads(response.body)
    return body


@pytest.mark.feature("SEC-03")
def test_every_code_has_the_status_of_the_reference_page() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| `\w+` \| ([\d-]+) \|", page, re.MULTILINE))

    ours = {code: str(status_of(cls) or "-") for code, cls in ERRORS.items()}

    assert ours | {"internal": "500"} == listed


def test_a_subclass_has_the_status_of_its_ancestor() -> None:
    class Refused(errors.ConflictError):
        """A conflict of a kind of its own."""

    assert status_of(Refused) == 409
    assert status_of(errors.DefinitionError) == 422
    assert status_of(errors.NotLeaderError) == 503


def test_an_error_that_no_transport_shows_has_no_answer() -> None:
    assert problem_of_error(errors.EngineError("secret"), "r1") is None


def test_a_problem_carries_code_members_and_request_id() -> None:
    error = errors.NotFoundError("no run x", code="execution_not_found", executionId="x")

    answer = problem_of_error(error, "r1")

    assert body_of(answer) == {
        "type": "urn:yukta:problem:execution_not_found",
        "title": "Execution not found",
        "status": 404,
        "detail": "no run x",
        "instance": "r1",
        "code": "execution_not_found",
        "executionId": "x",
    }


def test_members_cannot_replace_the_standard_ones() -> None:
    error = errors.ConflictError("no", code="in_use", status="RUNNING", instance="other")

    body = body_of(problem_of_error(error, "r1"))

    assert body["status"] == 409
    assert body["instance"] == "r1"


@pytest.mark.parametrize(("seconds", "header"), [(None, "1"), (0.2, "1"), (2.1, "3")])
def test_an_error_that_passes_by_itself_says_when_to_come_back(
    seconds: float | None, header: str
) -> None:
    error = errors.RejectedError("full", code="queue_full", retry_after=seconds)

    answer = problem_of_error(error, "r1")

    assert answer is not None
    assert answer.headers["Retry-After"] == header


def test_an_unknown_key_is_told_how_to_authenticate() -> None:
    answer = problem_of_error(errors.NotAuthenticatedError("no key"), "r1")

    assert answer is not None
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (web.HTTPNotFound(), "route_not_found"),
        (web.HTTPMethodNotAllowed("PUT", ["GET"]), "method_not_allowed"),
        (web.HTTPRequestEntityTooLarge(max_size=1, actual_size=2), "body_too_large"),
        (web.HTTPBadRequest(), "invalid_parameter"),
        (web.HTTPInternalServerError(), "internal"),
    ],
)
def test_what_aiohttp_raises_becomes_a_problem(error: web.HTTPException, code: str) -> None:
    body = body_of(problem_of_http(error, "r1", "GET /x"))

    assert body["code"] == code
    assert body["status"] == error.status


def test_a_defect_says_nothing_of_the_inside() -> None:
    body = body_of(problem_internal("r1"))

    assert body["code"] == "internal"
    assert body["instance"] == "r1"


def test_a_detail_that_json_cannot_say_is_shown_escaped() -> None:
    error = errors.BadRequestError("bad \ud800", code="malformed_json", pointer="/\ud800")

    body = body_of(problem_of_error(error, "r1"))

    assert "ud800" in body["detail"]


def test_every_error_class_of_the_table_is_ours() -> None:
    assert all(issubclass(cls, YuktaError) for cls in ERRORS.values())
