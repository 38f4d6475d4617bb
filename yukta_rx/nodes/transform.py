"""TRANSFORM: builds a new payload from the old one.  Feature: ENG-02."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from yukta_rx.model.message import copy_payload
from yukta_rx.nodes._edit import Edit
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
    edit = Edit(payload)
    for path in cfg.remove:
        edit.remove(path)
    for path, value in cfg.set.items():
        edit.set(path, copy_payload(value))
    return msg.replace(payload=edit.root)
