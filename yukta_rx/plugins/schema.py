"""The JSON Schema of a plugin's configuration, as a workflow document writes it.

Features: EXT-01, SEC-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from yukta_rx.plugins.config import PluginConfig

_EXPRESSION: Final = {"type": "string", "pattern": r"\$\{"}
_NOTES: Final = frozenset({"title", "description", "default"})


def config_schema(model: type[PluginConfig]) -> dict[str, Any]:
    """Return the JSON Schema of a configuration.

    An option that is neither `fixed()` nor text may also be a string with `${...}`.
    """
    schema = model.model_json_schema(by_alias=True)
    for holder in [schema, *schema.get("$defs", {}).values()]:
        properties = holder.get("properties", {})
        for name, option in properties.items():
            properties[name] = _with_expression(option)
    return schema


def _with_expression(option: dict[str, Any]) -> dict[str, Any]:
    marked = (option, *option.get("anyOf", ()))
    if any(choice.get("x-yukta-fixed") for choice in marked):
        return option
    if option.get("type") == "string" and "enum" not in option:
        return option
    # A schema without any of these, such as that of Any, takes strings already.
    if not option.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        return option
    notes = {key: value for key, value in option.items() if key in _NOTES}
    inner = {key: value for key, value in option.items() if key not in _NOTES}
    choices = inner["anyOf"] if set(inner) == {"anyOf"} else [inner]
    return {**notes, "anyOf": [*choices, _EXPRESSION]}
