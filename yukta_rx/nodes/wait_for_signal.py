"""WAIT_FOR_SIGNAL: holds each message until a person or a program answers.  Feature: CTL-05."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, Field

from yukta_rx.errors import SignalRejectedError, SignalTimeoutError
from yukta_rx.model.ids import id_fault
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, fixed, processor

if TYPE_CHECKING:
    from yukta_rx.plugins.signals import Signal

YEAR: Final = 366 * 86_400

IDLE: Final = 30.0
"""Seconds that the idle timeout lies above the wait."""


class Otherwise(StrEnum):
    """What becomes of a message that is not approved."""

    FAIL = "FAIL"
    DROP = "DROP"
    CONTINUE = "CONTINUE"


def _signal_name(name: str) -> str:
    if fault := id_fault("signal", name):
        raise ValueError(fault)
    return name


class WaitForSignalConfig(PluginConfig):
    """Options of WAIT_FOR_SIGNAL."""

    signal: Annotated[str, Field(strict=True), AfterValidator(_signal_name)] = Field(
        description="Name of the signal that a message waits for."
    )
    timeout_seconds: Annotated[float, Field(strict=True, gt=0, le=YEAR)] = Field(
        3600, description="Longest wait of a message, pauses not counted."
    )
    on_timeout: Otherwise = Field(
        Otherwise.FAIL,
        description="When the time is up: FAIL, DROP the message, or let it CONTINUE.",
    )
    on_reject: Otherwise = Field(
        Otherwise.FAIL,
        description="When the decision is `reject`: FAIL, DROP the message, or let it CONTINUE.",
    )
    max_waiting: Annotated[int, Field(strict=True, ge=1, le=1000), fixed()] = Field(
        100, description="Messages that wait at once; then the node takes no more."
    )
    prompt: str | None = Field(None, description="What is asked, for people.")


@processor(
    "WAIT_FOR_SIGNAL",
    config=WaitForSignalConfig,
    default_timeout=lambda cfg: cfg.timeout_seconds + IDLE,
    pure=True,
    stateful=True,
    independent=True,
    signals=True,
    calls="max_waiting",
    carries=True,
    example={
        "signal": "approve",
        "timeoutSeconds": 86_400,
        "onReject": "DROP",
        "prompt": "Pay ${payload.amount} to ${payload.to}?",
    },
)
async def wait_for_signal(
    msg: Message, cfg: WaitForSignalConfig, ctx: NodeContext
) -> Message | None:
    """Hold each message until it is answered, and tag it with the answer.

    Up to `maxWaiting` messages wait at once, each an approval of its own; what leaves keeps the
    order of what came, unless `engine.concurrency.ordered` is false. The headers `signal.name`,
    `signal.decision` and, if some came with it, `signal.data` say what was answered; the decision
    is `timeout` where a message continues without an answer. A message that comes again gets the
    same answer again.

    Raises:
        SignalRejectedError: the decision is `reject`, in any case; never retried.
        SignalTimeoutError: no signal came in time.
    """
    try:
        answer = await ctx.signals.wait(
            cfg.signal, msg, timeout=cfg.timeout_seconds, prompt=cfg.prompt
        )
    except SignalTimeoutError:
        if cfg.on_timeout is Otherwise.FAIL:
            raise
        ctx.count("timed_out")
        return _passed(msg, cfg.on_timeout, {"name": cfg.signal, "decision": "timeout"})
    if not answer.rejected:
        ctx.count("approved")
        return _passed(msg, Otherwise.CONTINUE, _tags(answer))
    if cfg.on_reject is Otherwise.FAIL:
        by = f"{answer.answered_by} answered `{answer.decision}`"
        why = f": {answer.comment}" if answer.comment else ""
        raise SignalRejectedError(
            f"{by} to signal `{answer.name}`{why}",
            signal=answer.name,
            approvalId=answer.request_id,
        )
    ctx.count("rejected")
    return _passed(msg, cfg.on_reject, _tags(answer))


def _tags(answer: Signal) -> dict[str, Any]:
    data = {} if answer.data is None else {"data": answer.data}
    return {"name": answer.name, "decision": answer.decision, **data}


def _passed(msg: Message, what: Otherwise, tags: dict[str, Any]) -> Message | None:
    if what is Otherwise.DROP:
        return None
    named = {f"signal.{name}": value for name, value in tags.items()}
    return msg.replace(headers={**msg.headers, **named})
