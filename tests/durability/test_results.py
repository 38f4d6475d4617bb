"""Results beyond the process: each backend keeps its guarantees; the suite notices who does not."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.catching import broken_guarantees
from tests.contract.results import METERS, NOW, ResultContract
from yukta_rx.durability.file._segmented_log import SEGMENT
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.results import FileResultStore
from yukta_rx.durability.memory.results import MemoryResultStore
from yukta_rx.durability.stores.results import StoredResults, results_to_drop
from yukta_rx.errors import BadRequestError
from yukta_rx.model.result_lines import decode_result
from yukta_rx.streams.pool import BlockingPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.results import ResultStore

pytestmark = pytest.mark.feature("OBS-03")


POOL = BlockingPool(2)


class TestResults(ResultContract):
    @pytest.fixture(params=["memory", "file", "tiny files", "blobs"])
    async def store(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[ResultStore]:
        if request.param == "memory":
            yield MemoryResultStore(METERS)
            return
        options: Any = {"segment": SEGMENT if request.param == "file" else 1, "meters": METERS}
        if request.param == "blobs":
            blobs = FileBlobStore(tmp_path / "blobs", POOL.call)
            options |= {"blobs": blobs, "claim_bytes": 1}
        async with FileResultStore(tmp_path / "results", POOL.call, **options) as opened:
            yield opened


class Counting(MemoryResultStore):
    def __init__(self) -> None:
        super().__init__(METERS)


class Inclusive(Counting):
    """R1: gives the last of a page again."""

    async def read(self, execution_id: str, after: int = 0, limit: int = 100) -> Any:
        return await super().read(execution_id, max(0, after - 1) if limit < 100 else after, limit)


class Late(Counting):
    """R2: shows the end of a run only when it is asked for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    async def read(self, execution_id: str, after: int = 0, limit: int = 100) -> Any:
        part = await super().read(execution_id, after, limit)
        if part is not None and len(part.items) == 2 and execution_id not in self.asked:
            self.asked.add(execution_id)
            if part.ended:
                return StoredResults(part.items, False)
        return part


class Eager(Counting):
    """R3: keeps the newest form of a result."""

    def _write(self, execution_id: str, results: Sequence[Any]) -> Any:
        kept = self._runs.get(execution_id)
        if kept is not None and kept.ended_at is None and results:
            while kept.cursors and kept.cursors[-1] >= results[0].cursor:
                kept.cursors.pop()
                kept.lines.pop()
        return super()._write(execution_id, results)


class Open(Counting):
    """R4: a closed run takes more."""

    def _write(self, execution_id: str, results: Sequence[Any]) -> Any:
        kept = self._runs.get(execution_id)
        ended_at = None if kept is None else kept.ended_at
        if kept is not None:
            kept.ended_at = None
        kept = super()._write(execution_id, results)
        kept.ended_at = ended_at
        return kept


class Sweeping(Counting):
    """R5: removes live runs too."""

    async def trim(
        self, retained: int, ended_before: Any = None, children: int = 0
    ) -> Sequence[str]:
        dropped = await super().trim(retained, ended_before, children)
        if not retained:
            self._runs.clear()
        return dropped


class Vague(Counting):
    """R6: takes a run that it does not know for one without results."""

    async def read(self, execution_id: str, after: int = 0, limit: int = 100) -> Any:
        if execution_id == "nobody":
            return StoredResults((), False)
        return await super().read(execution_id, after, limit)


class Rough(Counting):
    """R7: forgets the fraction of seconds."""

    async def read(self, execution_id: str, after: int = 0, limit: int = 100) -> Any:
        part = await super().read(execution_id, after, limit)
        if part is None:
            return None
        import msgspec

        items = [
            msgspec.structs.replace(item, time=item.time.replace(microsecond=0))
            for item in part.items
        ]
        return StoredResults(tuple(items), part.ended)


class Halfway(Counting):
    """R8: keeps what came before the result that it refuses."""

    async def append(self, execution_id: str, results: Sequence[Any]) -> None:
        for one in results:
            self._write(execution_id, [one])


class Blunt(Counting):
    """R9: cuts away the one behind as well."""

    async def cut(self, execution_id: str, upto: int) -> int:
        gone = await super().cut(execution_id, upto)
        if gone:
            await super().cut(execution_id, upto + 1)
        return gone


class Brief(Counting):
    """R10: writes no more than two parts."""

    async def write(self, parts: Sequence[Any]) -> None:
        await super().write(parts[:2])


@pytest.mark.parametrize(
    ("store", "guarantee"),
    [
        (Inclusive, {"R1"}),
        (Late, {"R2"}),
        (Eager, {"R3"}),
        (Open, {"R4"}),
        (Sweeping, {"R5"}),
        (Vague, {"R6"}),
        (Rough, {"R7"}),
        (Halfway, {"R8"}),
        (Blunt, {"R9"}),
        (Brief, {"R10"}),
        (Counting, set()),
    ],
    ids=["R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "none"],
)
def test_suite_catches(store: Any, guarantee: set[str]) -> None:
    assert broken_guarantees(ResultContract, store) == guarantee


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 20)),
    st.integers(0, 5),
    st.none() | st.integers(0, 20),
)
def test_the_runs_that_ended_last_stay_unless_they_are_too_old(
    ended: dict[str, int], retained: int, before: int | None
) -> None:
    runs = [(name, NOW + timedelta(hours=hour), None) for name, hour in ended.items()]
    limit = None if before is None else NOW + timedelta(hours=before)

    dropped = set(results_to_drop(runs, retained, limit, 0).names)

    kept = {name: hour for name, hour in ended.items() if name not in dropped}
    assert len(kept) <= retained
    assert before is None or all(hour >= before for hour in kept.values())
    young = [name for name, hour in ended.items() if before is None or hour >= before]
    assert len(kept) == min(retained, len(young))
    assert all(ended[gone] <= min(kept.values()) for gone in dropped & set(young) if kept)


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"cursor":1,"type":"NEVER"}', b"x"])
def test_what_is_no_result_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode_result(line)

    assert refused.value.code == "malformed_json"
