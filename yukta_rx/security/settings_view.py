"""The settings in force as plain JSON, for people and tools to read; secrets are masked.

Feature: SEC-02.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from yukta_rx.config.declare import Declared, Group, declared
from yukta_rx.config.load import catalogue
from yukta_rx.config.units import ByteSize, choices, show_duration, show_size
from yukta_rx.model.times import rfc3339
from yukta_rx.security.environment import looks_secret
from yukta_rx.security.masking import MASK

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """One setting.

    Attributes:
        name: the full name, `yukta.execution.queue-capacity`.
        value: as it would be written in the file; `***` for a secret.
        origin: a file, a variable, `default`, ...
        default: the value when nobody sets it.
        secret: whether the value is masked.
        doc: one sentence.
    """

    name: str
    value: Any
    origin: str
    default: Any
    secret: bool
    doc: str

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "value": self.value,
            "origin": self.origin,
            "default": self.default,
            "secret": self.secret,
            "doc": self.doc,
        }


def settings_in_force(settings: Settings) -> Iterator[SettingInForce]:
    """Yield every setting in the order of their declaration."""
    for setting in catalogue().values():
        value: Any = settings
        for part in setting.path:
            value = getattr(value, part)
        yield SettingInForce(
            name=setting.name,
            value=_shown(setting, value),
            origin=settings.origin(setting.name),
            default=_shown(setting, setting.default),
            secret=setting.secret,
            doc=setting.doc,
        )


def settings_schema() -> dict[str, Any]:
    """Return a JSON Schema of the file `yukta.toml`, for editors."""
    root: dict[str, Any] = _table()
    for setting in catalogue().values():
        *groups, last = setting.name.split(".")
        table = root
        for group in groups:
            table = table["properties"].setdefault(group, _table())
        table["properties"][last] = _schema(setting)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "yukta.toml"} | root


def _table() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _schema(setting: Declared) -> dict[str, Any]:
    made: dict[str, Any]
    if setting.item is not None:
        item = _table()
        members = declared(setting.item)
        item["properties"] = {part.path[-1].replace("_", "-"): _schema(part) for part in members}
        item["required"] = [part.path[-1].replace("_", "-") for part in members if part.required]
        made = {"type": "array", "items": item}
    elif setting.is_map:
        made = {"type": "object", "additionalProperties": _kind(get_args(setting.kind)[1], setting)}
    else:
        made = _kind(setting.kind, setting)
    made["description"] = setting.doc
    default = _shown(setting, setting.default)
    return made if default is None or setting.secret else {**made, "default": default}


def _kind(kind: Any, setting: Declared) -> dict[str, Any]:
    parts = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if parts and getattr(kind, "__origin__", None) is tuple:
        return {"type": "array", "items": _kind(parts[0], setting)}
    if parts:
        return _kind(parts[-1], setting)
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        bounds = {"minimum": setting.low, "maximum": setting.high}
        return {"type": "integer"} | {k: v for k, v in bounds.items() if v is not None}
    if kind is ByteSize:
        return {"type": ["integer", "string"]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": list(setting.words or choices(kind))}
    return {"type": "string"}


def _shown(setting: Declared, value: Any) -> Any:
    if value is None or value is PydanticUndefined:
        return None
    if isinstance(value, tuple):
        return [_shown(setting, part) for part in value]
    if isinstance(value, Group):
        members = declared(type(value))
        return {
            member.path[-1].replace("_", "-"): _shown(member, getattr(value, member.path[-1]))
            for member in members
        }
    if setting.secret or isinstance(value, SecretStr):
        return MASK
    if isinstance(value, Mapping):
        return {
            name: MASK if looks_secret(name) else _shown(setting, part)
            for name, part in value.items()
        }
    return _plain(setting, value)


def _plain(setting: Declared, value: Any) -> Any:
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, Enum):
        return setting.words[list(type(value)).index(value)] if setting.words else value.value
    if ByteSize in (setting.kind, *get_args(setting.kind)):
        return show_size(value)
    return value if isinstance(value, bool | int | float) else str(value)
