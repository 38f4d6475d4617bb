"""What every ExecutionLogStore guarantees; a backend subclasses it and gives a `store`.

The fixture `store` makes one that retains `RETAINED` runs and beside them `CHILDREN` of those that
others started, compacts after `COMPACT_AFTER` events, and counts in `METERS`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.metrics import Meters
from yukta_rx.model.execution_log import (
    ORPHANS,
    SCHEDULER,
    ControlApplied,
    ControlRejected,
    IdempotencyKey,
    NodeFinished,
    RunAborted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from yukta_rx.model.status import TaskStatus

NOW = datetime(2026, 12, 1, 12, 0, 0, 123456, UTC)
RETAINED = 3
CHILDREN = 4
COMPACT_AFTER = 10


METERS = Meters()


def crowded_out() -> float:
    """How many children went for their number, in all stores so far."""
    return METERS.counter("yukta.store.children.dropped", store="execution-log").value


def started(
    run: str, payload: Any = None, at: datetime = NOW, parent: str | None = None
) -> RunStarted:
    return RunStarted(
        execution_id=run,
        time=at,
        session_id="s",
        workflow_id="w",
        payload=payload,
        lineage=run,
        parent_execution_id=parent,
    )


def finished(run: str) -> RunFinished:
    return RunFinished(execution_id=run, time=NOW, status=TaskStatus.SUCCESS)


def note(stream: str, command: str = "PauseWorkflow") -> ControlApplied:
    return ControlApplied(execution_id=stream, time=NOW, command=command, actor="key:ada")


def key(run: str, name: str = "k", *, seconds: float = 600, **changed: str) -> IdempotencyKey:
    given = {"session_id": "s", "workflow_id": "w", "fingerprint": "f", **changed}
    expires = NOW + timedelta(seconds=seconds)
    return IdempotencyKey(execution_id=run, time=NOW, key=name, expires_at=expires, **given)


async def of(store: Any, stream: str) -> list[Any]:
    return [entry.event for entry in await store.read(stream, limit=1000)]


async def compacted(store: Any) -> None:
    """Append until the store has looked at what it keeps."""
    for _ in range(COMPACT_AFTER):
        await store.append([note(SCHEDULER, "SetLimits")])


class ExecutionLogContract:
    """One test or more per guarantee."""

    async def test_L1_entries_are_read_in_the_order_of_their_appends(self, store: Any) -> None:
        await store.append_start(started("a"))
        await store.append([note("a", "PauseWorkflow"), note("b"), note("a", "ResumeWorkflow")])
        await store.append([finished("a")])

        entries = await store.read("a")

        assert [entry.event.TYPE for entry in entries] == [
            *("RUN_STARTED", "CONTROL_APPLIED", "CONTROL_APPLIED", "RUN_FINISHED")
        ]
        assert [entry.event.command for entry in entries[1:3]] == [
            *("PauseWorkflow", "ResumeWorkflow")
        ]
        seqs = [entry.seq for entry in entries]
        assert seqs == sorted(set(seqs))
        assert seqs[0] > 0

    async def test_L1_pages_of_any_size_give_each_entry_once(self, store: Any) -> None:
        await store.append([note("a", f"c{n}") for n in range(7)])
        seen, after = [], 0
        while page := await store.read("a", after=after, limit=3):
            seen += [entry.event.command for entry in page]
            after = page[-1].seq

        assert seen == [f"c{n}" for n in range(7)]
        assert await store.read("nobody") == []

    async def test_L2_a_run_without_an_end_is_never_dropped(self, store: Any) -> None:
        await store.append_start(started("live", {"a": 1}))
        for n in range(RETAINED * 2):
            await store.append_start(started(f"r{n}"))
            await store.append([finished(f"r{n}")])
        await compacted(store)

        assert [event.payload for event in await of(store, "live")] == [{"a": 1}]
        assert [run.execution_id for run in await store.unfinished()] == ["live"]

    async def test_L2_the_newest_runs_are_kept_and_older_ones_dropped(self, store: Any) -> None:
        for n in range(RETAINED * 2):
            await store.append_start(started(f"r{n}"))
            await store.append([finished(f"r{n}")])
        await compacted(store)

        kept = [run.started.execution_id for run in await store.runs()]
        assert kept == [f"r{n}" for n in range(RETAINED, RETAINED * 2)]
        assert await of(store, "r0") == []

    async def test_L2_children_go_with_their_root_and_no_root_goes_for_them(
        self, store: Any
    ) -> None:
        await store.append_start(started("first"))
        await store.append([finished("first")])
        await store.append_start(started("going", parent="first"))
        below = ("", "-child", "-deep")
        for root in ("old", "new"):
            await store.append_start(started(root))
            await store.append_start(started(f"{root}-child", parent=root))
            await store.append_start(started(f"{root}-deep", parent=f"{root}-child"))
            ends = (f"{root}-deep", f"{root}-child", root)
            await store.append([finished(name) for name in ends])
        before = crowded_out()
        await compacted(store)
        names = ["first", "going", *(f"{root}{at}" for root in ("old", "new") for at in below)]
        kept = [name for name in names if await of(store, name)]
        for n in range(2):
            await store.append_start(started(f"more{n}"))
            await store.append([finished(f"more{n}")])
        await compacted(store)
        later = {run.started.execution_id for run in await store.runs()}

        assert kept == names
        # A run without an end is never dropped.
        assert later == {"going", "new", "new-child", "new-deep", "more0", "more1"}
        assert await of(store, "old-deep") == []
        assert crowded_out() == before

    async def test_L2_of_many_children_the_newest_are_kept_and_the_others_counted(
        self, store: Any
    ) -> None:
        await store.append_start(started("other"))
        await store.append([finished("other")])
        await store.append_start(started("root"))
        before = crowded_out()
        for n in range(CHILDREN * 3):
            await store.append_start(started(f"c{n:02}", parent="root"))
            await store.append([finished(f"c{n:02}")])
        await compacted(store)
        kept = [run.started.execution_id for run in await store.runs()]
        gone = crowded_out() - before

        newest = [f"c{n:02}" for n in range(CHILDREN * 2, CHILDREN * 3)]
        assert sorted(kept) == [*newest, "other", "root"]
        assert gone == CHILDREN * 2

    async def test_L2_what_a_child_started_goes_with_it_and_is_counted(self, store: Any) -> None:
        await store.append_start(started("root"))
        await store.append_start(started("child", parent="root"))
        await store.append([finished("child")])
        await store.append_start(started("deep", parent="child"))
        await store.append_start(started("deeper", parent="deep"))
        await store.append([finished("deeper"), finished("deep")])
        before = crowded_out()
        for n in range(CHILDREN - 2):
            await store.append_start(started(f"c{n}", parent="root"))
            await store.append([finished(f"c{n}")])
        await compacted(store)
        kept = {run.started.execution_id for run in await store.runs()}
        gone = crowded_out() - before

        assert kept == {"root", *(f"c{n}" for n in range(CHILDREN - 2))}
        assert gone == 3

    async def test_L2_of_streams_that_are_no_run_the_newest_entries_are_kept(
        self, store: Any
    ) -> None:
        for stream in (SCHEDULER, ORPHANS):
            await store.append([note(stream, f"c{n}") for n in range(COMPACT_AFTER)])
        await store.append([note("x") for _ in range(COMPACT_AFTER)])

        for stream in (SCHEDULER, ORPHANS):
            commands = [event.command for event in await of(store, stream)]
            assert commands == [f"c{n}" for n in range(COMPACT_AFTER)][-RETAINED:]

    async def test_L3_what_was_written_is_read_at_once(self, store: Any) -> None:
        await store.append_start(started("a"))
        before = await store.runs()
        await store.append([finished("a")])
        after = await store.runs()

        assert [(run.started.execution_id, run.ended) for run in before] == [("a", None)]
        assert [run.ended for run in after] == [finished("a")]
        assert await store.unfinished() == []

    async def test_L3_an_aborted_run_has_ended_and_resumes_are_counted(self, store: Any) -> None:
        await store.append_start(started("a"))
        await store.append([RunAborted(execution_id="a", time=NOW)])
        resumed = RunResumed(execution_id="a", time=NOW, new_execution_id="b")
        await store.append([resumed])

        [run] = await store.runs()
        assert (run.ended.TYPE, run.resumed) == ("RUN_ABORTED", 1)
        assert await store.unfinished() == []

    async def test_L6_a_write_that_is_refused_leaves_nothing(self, store: Any) -> None:
        bad = ControlApplied(execution_id="a", time=NOW, command="x", args={"a": "\ud800"})
        with pytest.raises(UnserialisablePayloadError):
            await store.append([note("a"), bad])
        with pytest.raises(UnserialisablePayloadError):
            await store.append_start(started("b", {"x": object()}), key("b"))

        assert await of(store, "a") == []
        assert await of(store, "b") == []
        assert await store.runs() == []
        assert await store.append_start(started("c"), key("c")) is None

    async def test_L7_a_key_in_force_gives_the_first_run_back_and_writes_nothing(
        self, store: Any
    ) -> None:
        first = await store.append_start(started("a"), key("a"))
        second = await store.append_start(started("b"), key("b"))
        elsewhere = [
            await store.append_start(started(f"o{n}"), key(f"o{n}", **changed))
            for n, changed in enumerate(({"session_id": "t"}, {"workflow_id": "v"}))
        ]

        assert first is None
        assert second == key("a")
        assert await of(store, "b") == []
        assert elsewhere == [None, None]
        assert await of(store, "a") == [started("a"), key("a")]

    async def test_L7_a_key_is_free_once_it_has_expired(self, store: Any) -> None:
        await store.append_start(started("a"), key("a", seconds=60))
        late = NOW + timedelta(seconds=60)
        again = await store.append_start(started("b", at=late), key("b", seconds=120))

        assert again is None
        keys = await store.idempotency_keys(late)
        assert [found.execution_id for found in keys] == ["b"]
        assert await store.idempotency_keys(NOW + timedelta(seconds=120)) == []

    async def test_L7_the_run_of_a_key_can_set_it_free(self, store: Any) -> None:
        await store.append_start(started("a"), key("a"))
        await store.append([key("b", seconds=0)])
        still = await store.append_start(started("b"), key("b"))
        await store.append([key("a", seconds=0)])
        again = await store.append_start(started("c"), key("c"))

        assert (still, again) == (key("a"), None)

    async def test_L7_a_key_outlives_the_events_of_its_run(self, store: Any) -> None:
        await store.append_start(started("old"), key("old"))
        await store.append([finished("old")])
        for n in range(RETAINED):
            await store.append_start(started(f"r{n}"))
            await store.append([finished(f"r{n}")])
        await compacted(store)

        assert await of(store, "old") == []
        assert await store.append_start(started("new"), key("new")) == key("old")

    async def test_L8_case_35_values_come_back_as_they_were(self, store: Any) -> None:
        payload = {
            "a": [{"b": float("inf")}],
            "nul": "x\u0000y",
            "big": 2**70,
            "money": Decimal("1.10"),
            "raw": b"\x00\xff",
            "when": NOW,
            "pair": (1, 2.0),
        }
        events = [
            NodeFinished(
                execution_id="a", time=NOW, node_id="n", status=TaskStatus.FAILURE, error={"a": 1}
            ),
            ControlRejected(execution_id="a", time=NOW, command="x", reason="because"),
            finished("a"),
        ]
        await store.append_start(started("a", payload))
        await store.append(events)

        start = await store.start_of("a")
        assert start == started("a", payload)
        assert (await of(store, "a"))[1:] == events
        assert [type(value) for value in start.payload.values()] == [
            type(value) for value in payload.values()
        ]

    async def test_L8_case_35_the_other_99_events_are_stored(self, store: Any) -> None:
        events = [note("a", f"c{n}") for n in range(100)]
        bad = ControlApplied(
            execution_id="a", time=NOW, command="bad", args={"a": [{"b": object()}]}
        )
        with pytest.raises(UnserialisablePayloadError) as refused:
            await store.append([bad])
        await store.append(events[:50])
        await store.append(events[51:])

        assert refused.value.members["pointer"] == "/args/a/0/b"
        assert len(await of(store, "a")) == 99

    async def test_L8_what_is_changed_later_does_not_change_the_log(self, store: Any) -> None:
        payload = {"a": [1]}
        await store.append_start(started("a", payload))
        payload["a"].append(2)

        assert [event.payload for event in await of(store, "a")] == [{"a": [1]}]
        assert (await store.start_of("a")).payload == {"a": [1]}

    async def test_L8_a_start_is_there_or_none(self, store: Any) -> None:
        await store.append([note("a")])
        await store.append_start(started("b", "x" * 1000))
        await store.append([finished("b")])

        found = [await store.start_of(run) for run in ("a", "b", "nobody")]

        assert found == [None, started("b", "x" * 1000), None]
