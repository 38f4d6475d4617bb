"""The registry: which plugin a node type is.  Feature: EXT-01.

Built-in types are the modules of `yukta_rx.nodes`: `api_trigger.py` holds `API_TRIGGER`. Others
come from the entry point group `yukta_rx.plugins`, whose entry names are types, or are passed in.
A plugin is imported when it is first asked for.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import ConfigError, NotFoundError
from yukta_rx.plugins.contract import spec_of
from yukta_rx.plugins.spec import PluginSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

GROUP: Final = "yukta_rx.plugins"
_NODES: Final = "yukta_rx.nodes"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plugin comes from.

    Attributes:
        type: the node type it is registered under.
        origin: `module:qualname`, with the distribution if it is not ours.
        load: imports it.
    """

    type: str
    origin: str
    load: Callable[[], Any]


class PluginRegistry:
    """Maps node types to plugins; immutable but for what it has loaded so far."""

    __slots__ = ("_broken", "_disabled", "_sources", "_specs")

    def __init__(self, sources: Iterable[Source], disabled: Iterable[str] = ()) -> None:
        self._sources: dict[str, Source] = {}
        self._specs: dict[str, PluginSpec] = {}
        self._broken: dict[str, str] = {}
        self._disabled = frozenset(disabled)
        twice = []
        for source in sources:
            first = self._sources.setdefault(source.type, source)
            if first is not source and source.type not in self._disabled:
                twice.append(
                    f"plugin type {source.type} is there twice: {first.origin} and"
                    f" {source.origin}; uninstall one, or name the type in yukta.plugins.disabled"
                )
        if twice:
            raise ConfigError(twice)

    @classmethod
    def load(cls, settings: Any = None, extra: Iterable[Any] = ()) -> PluginRegistry:
        """Find the built-in plugins, the installed ones and those passed in.

        Args:
            settings: the settings in force; `plugins.disabled` and `plugins.strict` are read.
            extra: decorated functions, classes or specs.

        Raises:
            ConfigError: two plugins have one type; with `yukta.plugins.strict` also when a
                plugin cannot be imported. All at once.
        """
        options = getattr(settings, "plugins", None)
        given = (_given(spec_of(plugin)) for plugin in extra)
        registry = cls(
            [*_built_in(), *_installed(), *given], getattr(options, "disabled", None) or ()
        )
        if getattr(options, "strict", False) and (broken := registry.broken()):
            raise ConfigError(list(broken.values()))
        return registry

    def get(self, type: str) -> PluginSpec:
        """Return the plugin of a node type.

        Raises:
            NotFoundError: code `plugin_not_found`: there is none, it is disabled, or it cannot
                be imported.
        """
        if spec := self._specs.get(type):
            return spec
        if type in self._disabled:
            detail = f"plugin type {type} is switched off by yukta.plugins.disabled"
        elif source := self._sources.get(type):
            if spec := self._loaded(source):
                return spec
            detail = self._broken[type]
        else:
            detail = f"no plugin type {type}{self._suggestion(type)}"
        raise NotFoundError(detail, code="plugin_not_found", pluginType=type)

    def types(self) -> tuple[str, ...]:
        """Return the known types that are not disabled, sorted; nothing is imported."""
        return tuple(sorted(self._sources.keys() - self._disabled))

    def specs(self) -> Iterator[PluginSpec]:
        """Yield every plugin that can be imported, by type."""
        for type in self.types():
            if spec := self._specs.get(type) or self._loaded(self._sources[type]):
                yield spec

    def broken(self) -> Mapping[str, str]:
        """Import everything and return type and reason of what cannot be."""
        for _ in self.specs():
            pass
        return dict(self._broken)

    def __contains__(self, type: object) -> bool:
        return type in self._sources and type not in self._disabled

    def _loaded(self, source: Source) -> PluginSpec | None:
        if source.type in self._broken:
            return None
        try:
            spec = spec_of(source.load())
            if spec.type != source.type:
                raise TypeError(f"it declares the type {spec.type}")
        except (Exception, SystemExit) as error:  # a module may do anything while it is imported
            reason = str(error) or type(error).__name__
            self._broken[source.type] = (
                f"plugin type {source.type} cannot be loaded from {source.origin}: {reason}"
            )
            return None
        self._specs[source.type] = spec
        return spec

    def _suggestion(self, type: str) -> str:
        close = get_close_matches(type.upper(), self.types(), n=1)
        return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(self.types())}"


def _built_in() -> Iterator[Source]:
    for module in pkgutil.iter_modules(import_module(_NODES).__path__):
        if not module.name.startswith("_"):
            path = f"{_NODES}.{module.name}"
            yield Source(module.name.upper(), path, partial(_plugin_in, path))


def _plugin_in(path: str) -> PluginSpec:
    wanted = path.rpartition(".")[2].upper()
    for value in vars(import_module(path)).values():
        spec = getattr(value, "spec", None)
        if isinstance(spec, PluginSpec) and spec.type == wanted:
            return spec
    raise TypeError(f"the module declares no plugin of type {wanted}")


def _installed() -> Iterator[Source]:
    for entry in metadata.entry_points(group=GROUP):
        owner = f" ({entry.dist.name} {entry.dist.version})" if entry.dist else ""
        yield Source(entry.name, entry.value + owner, entry.load)


def _given(spec: PluginSpec) -> Source:
    return Source(spec.type, spec.source, lambda: spec)
