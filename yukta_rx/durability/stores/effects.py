"""EffectStore: what was done outside for a message, so that no repeat does it again.

Feature: DUR-02.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of one result, in its JSON form."""


class EffectKey(NamedTuple):
    """What an effect belongs to: the same again when a message is worked on again.

    Attributes:
        lineage: what the message ids of the run are derived from.
        node_id: the node.
        message_id: the message.
        name: which effect of that message it is.
    """

    lineage: str
    node_id: str
    message_id: str
    name: str


class EffectStore(Protocol):
    """Keeps what effects gave, as JSON text, byte for byte.

    Guarantees:
        E1. When `record` has returned, `find` gives the same bytes; on a durable store they also
            survive the process.
        E2. Of all records of one key, also at the same time, one stands, and each call returns it.
        E3. Two keys that differ in any part are two effects.
        E4. `forget` removes everything of a lineage, and nothing else.
        E5. A failure raises, and then nothing was recorded; no answer is never taken for "not
            done".

    A backend may have a bound beyond which the oldest effects of the lineage that has most are
    forgotten; it counts them in `dropped`.

    Attributes:
        durable: whether what was recorded outlives the process.
        kept: effects that are kept.
        dropped: effects that were forgotten for want of room.
    """

    durable: bool

    @property
    def kept(self) -> int:
        """Effects that are kept."""

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room, since the start."""

    async def find(self, key: EffectKey) -> bytes | None:
        """What was recorded, None if nothing was.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def record(self, key: EffectKey, result: bytes) -> bytes:
        """Record what an effect gave, unless it is recorded; what stands.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def forget(self, *lineages: str) -> None:
        """Remove all effects of some lineages."""
