"""Stand-ins: node types that a test replaces, in a registry of its own.

A stand-in is a decorated plugin, a plain function `fn(msg)` that returns what a plugin function
would, or for a trigger a list of payloads. It is checked and wired as the type that it stands for:
where it declares no options of its own it gets that type's options, ports and limits, so a
document that the real plugin refuses is refused here too.

Feature: EXT-01.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict

from yukta_rx.errors import ConfigError
from yukta_rx.plugins.contract import (
    NoConfig,
    PluginConfig,
    PluginKind,
    PluginSpec,
    Shape,
    spec_of,
)
from yukta_rx.plugins.registry import PluginRegistry, Source
from yukta_rx.plugins.shapes import function_shape, source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.config.settings import Settings


class AnyOptions(PluginConfig):
    """Options of a type that only a plain function stands for: whatever the document says."""

    model_config = ConfigDict(extra="allow")


def registry_with(
    plugins: Mapping[str, Any] | Iterable[Any] | None, settings: Settings
) -> PluginRegistry:
    """Return the known node types with `plugins` among them or in their places.

    Args:
        plugins: stand-ins by the type they stand for, known or new; or decorated plugins, each
            under its own type.
        settings: the settings in force.

    Raises:
        TypeError: a stand-in is none, or is of another kind than what it stands for; names the
            type.
        ConfigError: two plugins of the list have one type.
    """
    known = PluginRegistry.load(settings)
    by_type = plugins if isinstance(plugins, Mapping) else _by_type(plugins or ())
    given = {type: _stand_in(type, plugin, known) for type, plugin in by_type.items()}
    kept = [
        Source(type, type, partial(known.get, type)) for type in known.types() if type not in given
    ]
    return PluginRegistry([*kept, *(_source(spec) for spec in given.values())])


def _by_type(plugins: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, PluginSpec] = {}
    for spec in map(spec_of, plugins):
        if spec.type in found:
            both = f"{found[spec.type].source} and {spec.source}"
            raise ConfigError([f"plugin type {spec.type} is given twice: {both}"])
        found[spec.type] = spec
    return found


def _source(spec: PluginSpec) -> Source:
    return Source(spec.type, spec.source, lambda: spec)


def _stand_in(type: str, plugin: Any, known: PluginRegistry) -> PluginSpec:
    real = known.get(type) if type in known else None
    if isinstance(plugin, PluginSpec) or isinstance(getattr(plugin, "spec", None), PluginSpec):
        spec = spec_of(plugin)
        if real is None or real.type == spec.type:
            return replace(spec, type=type)
        _check_kind(type, real, spec.kind)
        return _in_place_of(real, spec)
    if real is not None and real.kind is PluginKind.TRIGGER:
        return _emitting(real, plugin)
    if not callable(plugin):
        raise TypeError(
            f"{type}: {plugin!r} cannot stand in for it; give a decorated plugin or a function"
            " of a message"
        )
    base = real or PluginSpec(type, PluginKind.PROCESSOR, Shape.SYNC, plugin, config=AnyOptions)
    return _plain(base, plugin, function_shape(plugin, 1, "(msg)"), lambda msg, _c, _x: plugin(msg))


def _check_kind(type: str, real: PluginSpec, kind: PluginKind) -> None:
    if real.kind is not kind:
        raise TypeError(f"{type} is a {real.kind.lower()}; a {kind.lower()} cannot stand in for it")


def _in_place_of(real: PluginSpec, spec: PluginSpec) -> PluginSpec:
    """`spec` under the type of `real`, with its options and ports unless it declares its own."""
    if spec.config is not NoConfig:
        return replace(spec, type=real.type)
    ports: dict[str, Any] = {}
    if not (spec.ports or spec.ports_of):
        ports = {"ports": real.ports, "ports_of": real.ports_of}
    return replace(spec, type=real.type, config=real.config, exact=False, **ports)


def _emitting(real: PluginSpec, values: Any) -> PluginSpec:
    if callable(values) or isinstance(values, str | bytes | Mapping):
        raise TypeError(
            f"{real.type} is a trigger: a list of payloads or a @trigger can stand in for it"
        )
    kept = list(values)
    return _plain(real, kept, Shape.SYNC, lambda _cfg, _ctx: iter(kept))


def _plain(base: PluginSpec, given: Any, shape: Shape, fn: Callable[..., Any]) -> PluginSpec:
    """The type `base` with another function, which is called on the event loop."""
    off: dict[str, Any] = {"open": None, "finish": None, "close": None, "check": None}
    return replace(
        base,
        fn=fn,
        shape=shape,
        blocking=False,
        pure=False,
        exact=False,
        setting="",
        source=source_of(given) if callable(given) else repr(given),
        **off,
    )
