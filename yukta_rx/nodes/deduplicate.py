"""DEDUPLICATE: drops what was seen before.  Feature: ENG-02."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import Annotated, Any, Final

from pydantic import Field

from yukta_rx.errors import BadInputError, UnserialisablePayloadError
from yukta_rx.model.codec import canonical
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

_LONG: Final = 64
"""A longer key is remembered by its hash, so that memory depends on the window alone."""


class DeduplicateConfig(PluginConfig):
    """Options of DEDUPLICATE."""

    key: Any = Field("${id}", description="What makes two messages the same; any JSON value.")
    window: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = Field(
        10_000, description="How many different keys are remembered: those seen last."
    )


def _open(cfg: DeduplicateConfig | None, ctx: NodeContext) -> None:
    # Key to the id of the message that brought it, the one not seen for the longest time first.
    ctx.state = OrderedDict()


@processor(
    "DEDUPLICATE",
    config=DeduplicateConfig,
    blocking=False,
    pure=True,
    stateful=True,
    open=_open,
    example={"key": "${payload.orderId:json=null}", "window": 100_000},
)
def deduplicate(msg: Message, cfg: DeduplicateConfig, ctx: NodeContext) -> Message | None:
    """Drop a message whose key is among the last `window` different keys that this node saw.

    Keys are compared as JSON values: 1, 1.0, true and "1" are four of them, and the order of an
    object's members does not matter. A repeat renews the place of its key: what goes when the
    window is full is the key that was not seen for the longest time. What is dropped counts as
    filtered, and as `duplicate` among the node's own counts. Each run begins with an empty window.

    Raises:
        BadInputError: the key is a value that has no JSON form.
    """
    seen: OrderedDict[str | bytes, str] = ctx.state
    # The default of an option is no expression to the engine, so `${id}` is read here.
    key = _comparable(cfg.key if "key" in cfg.model_fields_set else msg.id)
    if key not in seen:
        seen[key] = msg.id
        while len(seen) > cfg.window:
            seen.popitem(last=False)
        return msg
    seen.move_to_end(key)
    if ctx.attempt > 1 and seen[key] == msg.id:
        # The message that brought the key comes again because a later step of its call failed.
        return msg
    ctx.count("duplicate")
    return None


def _comparable(key: Any) -> str | bytes:
    """Return a key as something small that equals only itself; a text differs from its JSON."""
    if type(key) is str and len(key) <= _LONG:
        return key
    try:
        data = canonical(key)
    except UnserialisablePayloadError as error:
        raise BadInputError(f"option `key`: {error.detail}", option="key") from error
    return data if len(data) <= _LONG else blake2b(data, digest_size=32).digest()
