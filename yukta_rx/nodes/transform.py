"""TRANSFORM: builds a new payload from the old one.  Feature: ENG-02."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import copy_payload
from yukta_rx.nodes._paths import index_in, kind_of, segments
from yukta_rx.nodes._types import Path
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

_OPTIONS = frozenset({"set", "remove", "replace"})


class TransformConfig(PluginConfig):
    """Options of TRANSFORM, at least one of them; applied as replace, remove, set."""

    set: dict[Path, Any] = Field(
        default_factory=dict, description="Target path to value; other members stay."
    )
    remove: list[Path] = Field(
        default_factory=list, description="Paths to leave out; one that is not there is fine."
    )
    replace: Any = Field(None, description="A whole new payload to start from.")

    @model_validator(mode="after")
    def _says_something(self) -> TransformConfig:
        if not self.model_fields_set & _OPTIONS:
            raise ValueError("needs at least one of set, remove and replace")
        return self


@processor(
    "TRANSFORM",
    config=TransformConfig,
    blocking=False,
    pure=True,
    exact=True,
    example={"set": {"total": "${payload.price:number}", "seen": True}, "remove": ["price"]},
)
def transform(msg: Message, cfg: TransformConfig, ctx: NodeContext) -> Message:
    """Build a new payload: set, remove or replace members; the old one is never changed.

    Raises:
        BadInputError: a target lies inside something that is no object or array.
    """
    # Values of the configuration are copied: they serve every message, and a later node that is
    # not pure may change what it gets.
    replaced = "replace" in cfg.model_fields_set
    payload = copy_payload(cfg.replace) if replaced else msg.payload
    edit = _Edit(payload)
    for path in cfg.remove:
        edit.remove(path)
    for path, value in cfg.set.items():
        edit.set(path, copy_payload(value))
    return msg.replace(payload=edit.root)


class _Edit:
    """A payload under change: containers on the way to a change are copied, once each."""

    __slots__ = ("_fresh", "root")

    def __init__(self, root: Any) -> None:
        self.root = root
        # Identities of the containers made here; `root` keeps them alive, so none is reused.
        self._fresh: set[int] = set()

    def set(self, path: str, value: Any) -> None:
        parts = segments(path)
        if not parts:
            self.root = value
            return
        holder = self._holder(path, parts)
        self._put(holder, parts[-1], value, path)

    def remove(self, path: str) -> None:
        parts = segments(path)
        if not parts:
            self.root = None
        elif self._has(parts):
            holder = self._holder(path, parts)
            del holder[parts[-1] if isinstance(holder, dict) else int(parts[-1])]

    def _has(self, parts: tuple[str, ...]) -> bool:
        value = self.root
        for part in parts:
            try:
                value = value[part] if isinstance(value, dict) else value[index_in(value, part)]
            except (LookupError, TypeError):
                return False
        return True

    def _holder(self, path: str, parts: tuple[str, ...]) -> Any:
        """Return the container of the last part, copied along the whole way from the root."""
        holder = self.root = self._own(self.root, path)
        for part in parts[:-1]:
            below = self._get(holder, part, path)
            owned = self._own(below, path)
            if owned is not below:
                self._put(holder, part, owned, path)
            holder = owned
        return holder

    def _own(self, value: Any, path: str) -> Any:
        if id(value) in self._fresh:
            return value
        if isinstance(value, dict):
            copy: Any = dict(value)
        elif isinstance(value, list | tuple):
            copy = list(value)
        else:
            raise BadInputError(f"cannot set or remove `{path}`: it lies inside {kind_of(value)}")
        self._fresh.add(id(copy))
        return copy

    def _get(self, holder: Any, part: str, path: str) -> Any:
        if isinstance(holder, dict):
            return holder.get(part, {})
        return holder[self._index(holder, part, path)]

    def _put(self, holder: Any, part: str, value: Any, path: str) -> None:
        holder[part if isinstance(holder, dict) else self._index(holder, part, path)] = value

    @staticmethod
    def _index(holder: list[Any], part: str, path: str) -> int:
        try:
            index = index_in(holder, part)
            holder[index]
        except (LookupError, TypeError):
            raise BadInputError(
                f"cannot set `{path}`: the array has {len(holder)} elements and no `{part}`"
            ) from None
        return index
