"""COLLECT_TERMINAL: ends a branch; its messages are results of the run.  Feature: OBS-03."""

from __future__ import annotations

from yukta_rx.plugins.contract import Message, NoConfig, NodeContext, terminal


@terminal("COLLECT_TERMINAL", blocking=False, pure=True, example={})
def collect_terminal(msg: Message, cfg: NoConfig, ctx: NodeContext) -> None:
    """Take each message; the engine publishes it on the results channel."""
