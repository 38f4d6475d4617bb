"""DEDUPLICATE: drops what was seen before.  Feature: ENG-02."""

from __future__ import annotations

from collections import Counter, OrderedDict
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


class _Seen:
    """The window, and what was let through before the run went on and has not come again.

    Attributes:
        keys: key to the id of the message that brought it, the one not seen for the longest time
            first.
        taken: keys that such a message brought, with the number of these.
    """

    __slots__ = ("_brought", "keys", "taken")

    def __init__(self) -> None:
        self.keys: OrderedDict[str | bytes, str] = OrderedDict()
        self.taken: Counter[str | bytes] = Counter()
        self._brought: dict[str, list[str | bytes]] = {}
        """The same keys, by these messages."""

    def see(self, key: str | bytes, message_id: str, window: int | None) -> None:
        """A message has this key; the window is as wide as before if that is not known."""
        if key in self.keys:
            self.keys.move_to_end(key)
            return
        self.keys[key] = message_id
        while window is not None and len(self.keys) > window:
            self.keys.popitem(last=False)

    def let_through(self, key: str | bytes, message_id: str) -> None:
        """A message with this key was let through before the run went on."""
        self.taken[key] += 1
        self._brought.setdefault(message_id, []).append(key)

    def again(self, key: str | bytes | None, message_id: str) -> str | bytes | None:
        """A message comes that was finished before: its key, if that is known."""
        brought = self._brought.get(message_id)
        if not brought:
            return key
        found = brought.pop(brought.index(key) if key in brought else 0)
        if not brought:
            del self._brought[message_id]
        self.taken[found] -= 1
        if not self.taken[found]:
            del self.taken[found]
        return found


def _open(cfg: DeduplicateConfig | None, ctx: NodeContext) -> None:
    ctx.state = _Seen()


def _recall(msg: Message, cfg: DeduplicateConfig | None, ctx: NodeContext, emitted: bool) -> None:
    """Make the window again: what was let through stays so, in whatever order it comes now."""
    seen: _Seen = ctx.state
    key = None if cfg is None else _key_of(msg, cfg)
    if emitted:
        if key is not None:
            seen.let_through(key, msg.id)
        return
    key = seen.again(key, msg.id)
    if key is not None:
        seen.see(key, msg.id, None if cfg is None else cfg.window)


@processor(
    "DEDUPLICATE",
    config=DeduplicateConfig,
    blocking=False,
    pure=True,
    stateful=True,
    open=_open,
    recall=_recall,
    example={"key": "${payload.orderId:json=null}", "window": 100_000},
)
def deduplicate(msg: Message, cfg: DeduplicateConfig, ctx: NodeContext) -> Message | None:
    """Drop a message whose key is among the last `window` different keys that this node saw.

    Keys are compared as JSON values: 1, 1.0, true and "1" are four of them, and the order of an
    object's members does not matter. A repeat renews the place of its key: what goes when the
    window is full is the key that was not seen for the longest time. What is dropped counts as
    filtered, and as `duplicate` among the node's own counts. Each run begins with an empty window;
    one that goes on after a crash keeps to what it let through before.

    Raises:
        BadInputError: the key is a value that has no JSON form.
    """
    seen: _Seen = ctx.state
    key = _key_of(msg, cfg)
    if key not in seen.keys:
        taken = key in seen.taken
        seen.see(key, "" if taken else msg.id, cfg.window)
        if not taken:
            return msg
    else:
        seen.keys.move_to_end(key)
    if ctx.attempt > 1 and seen.keys[key] == msg.id:
        # The message that brought the key comes again because a later step of its call failed.
        return msg
    ctx.count("duplicate")
    return None


def _key_of(msg: Message, cfg: DeduplicateConfig) -> str | bytes:
    # The default of an option is no expression to the engine, so `${id}` is read here.
    return _comparable(cfg.key if "key" in cfg.model_fields_set else msg.id)


def _comparable(key: Any) -> str | bytes:
    """Return a key as something small that equals only itself; a text differs from its JSON."""
    if type(key) is str and len(key) <= _LONG:
        return key
    try:
        data = canonical(key)
    except UnserialisablePayloadError as error:
        raise BadInputError(f"option `key`: {error.detail}", option="key") from error
    return data if len(data) <= _LONG else blake2b(data, digest_size=32).digest()
