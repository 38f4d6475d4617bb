"""From an error to an HTTP answer: the one table of statuses, and problem bodies (RFC 9457).

Feature: SEC-03.
"""

from __future__ import annotations

import math
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yukta_rx import errors
from yukta_rx.model.codec import dumps_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.errors import YuktaError

    Mask = Callable[[dict[str, Any]], dict[str, Any]]

PROBLEM_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:yukta:problem:"

STATUS: Final[Mapping[type[YuktaError], int]] = MappingProxyType(
    {
        errors.BadRequestError: 400,
        errors.NotAuthenticatedError: 401,
        errors.RoleError: 403,
        errors.ControlRejectedError: 403,
        errors.HostNotAllowedError: 403,
        errors.OriginNotAllowedError: 403,
        errors.NotFoundError: 404,
        errors.MethodNotAllowedError: 405,
        errors.NotAcceptableError: 406,
        errors.ConflictError: 409,
        errors.CursorExpiredError: 410,
        errors.StaleDefinitionError: 412,
        errors.BodyTooLargeError: 413,
        errors.ValidationError: 422,
        errors.UnserialisablePayloadError: 422,
        errors.IdempotencyKeyReusedError: 422,
        errors.PreconditionRequiredError: 428,
        errors.RejectedError: 429,
        errors.SignalBufferFullError: 429,
        errors.RateLimitedError: 429,
        errors.TooManyStreamsError: 429,
        errors.BackPressureError: 429,
        errors.UnavailableError: 503,
    }
)
"""Status of each class; a subclass without a row of its own has that of its nearest ancestor."""

# What aiohttp raises by itself, in our words. A status that is not listed is a bad request.
_CODES: Final = MappingProxyType(
    {
        404: "route_not_found",
        405: "method_not_allowed",
        406: "not_acceptable",
        413: "body_too_large",
        500: "internal",
    }
)
_INTERNAL: Final = (
    "something went wrong inside the server; its log names this request by the id in `instance`"
)
_RESERVED: Final = frozenset({"type", "title", "status", "detail", "instance", "code"})


def _as_is(body: dict[str, Any]) -> dict[str, Any]:
    return body


def status_of(error: type[YuktaError]) -> int | None:
    """Return the status of a class, None for one that no request may ever show."""
    return next((STATUS[cls] for cls in error.__mro__ if cls in STATUS), None)


def problem(
    status: int,
    code: str,
    detail: str,
    instance: str,
    *,
    members: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Return a problem answer.

    Args:
        status: the HTTP status.
        code: the stable word.
        detail: the sentence for people.
        instance: the request id.
        members: further members; they cannot replace the standard ones.
        headers: further headers.
    """
    return _answer(_body(status, code, detail, instance, members or {}), headers)


def _answer(body: dict[str, Any], headers: Mapping[str, str] | None) -> web.Response:
    return web.Response(
        status=body["status"], body=_encoded(body), content_type=PROBLEM_TYPE, headers=headers
    )


def problem_body(error: YuktaError, instance: str, mask: Mask = _as_is) -> dict[str, Any]:
    """Return what is answered for one of our errors, where it is one of several answers.

    Args:
        error: the error.
        instance: the request id.
        mask: takes secrets out of it.
    """
    status = status_of(type(error))
    if status is None:
        return _body(500, "internal", _INTERNAL, instance, {})
    return mask(_body(status, error.code, error.detail, instance, error.members))


def _body(
    status: int, code: str, detail: str, instance: str, members: Mapping[str, Any]
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + code,
        "title": _title(code),
        "status": status,
        "detail": detail,
        "instance": instance,
        "code": code,
    }
    return body | {name: value for name, value in members.items() if name not in _RESERVED}


def problem_of_error(error: YuktaError, instance: str, mask: Mask = _as_is) -> web.Response | None:
    """Return the answer for one of our errors, None if it is a defect that must not be shown.

    Args:
        error: the error.
        instance: the request id.
        mask: takes secrets out of it.
    """
    status = status_of(type(error))
    if status is None:
        return None
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = str(_seconds(getattr(error, "retry_after", None)))
    elif status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _answer(problem_body(error, instance, mask), headers)


def problem_of_http(error: web.HTTPException, instance: str, target: str) -> web.Response:
    """Return the answer for an exception that aiohttp raised.

    Args:
        error: the exception.
        instance: the request id.
        target: method and path, for the sentence.
    """
    headers = {}
    if allowed := error.headers.get("Allow"):
        headers["Allow"] = allowed
    code = _CODES.get(error.status, "invalid_parameter" if error.status < 500 else "internal")
    detail = {
        404: f"there is no route {target}",
        405: f"{target}: this path answers only {allowed}",
    }.get(error.status, f"{target}: {error.reason.lower()}")
    return problem(error.status, code, detail, instance, headers=headers)


def problem_internal(instance: str) -> web.Response:
    """Return the answer for a defect: it says nothing of the inside."""
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", _INTERNAL, instance)


def _title(code: str) -> str:
    return code.replace("_", " ").capitalize()


def _seconds(retry_after: float | None) -> int:
    return max(1, math.ceil(retry_after)) if retry_after is not None else 1


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return dumps_plain(body)
    except errors.UnserialisablePayloadError:
        # A detail or member quotes what cannot be said in JSON, such as half a surrogate pair.
        shown = {
            name: ascii(value) if name not in _RESERVED else value for name, value in body.items()
        }
        shown["detail"] = ascii(body["detail"])
        return dumps_plain(shown)
