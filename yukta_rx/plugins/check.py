"""What is wrong with a node's configuration, found before any plugin runs.

A value that comes from an expression is known only at run time, so a fault of such a value is
left for then; everything else is reported at once.  Features: EXT-01, DEF-02, SEC-02.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError as PydanticError

from yukta_rx.errors import BadInputError
from yukta_rx.plugins.config import (
    INVALID_EXPRESSION,
    ConfigFault,
    Loc,
    PluginConfig,
    fixed_places,
    validate_config,
)
from yukta_rx.security.variables import compile_template, has_expression

if TYPE_CHECKING:
    from yukta_rx.plugins.spec import PluginSpec

MESSAGE_NAMESPACES: Final = frozenset({"payload", "metadata", "headers", "id"})
"""What an expression can read only while there is a message."""

# Errors that a validator of the author's own raises: it may look at everything below its place.
_CUSTOM: Final = frozenset({"value_error", "assertion_error"})
_WORDING: Final = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be an array",
}


def check_config(spec: PluginSpec, config: Mapping[str, Any] | None) -> list[ConfigFault]:
    """Return all that is wrong with a node's configuration, in the order of the document.

    Args:
        spec: the plugin.
        config: what the document says under `config`, without `engine`; None is `{}`.
    """
    raw = {} if config is None else config
    if not isinstance(raw, Mapping):
        return [ConfigFault((), "invalid_option", "must be an object")]
    faults = list(_expression_faults(spec, raw))
    try:
        validate_config(spec.config, raw)
    except PydanticError as error:
        faults += model_faults(spec.config, raw, error)
    place = {name: index for index, name in enumerate(raw)}
    faults.sort(key=lambda fault: place.get(str(fault.loc[0]), len(place)) if fault.loc else -1)
    return faults


def model_faults(
    model: type[PluginConfig],
    values: Mapping[str, Any],
    error: PydanticError,
    *,
    resolved: bool = False,
) -> Iterator[ConfigFault]:
    """Yield pydantic's errors as faults in our own words.

    Args:
        model: the model that was refused.
        values: what it was made from.
        error: the refusal.
        resolved: the values are final; otherwise faults of expressions are passed over.
    """
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        kind = item["type"]
        loc, value = _follow(values, item["loc"], keep_last=kind == "missing")
        if kind == "extra_forbidden":
            yield ConfigFault(loc, "unknown_option", _unknown(model, loc))
        elif kind == "missing":
            yield ConfigFault(loc, "missing_option", "is required")
        elif resolved or not _from_expression(kind, value):
            detail = _WORDING.get(kind) or item["msg"].removeprefix("Value error, ")
            code = INVALID_EXPRESSION if kind == INVALID_EXPRESSION else "invalid_option"
            yield ConfigFault(loc, code, detail[:1].lower() + detail[1:])


def _expression_faults(spec: PluginSpec, raw: Mapping[str, Any]) -> Iterator[ConfigFault]:
    places = fixed_places(spec.config)
    for loc, text in _strings(raw):
        if not has_expression(text):
            continue
        refusals = [detail for place, detail in places.items() if _under(loc, place)]
        if refusals:
            yield ConfigFault(loc, "fixed_option", refusals[0])
            continue
        try:
            template = compile_template(text)
        except BadInputError as error:
            yield ConfigFault(loc, INVALID_EXPRESSION, error.detail)
            continue
        if not spec.per_message and template.namespaces & MESSAGE_NAMESPACES:
            detail = (
                f"`{text}` reads a message, but a {spec.noun} has none at hand; its options can"
                " read env, sys and context"
            )
            yield ConfigFault(loc, INVALID_EXPRESSION, detail)


def _strings(value: Any) -> Iterator[tuple[Loc, str]]:
    """Yield every string of a document with its place, in order, without recursion."""
    pending: list[tuple[Loc, Any]] = [((), value)]
    while pending:
        at, item = pending.pop()
        if isinstance(item, str):
            yield at, item
        elif isinstance(item, Mapping):
            pending += [((*at, key), item[key]) for key in reversed(list(item))]
        elif isinstance(item, list | tuple):
            pending += [((*at, i), item[i]) for i in range(len(item) - 1, -1, -1)]


def _follow(values: Any, place: Loc, *, keep_last: bool) -> tuple[Loc, Any]:
    """Walk an error's place through the document, without pydantic's tags of union members."""
    loc: list[str | int] = []
    value = values
    for part in place:
        if _holds(value, part):
            value = value[part]
            loc.append(part)
    if keep_last:
        loc.append(place[-1])
    return tuple(loc), value


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, Mapping) and part in value


def _from_expression(kind: str, value: Any) -> bool:
    if isinstance(value, str):
        return has_expression(value)
    return kind in _CUSTOM and any(has_expression(text) for _, text in _strings(value))


def _unknown(model: type[PluginConfig], loc: Loc) -> str:
    if len(loc) != 1:
        return "is not an option here"
    known = [field.alias or name for name, field in model.model_fields.items()]
    if close := get_close_matches(str(loc[0]), known, n=1):
        return f"is not an option; did you mean `{close[0]}`?"
    return "is not an option; there is " + (", ".join(known) or "none")


def _under(loc: Loc, place: Loc) -> bool:
    return len(loc) >= len(place) and all(
        want in ("*", part) for part, want in zip(loc, place, strict=False)
    )
