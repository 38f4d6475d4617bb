"""The catalogue of node types, health, meters, version. Features: EXT-01, OBS-04, SCL-02."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yukta_rx import __version__
from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType
from yukta_rx.errors import Fault, UnavailableError, json_pointer
from yukta_rx.http.call import JSON, STRANGER
from yukta_rx.http.exposition import exposition
from yukta_rx.http.route import MAX_PAGE
from yukta_rx.model.codec import MAX_INPUT_DEPTH
from yukta_rx.model.times import rfc3339
from yukta_rx.plugins.check import check_config

if TYPE_CHECKING:
    from yukta_rx.http.call import Call

API_VERSION: Final = "1"

DATABASE: Final = "postgres"
"""What the stores in a database are called together, since they are down together."""


async def plugins(call: Call) -> web.StreamResponse:
    """List every node type."""
    registry = call.engine.registry
    # A plugin is imported when it is first asked for, which may read many files.
    specs = await asyncio.to_thread(lambda: list(registry.specs()))
    shown: dict[str, Any] = {"items": [spec.describe() for spec in specs], "nextCursor": None}
    if call.query["errors"]:
        broken = await asyncio.to_thread(registry.broken)
        shown["errors"] = [{"type": type, "detail": detail} for type, detail in broken.items()]
    return call.json(shown)


async def plugin(call: Call) -> web.StreamResponse:
    """Show a node type."""
    spec = await asyncio.to_thread(call.engine.registry.get, call.ids["type"])
    return call.json(spec.describe())


async def plugin_schema(call: Call) -> web.StreamResponse:
    """Return the JSON Schema of a node type's configuration."""
    spec = await asyncio.to_thread(call.engine.registry.get, call.ids["type"])
    return call.json(spec.json_schema())


async def validate_config(call: Call) -> web.StreamResponse:
    """Examine a configuration; also a wrong one is a good question."""
    spec = await asyncio.to_thread(call.engine.registry.get, call.ids["type"])
    found = check_config(spec, call.body)
    faults = [
        Fault(
            json_pointer(fault.loc),
            fault.code,
            fault.detail,
            option=".".join(str(part) for part in fault.loc) or None,
        )
        for fault in found
    ]
    return call.json({"valid": not faults, "errors": [fault.as_dict() for fault in faults]})


async def health(call: Call) -> web.StreamResponse:
    """Say how each part is."""
    fault = await _not_ready(call) or _not_alive(call)
    settings = call.engine.settings
    down = await call.engine.readiness.down()
    kinds = store_types(settings)
    files = StoreType.FILE in kinds.values()
    of_log = {"execution-log"}
    if kinds["execution-log"] is StoreType.POSTGRES:
        of_log.add(DATABASE)
    components = {
        "store": {"status": _up(not down), "type": str(settings.profile), "down": dict(down)},
        "log": {
            "status": _up(of_log.isdisjoint(down)),
            "type": str(settings.execution_log.store_type),
        },
        "tracker": {"status": _up(fault is None)},
        # One server that shares its work with no other needs no lease.
        "lease": {"status": "UP", "leader": call.engine.leadership.leads},
        "disk": {"status": _up(not files or not set(down) - {DATABASE}), "used": files},
    }
    # Whoever shows no key where there are some learns only whether all is well.
    return _health(call, fault, None if call.actor is STRANGER else components)


async def live(call: Call) -> web.StreamResponse:
    """Answer whether the event loop turns."""
    return _health(call, _not_alive(call))


async def ready(call: Call) -> web.StreamResponse:
    """Answer whether requests may be sent here; a standby is ready too."""
    return _health(call, await _not_ready(call))


async def leader(call: Call) -> web.StreamResponse:
    """Answer whether this server leads, which a single one always does."""
    leadership = call.engine.leadership
    fault = await _not_ready(call)
    if fault is None and not leadership.leads:
        fault = leadership.refusal()
    return _health(call, fault)


async def metrics(call: Call) -> web.StreamResponse:
    """Return every meter, as Prometheus or OpenMetrics text."""
    registry = call.engine.meters.registry
    page, content_type = await exposition(registry, call.header("Accept") or "")
    response = web.Response(body=page)
    # The content type has a charset, which the argument of that name refuses.
    response.headers["Content-Type"] = content_type
    return response


async def version(call: Call) -> web.StreamResponse:
    """Say what runs here."""
    engine = call.engine
    return call.json(
        {
            "name": "yukta_rx",
            "version": __version__,
            "apiVersion": API_VERSION,
            "instanceId": engine.instance_id,
            "startedAt": rfc3339(engine.started_at),
            "limits": {
                "maxBodyBytes": int(engine.settings.limits.max_body),
                "maxJsonDepth": MAX_INPUT_DEPTH,
                "maxPageSize": MAX_PAGE,
            },
        }
    )


async def openapi(call: Call) -> web.StreamResponse:
    """Return the OpenAPI document."""
    body = call.shared.openapi()
    tag = f'"{blake2b(body, digest_size=16).hexdigest()}"'
    if tag in (call.header("If-None-Match") or ""):
        return web.Response(status=304, headers={"ETag": tag})
    return web.Response(body=body, content_type=JSON, headers={"ETag": tag})


def _not_alive(call: Call) -> UnavailableError | None:
    pulse = call.shared.pulse
    if pulse.alive:
        return None
    return UnavailableError(f"the event loop is {pulse.lag:.1f} s late", code="recovering")


def _up(well: bool) -> str:
    return "UP" if well else "DOWN"


async def _not_ready(call: Call) -> UnavailableError | None:
    engine = call.engine
    fault = engine.readiness.waits_for
    if fault is None and (not engine.ready or call.shared.closing):
        return UnavailableError("the server is shutting down", code="shutting_down")
    return fault or await engine.readiness.fault()


def _health(
    call: Call, fault: UnavailableError | None, components: dict[str, Any] | None = None
) -> web.StreamResponse:
    if fault is not None:
        if components is not None:
            fault.members["components"] = components
        raise fault
    shown: dict[str, Any] = {"status": "UP"}
    if components is not None:
        shown["components"] = components
    return call.json(shown)
