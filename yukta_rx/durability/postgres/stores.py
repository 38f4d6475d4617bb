"""The stores of PostgreSQL, by the switch that asks for them; the twin of those in open.py.

A switch imports what it needs and nothing else.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from yukta_rx.durability.open import Opening


async def session(opening: Opening) -> dict[str, Any]:
    """Workflows and sessions."""
    from yukta_rx.durability.postgres.definitions import PostgresWorkflowDefinitionStore
    from yukta_rx.durability.postgres.sessions import PostgresSessionConfigStore

    keep = opening.settings.definitions.retained_versions
    definitions = PostgresWorkflowDefinitionStore(await opening.database(), keep, opening.meters)
    await definitions.open()
    return {"definitions": definitions, "sessions": PostgresSessionConfigStore(definitions)}


async def execution_log(opening: Opening) -> dict[str, Any]:
    """History, the queue and events."""
    from yukta_rx.durability.postgres.events import PostgresEventStore
    from yukta_rx.durability.postgres.execution_log import PostgresExecutionLogStore
    from yukta_rx.durability.postgres.queued_starts import PostgresQueuedStartStore

    database, kept = await opening.database(), opening.settings.execution_log
    claims = opening.claims_in(database)
    events = PostgresExecutionLogStore(
        database,
        kept.retained_runs,
        kept.compact_after,
        meters=opening.meters,
        children=kept.retained_children,
        **claims,
    )
    return {
        "execution_log": await opening.started(events),
        "queued_starts": await opening.started(
            PostgresQueuedStartStore(database, meters=opening.meters, **claims)
        ),
        "events": await opening.stack.enter_async_context(
            PostgresEventStore(database, meters=opening.meters)
        ),
    }


async def restart(opening: Opening) -> dict[str, Any]:
    """Outputs of nodes, and what goes with them."""
    from yukta_rx.durability.postgres.archive import PostgresExecutionArchiveStore
    from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore
    from yukta_rx.durability.postgres.effects import PostgresEffectStore
    from yukta_rx.durability.postgres.input_requests import PostgresInputRequestStore
    from yukta_rx.durability.postgres.results import PostgresResultStore

    database, meters = await opening.database(), opening.meters
    enter = opening.stack.enter_async_context
    claims = opening.claims_in(database)
    outputs = PostgresNodeCheckpointStore(database, meters=meters, **claims)
    archive = PostgresExecutionArchiveStore(database, meters=meters, **claims)
    return {
        "checkpoints": outputs,
        "archive": await opening.started(archive),
        "input_requests": await enter(PostgresInputRequestStore(database, meters=meters)),
        "results": await enter(PostgresResultStore(database, meters=meters, **claims)),
        "effects": await enter(PostgresEffectStore(database)),
    }


async def key_values(opening: Opening) -> dict[str, Any]:
    """Values of KV_STORE."""
    from yukta_rx.durability.postgres.key_values import PostgresKeyValueStore

    store = PostgresKeyValueStore(await opening.database())
    return {"key_values": await opening.stack.enter_async_context(store)}


async def histories(opening: Opening) -> dict[str, Any]:
    """Conversations of SESSION_MEMORY."""
    from yukta_rx.durability.postgres.histories import PostgresHistoryStore

    store = PostgresHistoryStore(await opening.database(), opening.meters)
    return {"histories": await opening.stack.enter_async_context(store)}


OPENERS: Final[Mapping[str, Callable[[Opening], Awaitable[dict[str, Any]]]]] = {
    "session": session,
    "execution-log": execution_log,
    "restart": restart,
    "kv": key_values,
    "session-memory": histories,
}
"""By switch: what opens its stores, by their names in `Stores`."""
