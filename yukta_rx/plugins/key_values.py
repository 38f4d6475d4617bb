"""NodeKeyValues: the values of a session, as a plugin reads and changes them.  Feature: DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError, UnserialisablePayloadError
from yukta_rx.model import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.durability.stores.effects import EffectKey
    from yukta_rx.durability.stores.key_values import KeyValueStore
    from yukta_rx.model.message import Message

    EffectOf = Callable[[str, Message | None], EffectKey]

MAX_ENTRIES: Final = 10_000
"""Keys of a session unless a call says otherwise."""

LONGEST_KEY: Final = 500
"""Characters of a key."""

LARGEST_VALUE: Final = 1024 * 1024
"""Bytes of a value, in its JSON form."""


class NodeKeyValues:
    """What `ctx.kv` is: the values of the session, shared by its workflows and runs.

    Each change takes `once`, the name of what it is done for: repeated with the same name for the
    same message, in a second attempt or a resumed run, it changes nothing and returns what it
    returned before. Without a name every call counts. `message` names the message where the
    context does not know it, as for `ctx.once`; `max_entries` is how many keys the session may
    have for a new one to be taken.

    Raises:
        BadInputError: a key is empty or too long, a value is too large or no JSON value, or what
            should be counted is no whole number.
        KeyValueFullError: there is no room for a new key.
        StoreUnavailableError: the store gives no answer; nothing was changed.
    """

    __slots__ = ("_effect_of", "_session_id", "_store")

    def __init__(self, store: KeyValueStore, session_id: str, effect_of: EffectOf) -> None:
        self._store = store
        self._session_id = session_id
        self._effect_of = effect_of

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a copy of what stands under a key, `default` if nothing does."""
        found = await self._store.get(self._session_id, _checked(key))
        return default if found is None else found.value

    async def put(
        self,
        key: str,
        value: Any,
        *,
        once: str = "",
        message: Message | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> None:
        """Put a value in the place of what stands under a key, if anything does."""
        effect = self._effect("put", _checked(key), once, message)
        _check_value(key, value)
        await self._store.put(self._session_id, key, value, cap=max_entries, effect=effect)

    async def incr(
        self,
        key: str,
        by: int = 1,
        *,
        once: str = "",
        message: Message | None = None,
        max_entries: int = MAX_ENTRIES,
    ) -> int:
        """Add to the whole number under a key, 0 if nothing is there, and return the sum.

        One step: however many do so at the same time, none is lost.
        """
        effect = self._effect("incr", _checked(key), once, message)
        return await self._store.incr(self._session_id, key, by, cap=max_entries, effect=effect)

    async def remove(
        self, key: str, default: Any = None, *, once: str = "", message: Message | None = None
    ) -> Any:
        """Remove a key and return what stood there, `default` if nothing did."""
        effect = self._effect("remove", _checked(key), once, message)
        found = await self._store.remove(self._session_id, key, effect=effect)
        return default if found is None else found.value

    def _effect(self, op: str, key: str, once: str, message: Message | None) -> EffectKey | None:
        # With the key, so that one name for two keys is two effects.
        return self._effect_of(f"{op} {once} {key}", message) if once else None


def _checked(key: str) -> str:
    if not isinstance(key, str):
        raise BadInputError(f"a key is text, not {type(key).__name__}")
    if not 0 < len(key) <= LONGEST_KEY:
        raise BadInputError(f"a key has 1 to {LONGEST_KEY} characters, not {len(key)}")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadInputError(f"the key {key[:40]!r} holds half of a surrogate pair") from None
    return key


def _check_value(key: str, value: Any) -> None:
    try:
        size = len(codec.encode(value))
    except UnserialisablePayloadError as error:
        raise BadInputError(f"the value for `{key}` is no JSON value: {error.detail}") from error
    if size > LARGEST_VALUE:
        raise BadInputError(f"the value for `{key}` has {size} bytes; {LARGEST_VALUE} are the most")
