"""Commands: one route for each, made from its class; no code per command. Feature: CTL-01."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union

from pydantic import BaseModel, BeforeValidator, Field, RootModel, create_model

from yukta_rx.control.audit import AuditQuery, Submission
from yukta_rx.control.commands import (
    COMMANDS,
    Command,
    CommandResult,
    OfNode,
    Outcome,
    StopWorkflow,
)
from yukta_rx.control.desk import unknown
from yukta_rx.control.held import no_such_command
from yukta_rx.errors import BadRequestError, Fault, RoleError, ValidationError, YuktaError
from yukta_rx.http.body import checked
from yukta_rx.http.errors import problem_body
from yukta_rx.http.headers import idempotency_key
from yukta_rx.http.route import Body, Kind, Query, Route
from yukta_rx.http.shapes import (
    CommandAnswer,
    Decision,
    DecisionBody,
    Id,
    Request,
    Started,
)
from yukta_rx.model.policy import AsArray

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from aiohttp import web

    from yukta_rx.http.call import Call
    from yukta_rx.http.route import Handler

REASON: Final = Query("reason", "Why; it goes into the audit.", high=1000)
DRY_RUN: Final = Query(
    "dryRun", "Only check whether it would be applied.", Kind.BOOLEAN, default=False
)
KEY_DOC: Final = "A repeat with the same key gets the first answer back."
MAX_BATCH: Final = 100
"""Commands of one request."""

ERRORS: Final = ("execution_not_found", "execution_not_running", "control_rejected", "validation")
_COUNTS: Final = frozenset({"n"})
_NONE: Final[Mapping[int, YuktaError]] = {}


def command_routes() -> Iterator[Route]:
    """Yield the route of every command, in the order of `COMMANDS`."""
    for cls in COMMANDS.values():
        method, below = cls.route
        of_node = issubclass(cls, OfNode)
        yield Route(
            method=method,
            path=cls.scope + below,
            aliases=cls.aliases,
            also=cls.also,
            handler=_handler(cls),
            summary=cls.summary,
            tag="commands",
            role=cls.role,
            query=(*_parameters(cls), REASON, DRY_RUN),
            body=Body.NONE if method == "DELETE" else Body.OPTIONAL,
            request=None if method == "DELETE" else _model(cls),
            responses=_answers(cls),
            errors=(*ERRORS, *cls.errors, *(("node_not_found",) if of_node else ())),
            headers={"Idempotency-Key": KEY_DOC},
            guarded=True,
        )


def _answers(cls: type[Command]) -> dict[int, type[BaseModel] | None]:
    """200 when it is done, 202 when it is held, 201 with the run where it starts one."""
    held: dict[int, type[BaseModel] | None] = {200: CommandAnswer, 202: CommandAnswer}
    return {201: Started, **held} if cls.starts else held


async def one_door(call: Call) -> web.StreamResponse:
    """Give the command that the body names."""
    given = _named(call.body, _BY_TYPE)
    reason = given.pop("reason", None)
    return await _give(call, call.engine.gateway.parse(given, call.ids["executionId"]), reason)


async def batch(call: Call) -> web.StreamResponse:
    """Give up to 100 commands, for any runs; the answer has what became of each."""
    given = submissions(call)
    own, foreign = without_foreign(call, given)
    atomic = call.query["atomic"]
    if foreign and atomic:
        raise ValidationError(
            [Fault(f"/commands/{place}", e.code, e.detail) for place, e in foreign.items()]
        )
    try:
        results = await call.engine.gateway.batch(own, atomic=atomic)
    except ValidationError as error:
        raise ValidationError([_moved(fault, "/commands") for fault in error.errors]) from error
    return call.json({"results": shown_results(call, results, foreign)})


def without_foreign(
    call: Call, given: list[Submission]
) -> tuple[list[Submission], dict[int, YuktaError]]:
    """Part the commands whose runs the caller may not see from the others.

    Returns:
        The others, and by place the answer to each that was taken out.
    """
    foreign: dict[int, YuktaError] = {
        place: unknown(item.command.execution_id)
        for place, item in enumerate(given)
        if not _is_theirs(call, item.command)
    }
    return [item for place, item in enumerate(given) if place not in foreign], foreign


def _is_theirs(call: Call, command: Command) -> bool:
    """Whether a key that is limited to sessions may know of what a command is about."""
    if call.actor.sessions is None:
        return True
    session_id = call.engine.gateway.session_of(command.execution_id)
    return session_id is not None and call.actor.sees(session_id)


def submissions(call: Call, **who: Any) -> list[Submission]:
    """The commands of a body that has many.

    Args:
        call: the request.
        who: members of each submission other than those of the call.

    Raises:
        ValidationError: lists the faults of all commands.
        RoleError: one needs another role.
    """
    items = checked(BatchItems, call.body).commands
    made, faults = [], list[Fault]()
    for place, item in enumerate(items):
        try:
            given = _named(item, _ITEMS)
            reason, command_id = given.pop("reason", None), given.pop("commandId", None)
            command = call.engine.gateway.parse(given)
        except ValidationError as error:
            faults += [_moved(fault, f"/commands/{place}") for fault in error.errors]
            continue
        _check_role(call, command)
        stated = {**_who(call), "dry_run": call.query["dryRun"]}
        given = {**stated, "reason": reason, "command_id": command_id, **who}
        made.append(Submission(command=command, **given))
    if faults:
        raise ValidationError(faults)
    return made


def shown_results(
    call: Call,
    results: Iterable[CommandResult | YuktaError],
    foreign: Mapping[int, YuktaError] = _NONE,
) -> list[dict[str, Any]]:
    """What became of several commands, as it is answered; a refusal is a problem.

    Args:
        call: the request.
        results: of those that were carried out, in their order.
        foreign: answers to the others, by the place of each; see `without_foreign`.
    """
    left = list(results)
    for place in sorted(foreign):
        left.insert(place, foreign[place])
    return [_shown(call, result) for result in left]


def _who(call: Call) -> dict[str, str]:
    return {"actor": call.actor.name, "via": call.via, "request_id": call.request_id}


def _check_role(call: Call, command: Command) -> None:
    if command.role.rank > call.actor.role.rank:
        detail = f"{command.name()} needs the role {command.role}"
        raise RoleError(detail, requiredRole=str(command.role))


def _shown(call: Call, result: CommandResult | YuktaError) -> dict[str, Any]:
    if isinstance(result, YuktaError):
        return problem_body(result, call.request_id, call.engine.masker.mask_json)
    return result.as_dict()


def _moved(fault: Fault, pointer: str) -> Fault:
    return replace(fault, pointer=pointer + fault.pointer)


def _named(body: Any, models: Mapping[str, type[BaseModel]]) -> dict[str, Any]:
    """The members of a command that names its type, checked by its model, as `parse` wants them."""
    kind = body.get("type") if isinstance(body, dict) else None
    if not isinstance(kind, str) or kind not in models:
        place = "/type" if isinstance(body, dict) else ""
        detail = f"must be an object whose `type` is one of {', '.join(models)}"
        raise ValidationError([Fault(place, "invalid_value", detail)])
    given = checked(models[kind], body).model_dump(by_alias=True, exclude_unset=True)
    free = _free(COMMANDS[kind])
    return {name: value for name, value in given.items() if value is not None or name in free}


def _free(cls: type[Command]) -> frozenset[str]:
    """Fields of a command that take any JSON value, null too."""
    return frozenset(name for name, (kind, _) in cls.own_fields().items() if kind is object)


async def held(call: Call) -> web.StreamResponse:
    """List the commands that wait for a second actor."""
    gateway = call.engine.gateway
    items = [
        item
        for item in gateway.held()
        if call.actor.sessions is None
        or call.actor.sees(gateway.session_of(item["executionId"]) or "")
    ]
    return call.json({"items": items, "nextCursor": None})


async def decide(call: Call) -> web.StreamResponse:
    """Let a held command pass, or refuse it."""
    body = call.typed(DecisionBody)
    gateway, command_id = call.engine.gateway, call.ids["commandId"]
    if not _is_theirs(call, gateway.held_command(command_id)):
        raise no_such_command(command_id)
    result = await gateway.decide(
        command_id,
        approve=body.decision is Decision.APPROVE,
        actor=call.actor.name,
        role=call.actor.role,
        reason=body.reason,
    )
    return call.json(result.as_dict())


async def audit_all(call: Call) -> web.StreamResponse:
    """List commands of all runs, oldest first."""
    query = call.query
    wanted = AuditQuery(
        actor=query["actor"],
        command=query["command"],
        outcome=query["outcome"],
        execution_id=query["executionId"],
        session_ids=call.actor.within(() if query["sessionId"] is None else (query["sessionId"],)),
        since=query["since"],
    )
    page = call.engine.gateway.audit_page(wanted, query["limit"], query["afterCursor"])
    return call.json(page.as_dict())


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
        **_who(call),
        reason=reason,
        dry_run=call.query["dryRun"],
    )
    return call.json({"results": [result.as_dict() for result in results]})


def _handler(cls: type[Command]) -> Handler:
    names = tuple(query.name for query in _parameters(cls))
    free = _free(cls)

    async def handle(call: Call) -> web.StreamResponse:
        own = _fields(call, free)
        reason = own.pop("reason", call.query["reason"])
        values = {**call.ids, **_given(call, names), **own}
        try:
            command = cls.parse(values)
        except ValidationError as error:
            if not own and len(values) > len(call.ids):
                detail = error.errors[0].detail
                raise BadRequestError(detail, code="invalid_parameter") from error
            raise
        return await _give(call, command, reason, as_start=cls.starts)

    return handle


async def _give(
    call: Call, command: Command, reason: str | None, *, as_start: bool = False
) -> web.StreamResponse:
    _check_role(call, command)
    result = await call.engine.gateway.command(
        command,
        **_who(call),
        reason=reason,
        dry_run=call.query["dryRun"],
        command_id=idempotency_key(call.header("Idempotency-Key")),
    )
    if as_start and result.started is not None:
        place = {"Location": f"/api/executions/{result.started.execution_id}"}
        return call.json(result.started.as_dict(), 201, place)
    later = result.outcome is Outcome.HELD or result.answer == "QUEUED"
    return call.json(result.as_dict(), 202 if later else 200)


def _fields(call: Call, free: Collection[str] = ()) -> dict[str, Any]:
    """The members of the body; one that is null counts as left out, unless null is a value."""
    body: dict[str, Any] = call.body or {}
    return {name: value for name, value in body.items() if value is not None or name in free}


def _given(call: Call, names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a command that stand in the query."""
    return {name: call.query[name] for name in names if call.query[name] is not None}


def _parameters(cls: type[Command]) -> Iterator[Query]:
    for name, (kind, _) in cls.own_fields().items():
        if name in cls.body_only:
            continue
        doc = f"The field `{name}`; the body may have it instead."
        if kind is float:
            yield Query(name, doc, Kind.NUMBER)
        elif kind is object:
            yield Query(name, doc, high=10_000)
        elif kind is bool:
            yield Query(name, doc, Kind.BOOLEAN)
        elif kind is int:
            yield Query(name, doc, Kind.WHOLE, low=1 if name in _COUNTS else None)
        elif issubclass(kind, StrEnum):
            yield Query(name, doc, Kind.WORD, words=tuple(kind))
        else:
            yield Query(name, doc, high=1000)


def _model(cls: type[Command], *, one_door: bool = False, batch: bool = False) -> type[BaseModel]:
    """Return the model of a command's body.

    On its own route every field may stand in the query instead, so none is required there.
    """
    fields: dict[str, Any] = {}
    if one_door:
        fields["type"] = (Literal[cls.name()], ...)
        if issubclass(cls, OfNode):
            fields["nodeId"] = (Id("nodeId"), ...)
        fields["executionId"] = (Id("executionId"), ...) if batch else (str | None, None)
        if batch:
            fields["commandId"] = (Annotated[str, Field(max_length=255)] | None, None)
    for name, (kind, default) in cls.own_fields().items():
        required = one_door and default is ...
        fields[name] = (_field_type(name, kind), ... if required else None)
    fields["reason"] = (str | None, Field(None, max_length=1000))
    suffix = "Item" if batch else "Command" if one_door else "Body"
    made: type[BaseModel] = create_model(
        cls.name() + suffix, __base__=Request, __doc__=cls.__doc__, **fields
    )
    return made


def _field_type(name: str, kind: type) -> Any:
    if kind is int:
        bounds = Field(strict=True, ge=1) if name in _COUNTS else Field(strict=True)
        return Annotated[int, bounds] | None
    if kind is object:
        return Any
    if kind is float:
        return Annotated[float, Field(strict=True)] | None
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


_ITEMS: Final = {name: _model(cls, one_door=True, batch=True) for name, cls in COMMANDS.items()}
_ITEM: Any = Union[tuple(_ITEMS.values())]  # noqa: UP007


class AnyCommand(RootModel[_ANY]):
    """One of the commands."""


class BatchBody(Request):
    """Commands for any runs, in the order in which they are given."""

    commands: Annotated[tuple[_ITEM, ...], Field(min_length=1, max_length=MAX_BATCH)]


class BatchItems(Request):
    """The same, each command to be checked by itself so that its faults are named exactly."""

    commands: Annotated[tuple[Any, ...], AsArray, Field(min_length=1, max_length=MAX_BATCH)]
