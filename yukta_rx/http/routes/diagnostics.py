"""What survives what here, and what a server can say of itself. Features: DUR-05, OBS-04."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from yukta_rx.config.checks import check, store_types
from yukta_rx.durability.matrix import durability_matrix, summary
from yukta_rx.model.times import rfc3339
from yukta_rx.observe.machine import process_facts, versions

if TYPE_CHECKING:
    from aiohttp import web

    from yukta_rx.http.call import Call

MOST_TASKS: Final = 200
"""Kinds of tasks that are listed, those with the most tasks first."""


MOST_SET_ASIDE: Final = 100
"""Things that a store could not read that are listed."""


async def durability(call: Call) -> web.StreamResponse:
    """Show the durability matrix of this deployment."""
    settings = call.engine.settings
    return call.json(
        {
            "profile": str(settings.profile),
            "items": [row.as_dict() for row in durability_matrix(settings)],
            "nextCursor": None,
            "summary": list(summary(settings)),
        }
    )


async def diagnostics(call: Call) -> web.StreamResponse:
    """Show what a report about this server should hold; nothing secret."""
    engine, settings = call.engine, call.engine.settings
    tasks, set_aside = _tasks(), engine.stores.quarantined
    # Both look into files.
    made_of = await asyncio.to_thread(versions)
    process = await asyncio.to_thread(process_facts)
    process |= {"instanceId": engine.instance_id, "startedAt": rfc3339(engine.started_at)}
    return call.json(
        {
            "versions": made_of,
            "process": process,
            "loop": {"lagSeconds": round(call.shared.pulse.lag, 3), "tasks": tasks},
            "queues": engine.meters.gauges(),
            "stores": {
                "types": {switch: str(kind) for switch, kind in store_types(settings).items()},
                "down": dict(await engine.readiness.down()),
                "quarantinedCount": len(set_aside),
                "quarantined": [to_builtins(one) for one in set_aside[:MOST_SET_ASIDE]],
            },
            "warnings": [*settings.warnings, *(finding.text for finding in check(settings))],
        }
    )


def _tasks() -> list[dict[str, Any]]:
    """The tasks of the loop by name and by the line where they wait."""
    found = Counter((task.get_name(), _line_of(task)) for task in asyncio.all_tasks())
    return [
        {"name": name, "at": line, "count": count}
        for (name, line), count in found.most_common(MOST_TASKS)
    ]


def _line_of(task: asyncio.Task[Any]) -> str | None:
    stack = task.get_stack()
    if not stack:
        return None
    frame = stack[-1]
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno}"
