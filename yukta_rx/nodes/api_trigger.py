"""API_TRIGGER: the payload that a run was started with.  Feature: ENG-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from yukta_rx.nodes._paths import array_at
from yukta_rx.nodes._types import Path
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, fixed, trigger

if TYPE_CHECKING:
    from collections.abc import Iterator


class ApiTriggerConfig(PluginConfig):
    """Options of API_TRIGGER."""

    split_path: Annotated[Path | None, fixed()] = Field(
        None, description="Path of an array in the payload: one message per element."
    )


@trigger(
    "API_TRIGGER",
    config=ApiTriggerConfig,
    blocking=False,
    pure=True,
    replayable=True,
    example={"splitPath": "items"},
)
def api_trigger(cfg: ApiTriggerConfig, ctx: NodeContext) -> Iterator[Any]:
    """Emit the start payload as one message, or one message per element of an array in it.

    Raises:
        BadInputError: there is no array at `splitPath`.
    """
    if cfg.split_path is None:
        yield Message.of(ctx.payload)
        return
    for element in array_at(ctx.payload, cfg.split_path):
        yield Message.of(element)
