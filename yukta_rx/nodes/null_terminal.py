"""NULL_TERMINAL: counts what arrives and throws it away.  Feature: ENG-01."""

from __future__ import annotations

from yukta_rx.plugins.contract import Message, NoConfig, NodeContext, terminal


@terminal("NULL_TERMINAL", blocking=False, pure=True, example={})
def null_terminal(msg: Message, cfg: NoConfig, ctx: NodeContext) -> None:
    """Count each message, which the engine does for every node, and discard it."""
