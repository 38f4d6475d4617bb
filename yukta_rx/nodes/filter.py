"""FILTER: passes the messages for which a condition holds.  Feature: ENG-02."""

from __future__ import annotations

from pydantic import Field

from yukta_rx.plugins.contract import (
    Message,
    MessageScope,
    NodeContext,
    PluginConfig,
    When,
    processor,
)


class FilterConfig(PluginConfig):
    """Options of FILTER."""

    when: When = Field(description="The condition under which a message passes.")


@processor(
    "FILTER",
    config=FilterConfig,
    blocking=False,
    pure=True,
    example={"when": 'payload.n % 2 == 0 and payload.tag in ["a", "b"]'},
)
def filter_(msg: Message, cfg: FilterConfig, ctx: NodeContext) -> Message | None:
    """Pass a message on unchanged if the condition holds; the others count as filtered.

    Raises:
        BadInputError: the condition has no answer for this message; names the part of it.
    """
    return msg if cfg.when.matches(MessageScope(msg, ctx.attempt)) else None
