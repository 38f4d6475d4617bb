"""The reference page of the REST interface, made from the table of routes. Feature: SEC-03."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.http.openapi import possible_codes
from yukta_rx.http.route import Body, Media, Query, Route
from yukta_rx.http.table import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

_TITLES: Final = {
    "runs": "Runs: start, find, read",
    "commands": "Runs: steer",
    "sessions": "Sessions and workflows",
    "streams": "What happens",
    "supervisors": "Supervisors",
    "plugins": "Node types",
    "server": "The server",
}
_GENERAL: Final = frozenset(
    {
        *("host_not_allowed", "origin_not_allowed", "internal", "invalid_parameter"),
        *("not_acceptable", "body_too_large", "malformed_json", "unserialisable_payload"),
        *("unauthenticated", "forbidden", "recovering"),
    }
)


def reference_page() -> str:
    """Return `docs/reference/rest.md`."""
    lines = [_PAGE_HEAD]
    for tag, title in _TITLES.items():
        lines += [f"## {title}", "", "| route | role | what it does | query and headers | errors |"]
        lines.append("| - | - | - | - | - |")
        lines += [_row(route) for route in ROUTES if route.tag == tag]
        lines.append("")
    return "\n".join(lines)


def _row(route: Route) -> str:
    paths = [f"`{route.method} {path}`" for path in route.paths]
    role = "-" if route.role is None else str(route.role).lower()
    errors = [code for code in possible_codes(route) if code not in _GENERAL]
    cells = [
        "<br>".join(paths),
        role,
        ". ".join(_notes(route)),
        ", ".join([*map(_parameter, route.query), *(f"`{name}`" for name in route.headers)]),
        ", ".join(f"`{code}`" for code in errors),
    ]
    return "| " + " | ".join(cell or "-" for cell in cells) + " |"


def _notes(route: Route) -> Iterator[str]:
    yield route.summary
    if route.body is not Body.NONE:
        model = route.request or route.document
        name = "any JSON" if model is None else f"`{model.__name__}`"
        more = {Body.OPTIONAL: ", may be left out", Body.BUNDLE: ", or a zip of folders"}
        yield f"Body: {name}" + more.get(route.body, "")
    if route.media is Media.EITHER:
        yield "An event stream, or JSON for `Accept: application/json`"
    elif route.media is Media.DIAGRAM:
        yield "JSON, or a Mermaid flowchart for `Accept: text/vnd.mermaid`"
    elif route.media is Media.ZIP:
        yield "A zip"
    elif route.media is Media.EVENTS:
        yield "An event stream"


def _parameter(query: Query) -> str:
    shown = f"`{query.name}`"
    return shown if query.default in (None, False) or query.many else f"{shown} ({query.default})"


_PAGE_HEAD: Final = """\
# REST

Made from the table of routes in `yukta_rx/http/table.py`; change it there and run `make docs`.

`GET /openapi.json` is the same table as OpenAPI 3.1, with the shape of every body. An error is a
problem body (RFC 9457); [errors](errors.md) lists the codes. Beside those in the last column every
route may answer `host_not_allowed`, `origin_not_allowed`, `not_acceptable`, `invalid_parameter`,
`internal` and, while the server starts, `recovering`, one with a role `unauthenticated` and
`forbidden`, and one that takes a body `malformed_json`, `unserialisable_payload` and
`body_too_large`. A query parameter that is not listed is refused, except by the probes.

Every answer carries `X-Request-Id` (the client's own, if it sent one), `Yukta-Version` and
`Yukta-Leader`. Parts of a path in braces are ids: letters, digits, `.`, `_` and `-`, up to 128,
a letter or digit first.
"""
