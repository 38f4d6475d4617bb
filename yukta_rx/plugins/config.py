"""The configuration of a plugin, declared as a model of its options.

Any string in a node's configuration may hold `${...}`, also where the model wants a number; only
an option declared `fixed()` may not.  Features: EXT-01, SEC-02.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema

Loc = tuple[str | int, ...]

INVALID_EXPRESSION: Final = "invalid_expression"
"""Code of a fault, and of a validator's error: an expression or condition is malformed."""


@dataclass(frozen=True)
class Fixed:
    """Mark of an option that is the same for every message of a run.

    Attributes:
        detail: what is said of an expression in it.
    """

    detail: str = "takes no expression: it has to be the same for every message"

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "x-yukta-fixed": True}


def fixed(detail: str = Fixed.detail) -> Fixed:
    """Mark an option that takes no expression.

    Written in the annotation: `path: Annotated[str, fixed()]`.

    Args:
        detail: what is said of an expression in it.
    """
    return Fixed(detail)


class PluginConfig(BaseModel):
    """Base of every plugin's configuration: frozen, unknown options refused.

    In a document the options are written in camelCase; in Python the field names serve too.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


class NoConfig(PluginConfig):
    """The configuration of a plugin that has no options."""


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One thing that is wrong with a node's configuration.

    Attributes:
        loc: path inside the configuration; empty for the whole.
        code: a stable word for programs.
        detail: what is wrong, without the name of the option.
    """

    loc: Loc
    code: str
    detail: str

    @property
    def option(self) -> str | None:
        """The dotted name of the option, None for the configuration as a whole."""
        return ".".join(map(str, self.loc)) or None


EnvironmentCheck = Callable[[Any, Any, "Path | None"], Iterable[ConfigFault]]
"""`check(cfg, settings, base_dir)`: faults that depend on where the run takes place."""


def validate_config(model: type[PluginConfig], values: Mapping[str, Any]) -> PluginConfig:
    """Return the configuration that a document's `config` describes.

    Raises:
        pydantic.ValidationError: it is not valid; lists every error.
    """
    return model.model_validate(dict(values), by_alias=True, by_name=False)


def fixed_places(model: type[BaseModel]) -> dict[Loc, str]:
    """Return the places of the `fixed()` options and what is said of an expression there.

    In a place `*` stands for any index or key.
    """
    places: dict[Loc, str] = {}
    pending: list[tuple[Loc, type[BaseModel], tuple[type[BaseModel], ...]]] = [
        ((), model, (model,))
    ]
    while pending:
        at, owner, above = pending.pop()
        for name, field in owner.model_fields.items():
            place = (*at, field.alias or name)
            mark = next(_fixed_marks(field.metadata, field.annotation), None)
            if mark is not None:
                places[place] = mark.detail
                continue
            for below, nested in _models_in(field.annotation):
                if nested not in above:
                    pending.append(((*place, *below), nested, (*above, nested)))
    return places


def _fixed_marks(metadata: Iterable[Any], annotation: Any) -> Iterator[Fixed]:
    """Yield the marks of an option, also that of `When | None`."""
    yield from (mark for mark in metadata if isinstance(mark, Fixed))
    if get_origin(annotation) in (Union, UnionType):
        for choice in get_args(annotation):
            if get_origin(choice) is Annotated:
                yield from (mark for mark in choice.__metadata__ if isinstance(mark, Fixed))


def _models_in(annotation: Any) -> Iterator[tuple[Loc, type[BaseModel]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield (), annotation
    step: Loc = ("*",) if get_origin(annotation) in (list, tuple, dict) else ()
    for argument in get_args(annotation):
        for below, nested in _models_in(argument):
            yield (*step, *below), nested
