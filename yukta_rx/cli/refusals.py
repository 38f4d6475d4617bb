"""From a server's answer to a refusal: what the user reads and the exit code.

Feature: OBS-01.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli.console import (
    EXIT_CONFLICT,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_LIMIT,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    CliError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_CODE: Final[Mapping[str, int]] = {"validation": EXIT_INVALID}
_BY_STATUS: Final[Mapping[int, int]] = {
    401: EXIT_REFUSED,
    403: EXIT_REFUSED,
    404: EXIT_NOT_FOUND,
    409: EXIT_CONFLICT,
    412: EXIT_CONFLICT,
    428: EXIT_CONFLICT,
    429: EXIT_LIMIT,
    502: EXIT_UNREACHABLE,
    503: EXIT_UNREACHABLE,
    504: EXIT_UNREACHABLE,
}
_SAID: Final = ("type", "title", "code", "detail")


def refusal_of(status: int, body: bytes, url: str) -> CliError:
    """Return an answer that is no success as a refusal.

    Args:
        status: the HTTP status.
        body: a problem body, or whatever something between here and the server said.
        url: what was asked.
    """
    problem = problem_in(body)
    code = problem.get("code")
    detail = problem.get("detail")
    if not isinstance(code, str) or not isinstance(detail, str):
        reason = _reason(status)
        lines = [f"{url}: answered {status} {reason}".rstrip()]
        members: dict[str, Any] = {"status": status}
        code = "internal"
    else:
        lines = detail.splitlines() or [code]
        members = {name: value for name, value in problem.items() if name not in _SAID}
    exit_code = _BY_CODE.get(code, _BY_STATUS.get(status, EXIT_FAILED))
    return CliError(*lines, exit_code=exit_code, code=code, members=members)


def problem_in(body: bytes) -> dict[str, Any]:
    """Return a problem body, `{}` for anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
