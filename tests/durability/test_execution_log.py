"""The execution log: every backend keeps its guarantees, and the suite notices who does not."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.contract.catching import broken_guarantees
from tests.contract.execution_log import (
    CHILDREN,
    COMPACT_AFTER,
    METERS,
    NOW,
    RETAINED,
    ExecutionLogContract,
)
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.execution_log import FileExecutionLogStore
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.durability.stores.execution_log import StreamMark, streams_to_drop
from yukta_rx.durability.stores.families import LetGo, Member, let_go
from yukta_rx.errors import BadRequestError, UnserialisablePayloadError
from yukta_rx.model.execution_log import (
    EVENTS,
    SCHEDULER,
    STREAMS,
    IdempotencyKey,
    RunStarted,
    decode_event,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.execution_log import ExecutionLogStore

pytestmark = pytest.mark.feature("DUR-01")


KEPT = (RETAINED, COMPACT_AFTER, CHILDREN, METERS)


def memory() -> ExecutionLogStore:
    return MemoryExecutionLogStore(*KEPT)


class TestExecutionLog(ExecutionLogContract):
    @pytest.fixture(params=["memory", "file", "file and blobs"])
    async def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
        if request.param == "memory":
            yield memory()
        else:
            apart: Any = {"children": CHILDREN, "meters": METERS}
            if request.param == "file and blobs":
                blobs = FileBlobStore(tmp_path / "blobs", asyncio.to_thread)
                apart |= {"blobs": blobs, "claim_bytes": 100}
            store = FileExecutionLogStore(tmp_path, RETAINED, COMPACT_AFTER, **apart)
            await store.start()
            yield store
            await store.close()


# --- stores that break one guarantee each --------------------------------------------------------


class Skipping(MemoryExecutionLogStore):
    """L1: leaves out an entry where a page begins."""

    async def read(self, stream: str, after: int = 0, limit: int = 100) -> Sequence[Any]:
        found = await super().read(stream, after, limit)
        return found[1:] if after else found


class Forgetful(MemoryExecutionLogStore):
    """L2: drops by age alone."""

    def _compact(self, now: Any) -> None:
        super()._compact(now)
        order = sorted(
            self._streams.keys() - STREAMS, key=lambda name: self._streams[name].places[-1]
        )
        for name in order[: -self._retained]:
            del self._streams[name]


class Late(MemoryExecutionLogStore):
    """L3: shows a run's end with the next write."""

    def __init__(self) -> None:
        super().__init__(*KEPT)
        self.waiting: list[Any] = []

    async def runs(self) -> Sequence[Any]:
        shown = await super().runs()
        if not self.waiting:
            self.waiting = list(shown)
            return shown
        return self.waiting


class Halfway(MemoryExecutionLogStore):
    """L6: keeps what came before the event that it refuses."""

    async def append(self, events: Sequence[Any]) -> None:
        for event in events:
            self._append([event])


class Generous(MemoryExecutionLogStore):
    """L7: lets every start with a key pass."""

    async def append_start(self, started: RunStarted, key: IdempotencyKey | None = None) -> None:
        await super().append_start(started)
        if key is not None:
            self._append([key])


class Lossy(MemoryExecutionLogStore):
    """L8: writes what it cannot say as text."""

    async def append_start(self, started: RunStarted, key: IdempotencyKey | None = None) -> Any:
        payload = started.payload
        if isinstance(payload, dict):
            payload = {name: str(value) for name, value in payload.items() if name != "x"} | {
                name: value for name, value in payload.items() if name in ("x", "a")
            }
        fields = {name: getattr(started, name) for name in started.__struct_fields__}
        return await super().append_start(RunStarted(**{**fields, "payload": payload}), key)


@pytest.mark.parametrize(
    ("store", "guarantee"),
    [
        (lambda: Skipping(*KEPT), {"L1"}),
        (lambda: Forgetful(*KEPT), {"L2"}),
        (Late, {"L3"}),
        (lambda: Halfway(*KEPT), {"L6"}),
        (lambda: Generous(*KEPT), {"L7"}),
        (lambda: Lossy(*KEPT), {"L8"}),
        (memory, set()),
    ],
    ids=["L1", "L2", "L3", "L6", "L7", "L8", "none"],
)
def test_suite_catches(store: Any, guarantee: set[str]) -> None:
    assert broken_guarantees(ExecutionLogContract, store) == guarantee


# --- the pure parts ------------------------------------------------------------------------------

MARKS = st.lists(
    st.builds(
        StreamMark,
        stream=st.sampled_from([*"abcdefghij", *STREAMS]),
        last_seq=st.integers(1, 1000),
        unfinished=st.booleans(),
    ),
    unique_by=(lambda mark: mark.stream, lambda mark: mark.last_seq),
)


@given(MARKS, st.integers(1, 5))
def test_retention_keeps_the_newest_and_every_run_without_an_end(
    marks: list[StreamMark], retained: int
) -> None:
    dropped = set(streams_to_drop(marks, retained, 0).names)

    runs = [mark for mark in marks if mark.stream not in STREAMS]
    kept = [mark for mark in runs if mark.stream not in dropped]
    assert not dropped & STREAMS
    assert all(not mark.unfinished for mark in runs if mark.stream in dropped)
    assert len(kept) >= min(retained, len(runs))
    oldest = sorted((mark.last_seq for mark in runs), reverse=True)[:retained]
    assert {mark.last_seq for mark in kept} >= set(oldest)
    assert all(mark.unfinished or mark.last_seq in oldest for mark in kept)


FAMILIES = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.none() | st.sampled_from("abcdefgh"), st.booleans()),
    unique_by=lambda run: run[0],
)


@given(FAMILIES, st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_a_child_stays_if_its_root_does_and_there_is_room(
    runs: list[tuple[str, str | None, bool]], roots: int, children: int, orphans: bool
) -> None:
    family = [Member(name, n, parent, stays) for n, (name, parent, stays) in enumerate(runs)]
    parents = {run.name: run.parent for run in family}
    gone, crowded = let_go(family, roots, children, orphans=orphans)

    def above(name: str | None) -> list[str]:
        """A run, and those above it that are there."""
        seen = []
        while name in parents and name not in seen:
            seen.append(name)
            name = parents[name]
        return seen

    def head(name: str) -> str | None:
        """The root of a run; None if that is not there."""
        last = above(name)[-1]
        return last if parents[last] is None else None

    heads = [run.name for run in family if run.parent is None]
    newest = heads[max(0, len(heads) - roots) :]
    assert len(set(gone)) == len(gone)
    for run in family:
        if run.stays:
            assert run.name not in gone
        elif run.parent is None:
            assert (run.name in gone) == (run.name not in newest)
    below = [run for run in family if run.parent is not None]
    goes = {
        run.name for run in below if (head(run.name) in gone if head(run.name) else not orphans)
    }
    left = [run for run in below if run.name not in goes]
    many = {run.name for run in left[: max(0, len(left) - children)] if not run.stays}
    if not orphans:
        many |= {run.name for run in left if many.intersection(above(run.name)) and not run.stays}
    assert {name for name in gone if parents[name] is not None} == many | {
        run.name for run in below if run.name in goes and not run.stays
    }
    assert crowded == len(many)


@given(FAMILIES, st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_what_stays_stays_the_next_time_if_nothing_came(
    runs: list[tuple[str, str | None, bool]], roots: int, children: int, orphans: bool
) -> None:
    family = [
        # No store that keeps orphans has runs that may not go.
        Member(name, n, parent, stays and not orphans)
        for n, (name, parent, stays) in enumerate(runs)
    ]
    gone = set(let_go(family, roots, children, orphans=orphans).names)
    left = [run for run in family if run.name not in gone]

    assert let_go(left, roots, children, orphans=orphans) == LetGo([], 0)


def made(kind: type[Any]) -> Any:
    """An event of a class, with a value for every member that needs one."""
    values = {
        "execution_id": "e",
        "time": NOW,
        "expires_at": NOW + timedelta(minutes=1),
        "status": "TIMED_OUT",
        "payload": {"a": (1, 2)},
        "breakpoints": ({"nodeId": "n"},),
    }
    return kind(**{name: values.get(name, "x") for name in kind.__struct_fields__})


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_reads_back_as_it_was_written(name: str) -> None:
    event = made(EVENTS[name])

    again = decode_event(encode_event(event))

    assert again == event
    assert type(again) is EVENTS[name]


def test_members_of_a_later_version_are_passed_over_and_missing_ones_have_their_defaults() -> None:
    line = (
        b'{"type":"RUN_STARTED","executionId":"e","time":"2026-12-01T12:00:00+00:00",'
        b'"sessionId":"s","workflowId":"w","colour":"red"}'
    )

    event = decode_event(line)

    assert isinstance(event, RunStarted)
    assert (event.execution_id, event.payload, event.actor) == ("e", None, "anonymous")


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b'{"type":"RUN_FINISHED"}', b'{"type":"NEVER"}', b"not JSON"]
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode_event(line)

    assert refused.value.code == "malformed_json"


def test_a_history_shows_neither_the_payload_nor_what_a_key_stands_for() -> None:
    shown = made(EVENTS["RUN_STARTED"]).as_dict()
    key = made(EVENTS["IDEMPOTENCY_KEY"]).as_dict()
    refused = made(EVENTS["CONTROL_REJECTED"]).as_dict()

    assert "payload" not in shown
    assert shown["time"] == "2026-12-01T12:00:00.123Z"
    assert "fingerprint" not in key
    assert refused["status"] == "x: x"


@pytest.mark.feature("DUR-04")
def test_a_payload_that_cannot_be_written_is_refused_with_its_place() -> None:
    with pytest.raises(UnserialisablePayloadError) as refused:
        encode_event(
            RunStarted(
                execution_id="e",
                time=NOW,
                session_id="s",
                workflow_id="w",
                payload={"a": ["\ud800"]},
            )
        )

    assert refused.value.members["pointer"] == "/payload/a/0"


async def test_the_scheduler_is_no_run() -> None:
    store = memory()
    await store.append([made(EVENTS["CONTROL_APPLIED"])])

    assert await store.read(SCHEDULER) == []
    assert await store.runs() == []
