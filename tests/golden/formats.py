"""Every form in which something is kept in files: a small sample of it, and what is read of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic import BaseModel

from yukta_rx.definitions.parse import parse_definition
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.archive import FileExecutionArchiveStore
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.file.effects import FileEffectStore
from yukta_rx.durability.file.events import FileEventStore
from yukta_rx.durability.file.execution_log import FileExecutionLogStore
from yukta_rx.durability.file.histories import FileHistoryStore
from yukta_rx.durability.file.input_requests import FileInputRequestStore
from yukta_rx.durability.file.key_values import FileKeyValueStore
from yukta_rx.durability.file.queued_starts import FileQueuedStartStore
from yukta_rx.durability.file.results import FileResultStore
from yukta_rx.durability.file.sessions import FileSessionConfigStore
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.checkpoints import CheckpointRow
from yukta_rx.durability.stores.definitions import WorkflowRecord
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.events import StoredEvent
from yukta_rx.durability.stores.histories import HistoryKey, Turn
from yukta_rx.durability.stores.input_requests import (
    Answer,
    EarlySignal,
    InputRequest,
    RequestState,
)
from yukta_rx.durability.stores.queued_starts import QueuedStart
from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord
from yukta_rx.model import execution_log as log
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.message import Message
from yukta_rx.model.results import ResultEvent, ResultType
from yukta_rx.model.session import SessionConfig
from yukta_rx.model.status import TaskStatus
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

POOL: Final = BlockingPool(2)

NOON: Final = datetime(2026, 11, 30, 12, 0, 0, 125_250, tzinfo=UTC)
RUN: Final = "01930000-0000-7000-8000-000000000001"
OTHER: Final = "01930000-0000-7000-8000-000000000002"
NEXT: Final = "01930000-0000-7000-8000-000000000003"

VALUES: Final[Mapping[str, Any]] = {
    "text": "grüße \u2028 \u0000 名前 🎈",
    "numbers": [1, 1.0, -0.0, 2**64 + 1, 1e300],
    "words": [None, True, False],
    "tagged": {"$yukta": "decimal", "v": "1"},
    "decimal": Decimal("1.10"),
    "bytes": b"\x00\xff",
    "time": NOON,
    "pair": (1, "a"),
}
"""What JSON has words for, and what it has not."""


@dataclass(frozen=True, slots=True)
class Form:
    """One form.

    Attributes:
        name: folder of its samples.
        write: makes a sample in an empty folder; the same bytes every time.
        read: what is in a folder, as plain JSON.
        rows: members whose values are rows of ours, which a later version may extend.
    """

    name: str
    write: Callable[[Path], Awaitable[None]]
    read: Callable[[Path], Awaitable[Any]]
    rows: tuple[str, ...] = ()


def plain(value: Any) -> Any:
    """Return a value as JSON in which no two different values look the same."""
    match value:
        case None | bool() | int() | str() if type(value) in (type(None), bool, int, str):
            return value
        case Enum():
            return str(value)
        case BaseModel():
            return plain(value.model_dump(by_alias=True, exclude_unset=True))
        case Message():
            shown = {"id": value.id, "attempt": value.attempt, "causes": value.causes}
            return plain({**shown, "headers": value.headers, "payload": value.payload})
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case dict() | MappingProxyType():
            return {str(name): plain(one) for name, one in value.items()}
        case list():
            return [plain(one) for one in value]
        case tuple() | set() | frozenset():
            return {"tuple": [plain(one) for one in value]}
        case float() | bytes() | Decimal() | Path():
            return {type(value).__name__.removeprefix("Posix"): repr(value)}
        case datetime():
            return {"time": value.astimezone(UTC).isoformat()}
    raise TypeError(f"the portrait of a {type(value).__name__} is not thought of")


def definition(workflow_id: str = "pay", number: Any = 1) -> Any:
    return parse_definition(
        {
            "workflowId": workflow_id,
            "description": "grüße",
            "nodes": [
                {"nodeId": "in", "type": "API_TRIGGER", "config": {"n": number}},
                {
                    "nodeId": "ask",
                    "type": "HTTP_REQUEST",
                    "config": {
                        "url": "https://example.org/${payload.sku}",
                        "engine": {
                            "retry": {"maxAttempts": 3, "backoffMs": 10},
                            "onError": "ROUTE",
                        },
                    },
                    "timeoutSeconds": 5,
                },
                {"nodeId": "out", "type": "NULL_TERMINAL"},
            ],
            "edges": [
                {"source": "in", "target": "ask"},
                {"source": "ask", "target": "out"},
                {"source": "ask", "target": "out", "sourcePort": "error", "required": False},
            ],
            "options": {"onTerminalFailure": "FINISH_OTHERS", "lossless": True},
        }
    )


# --- definitions and sessions --------------------------------------------------------------------


@asynccontextmanager
async def _session_stores(path: Path) -> AsyncIterator[tuple[Any, Any]]:
    async with Folder(path) as folder:
        definitions = FileWorkflowDefinitionStore(folder)
        await definitions.open()
        yield FileSessionConfigStore(definitions), definitions


def _record(workflow_id: str, number: Any, **more: Any) -> WorkflowRecord:
    return WorkflowRecord(
        session_id="Shop",
        definition=definition(workflow_id, number),
        created_at=NOON,
        updated_at=NOON + timedelta(days=1),
        **more,
    )


async def _write_definitions(path: Path) -> None:
    config = SessionConfig(
        session_id="Shop",
        name="名前",
        description="grüße",
        project_path="/srv/shop",
        initiator="ada",
        initiated_time=NOON,
        tags={"a": "b", "$yukta": "x"},
        execution_timeout_ms=5000,
    )
    session = SessionRecord(config=config, created_at=NOON, updated_at=NOON + timedelta(days=1))
    first = _record("pay", 2**64 + 1, note="first", base_dir=Path("/srv/shop"))
    async with _session_stores(path) as (sessions, definitions):
        bare = SessionRecord(
            config=SessionConfig(session_id="bare"), created_at=NOON, updated_at=NOON
        )
        await sessions.commit(
            [
                SessionChange(session_id="Shop", record=session, put=(first,)),
                SessionChange(session_id="bare", record=bare),
            ]
        )
        put = [_record("pay", 1.0, actor="ada"), _record("con.Gone", 1), _record("Long", "x")]
        await definitions.write("Shop", put)
        await definitions.write("Shop", [], ["con.Gone"])


async def _read_definitions(path: Path) -> Any:
    async with _session_stores(path) as (sessions, definitions):
        found: dict[str, Any] = {"sessions": plain(await sessions.list()), "workflows": {}}
        for name in ("Shop", "bare"):
            for item in await definitions.list(name):
                place = f"{name}/{item.workflow_id}"
                found["workflows"][place] = [
                    plain(version) for version in await definitions.versions(name, item.workflow_id)
                ]
        assert not definitions.quarantined
        [after] = await definitions.write("Shop", [_record("con.Gone", 1)])
        return found | {"numberAfterRemoval": after.version}


# --- execution log -------------------------------------------------------------------------------


def _log_events() -> list[log.LogEvent]:
    run: dict[str, Any] = {"execution_id": RUN, "time": NOON}
    error = {"type": "ValueError", "message": "no", "code": "x"}
    command: dict[str, Any] = {
        "command": "SkipNode",
        "args": {"enabled": True},
        "actor": "ada",
        "via": "SUPERVISOR",
        "command_id": "c-1",
        "node_id": "ask",
    }
    return [
        log.NodeFinished(**run, node_id="in", status=TaskStatus.SUCCESS),
        log.NodeFinished(**run, node_id="ask", status=TaskStatus.FAILURE, error=error),
        log.ControlApplied(**run, **command, reason="too slow"),
        log.ControlRejected(**run, **command, reason="not_live"),
        log.RunFinished(**run, status=TaskStatus.FAILURE, error=error, totals={"in": 3, "out": 2}),
        log.RunAborted(execution_id=OTHER, time=NOON, reason="power"),
        log.RunResumed(
            execution_id=OTHER, time=NOON, new_execution_id=NEXT, attempt=2, actor="ada"
        ),
        log.ControlApplied(
            execution_id=log.SCHEDULER, time=NOON, command="SetLimits", args={"maxConcurrent": 3}
        ),
        log.ControlRejected(
            execution_id=log.ORPHANS, time=NOON, command="Pause", reason="unknown", named="gone"
        ),
    ]


async def _write_log(path: Path) -> None:
    started = log.RunStarted(
        execution_id=RUN,
        time=NOON,
        session_id="Shop",
        workflow_id="pay",
        definition_version="ab" * 32,
        payload=dict(VALUES),
        actor="ada",
        via="CLI",
        lineage="l-1",
        options={"onTerminalFailure": "FINISH_OTHERS"},
        labels={"team": "blue"},
        step_mode=True,
        breakpoints=({"nodeId": "ask", "when": "payload.n > 1"},),
        depth=1,
        parent_execution_id=NEXT,
        restarted_from=NEXT,
    )
    key = log.IdempotencyKey(
        execution_id=RUN,
        time=NOON,
        session_id="Shop",
        workflow_id="pay",
        key="k-1",
        fingerprint="cd" * 32,
        expires_at=NOON + timedelta(days=1),
    )
    other = log.RunStarted(
        execution_id=OTHER, time=NOON, session_id="Shop", workflow_id="pay", resumed_from=RUN
    )
    open_run = log.RunStarted(execution_id=NEXT, time=NOON, session_id="Shop", workflow_id="pay")
    async with FileExecutionLogStore(path, 500, 10_000) as store:
        await store.append_start(started, key)
        await store.append_start(other)
        await store.append_start(open_run)
        await store.append(_log_events())


async def _read_log(path: Path) -> Any:
    async with FileExecutionLogStore(path, 500, 10_000) as store:
        assert not store.quarantined
        streams = (RUN, OTHER, NEXT, log.SCHEDULER, log.ORPHANS)
        return {
            "streams": {
                stream: [
                    {"seq": entry.seq, "type": entry.event.TYPE, **plain(entry.event)}
                    for entry in await store.read(stream)
                ]
                for stream in streams
            },
            "unfinished": [run.execution_id for run in await store.unfinished()],
            "keys": plain(list(await store.idempotency_keys(NOON))),
            "runs": [
                {"run": run.started.execution_id, "resumed": run.resumed}
                for run in await store.runs()
            ],
        }


def _apart(path: Path) -> dict[str, Any]:
    """What a store needs to keep large payloads apart."""
    return {"blobs": FileBlobStore(path / "blobs", POOL.call), "claim_bytes": 100}


LARGE: Final[Mapping[str, Any]] = {**VALUES, "large": "x" * 150}


async def _write_log_with_blobs(path: Path) -> None:
    async with FileExecutionLogStore(path, 500, 10_000, **_apart(path)) as store:
        for name, payload in ((RUN, dict(LARGE)), (OTHER, None)):
            await store.append_start(
                log.RunStarted(
                    execution_id=name,
                    time=NOON,
                    session_id="Shop",
                    workflow_id="pay",
                    payload=payload,
                )
            )


async def _read_log_with_blobs(path: Path) -> Any:
    async with FileExecutionLogStore(path, 500, 10_000, **_apart(path)) as store:
        assert not store.quarantined
        return {name: plain(await store.start_of(name)) for name in (RUN, OTHER)}


# --- what waits ----------------------------------------------------------------------------------


async def _write_queue(path: Path) -> None:
    async with FileQueuedStartStore(path) as store:
        for number, name in enumerate((RUN, OTHER, NEXT)):
            await store.put(
                QueuedStart(
                    execution_id=name,
                    session_id="Shop",
                    workflow_id="pay",
                    definition_version="ab" * 32,
                    priority=5.0,
                    queued_at=NOON + timedelta(seconds=number),
                    request={"payload": dict(VALUES), "labels": {"a": "b"}},
                )
            )
        await store.set_priority(OTHER, 7.5)
        await store.claim(RUN)


async def _read_queue(path: Path) -> Any:
    async with FileQueuedStartStore(path) as store:
        assert not store.quarantined
        return plain(list(await store.list()))


async def _write_queue_with_blobs(path: Path) -> None:
    async with FileQueuedStartStore(path, **_apart(path)) as store:
        for number, payload in enumerate((dict(LARGE), None)):
            await store.put(
                QueuedStart(
                    execution_id=(RUN, OTHER)[number],
                    session_id="Shop",
                    workflow_id="pay",
                    definition_version="ab" * 32,
                    priority=5.0,
                    queued_at=NOON + timedelta(seconds=number),
                    request={"payload": payload, "labels": {"a": "b"}},
                )
            )


async def _read_queue_with_blobs(path: Path) -> Any:
    async with FileQueuedStartStore(path, **_apart(path)) as store:
        assert not store.quarantined
        return [plain(await store.opened(start)) for start in await store.list()]


def _request(name: str, message: str, **more: Any) -> InputRequest:
    return InputRequest(
        request_id=name,
        session_id="Shop",
        workflow_id="pay",
        execution_id=RUN,
        lineage="l-1",
        node_id="ask",
        message_id=message,
        signal="approve",
        asked_at=NOON,
        **more,
    )


async def _write_requests(path: Path) -> None:
    answer = Answer(
        decision="yes", data=dict(VALUES), comment="fine", answered_by="ada", answered_at=NOON
    )
    early = EarlySignal(
        lineage="l-2",
        node_id="ask",
        signal="go",
        answer=answer,
        expires_at=NOON + timedelta(hours=1),
    )
    async with FileInputRequestStore(path) as store:
        await store.ask(
            _request("r-1", "m-1", remaining=60.5, prompt="Really?", payload_preview="{}"),
            NOON,
            (),
        )
        await store.ask(_request("r-2", "m-2"), NOON, (RUN,))
        await store.ask(_request("r-3", "m-3"), NOON, (RUN,))
        await store.answer("r-2", answer)
        await store.close("r-3", RUN, RequestState.EXPIRED)
        await store.keep(early, NOON, 10)


async def _write_compacted_requests(path: Path) -> None:
    await _write_requests(path)
    # A journal with a line that cannot be read is rewritten when it is opened.
    file = path / "input-requests.jsonl"
    file.write_bytes(file.read_bytes() + b"?\n")
    async with FileInputRequestStore(path) as store:
        assert len(store.quarantined) == 1
    (path / "input-requests.quarantine.jsonl").unlink()


async def _read_requests(path: Path) -> Any:
    async with FileInputRequestStore(path) as store:
        assert not store.quarantined
        found = {name: plain(await store.get(name)) for name in ("r-1", "r-2", "r-3")}
        waiting = plain(list(await store.open_requests()))
        # An early signal is seen by asking for it.
        asked = InputRequest(
            request_id="r-4",
            session_id="Shop",
            workflow_id="pay",
            execution_id=NEXT,
            lineage="l-2",
            node_id="ask",
            message_id="m-9",
            signal="go",
            asked_at=NOON,
        )
        early = await store.ask(asked, NOON, ())
        return {"requests": found, "open": waiting, "early": plain(early.answer)}


# --- what ran ------------------------------------------------------------------------------------


async def _write_archive(path: Path) -> None:
    run = ArchivedRun(
        execution_id=RUN,
        session_id="Shop",
        definition=definition(),
        lineage="l-1",
        base_dir=Path("/srv/shop"),
        payload=dict(VALUES),
        options={"onTerminalFailure": "FINISH_OTHERS"},
        labels={"team": "blue"},
        status=TaskStatus.FAILURE,
        nodes={"in": TaskStatus.SUCCESS, "ask": TaskStatus.FAILURE},
        ended_at=NOON,
    )
    bare = ArchivedRun(
        execution_id=OTHER, session_id="Shop", definition=definition("bare"), lineage="l-2"
    )
    async with FileExecutionArchiveStore(path) as store:
        await store.put(msgspec.structs.replace(run, execution_id=NEXT), 10)
        await store.put(run, 10)
        await store.put(bare, 10)
        await store.remove(NEXT)


async def _read_archive(path: Path, **apart: Any) -> Any:
    async with FileExecutionArchiveStore(path, **apart) as store:
        assert not store.quarantined
        return [plain(await store.get(name)) for name in await store.ids()]


async def _write_archive_with_blobs(path: Path) -> None:
    async with FileExecutionArchiveStore(path, **_apart(path)) as store:
        for name, payload in ((RUN, dict(LARGE)), (OTHER, None)):
            run = ArchivedRun(
                execution_id=name,
                session_id="Shop",
                definition=definition(),
                lineage="l-1",
                payload=payload,
                status=TaskStatus.SUCCESS,
                ended_at=NOON,
            )
            await store.put(run, 10)


async def _read_archive_with_blobs(path: Path) -> Any:
    return await _read_archive(path, **_apart(path))


def _message(number: int, payload: Any, **more: Any) -> Message:
    headers = MappingProxyType({"origin": "shop", "n": number})
    return Message(payload, headers, uid=f"m-{number}", **more)


async def _write_results(path: Path) -> None:
    def result(cursor: int, kind: ResultType, **more: Any) -> ResultEvent:
        return ResultEvent(cursor=cursor, type=kind, time=NOON, **more)

    first = result(1, ResultType.RESULT, node_id="out", message=_message(1, dict(VALUES)))
    second = result(2, ResultType.RESULT, node_id="out", message=_message(2, None))
    ended = {"status": TaskStatus.SUCCESS, "truncated": True, "totals": {"in": 2, "out": 2}}
    ends = (
        result(3, ResultType.NODE_END, node_id="out", **ended),
        result(4, ResultType.EXECUTION_END, **ended),
    )
    async with FileResultStore(path, POOL.call) as store:
        await store.append(RUN, [first])
        await store.append(OTHER, [first])
        await store.end(NEXT, [], NOON - timedelta(days=1))
        await store.end(RUN, [second, *ends], NOON)
        await store.trim(1)


async def _read_results(path: Path) -> Any:
    async with FileResultStore(path, POOL.call) as store:
        return {name: plain(await store.read(name)) for name in (RUN, OTHER, NEXT)}


async def _write_results_of_children(path: Path) -> None:
    async with FileResultStore(path, POOL.call) as store:
        await store.end(OTHER, [], NOON, RUN)
        await store.end(RUN, [], NOON + timedelta(seconds=1))
        await store.end(NEXT, [], NOON + timedelta(seconds=2))


async def _read_results_of_children(path: Path) -> Any:
    """What goes with the older of two roots."""
    async with FileResultStore(path, POOL.call) as store:
        return sorted(await store.trim(1, children=10))


async def _write_results_with_blobs(path: Path) -> None:
    async with FileResultStore(path / "results", POOL.call, **_apart(path)) as store:
        found = [
            ResultEvent(
                cursor=cursor,
                type=ResultType.RESULT,
                time=NOON,
                node_id="out",
                message=_message(cursor, payload),
            )
            for cursor, payload in ((1, dict(LARGE)), (2, None))
        ]
        await store.append(RUN, found)


async def _read_results_with_blobs(path: Path) -> Any:
    async with FileResultStore(path / "results", POOL.call, **_apart(path)) as store:
        return plain(await store.read(RUN))


async def _write_events(path: Path) -> None:
    run = {"session_id": "Shop", "workflow_id": "pay", "execution_id": RUN}
    async with FileEventStore(path, POOL.call) as store:
        await store.begin("epoch-a")
        await store.append(
            [
                StoredEvent(1, ExecutionEvent(type="execution.started", time=NOON, **run)),
                StoredEvent(
                    4,
                    ExecutionEvent(
                        type="node.log", time=NOON, **run, node_id="ask", data=dict(VALUES)
                    ),
                ),
            ]
        )
        await store.begin("epoch-b")
        late = ExecutionEvent(type="execution.finished", time=NOON + timedelta(hours=1), **run)
        await store.append([StoredEvent(5, late)])


async def _read_events(path: Path) -> Any:
    async with FileEventStore(path, POOL.call) as store:
        span = await store.span()
        return {
            "oldest": span.oldest,
            "newest": span.newest,
            "epochs": [list(epoch) for epoch in span.epochs],
            "events": [[seq, plain(event)] for seq, event in await store.read(0)],
        }


@asynccontextmanager
async def _checkpoints(path: Path) -> AsyncIterator[FileNodeCheckpointStore]:
    store = FileNodeCheckpointStore(
        path / "outputs",
        POOL.call,
        blobs=FileBlobStore(path / "blobs", POOL.call),
        claim_bytes=1000,
    )
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def _write_checkpoints(path: Path) -> None:
    large = _message(3, {"large": "x" * 1500})
    derived = Message({"n": 1}, MappingProxyType({}), ("m-1", "ask", 0), "m-4", 2)
    async with _checkpoints(path) as store:
        row = CheckpointRow.of([(None, _message(1, dict(VALUES))), ("error", _message(2, None))])
        store.append(RUN, "in", row)
        last = CheckpointRow.of([(None, large)])
        await _done(store.mark_complete(RUN, "in", last))
        inputs = [("m-1", 1), ("m-2", 0)]
        store.append(RUN, "ask", CheckpointRow.of([(None, derived)], inputs))
        store.append(RUN, "ask", CheckpointRow.of([(None, _message(5, 1))], group="g-1"))
        store.append(RUN, "ask", CheckpointRow.of([(None, _message(6, 2))], [("m-3", 2)], "g-1"))
        store.append(RUN, "ask", CheckpointRow.of([(None, _message(7, 3))], group="open"))
        await _done(store.written(RUN, "ask"))
        store.mark_incomplete(RUN, "over", "output_over_cap")
        await _done(store.mark_complete(RUN, "empty"))
        store.append(OTHER, "in", row)
        await _done(store.written(OTHER, "in"))
        await store.clear(OTHER)
        await store.carry_over(RUN, NEXT, ["in"])


async def _done(pending: Awaitable[None] | None) -> None:
    if pending is not None:
        await pending


async def _read_checkpoints(path: Path) -> Any:
    async with _checkpoints(path) as store:
        found: dict[str, Any] = {}
        for name in sorted(await store.runs()):
            states = await store.states(name)
            rows = {
                node: [plain(row) async for row in store.read(name, node)]
                for node in sorted(states)
            }
            shown = {node: plain(state) for node, state in sorted(states.items())}
            found[name] = {"states": shown, "rows": rows}
        return found


# --- what nodes keep -----------------------------------------------------------------------------


def _effect(name: str, lineage: str = "l-1") -> EffectKey:
    return EffectKey(lineage, "ask", "m-1", name)


async def _write_effects(path: Path) -> None:
    async with FileEffectStore(path) as store:
        await store.record(_effect("charge"), b'{"id":"ch_1","amount":1.0}')
        await store.record(_effect("other", "l-2"), b"null")
        await store.forget("l-2")


async def _read_effects(path: Path) -> Any:
    async with FileEffectStore(path) as store:
        names = (_effect("charge"), _effect("other", "l-2"))
        return [plain(await store.find(name)) for name in names] + [store.kept]


async def _write_key_values(path: Path) -> None:
    async with FileKeyValueStore(path) as store:
        await store.put("Shop", "all", dict(VALUES), cap=100)
        await store.put("Shop", "gone", 1, cap=100)
        await store.remove("Shop", "gone")
        await store.incr("Shop", "count", 41, cap=100)
        await store.incr("Shop", "count", 1, cap=100, effect=_effect("count"))
        await store.put("Shop", "once", 1, cap=100, effect=_effect("put"))
        await store.put("Shop", "taken", [1], cap=100)
        await store.remove("Shop", "taken", effect=_effect("take"))
        await store.incr("Shop", "forgotten", 1, cap=100, effect=_effect("x", "l-2"))
        await store.forget("l-2")
        await store.put("other", "x", None, cap=100)
        await store.clear("other")


async def _write_compacted_key_values(path: Path) -> None:
    await _write_key_values(path)
    async with FileKeyValueStore(path) as store:
        await store._log._compact()


async def _read_key_values(path: Path) -> Any:
    async with FileKeyValueStore(path) as store:
        # What an effect is kept of is not done again.
        await store.put("Shop", "once", 2, cap=100, effect=_effect("put"))
        counted = await store.incr("Shop", "count", 1, cap=100, effect=_effect("count"))
        taken = await store.remove("Shop", "taken", effect=_effect("take"))
        again = await store.incr("Shop", "forgotten", 1, cap=100, effect=_effect("x", "l-2"))
        names = ("all", "gone", "count", "once", "taken")
        found = {key: plain(await store.get("Shop", key)) for key in names}
        found["effects"] = [counted, plain(taken), again]
        found["other"] = plain(await store.get("other", "x"))
        return found


async def _write_histories(path: Path) -> None:
    key = HistoryKey("Shop", "chat")
    async with FileHistoryStore(path) as store:
        await store.append(key, Turn("user", VALUES["text"], NOON), 10)
        await store.append(key, Turn("assistant", "hi", NOON), 10, effect=_effect("say"))
        await store.append(HistoryKey("Shop", "gone"), Turn("user", "x", NOON), 10)
        await store.clear(HistoryKey("Shop", "gone"), effect=_effect("clear"))
        long_ago = Turn("user", "old", NOON - timedelta(days=2))
        await store.append(HistoryKey("Shop", "old"), long_ago, 10, effect=_effect("x", "l-2"))
        await store.sweep(NOON - timedelta(days=1))
        await store.forget("l-2")
        await store.append(HistoryKey("other", "chat"), Turn("user", "x", NOON), 10)
        await store.drop("other")


async def _write_compacted_histories(path: Path) -> None:
    await _write_histories(path)
    async with FileHistoryStore(path) as store:
        await store._log._compact()


async def _read_histories(path: Path) -> Any:
    async with FileHistoryStore(path) as store:
        key = HistoryKey("Shop", "chat")
        # What an effect is kept of is not done again.
        await store.append(key, Turn("assistant", "hi", NOON), 10, effect=_effect("say"))
        await store.clear(key, effect=_effect("clear"))
        turns = plain(list(await store.load(key, 10)))
        return {"turns": turns, "kept": store.kept}


FORMS: Final = (
    Form("definitions", _write_definitions, _read_definitions),
    Form("execution-log", _write_log, _read_log),
    Form("execution-log-blobs", _write_log_with_blobs, _read_log_with_blobs),
    Form("queued-starts", _write_queue, _read_queue, ("start",)),
    Form("queued-starts-blobs", _write_queue_with_blobs, _read_queue_with_blobs, ("start",)),
    Form("input-requests", _write_requests, _read_requests, ("request", "signal", "answer")),
    Form(
        "input-requests-compacted",
        _write_compacted_requests,
        _read_requests,
        ("request", "signal", "answer"),
    ),
    Form("archive", _write_archive, _read_archive, ("run",)),
    Form("archive-blobs", _write_archive_with_blobs, _read_archive_with_blobs, ("run",)),
    Form("results", _write_results, _read_results, ("result",)),
    Form("results-children", _write_results_of_children, _read_results_of_children),
    Form("results-blobs", _write_results_with_blobs, _read_results_with_blobs, ("result",)),
    Form("events", _write_events, _read_events, ("event",)),
    Form("checkpoints", _write_checkpoints, _read_checkpoints),
    Form("effects", _write_effects, _read_effects),
    Form("key-values", _write_key_values, _read_key_values),
    Form("key-values-compacted", _write_compacted_key_values, _read_key_values),
    Form("histories", _write_histories, _read_histories),
    Form("histories-compacted", _write_compacted_histories, _read_histories),
)
