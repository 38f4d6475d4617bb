"""The OpenAPI 3.1 document, made from the table of routes. Feature: SEC-03."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import models_json_schema

from yukta_rx import __version__
from yukta_rx.errors import ERRORS
from yukta_rx.http.errors import PROBLEM_TYPE, status_of
from yukta_rx.http.resources import SentEvent
from yukta_rx.http.route import Body, Media, Query, Route
from yukta_rx.http.shapes import Problem
from yukta_rx.model.ids import ID_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic import BaseModel

_REF: Final = "#/components/schemas/{model}"
_GENERAL: Final = ("host_not_allowed", "internal", "recovering")
_BINARY: Final = {"type": "string", "format": "binary"}
_NOTES: Final = {
    "runs": "Start, find and read runs.",
    "commands": "Steer runs; an answered command is in force.",
    "sessions": "Sessions and their workflows.",
    "streams": "What happens, as it happens or as a page.",
    "supervisors": "Programs that steer runs.",
    "plugins": "Node types.",
    "server": "The server itself.",
}
_SECURITY: Final[dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": "yukta_session",
        "description": "What `POST /api/auth/session` gives a browser for a key.",
    },
}
_WRITING: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def openapi_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the document as plain JSON."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for path in shown_paths(route):
            operations = paths.setdefault(path, {})
            for method in (route.method, *route.also):
                operations[method.lower()] = _operation(route, path, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "yukta_rx",
            "version": __version__,
            "summary": "Workflows as live, back-pressured streams that can be steered",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": note} for name, note in _NOTES.items()],
        # The empty one: a server without keys asks for none.
        "security": [{}, *({name: []} for name in _SECURITY)],
        "paths": paths,
        "components": {"schemas": _schemas(routes), "securitySchemes": _SECURITY},
    }


def shown_paths(route: Route) -> tuple[str, ...]:
    """Return the paths of a route that are documented: an older twin without `/api` is not."""
    return tuple(path for path in route.paths if path == route.path or path.startswith("/api/"))


def possible_codes(route: Route) -> tuple[str, ...]:
    """Return every problem code that a route may answer with."""
    codes = [*route.errors, *_GENERAL]
    if route.role is not None or route.headers:
        codes.append("invalid_parameter")
    if route.media in (Media.JSON, Media.EVENTS, Media.DIAGRAM, Media.ZIP):
        codes.append("not_acceptable")
    if route.body is not Body.NONE:
        codes += ["malformed_json", "unserialisable_payload", "body_too_large"]
        if route.request is not None:
            codes.append("validation")
    if route.method in _WRITING:
        codes.append("origin_not_allowed")
    if route.for_leader:
        codes.append("not_leader")
    if route.role is not None or route.path == "/metrics":
        codes += ["unauthenticated", "forbidden"]
        codes += ["session_not_found"] if "sessionId" in route.placeholders else []
        codes += ["execution_not_found"] if "executionId" in route.placeholders else []
    return tuple(dict.fromkeys(codes))


def _operation(route: Route, path: str, method: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": _operation_id(route, path, method),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_parameters(route, path)],
        "responses": _responses(route, method),
    }
    if route.role is not None:
        made["x-yukta-role"] = str(route.role)
    elif route.path != "/metrics":
        made["security"] = []
    if path != route.path:
        made["x-yukta-alias-of"] = route.path
    model = route.request or route.document
    if route.body is not Body.NONE:
        schema = {} if model is None else {"$ref": _ref(model)}
        made["requestBody"] = {
            "required": route.body is Body.REQUIRED,
            "content": {"application/json": {"schema": schema}},
        }
        if route.body is Body.BUNDLE:
            made["requestBody"]["required"] = True
            made["requestBody"]["content"][str(Media.ZIP)] = {"schema": _BINARY}
    return made


def _operation_id(route: Route, path: str, method: str) -> str:
    name = route.name if path == route.path else f"{route.name}_{route.paths.index(path)}"
    return name if method == route.method else f"{method.lower()}_{name}"


def _parameters(route: Route, path: str) -> Iterator[dict[str, Any]]:
    for name in Route.placeholders_of(path):
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": ID_PATTERN},
        }
    for query in route.query:
        yield _query(query)
    for name, note in route.headers.items():
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": "^[!-~]+$"}
        if name == "If-None-Match" and route.method in _WRITING:
            schema = {"type": "string", "const": "*"}
        elif name == "Last-Event-ID":
            schema = {"type": "string", "pattern": route.place}
        elif name == "Prefer":
            # What it says that is not known is passed over, RFC 7240.
            schema = {"type": "string"}
        yield {"name": name, "in": "header", "description": note, "schema": schema}


def _query(query: Query) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": query.name,
        "in": "query",
        "description": query.doc,
        "schema": query.schema(),
    }
    if query.many:
        made |= {"style": "form", "explode": True}
    return made


def _responses(route: Route, method: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for status, model in route.responses.items():
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if method != "HEAD" and (content := _content(route, model)):
            answer["content"] = content
        made[str(status)] = answer
    by_status: dict[int, list[str]] = {}
    for code in possible_codes(route):
        status = status_of(ERRORS[code]) or 500
        by_status.setdefault(status, []).append(code)
    for status, codes in sorted(by_status.items()):
        made[str(status)] = {
            "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}",
            "content": {PROBLEM_TYPE: {"schema": {"$ref": _ref(Problem)}}},
        }
    return made


def _content(route: Route, model: type[BaseModel] | None) -> dict[str, Any]:
    if route.media is Media.METRICS:
        return {"text/plain": {"schema": {"type": "string"}}}
    if route.media is Media.ZIP:
        return {str(Media.ZIP): {"schema": _BINARY}}
    if model is None:
        return {}
    made: dict[str, Any] = {}
    if route.media is Media.DIAGRAM:
        made["text/vnd.mermaid"] = {"schema": {"type": "string"}}
    if route.media in (Media.JSON, Media.EITHER, Media.DIAGRAM):
        made[str(Media.JSON)] = {"schema": {"$ref": _ref(model)}}
    if route.media in (Media.EVENTS, Media.EITHER):
        made[str(Media.EVENTS)] = {"schema": {"$ref": _ref(SentEvent)}}
    return made


def _schemas(routes: Iterable[Route]) -> dict[str, Any]:
    models: dict[type[BaseModel], None] = {Problem: None, SentEvent: None}
    for route in routes:
        for model in (route.request, route.document, *route.responses.values()):
            if model is not None:
                models[model] = None
    _, made = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, ref_template=_REF
    )
    schemas: dict[str, Any] = _portable(made["$defs"])
    return schemas


def _portable(value: Any) -> Any:
    r"""Write pydantic's schemas in a way that every reader takes as it is meant.

    `\z` is not among the signs of a JSON Schema pattern, and the empty default of an id that may
    be left out is no id.
    """
    if isinstance(value, dict):
        return {
            name: re.sub(r"\\[zZ]$", "$", item)
            if name == "pattern" and isinstance(item, str)
            else _portable(item)
            for name, item in value.items()
            if not (name == "default" and item == "")
        }
    return [_portable(item) for item in value] if isinstance(value, list) else value


def _ref(model: type[BaseModel]) -> str:
    return _REF.format(model=model.__name__)
