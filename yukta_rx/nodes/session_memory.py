"""SESSION_MEMORY: conversations of the session that outlive its runs.  Feature: DUR-04."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from yukta_rx.nodes._edit import Edit
from yukta_rx.plugins.contract import Message, NodeContext, PluginConfig, processor

TARGET: Final = "history"
"""Where in the payload the turns go."""

_LARGEST: Final = 1024 * 1024


class SessionMemoryConfig(PluginConfig):
    """Options of SESSION_MEMORY."""

    op: Literal["load", "append", "clear"] = Field(description="What is done.")
    session_key: Annotated[str, Field(strict=True, min_length=1, max_length=500)] = Field(
        description="Which conversation of the session; shared by all its workflows and runs."
    )
    max_turns: Annotated[int, Field(strict=True, ge=1, le=1000)] = Field(
        50, description="load: the newest that are given. append: the newest that are kept."
    )
    role: Annotated[str, Field(strict=True, min_length=1, max_length=100)] = Field(
        "user", description="append: who speaks."
    )
    text: Annotated[str, Field(strict=True, max_length=_LARGEST)] | None = Field(
        None, description="append: what is said."
    )

    @model_validator(mode="after")
    def _go_together(self) -> SessionMemoryConfig:
        if self.op == "append":
            if self.text is None:
                raise ValueError("op append needs a `text`")
            return self
        for name in ("role", "text"):
            if name in self.model_fields_set:
                raise ValueError(f"`{name}` goes with op append, not with {self.op}")
        return self


@processor(
    "SESSION_MEMORY",
    config=SessionMemoryConfig,
    pure=True,
    exact=True,
    stateful=True,
    independent=True,
    example={
        "op": "append",
        "sessionKey": "chat/${payload.user}",
        "role": "user",
        "text": "${payload.question}",
        "maxTurns": 20,
    },
)
async def session_memory(msg: Message, cfg: SessionMemoryConfig, ctx: NodeContext) -> Message:
    """Load, extend or clear a conversation, and set its turns as `history` in the payload.

    A turn is `{role, content}`, as chat endpoints take it; the oldest comes first. A turn that
    cannot be saved is kept and tried again, and the conversation goes on. A conversation without a
    new turn for `yukta.session-memory.ttl` is none. A message that comes again, in another attempt
    or a resumed run, adds its turn only once.

    Raises:
        BadInputError: the payload is no object.
        StoreUnavailableError: the store gives no answer, and what it held is not known.
    """
    edit = Edit(msg.payload)
    # First, so that nothing is said for a payload that has no such place.
    edit.set(TARGET, [])
    edit.set(TARGET, await _turns(msg, cfg, ctx))
    return msg.replace(payload=edit.root)


async def _turns(msg: Message, cfg: SessionMemoryConfig, ctx: NodeContext) -> list[dict[str, Any]]:
    key, most = cfg.session_key, cfg.max_turns
    if cfg.op == "clear":
        await ctx.histories.clear(key, once="op", message=msg)
        return []
    if cfg.text is None:
        turns = await ctx.histories.load(key, most)
    else:
        turns = await ctx.histories.append(
            key, cfg.role, cfg.text, max_turns=most, once="op", message=msg
        )
    return [{"role": turn.role, "content": turn.text} for turn in turns]
