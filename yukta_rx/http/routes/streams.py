"""Event streams, and the same as JSON for those who poll. Features: OBS-01, OBS-02, OBS-03."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from yukta_rx.errors import BadRequestError, NotFoundError
from yukta_rx.http.event_shapes import event_catalogue
from yukta_rx.http.headers import prefers_json
from yukta_rx.http.stream_shapes import stream_types
from yukta_rx.observe.filters import EventFilter
from yukta_rx.observe.logs import LogFilter

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call
    from yukta_rx.observe.journal import Page
    from yukta_rx.observe.reader import Reader


async def events(call: Call) -> web.StreamResponse:
    """Stream the events of all runs."""
    query = call.query
    reader = call.engine.feed.subscribe(
        event_filter(call),
        after=place_of(call),
        coalesce_ms=query["coalesceMs"],
        heartbeat=query["heartbeat"] is not None,
    )
    return await call.shared.streams.serve(call.request, reader, named=query["named"], greet=False)


async def events_page(call: Call) -> web.StreamResponse:
    """Return events that are still kept."""
    wanted, query = event_filter(call), call.query
    page = await call.engine.feed.page(wanted, query["afterCursor"], query["limit"])
    shown: dict[str, Any] = {"items": page.items, "nextCursor": page.next_cursor}
    if page.gap is not None:
        shown["gap"] = page.gap.as_dict()
    return call.json(shown)


async def event_types(call: Call) -> web.StreamResponse:
    """List every event type with a JSON Schema, and what streams say of themselves."""
    return call.json({"items": [*event_catalogue(), *stream_types()], "nextCursor": None})


async def progress(call: Call) -> web.StreamResponse:
    """Stream snapshots of a run, or return the newest."""
    execution_id = call.ids["executionId"]
    after = _number(place_of(call))
    if prefers_json(call.header("Accept")):
        return call.json(call.engine.gateway.snapshot(execution_id))
    return await _follow(call, lambda: call.engine.progress.follow(execution_id, after))


async def results(call: Call) -> web.StreamResponse:
    """Stream what reaches the terminals of a run, or return a page of it."""
    execution_id, after = _of_session(call), _number(place_of(call))
    channel = await call.engine.results.open(execution_id)
    if channel is None:
        raise _gone(execution_id, "results")
    if prefers_json(call.header("Accept")):
        page = await channel.fetch(after, call.query["limit"])
        return _answer(call, page, [item.as_dict() for item in page.items])
    return await _follow(call, lambda: channel.follow(after))


async def logs(call: Call) -> web.StreamResponse:
    """Stream the lines that the plugins of a run write, or return a page of them."""
    execution_id, after = _of_session(call), _number(place_of(call))
    wanted = LogFilter(
        node_id=call.query["nodeId"],
        stream=None if call.query["stream"] is None else call.query["stream"].lower(),
        q=call.query["q"],
    )
    channel = call.engine.logs.get(execution_id)
    if channel is None:
        raise _gone(execution_id, "log lines")
    if prefers_json(call.header("Accept")):
        page = channel.read(after, call.query["limit"], wanted)
        return _answer(call, page, page.items)
    return await _follow(call, lambda: channel.follow(after, wanted))


async def _follow(call: Call, open_reader: Any) -> web.StreamResponse:
    with call.engine.feed.cap:
        reader: Reader[Any] = open_reader()
        return await call.shared.streams.serve(
            call.request, reader, named=call.query["named"], greet=True
        )


def _answer(call: Call, page: Page, items: list[Any]) -> web.StreamResponse:
    cursor = None if page.next_cursor is None else str(page.next_cursor)
    shown: dict[str, Any] = {"items": items, "nextCursor": cursor}
    if page.gap is not None:
        shown["gap"] = page.gap.as_dict()
    return call.json(shown)


def _of_session(call: Call) -> str:
    """The run of the path, which must be of the session of the path if there is one."""
    execution_id = call.ids["executionId"]
    summary = call.engine.gateway.summary(execution_id)
    if call.ids.get("sessionId", summary["sessionId"]) != summary["sessionId"]:
        raise NotFoundError(
            f"session {call.ids['sessionId']} has no run {execution_id}",
            code="execution_not_found",
            executionId=execution_id,
        )
    return execution_id


def _gone(execution_id: str, what: str) -> NotFoundError:
    return NotFoundError(
        f"the {what} of run {execution_id} are no longer kept",
        code="execution_not_found",
        executionId=execution_id,
    )


def event_filter(call: Call) -> EventFilter:
    """Which events are asked for; never those of sessions that the caller may not see."""
    query = call.query
    wanted = EventFilter.parse(
        execution_id=query["executionId"],
        type=query["type"],
        session_id=query["sessionId"],
        workflow_id=query["workflowId"],
        node_id=query["nodeId"],
    )
    return replace(wanted, session_ids=call.actor.within(wanted.session_ids))


def place_of(call: Call) -> str | None:
    """Where to go on. A browser that reconnects says it in the header, so that one counts most.

    A header without a value says nothing: a client that has seen no event yet may send that.
    """
    for text in (
        call.header("Last-Event-ID"),
        call.query.get("lastEventId"),
        call.query.get("afterCursor"),
    ):
        if text:
            return str(text)
    return None


def _number(place: str | None) -> int | None:
    if place is None:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) <= 18):
        raise BadRequestError(
            f"{place[:40]!a} is not a cursor of this list",
            code="invalid_cursor",
            parameter="afterCursor",
        )
    return int(place)
