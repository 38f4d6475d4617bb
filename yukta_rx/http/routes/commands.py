"""Commands: one route for each, made from its class; no code per command. Feature: CTL-01."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from pydantic import BaseModel, BeforeValidator, Field, RootModel, create_model

from yukta_rx.control.commands import COMMANDS, Command, NodeCommand, StopWorkflow
from yukta_rx.errors import BadRequestError, Fault, ValidationError
from yukta_rx.http.body import checked
from yukta_rx.http.headers import idempotency_key
from yukta_rx.http.route import Body, Kind, Query, Route
from yukta_rx.http.shapes import CommandAnswer, Id, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from yukta_rx.http.call import Call
    from yukta_rx.http.route import Handler

REASON: Final = Query("reason", "Why; it goes into the audit.", high=1000)
DRY_RUN: Final = Query(
    "dryRun", "Only check whether it would be applied.", Kind.BOOLEAN, default=False
)
KEY_DOC: Final = "A repeat with the same key gets the first answer back."
ERRORS: Final = ("execution_not_found", "execution_not_running", "control_rejected", "validation")
_COUNTS: Final = frozenset({"n"})


def command_routes() -> Iterator[Route]:
    """Yield the route of every command, in the order of `COMMANDS`."""
    for cls in COMMANDS.values():
        method, below = cls.route
        of_node = issubclass(cls, NodeCommand)
        path = "/api/executions/{executionId}" + ("/nodes/{nodeId}" if of_node else "") + below
        yield Route(
            method=method,
            path=path,
            handler=_handler(cls),
            summary=cls.summary,
            tag="commands",
            role=cls.role,
            query=(*_parameters(cls), REASON, DRY_RUN),
            body=Body.NONE if method == "DELETE" else Body.OPTIONAL,
            request=None if method == "DELETE" else _model(cls),
            responses={200: CommandAnswer},
            errors=(*ERRORS, *cls.errors, *(("node_not_found",) if of_node else ())),
            headers={"Idempotency-Key": KEY_DOC},
            guarded=True,
        )


async def one_door(call: Call) -> web.StreamResponse:
    """Give the command that the body names."""
    body = call.body if isinstance(call.body, dict) else {}
    kind = body.get("type")
    if not isinstance(kind, str) or kind not in _BY_TYPE:
        place = "/type" if isinstance(call.body, dict) else ""
        detail = f"must be an object whose `type` is one of {', '.join(_BY_TYPE)}"
        raise ValidationError([Fault(place, "invalid_value", detail)])
    given = checked(_BY_TYPE[kind], body).model_dump(by_alias=True, exclude_none=True)
    del given["type"]
    reason = given.pop("reason", None)
    if given.setdefault("executionId", call.ids["executionId"]) != call.ids["executionId"]:
        detail = f"must be {call.ids['executionId']}, as in the address"
        raise ValidationError([Fault("/executionId", "invalid_value", detail)])
    return await _give(call, COMMANDS[kind].parse(given), reason)


async def audit(call: Call) -> web.StreamResponse:
    """List the commands of a run, oldest first."""
    rows = call.engine.gateway.audit(call.ids["executionId"])
    after = call.query["afterCursor"]
    if after is not None:
        if not after.isdecimal() or len(after) > 18:
            raise BadRequestError(
                "this is not a cursor of this list", code="invalid_cursor", parameter="afterCursor"
            )
        rows = [row for row in rows if row["seq"] > int(after)]
    page = rows[: call.query["limit"]]
    more = len(rows) > len(page)
    return call.json({"items": page, "nextCursor": str(page[-1]["seq"]) if more else None})


async def stop_workflow(call: Call) -> web.StreamResponse:
    """Stop every live run of a workflow."""
    session_id, workflow_id = call.ids["sessionId"], call.ids["workflowId"]
    await call.engine.definitions.get(session_id, workflow_id)
    given = {**_given(call, ("mode",)), **_fields(call)}
    reason = given.pop("reason", call.query["reason"])
    results = await call.engine.gateway.stop_workflow(
        session_id,
        workflow_id,
        lambda execution_id: StopWorkflow.parse({"executionId": execution_id, **given}),
        actor=call.actor.name,
        via=call.via,
        reason=reason,
        dry_run=call.query["dryRun"],
    )
    return call.json({"results": [result.as_dict() for result in results]})


def _handler(cls: type[Command]) -> Handler:
    names = tuple(cls.own_fields())

    async def handle(call: Call) -> web.StreamResponse:
        own = _fields(call)
        reason = own.pop("reason", call.query["reason"])
        values = {**call.ids, **_given(call, names), **own}
        try:
            command = cls.parse(values)
        except ValidationError as error:
            if not own and len(values) > len(call.ids):
                detail = error.errors[0].detail
                raise BadRequestError(detail, code="invalid_parameter") from error
            raise
        return await _give(call, command, reason)

    return handle


async def _give(call: Call, command: Command, reason: str | None) -> web.StreamResponse:
    result = await call.engine.gateway.command(
        command,
        actor=call.actor.name,
        via=call.via,
        reason=reason,
        dry_run=call.query["dryRun"],
        command_id=idempotency_key(call.header("Idempotency-Key")),
    )
    return call.json(result.as_dict())


def _fields(call: Call) -> dict[str, Any]:
    """The members of the body; one that is null counts as left out."""
    return {name: value for name, value in (call.body or {}).items() if value is not None}


def _given(call: Call, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a command that stand in the query."""
    return {name: call.query[name] for name in names if call.query[name] is not None}


def _parameters(cls: type[Command]) -> Iterator[Query]:
    for name, (kind, _) in cls.own_fields().items():
        doc = f"The field `{name}`; the body may have it instead."
        if kind is bool:
            yield Query(name, doc, Kind.BOOLEAN)
        elif kind is int:
            yield Query(name, doc, Kind.WHOLE, low=1 if name in _COUNTS else None)
        elif issubclass(kind, StrEnum):
            yield Query(name, doc, Kind.WORD, words=tuple(kind))
        else:
            yield Query(name, doc, high=1000)


def _model(cls: type[Command], *, one_door: bool = False) -> type[BaseModel]:
    """Return the model of a command's body.

    On its own route every field may stand in the query instead, so none is required there.
    """
    fields: dict[str, Any] = {}
    if one_door:
        fields["type"] = (Literal[cls.name()], ...)
        if issubclass(cls, NodeCommand):
            fields["nodeId"] = (Id("nodeId"), ...)
        fields["executionId"] = (str | None, None)
    for name, (kind, default) in cls.own_fields().items():
        required = one_door and default is ...
        fields[name] = (_field_type(name, kind), ... if required else None)
    fields["reason"] = (str | None, Field(None, max_length=1000))
    suffix = "Command" if one_door else "Body"
    made: type[BaseModel] = create_model(
        cls.name() + suffix, __base__=Request, __doc__=cls.__doc__, **fields
    )
    return made


def _field_type(name: str, kind: type) -> Any:
    if kind is int:
        bounds = Field(strict=True, ge=1) if name in _COUNTS else Field(strict=True)
        return Annotated[int, bounds] | None
    if kind is bool:
        return Annotated[bool, Field(strict=True)] | None
    if issubclass(kind, StrEnum):
        return Annotated[kind | None, BeforeValidator(_upper)]
    return kind | None


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


STOP_MODE: Final = next(_parameters(StopWorkflow))
STOP_BODY: Final = _model(StopWorkflow)
_BY_TYPE: Final = {name: _model(cls, one_door=True) for name, cls in COMMANDS.items()}
_ANY: Any = Union[tuple(_BY_TYPE.values())]  # noqa: UP007  (made while the program runs)


class AnyCommand(RootModel[_ANY]):
    """One of the commands."""
