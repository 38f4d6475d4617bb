"""A node's configuration in a run: made ready once, resolved per message.

Features: EXT-01, SEC-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as PydanticError

from yukta_rx.errors import BadInputError
from yukta_rx.plugins.check import MESSAGE_NAMESPACES, model_faults
from yukta_rx.plugins.config import ConfigFault, PluginConfig, fixed_places, validate_config
from yukta_rx.security.variables import Scope, Template, compile_template

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from yukta_rx.model.policy import Concurrency
    from yukta_rx.plugins.spec import PluginSpec


class BoundConfig:
    """The configuration of one node.

    Attributes:
        constant: the configuration itself if it holds no expression, else None.
        reads_message: whether it has to be resolved for each message; otherwise once per run.

    Raises:
        BadInputError: it is not valid; `check_config` would have said so.
    """

    __slots__ = ("_dynamic", "_model", "_raw", "_static", "constant", "reads_message")

    def __init__(self, model: type[PluginConfig], raw: Mapping[str, Any]) -> None:
        literal = {place[0] for place in fixed_places(model) if len(place) == 1}
        self._model = model
        self._raw = raw
        self._dynamic: dict[str, Template] = {}
        self._static: dict[str, Any] = {}
        for name, value in raw.items():
            template = compile_template(value)
            if name in literal:
                self._static[name] = value
            elif template.constant:
                self._static[name] = template.resolve(Scope())
            else:
                self._dynamic[name] = template
        self.reads_message = any(
            template.namespaces & MESSAGE_NAMESPACES for template in self._dynamic.values()
        )
        self.constant = None if self._dynamic else self._made(self._static)

    def resolve(self, scope: Scope) -> PluginConfig:
        """Return the configuration for one message, or for the run if it reads none.

        Raises:
            BadInputError: an expression has no value, or none that its option takes; names both.
        """
        if self.constant is not None:
            return self.constant
        values = dict(self._static)
        for name, template in self._dynamic.items():
            try:
                values[name] = template.resolve(scope)
            except BadInputError as error:
                raise BadInputError(f"option `{name}`: {error.detail}", option=name) from error
        return self._made(values)

    def fixed(self, name: str) -> Any:
        """Return the value of a `fixed()` option by its name in the model; no message is needed."""
        if self.constant is not None:
            return getattr(self.constant, name)
        field = self._model.model_fields[name]
        return self._static.get(field.alias or name, field.default)

    def _made(self, values: Mapping[str, Any]) -> PluginConfig:
        try:
            return validate_config(self._model, values)
        except PydanticError as error:
            faults = model_faults(self._model, values, error, resolved=True)
            raise BadInputError("; ".join(map(self._sentence, faults))) from error

    def _sentence(self, fault: ConfigFault) -> str:
        written = self._written(fault)
        origin = f" (written `{written}`)" if isinstance(written, str) else ""
        return f"option `{fault.option or 'config'}` {fault.detail}{origin}"

    def _written(self, fault: ConfigFault) -> Any:
        if not fault.loc or fault.loc[0] not in self._dynamic:
            return None
        value: Any = self._raw
        for part in fault.loc:
            try:
                value = value[part]
            except (LookupError, TypeError):
                break
        return value


def bind_config(spec: PluginSpec, config: Mapping[str, Any] | None) -> BoundConfig:
    """Make a checked configuration ready for a run.

    Raises:
        BadInputError: it is not valid; `check_config` would have said so.
    """
    return BoundConfig(spec.config, {} if config is None else config)


def calls_at_once(spec: PluginSpec, config: BoundConfig, policy: Concurrency) -> int:
    """Return how many messages a node works on at once: as its plugin says, or its policy.

    Where both do, the smaller number.
    """
    if not spec.calls:
        return policy.max
    own: int = config.fixed(spec.calls)
    return min(own, policy.max) if "max" in policy.model_fields_set else own


def check_environment(
    spec: PluginSpec, config: Mapping[str, Any] | None, *, settings: Any, base_dir: Path | None
) -> list[ConfigFault]:
    """Return the faults of a valid configuration that depend on the place of the run.

    A configuration with expressions is known only at run time, and checked there; the setting
    that a plugin needs is looked at in any case.
    """
    if spec.setting and not _holds(settings, spec.setting):
        detail = f"{spec.type} is not allowed here; {spec.setting} = true allows it"
        return [ConfigFault((), "not_allowed", detail)]
    if spec.check is None:
        return []
    constant = bind_config(spec, config).constant
    return [] if constant is None else list(spec.check(constant, settings, base_dir))


def _holds(settings: Any, name: str) -> bool:
    value = settings
    for part in name.removeprefix("yukta.").split("."):
        value = getattr(value, part.replace("-", "_"), None)
    return value is True
