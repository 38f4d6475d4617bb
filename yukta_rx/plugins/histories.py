"""Histories: conversations that go on while their store is away.  Feature: DUR-04."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from yukta_rx.durability.stores.histories import Turn
from yukta_rx.errors import StaleLeaderError, StoreUnavailableError, YuktaError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from yukta_rx.durability.stores.effects import EffectKey
    from yukta_rx.durability.stores.histories import HistoryKey, HistoryStore
    from yukta_rx.streams.clock import LoopClock, Timer

log = logging.getLogger(__name__)

UNSAVED: Final = 10_000
"""Changes that wait for the store; one more fails."""

REMEMBERED: Final = 1000
"""Histories of which is remembered how they were, for when the store gives no answer."""

LONGEST_WAIT: Final = 30.0
"""Seconds between two tries to save."""

SWEEPS: Final = 10
"""A history is removed at most a tenth of its time too late."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A turn that is added, or None for a history that is cleared."""

    turn: Turn | None
    most: int
    since: datetime | None
    effect: EffectKey | None


class Histories:
    """The conversations of a server. Belongs to the loop.

    What cannot be saved waits, in order, and is tried again until it is; meanwhile the
    conversation goes on. What waits when the process is killed is lost.

    Args:
        store: where they are saved.
        clock: tells the time.
        ttl: time without a new turn after which a history is none; None for no limit.
        unsaved: changes that may wait for the store.
    """

    def __init__(
        self,
        store: HistoryStore,
        clock: LoopClock,
        ttl: timedelta | None = None,
        unsaved: int = UNSAVED,
    ) -> None:
        self.store = store
        self._clock = clock
        self._ttl = ttl
        self._unsaved: OrderedDict[HistoryKey, deque[_Change]] = OrderedDict()
        self._count = 0
        self._most = unsaved
        self._known: OrderedDict[HistoryKey, list[Turn]] = OrderedDict()
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)
        self._saving = False
        self._timer: Timer | None = None
        self._closed = asyncio.Event()

    @property
    def unsaved(self) -> int:
        """Changes that wait for the store."""
        return self._count

    def start(self) -> None:
        """Remove histories whose time is up, from now on; until `close`."""
        if self._ttl is not None:
            wait = max(1.0, min(3600.0, self._ttl.total_seconds() / SWEEPS))
            self._timer = self._clock.call_at(self._clock.now() + wait, self._due)

    async def load(self, key: HistoryKey, most: int) -> list[Turn]:
        """Return the newest turns, those that wait to be saved too.

        Raises:
            StoreUnavailableError: the store gives no answer, and nothing is remembered.
        """
        try:
            turns = list(await self.store.load(key, most, self._since()))
        except StoreUnavailableError as error:
            if key not in self._known:
                raise
            log.warning("history `%s` of %s goes on from memory: %s", key.key, key[0], error)
            turns = list(self._known[key])
        else:
            self._remember(key, turns)
        for change in self._unsaved.get(key, ()):
            turns = [] if change.turn is None else [*turns, change.turn]
        return turns[-most:]

    async def append(
        self, key: HistoryKey, role: str, text: str, most: int, effect: EffectKey | None
    ) -> None:
        """Add a turn; saved, or it waits to be.

        Raises:
            StoreUnavailableError: it cannot be saved, and too much waits already.
        """
        turn = Turn(role, text, self._clock.wall())
        await self._do(key, _Change(turn, most, self._since(), effect))

    async def clear(self, key: HistoryKey, effect: EffectKey | None) -> None:
        """Remove a history; see `append`."""
        await self._do(key, _Change(None, 0, None, effect))

    async def close(self) -> None:
        """Try once more to save what waits, and say what is lost."""
        if self._timer is not None:
            self._timer.cancel()
        self._closed.set()
        await self._tasks.ended()
        if self._count:
            told = "%d turns of %d histories could not be saved and are lost"
            log.error(told, self._count, len(self._unsaved))

    # -- saving

    def _since(self) -> datetime | None:
        return None if self._ttl is None else self._clock.wall() - self._ttl

    def _remember(self, key: HistoryKey, turns: list[Turn]) -> None:
        self._known[key] = turns
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    async def _do(self, key: HistoryKey, change: _Change) -> None:
        waiting = self._unsaved.get(key)
        if waiting is None:
            try:
                await self._save(key, change)
                return
            except StoreUnavailableError as error:
                log.warning("history `%s` of %s is not saved yet: %s", key.key, key[0], error)
                if self._count >= self._most:
                    raise
        # Something may have begun to wait meanwhile.
        waiting = self._unsaved.setdefault(key, deque())
        if change.effect is not None and any(one.effect == change.effect for one in waiting):
            return
        if self._count >= self._most:
            raise StoreUnavailableError(f"{self._most} turns wait to be saved; no more are taken")
        waiting.append(change)
        self._count += 1
        if not self._saving:
            self._saving = True
            self._tasks.spawn(self._save_all(), "yukta histories")

    async def _save(self, key: HistoryKey, change: _Change) -> None:
        if change.turn is None:
            await self.store.clear(key, change.effect)
        else:
            await self.store.append(key, change.turn, change.most, change.since, change.effect)

    async def _save_all(self) -> None:
        """Save what waits, with longer and longer breaks while that fails."""
        wait = 1.0
        try:
            while self._unsaved:
                last = self._closed.is_set()
                if not last:
                    await self._pause(wait)
                try:
                    await self._save_waiting()
                    wait = 1.0
                except StoreUnavailableError as error:
                    log.warning("%d turns wait to be saved: %s", self._count, error)
                    wait = min(LONGEST_WAIT, 2 * wait)
                    if last:
                        return
        except StaleLeaderError as error:
            log.error("%d turns are not saved: %s", self._count, error)
            self._unsaved.clear()
            self._count = 0
        finally:
            self._saving = False

    async def _pause(self, seconds: float) -> None:
        """Wait, or until this is closed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    async def _save_waiting(self) -> None:
        while self._unsaved:
            key, waiting = next(iter(self._unsaved.items()))
            await self._save(key, waiting[0])
            waiting.popleft()
            self._count -= 1
            if not waiting:
                del self._unsaved[key]

    # -- sweeping

    def _due(self) -> None:
        self._tasks.spawn(self._sweep(), "yukta sweep histories")

    async def _sweep(self) -> None:
        since = self._since()
        try:
            if since is not None:
                await self.store.sweep(since)
        except YuktaError as error:
            log.warning("histories whose time is up stay for now: %s", error)
        if not self._closed.is_set():
            self.start()
