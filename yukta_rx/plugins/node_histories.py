"""NodeHistories: the conversations of a session, as a plugin reads and extends them.

Feature: DUR-04.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.histories import HistoryKey
from yukta_rx.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.durability.stores.effects import EffectKey
    from yukta_rx.durability.stores.histories import Turn
    from yukta_rx.model.message import Message
    from yukta_rx.plugins.histories import Histories

    EffectOf = Callable[[str, Message | None], EffectKey]

LONGEST_KEY: Final = 500
LONGEST_ROLE: Final = 100
LARGEST_TEXT: Final = 1024 * 1024
"""Characters of each."""


class NodeHistories:
    """What `ctx.histories` is: the conversations of the session, shared by its workflows and runs.

    A change takes `once` and `message` as those of `ctx.kv` do.

    Raises:
        BadInputError: a key or role is empty or too long, or a text too large.
        StoreUnavailableError: the store gives no answer, and what it held is not remembered; or it
            cannot be written, and too much waits to be.
    """

    __slots__ = ("_effect_of", "_histories", "_session_id")

    def __init__(self, histories: Histories, session_id: str, effect_of: EffectOf) -> None:
        self._histories = histories
        self._session_id = session_id
        self._effect_of = effect_of

    async def load(self, key: str, max_turns: int = 50) -> Sequence[Turn]:
        """Return the newest turns of a conversation, the oldest of them first."""
        return await self._histories.load(self._key(key), max_turns)

    async def append(
        self,
        key: str,
        role: str,
        text: str,
        *,
        max_turns: int = 50,
        once: str = "",
        message: Message | None = None,
    ) -> Sequence[Turn]:
        """Add a turn, keep the newest, and return them."""
        place = self._key(key)
        _check("role", role, LONGEST_ROLE)
        _check("text", text, LARGEST_TEXT)
        effect = self._effect("append", key, once, message)
        await self._histories.append(place, role, text, max_turns, effect)
        return await self._histories.load(place, max_turns)

    async def clear(self, key: str, *, once: str = "", message: Message | None = None) -> None:
        """Remove a conversation."""
        place = self._key(key)
        await self._histories.clear(place, self._effect("clear", key, once, message))

    def _key(self, key: str) -> HistoryKey:
        _check("key", key, LONGEST_KEY)
        return HistoryKey(self._session_id, key)

    def _effect(self, op: str, key: str, once: str, message: Message | None) -> EffectKey | None:
        return self._effect_of(f"{op} {once} {key}", message) if once else None


def _check(what: str, text: object, longest: int) -> None:
    if not isinstance(text, str):
        raise BadInputError(f"the {what} of a history is text, not {type(text).__name__}")
    if len(text) > longest or (not text and what != "text"):
        raise BadInputError(
            f"the {what} of a history has 1 to {longest} characters, not {len(text)}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"the {what} of a history holds half of a surrogate pair") from None
