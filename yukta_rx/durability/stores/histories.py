"""HistoryStore: what was said in conversations, a row per turn.  Feature: DUR-04."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.durability.stores.effects import EffectKey


class Turn(msgspec.Struct, frozen=True):
    """What somebody said.

    Attributes:
        role: who: `user`, `assistant` and so on.
        text: what.
        at: when, aware.
    """

    role: str
    text: str
    at: datetime


class HistoryKey(NamedTuple):
    """A conversation of a session."""

    session_id: str
    key: str


class HistoryStore(Protocol):
    """Keeps the newest turns of conversations.

    Guarantees:
        H1. When `append` has returned, `load` shows the turn as it was, behind those appended
            before; on a durable store it also survives the process.
        H2. `load` gives the newest `most` turns, the oldest of them first.
        H3. `append` leaves the newest `most` turns and removes the others.
        H4. A history without a turn after `since` is none: `load` gives nothing of it, and
            `append` begins anew.
        H5. `sweep` removes the histories whose newest turn is not after a time, and no others.
        H6. An `append` with an effect that is known changes nothing; turn and effect are one
            write. `forget` removes the effects of a lineage, and nothing else.
        H7. `clear` removes one history, `drop` those of a session, and neither anything else.
        H8. A failure raises, and then nothing was changed; no answer is never taken for an empty
            history.

    Effects may have a bound, as those of an `EffectStore`.

    Attributes:
        durable: whether what was appended outlives the process.
    """

    durable: bool

    @property
    def kept(self) -> int:
        """Histories of all sessions."""

    @property
    def dropped(self) -> int:
        """Effects that were forgotten for want of room, since the start."""

    async def load(
        self, key: HistoryKey, most: int, since: datetime | None = None
    ) -> Sequence[Turn]:
        """The newest turns.

        Args:
            key: the history.
            most: so many.
            since: what has no turn after this has none; None for no such limit.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def append(
        self,
        key: HistoryKey,
        turn: Turn,
        most: int,
        since: datetime | None = None,
        effect: EffectKey | None = None,
    ) -> None:
        """Add a turn; see `load`.

        Raises:
            StoreUnavailableError: the store gives no answer.
        """

    async def clear(self, key: HistoryKey, effect: EffectKey | None = None) -> None:
        """Remove a history; with an effect that is known, nothing."""

    async def sweep(self, until: datetime) -> int:
        """Remove every history whose newest turn is not after `until`; how many went."""

    async def drop(self, session_id: str) -> None:
        """Remove every history of a session; for when the session goes."""

    async def forget(self, *lineages: str) -> None:
        """Remove the effects of some lineages; the turns stay."""
