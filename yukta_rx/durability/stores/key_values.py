"""KeyValueStore: named values of a session that outlive its runs.  Feature: DUR-04."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from yukta_rx.errors import BadInputError, KeyValueFullError

if TYPE_CHECKING:
    from yukta_rx.durability.stores.effects import EffectKey

SMALLEST: Final = -(2**63)
LARGEST: Final = 2**63 - 1
"""What `incr` can count to, in every backend."""


class Value(msgspec.Struct, frozen=True):
    """What stands under a key.

    Attributes:
        value: any JSON value, null too.
    """

    value: Any


class KeyValueStore(Protocol):
    """Keeps values by session and key.

    Guarantees:
        K1. A read shows a change as soon as that has returned, and a value comes back as it was,
            of the same types; what cannot be written exactly is refused and changes nothing. On a
            durable store a change also survives the process.
        K2. `incr` is one step: of any number at the same time none is lost, and each returns
            another number. A key that is not there counts from 0.
        K3. `incr` of what is no whole number, or beyond 64 bits, is refused and changes nothing.
        K4. A session never gets a further key while it has `cap` or more, also if many come at
            once; what is there can always be changed, and a removed key makes room.
        K5. Sessions know nothing of each other.
        K6. A change with an effect that is known changes nothing and returns what it returned
            then; change and effect are one write.
        K7. `forget` removes the effects of a lineage, `clear` the values of a session, and neither
            anything else.
        K8. A failure raises, and then nothing was changed; no answer is never taken for "there is
            none".

    Effects may have a bound, as those of an `EffectStore`; they are counted with the changes that
    they belong to, not with that store's.

    Attributes:
        durable: whether what was changed outlives the process.
    """

    durable: bool

    @property
    def kept(self) -> int:
        """Keys of all sessions."""

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room, since the start."""

    async def get(self, session_id: str, key: str) -> Value | None:
        """What stands under a key, None if nothing does.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def put(
        self, session_id: str, key: str, value: Any, *, cap: int, effect: EffectKey | None = None
    ) -> None:
        """Put a value in the place of what stands under a key, if anything does.

        Raises:
            UnserialisablePayloadError: the value cannot be written exactly; names the place.
            KeyValueFullError: the key is new, and the session has `cap`.
            StoreUnavailableError: the store gives no answer.
        """

    async def incr(
        self, session_id: str, key: str, by: int, *, cap: int, effect: EffectKey | None = None
    ) -> int:
        """Add to a whole number; the sum.

        Raises:
            BadInputError: no whole number stands there, or the sum has more than 64 bits.
            KeyValueFullError: the key is new, and the session has `cap`.
            StoreUnavailableError: the store gives no answer.
        """

    async def remove(
        self, session_id: str, key: str, *, effect: EffectKey | None = None
    ) -> Value | None:
        """Remove a key; what stood there, None if nothing did.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages; what they changed stays."""

    async def clear(self, session_id: str) -> None:
        """Remove every value of a session; for when the session goes."""


def summed(key: str, found: Value | None, by: int) -> int:
    """Return the new number under `key`.

    Raises:
        BadInputError: it would be none; says what stands there.
    """
    old = 0 if found is None else found.value
    if type(old) is not int:
        raise BadInputError(
            f"key `{key}` holds {type(old).__name__} and no whole number, so nothing can be added"
        )
    new = old + by
    if not SMALLEST <= new <= LARGEST:
        raise BadInputError(f"key `{key}`: {old} + {by} has more than 64 bits")
    return new


def full(key: str, cap: int) -> KeyValueFullError:
    """Return the error of a key that has no room."""
    return KeyValueFullError(
        f"no room for the new key `{key[:100]}`: the session has {cap} keys or more (maxEntries);"
        " remove some, or allow more",
        maxEntries=cap,
    )
