"""KV_STORE: named values of the session that outlive its runs.  Feature: DUR-04."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from yukta_rx.model.message import copy_payload
from yukta_rx.nodes._edit import Edit
from yukta_rx.nodes._types import Path
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

_ONLY = {"value": "put", "by": "incr"}
"""Options that go with one operation."""


class KvStoreConfig(PluginConfig):
    """Options of KV_STORE."""

    op: Literal["get", "put", "incr", "remove"] = Field(description="What is done.")
    key: Annotated[str, Field(strict=True, min_length=1, max_length=500)] = Field(
        description="Which value; the keys of a session are shared by all its workflows and runs."
    )
    value: Any = Field(None, description="put: any JSON value, up to 1 MiB.")
    by: Annotated[int, Field(strict=True)] = Field(
        1, description="incr: what is added to the whole number under the key."
    )
    max_entries: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] = Field(
        10_000, description="Keys that the session may have; a further one is refused."
    )
    target: Path = Field("value", description="Where in the payload the outcome goes.")

    @model_validator(mode="after")
    def _go_together(self) -> KvStoreConfig:
        if self.op == "put" and "value" not in self.model_fields_set:
            raise ValueError("op put needs a `value`; null is one")
        for name, op in _ONLY.items():
            if name in self.model_fields_set and self.op != op:
                raise ValueError(f"`{name}` goes with op {op}, not with {self.op}")
        return self


@processor(
    "KV_STORE",
    config=KvStoreConfig,
    pure=True,
    exact=True,
    stateful=True,
    independent=True,
    example={"op": "incr", "key": "orders/${payload.customer}", "target": "orderNumber"},
)
async def kv_store(msg: Message, cfg: KvStoreConfig, ctx: NodeContext) -> Message:
    """Get, put, count or remove a value of the session, and set the outcome in the payload.

    The outcome is what stands under the key (get, put), the sum (incr) or what stood there
    (remove); null where nothing does or did. `incr` starts at 0 and is one step, however many
    count at the same time. A message that comes again, in another attempt, a restart from this
    node or a resumed run, changes nothing again and has the same outcome.

    Raises:
        BadInputError: no whole number stands there, or the sum has more than 64 bits; the value is
            too large; or `target` lies inside something that is no object or array.
        KeyValueFullError: the key is new, and the session has `maxEntries`.
        StoreUnavailableError: the store gives no answer.
    """
    edit = Edit(msg.payload)
    # First, so that nothing is changed for a payload that has no such place.
    edit.set(cfg.target, None)
    edit.set(cfg.target, await _done(msg, cfg, ctx))
    return msg.replace(payload=edit.root)


async def _done(msg: Message, cfg: KvStoreConfig, ctx: NodeContext) -> Any:
    if cfg.op == "get":
        return await ctx.kv.get(cfg.key)
    if cfg.op == "remove":
        return await ctx.kv.remove(cfg.key, once="op", message=msg)
    most = cfg.max_entries
    if cfg.op == "incr":
        return await ctx.kv.incr(cfg.key, cfg.by, once="op", message=msg, max_entries=most)
    await ctx.kv.put(cfg.key, cfg.value, once="op", message=msg, max_entries=most)
    # The configuration serves every message, and a later node may change what it gets.
    return copy_payload(cfg.value)
