"""FAULT_INJECTOR: fails, waits or blocks on purpose, to see what a workflow makes of it.

Features: ENG-03, ENG-05.
"""

from __future__ import annotations

import builtins
from difflib import get_close_matches
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, model_validator

from yukta_rx.nodes._types import Milliseconds
from yukta_rx.nodes._waiting import wait_until
from yukta_rx.plugins.contract import (
    Message,
    MessageScope,
    NodeContext,
    PluginConfig,
    When,
    processor,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_BLOCK_AT_MOST = 60_000
"""Milliseconds that the event loop may be blocked for."""

_TEXT = "injected by FAULT_INJECTOR"


def _usable() -> dict[str, type[Exception]]:
    """Return the built-in exceptions that a plugin can raise with a text."""
    found: dict[str, type[Exception]] = {}
    for name, kind in vars(builtins).items():
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            continue
        # Those two say in a generator that it is over, and come out as something else.
        if issubclass(kind, StopIteration | StopAsyncIteration):
            continue
        try:
            kind(_TEXT)
        except TypeError:
            continue
        found[name] = kind
    return found


_ERRORS = _usable()


def _error(name: str) -> str:
    if name not in _ERRORS:
        close = get_close_matches(name, _ERRORS, n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ", such as RuntimeError or OSError"
        raise ValueError(f"`{name}` is no built-in exception that can be raised here{hint}")
    return name


class FaultInjectorConfig(PluginConfig):
    """Options of FAULT_INJECTOR."""

    fail_times: Annotated[int, Field(strict=True, ge=0)] = Field(
        0, description="The first so many attempts of each message fail."
    )
    fail_when: When | None = Field(
        None, description="Every attempt of a message for which this condition holds fails."
    )
    error: Annotated[str, AfterValidator(_error)] = Field(
        "RuntimeError", description="The built-in exception that is raised."
    )
    delay_ms: Milliseconds = Field(0, description="How long each message is held first, in ms.")
    emit_before_failing: Annotated[int, Field(strict=True, ge=0, le=10_000)] = Field(
        0, description="Copies of the message that are emitted before the exception is raised."
    )
    block_loop: bool = Field(
        False, description="Keep the event loop busy for `delayMs` instead of waiting."
    )

    @model_validator(mode="after")
    def _blocks_for_a_while(self) -> FaultInjectorConfig:
        if self.block_loop and not 0 < self.delay_ms <= _BLOCK_AT_MOST:
            raise ValueError(f"blockLoop needs a delayMs from 1 to {_BLOCK_AT_MOST}")
        return self


@processor(
    "FAULT_INJECTOR",
    config=FaultInjectorConfig,
    pure=True,
    setting="yukta.plugins.allow-fault-injection",
    example={"failTimes": 2, "failWhen": "payload.n == 13", "error": "ConnectionError"},
)
async def fault_injector(
    msg: Message, cfg: FaultInjectorConfig, ctx: NodeContext
) -> AsyncIterator[Message]:
    """Fail where the configuration says so, and pass all other messages on unchanged.

    A message fails if this is one of its first `failTimes` attempts, or if `failWhen` holds. The
    delay comes first; it stands still during a pause, unless it blocks the event loop.

    Raises:
        Exception: the one that `error` names, on purpose.
        BadInputError: `failWhen` has no answer for this message.
    """
    attempt = ctx.attempt
    fails = attempt <= cfg.fail_times or (
        cfg.fail_when is not None and cfg.fail_when.matches(MessageScope(msg, attempt))
    )
    if cfg.block_loop:
        _block(cfg.delay_ms / 1000)
    else:
        await wait_until(ctx.clock.now() + cfg.delay_ms / 1000, ctx)
    for _ in range(cfg.emit_before_failing if fails else 1):
        yield msg
    if fails:
        raise _ERRORS[cfg.error](f"{_TEXT}, attempt {attempt}")


def _block(seconds: float) -> None:
    # Computing, not sleeping: that is what a plugin that blocks the loop does.
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass
