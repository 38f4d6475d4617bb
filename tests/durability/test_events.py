"""Events beyond the process: each backend keeps its guarantees; the suite notices who does not."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.catching import broken_guarantees
from tests.contract.events import EventContract
from yukta_rx.durability.file.events import FileEventStore
from yukta_rx.durability.memory.events import MemoryEventStore
from yukta_rx.durability.stores.events import Epoch, EventSpan, StoredEvent, known_epochs
from yukta_rx.errors import BadRequestError
from yukta_rx.model.event_lines import decode_event
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.events import EventStore

pytestmark = pytest.mark.feature("OBS-01")

POOL = BlockingPool(2)


class TestEvents(EventContract):
    @pytest.fixture(params=["memory", "small files", "tiny files"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[EventStore]:
        if request.param == "memory":
            yield MemoryEventStore()
            return
        segment = 4000 if request.param == "small files" else 1
        async with FileEventStore(tmp_path / "events", POOL.call, segment=segment) as opened:
            yield opened


class Inclusive(MemoryEventStore):
    """E1: gives the last of a page again."""

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        return await super().read(max(0, after - 1) if limit < 100 else after, limit)


class Late(MemoryEventStore):
    """E2: says where it ends only when it is asked for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    async def span(self) -> EventSpan:
        span = await super().span()
        if span.newest == 1 and len(self._lines) == 1 and 1 not in self.asked:
            self.asked.add(1)
            return span._replace(newest=0, oldest=1)
        return span


class Eager(MemoryEventStore):
    """E3: keeps the newest form of an event."""

    async def append(self, events: Sequence[StoredEvent]) -> None:
        while events and self._seqs and self._seqs[-1] >= events[0].seq:
            for column in (self._seqs, self._times, self._lines):
                column.pop()
            self._newest = self._seqs[-1] if self._seqs else 0
        await super().append(events)


class Renaming(MemoryEventStore):
    """E4: lets an epoch begin again."""

    async def begin(self, epoch: str) -> EventSpan:
        self._epochs = tuple(known for known in self._epochs if known.name != epoch)
        return await super().begin(epoch)


class Sweeping(MemoryEventStore):
    """E5: removes one more than it may."""

    async def trim(self, retained: int, before: Any = None) -> int:
        return await super().trim(retained - 1 if retained == 30 else retained + 1, before)


class Rewinding(MemoryEventStore):
    """E5: begins to count anew when nothing is left."""

    async def trim(self, retained: int, before: Any = None) -> int:
        oldest = await super().trim(retained, before)
        if self._newest == 200 and not self._lines:
            self._newest = 0
        return oldest


class Vague(MemoryEventStore):
    """E6: takes an empty store for one that gives no answer."""

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        if not self._newest and not self._epochs:
            raise OSError("no answer")
        return await super().read(after, limit)


class Rough(MemoryEventStore):
    """E7: forgets the fraction of seconds."""

    async def read(self, after: int, limit: int = 100) -> Sequence[StoredEvent]:
        import msgspec

        return [
            StoredEvent(seq, msgspec.structs.replace(event, time=event.time.replace(microsecond=0)))
            for seq, event in await super().read(after, limit)
        ]


class Halfway(MemoryEventStore):
    """E8: keeps what came before the event that it refuses."""

    async def append(self, events: Sequence[StoredEvent]) -> None:
        for one in events:
            await super().append([one])


@pytest.mark.parametrize(
    ("store", "guarantee"),
    [
        (Inclusive, {"E1"}),
        (Late, {"E2"}),
        (Eager, {"E3"}),
        (Renaming, {"E4"}),
        (Sweeping, {"E5"}),
        (Rewinding, {"E5"}),
        (Vague, {"E6"}),
        (Rough, {"E7"}),
        (Halfway, {"E8"}),
        (MemoryEventStore, set()),
    ],
    ids=["E1", "E2", "E3", "E4", "E5", "E5 numbers", "E6", "E7", "E8", "none"],
)
def test_suite_catches(store: Any, guarantee: set[str]) -> None:
    assert broken_guarantees(EventContract, store) == guarantee


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 21))
def test_an_epoch_is_known_while_something_behind_it_is_kept(ends: list[int], oldest: int) -> None:
    epochs = [Epoch(f"e{number}", behind) for number, behind in enumerate(sorted(ends))]

    kept = known_epochs(epochs, oldest)

    assert kept == tuple(epochs[len(epochs) - len(kept) :])
    assert epochs[-1] in kept
    for epoch, following in pairwise(epochs):
        assert (epoch in kept) == (following.behind >= oldest - 1)


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"type":"x","time":"never"}', b"x"])
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode_event(line)

    assert refused.value.code == "malformed_json"
