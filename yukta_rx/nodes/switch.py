"""SWITCH: sends each message to the port whose condition holds.  Feature: ENG-02."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from yukta_rx.model.ids import id_fault
from yukta_rx.plugins.contract import (
    Message,
    MessageScope,
    NodeContext,
    PluginConfig,
    Routed,
    When,
    fixed,
    processor,
    to_port,
)

_ENGINE_PORTS = ("error", "dropped")
_FIXED = fixed("takes no `${}`: ports are fixed, and a condition reads names plainly: payload.x")


def _port(name: str) -> str:
    if name in _ENGINE_PORTS:
        raise ValueError(f"`{name}` is a port of the engine; choose another name")
    if fault := id_fault("port", name):
        raise ValueError(fault)
    return name


Port = Annotated[str, Field(strict=True), AfterValidator(_port)]


class Case(PluginConfig):
    """One way out."""

    port: Port = Field(description="The port that messages leave by.")
    when: When = Field(description="The condition under which they do.")


class SwitchConfig(PluginConfig):
    """Options of SWITCH."""

    cases: Annotated[list[Case], _FIXED] = Field(
        min_length=1, max_length=100, description="Looked at in order; the first that holds wins."
    )
    otherwise: Annotated[Port | None, _FIXED] = Field(
        None, description="The port for messages that no case is for; without it they are filtered."
    )


def _ports_of(cfg: SwitchConfig) -> tuple[str, ...]:
    last = () if cfg.otherwise is None else (cfg.otherwise,)
    return tuple(dict.fromkeys((*(case.port for case in cfg.cases), *last)))


@processor(
    "SWITCH",
    config=SwitchConfig,
    ports_of=_ports_of,
    blocking=False,
    pure=True,
    example={
        "cases": [
            {"port": "large", "when": "payload.total >= 100"},
            {"port": "small", "when": "payload.total > 0"},
        ],
        "otherwise": "rest",
    },
)
def switch(msg: Message, cfg: SwitchConfig, ctx: NodeContext) -> Routed | None:
    """Send each message on unchanged, by the port of the first case whose condition holds.

    A message that no case is for leaves by `otherwise`; without that it counts as filtered, and
    as `unmatched` among the node's own counts.

    Raises:
        BadInputError: a condition has no answer for this message; names the part of it.
    """
    scope = MessageScope(msg, ctx.attempt)
    for case in cfg.cases:
        if case.when.matches(scope):
            return to_port(case.port, msg)
    if cfg.otherwise is not None:
        return to_port(cfg.otherwise, msg)
    ctx.count("unmatched")
    return None
