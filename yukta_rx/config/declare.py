"""How a setting is declared: one field that carries default, range, meaning and feature id."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_core import PydanticUndefined

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

PREFIX = "yukta"


class Group(BaseModel):
    """A table of settings; its fields are settings or further groups."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def setting(
    default: Any,
    doc: str,
    *,
    feature: str | tuple[str, ...],
    ge: int | None = None,
    le: int | None = None,
    per_value: bool = False,
    secret: bool = False,
    words: tuple[str, ...] = (),
    derived: str = "",
) -> Any:
    """Declare a setting; everything else about it follows from this one place.

    Args:
        default: the value when nobody sets it; None means unset, ... that it must be set.
        doc: one sentence for the reference page.
        feature: the id or ids of the feature cards that it belongs to.
        ge: smallest number allowed.
        le: largest number allowed.
        per_value: the range is that of each value of a map.
        secret: never show the value, not even in an error.
        words: the choices as they are shown, where they differ from the enum's own.
        derived: where the value comes from when nobody sets it, if not from `default`.
    """
    facts: dict[str, Any] = {
        "features": (feature,) if isinstance(feature, str) else feature,
        "bounds": (ge, le),
        "secret": secret,
        "words": words,
        "derived": derived,
    }
    low, high = (None, None) if per_value else (ge, le)
    return Field(default, description=doc, json_schema_extra=facts, ge=low, le=high)


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting as found on the models.

    Attributes:
        name: the full name, `yukta.execution.queue-capacity`.
        path: the attributes that lead to it from the root model.
        kind: its type as annotated.
        low: smallest number allowed, or None.
        high: largest number allowed, or None.
        derived: where an unset value comes from, empty when from `default`.
    """

    name: str
    path: tuple[str, ...]
    kind: Any
    default: Any
    doc: str
    features: tuple[str, ...]
    low: int | None
    high: int | None
    secret: bool
    words: tuple[str, ...]
    derived: str

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return env_name(self.name)

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is PydanticUndefined

    @property
    def item(self) -> type[Group] | None:
        """The model of one entry, for a list of tables."""
        if get_origin(self.kind) is tuple:
            kind = get_args(self.kind)[0]
            if isinstance(kind, type) and issubclass(kind, Group):
                return kind
        return None

    @property
    def is_map(self) -> bool:
        """Whether names below this one are free (`yukta.llm.rate-limit.<provider>`)."""
        return get_origin(self.kind) is Mapping


def env_name(name: str) -> str:
    """Return the variable that sets `name`: dots and hyphens become underscores."""
    return name.upper().replace(".", "_").replace("-", "_")


def declared(model: type[Group], name: str = PREFIX, path: tuple[str, ...] = ()) -> list[Declared]:
    """List the settings of a model and of the groups in it, in the order of their declaration."""
    return list(_walk(model, name, path))


def _walk(model: type[Group], name: str, path: tuple[str, ...]) -> Iterator[Declared]:
    for attribute, field in model.model_fields.items():
        full = f"{name}.{attribute.replace('_', '-')}"
        here = (*path, attribute)
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Group):
            yield from _walk(kind, full, here)
        else:
            yield _declared(full, here, field)


def _declared(name: str, path: tuple[str, ...], field: FieldInfo) -> Declared:
    extra = field.json_schema_extra
    if not isinstance(extra, dict) or "features" not in extra:
        raise TypeError(f"{name} is not declared with setting()")
    facts: dict[str, Any] = extra
    low, high = facts["bounds"]
    return Declared(
        name=name,
        path=path,
        kind=field.annotation,
        default=field.get_default(call_default_factory=True, validated_data={}),
        doc=field.description or "",
        features=facts["features"],
        low=low,
        high=high,
        secret=facts["secret"] or _holds_secret(field.annotation),
        words=facts["words"],
        derived=facts["derived"],
    )


def _holds_secret(kind: Any) -> bool:
    return kind is SecretStr or any(_holds_secret(part) for part in get_args(kind))


def nearest(word: str, words: Iterable[str], cutoff: float = 0.7) -> str | None:
    """Return the word most like `word`, or None when nothing is close enough to be meant."""
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff)
    return found[0] if found else None
