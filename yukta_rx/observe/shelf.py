"""Shelf: what is kept of runs, for a while after they ended, oldest use first.

Everything is in the order in which it will go, so letting go never searches.

Features: OBS-01, OBS-02, OBS-03.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from yukta_rx.streams.clock import Clock, Timer


class Shelved(Protocol):
    """What a shelf holds."""

    @property
    def in_use(self) -> bool:
        """Whether somebody reads it right now; then it stays a little longer."""


V = TypeVar("V", bound=Shelved)


class Shelf(Generic[V]):
    """Values by execution id: live ones stay, ended ones go after a time or when too many.

    Args:
        clock: tells the time.
        ttl: seconds that an ended one is kept.
        capacity: how many are kept in all; live ones are never let go for it.
        gone: called with each that is let go.
        renew: whether a use begins the time anew.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ttl: float,
        capacity: int,
        gone: Callable[[V], None],
        renew: bool = False,
    ) -> None:
        self._clock = clock
        self._ttl = ttl
        self._capacity = capacity
        self._gone = gone
        self._renew = renew
        self._live: dict[str, V] = {}
        self._ended: OrderedDict[str, tuple[float, V]] = OrderedDict()
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._live) + len(self._ended)

    def __contains__(self, key: str) -> bool:
        return key in self._live or key in self._ended

    @property
    def live(self) -> dict[str, V]:
        """Those of runs that go on."""
        return self._live

    def put(self, key: str, value: V) -> None:
        """Keep a value while its run goes on."""
        self._live[key] = value
        if len(self._live) + len(self._ended) > self._capacity:
            self._make_room()

    def get(self, key: str) -> V | None:
        """Return what is kept under a key; with `renew` that is a use."""
        value = self._live.get(key)
        if value is None and key in self._ended:
            value = self._ended[key][1]
            if self._renew:
                self._keep_on(key, value)
        return value

    def retire(self, key: str) -> None:
        """The run ended: from now on its value may go. Doing so twice is no error."""
        value = self._live.pop(key, None)
        if value is not None:
            self._keep_on(key, value)
            if len(self._live) + len(self._ended) > self._capacity:
                self._make_room()

    def forget(self, key: str) -> None:
        """Let go a value at once, if it is there."""
        value = self._live.pop(key, None)
        if value is None and key in self._ended:
            value = self._ended.pop(key)[1]
        if value is not None:
            self._gone(value)

    def drop_oldest(self) -> bool:
        """Let go the ended value that was used least lately; False if there is none to go."""
        for _ in range(len(self._ended)):
            key = next(iter(self._ended))
            value = self._ended[key][1]
            if not value.in_use:
                self.forget(key)
                return True
            self._keep_on(key, value)
        return False

    def values(self) -> Iterator[V]:
        """All values, in no order."""
        yield from self._live.values()
        for _, value in self._ended.values():
            yield value

    def close(self) -> None:
        """Look at the clock no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _keep_on(self, key: str, value: V) -> None:
        self._ended[key] = self._clock.now() + self._ttl, value
        self._ended.move_to_end(key)
        if self._timer is None:
            self._timer = self._clock.call_at(self._ended[key][0], self._sweep)

    def _make_room(self) -> None:
        while len(self) > self._capacity and self.drop_oldest():
            pass

    def _sweep(self) -> None:
        self._timer = None
        now = self._clock.now()
        while self._ended:
            key, (due, value) = next(iter(self._ended.items()))
            if due > now:
                self._timer = self._clock.call_at(due, self._sweep)
                return
            if value.in_use:
                self._keep_on(key, value)
            else:
                self.forget(key)
