"""Shelf: what is kept of runs, for a while after they ended, oldest use first.

Everything is in the order in which it will go, so letting go never searches.

Features: OBS-01, OBS-02, OBS-03.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
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

    Those of runs that other runs started, the children, go with their parent, and have room of
    their own: however many there are, no other run goes for them.

    Args:
        clock: tells the time.
        ttl: seconds that an ended one is kept.
        capacity: how many are kept in all, and how many children beside them; live ones are never
            let go for it.
        gone: called with each that is let go.
        renew: whether a use begins the time anew.

    Attributes:
        on_crowded: told of each child that is let go since there are too many of them.
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
        self._ended_children: OrderedDict[str, tuple[float, V]] = OrderedDict()
        self._parents: dict[str, str] = {}
        """Of the children that are kept."""
        self._children: dict[str, dict[str, None]] = {}
        """The same the other way round."""
        self._timer: Timer | None = None
        self.on_crowded: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._live) + len(self._ended) + len(self._ended_children)

    def __contains__(self, key: str) -> bool:
        return key in self._live or key in self._of(key)

    @property
    def live(self) -> dict[str, V]:
        """Those of runs that go on."""
        return self._live

    def put(self, key: str, value: V, parent: str | None = None) -> None:
        """Keep a value while its run goes on; `parent` is the run that started that, if one did."""
        self._live[key] = value
        if parent is not None and key not in self._parents:
            self._parents[key] = parent
            self._children.setdefault(parent, {})[key] = None
        self._make_room(key)

    def get(self, key: str) -> V | None:
        """Return what is kept under a key; with `renew` that is a use."""
        value = self._live.get(key)
        if value is None and (kept := self._of(key).get(key)) is not None:
            value = kept[1]
            if self._renew:
                self._keep_on(key, value)
        return value

    def retire(self, key: str) -> None:
        """The run ended: from now on its value may go. Doing so twice is no error."""
        value = self._live.pop(key, None)
        if value is not None:
            self._keep_on(key, value)
            self._make_room(key)

    def forget(self, key: str) -> None:
        """Let go a value at once, if it is there, and those of its children that nobody uses."""
        value = self._live.pop(key, None)
        if value is None and (kept := self._of(key).pop(key, None)) is not None:
            value = kept[1]
        if value is None:
            return
        self._unlink(key)
        self._gone(value)
        for child in self._children.pop(key, ()):
            ended = self._ended_children.get(child)
            if ended is not None and not ended[1].in_use:
                self.forget(child)

    def drop_oldest(self) -> bool:
        """Let go the ended value that was used least lately; False if there is none to go.

        As long as there are children it is one of them.
        """
        return self._drop(self._ended_children) or self._drop(self._ended)

    def values(self) -> Iterator[V]:
        """All values, in no order."""
        yield from self._live.values()
        for ended in (self._ended, self._ended_children):
            for _, value in ended.values():
                yield value

    def close(self) -> None:
        """Look at the clock no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _of(self, key: str) -> OrderedDict[str, tuple[float, V]]:
        """Where a value is once its run has ended."""
        return self._ended_children if key in self._parents else self._ended

    def _unlink(self, key: str) -> None:
        parent = self._parents.pop(key, None)
        if parent is not None and (siblings := self._children.get(parent)) is not None:
            siblings.pop(key, None)
            if not siblings:
                del self._children[parent]

    def _drop(self, ended: OrderedDict[str, tuple[float, V]]) -> bool:
        for _ in range(len(ended)):
            key = next(iter(ended))
            value = ended[key][1]
            if not value.in_use:
                self.forget(key)
                return True
            self._keep_on(key, value)
        return False

    def _keep_on(self, key: str, value: V) -> None:
        ended, due = self._of(key), self._clock.now() + self._ttl
        ended[key] = due, value
        ended.move_to_end(key)
        if self._timer is None:
            self._timer = self._clock.call_at(due, self._sweep)

    def _make_room(self, key: str) -> None:
        """Let go of what is too much beside a value, among its like."""
        if len(self._live) + len(self._ended) + len(self._ended_children) <= self._capacity:
            # So there are not too many of either, as nearly always.
            return
        if key in self._parents:
            while len(self._parents) > self._capacity and self._drop(self._ended_children):
                self.on_crowded()
            return
        while len(self) - len(self._parents) > self._capacity and self._drop(self._ended):
            pass

    def _sweep(self) -> None:
        self._timer = None
        now, next_due = self._clock.now(), inf
        for ended in (self._ended_children, self._ended):
            while ended:
                key, (due, value) = next(iter(ended.items()))
                if due > now:
                    next_due = min(due, next_due)
                    break
                if value.in_use:
                    self._keep_on(key, value)
                else:
                    self.forget(key)
        if next_due < inf:
            self.close()
            self._timer = self._clock.call_at(next_due, self._sweep)
