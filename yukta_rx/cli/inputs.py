"""What a user says about a run: start payload and deadline, read from the command line."""

from __future__ import annotations

import sys
from typing import Any

from yukta_rx.cli.console import EXIT_USAGE, CliError
from yukta_rx.cli.files import read_text
from yukta_rx.errors import YuktaError
from yukta_rx.model.codec import loads_external


def read_payload(text: str | None, members: tuple[str, ...]) -> Any:
    """Return the start payload.

    Args:
        text: JSON, `@file` or `@-` for stdin; None is `{}`.
        members: `name=value` each, the name a dotted path, the value JSON or else text.

    Raises:
        CliError: one of them cannot be read.
    """
    payload = {} if text is None else _read_json(text)
    for member in members:
        name, found, value = member.partition("=")
        if not (found and name) or "" in name.split("."):
            raise _usage(f"--set {member}: write NAME=VALUE, as in --set order.id=7")
        _set(payload, name, value)
    return payload


def read_timeout(text: str | None, default: float | None) -> float | None:
    """Return a time limit in seconds, None for none.

    Raises:
        CliError: it is not a duration.
    """
    if text is None:
        return default
    from yukta_rx.config.units import ExpectedError, parse_duration

    try:
        return parse_duration(text).total_seconds() or None
    except ExpectedError as error:
        raise _usage(f"--timeout {text}: {error}") from None


def _read_json(text: str) -> Any:
    place = "--payload"
    if text == "@-":
        place, text = "--payload @-", sys.stdin.read()
    elif text.startswith("@"):
        place, text = text[1:], read_text(text[1:])
    try:
        return loads_external(text)
    except YuktaError as error:
        raise CliError(
            f"{place}: {error.detail}", exit_code=EXIT_USAGE, code=error.code, members=error.members
        ) from None


def _set(payload: Any, name: str, text: str) -> None:
    *above, last = name.split(".")
    holder = payload
    for depth, part in enumerate(above):
        if isinstance(holder, dict):
            holder = holder.setdefault(part, {})
        if not isinstance(holder, dict):
            inside = ".".join(above[: depth + 1])
            raise _usage(f"--set {name}: `{inside}` in the payload is not an object")
    if not isinstance(holder, dict):
        raise _usage(f"--set {name}: the payload is not an object")
    try:
        holder[last] = loads_external(text)
    except YuktaError:
        holder[last] = text


def _usage(text: str) -> CliError:
    return CliError(text, exit_code=EXIT_USAGE)
