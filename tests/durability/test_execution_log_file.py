"""The execution log in a file: what a crash, a full disk or a hand does to it."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import textwrap
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.execution_log import (
    COMPACT_AFTER,
    NOW,
    RETAINED,
    compacted,
    finished,
    key,
    note,
    of,
    started,
)
from yukta_rx.durability.file.execution_log import NAME, FileExecutionLogStore
from yukta_rx.durability.memory.execution_log import MemoryExecutionLogStore
from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.metrics import Meters
from yukta_rx.model.execution_log import SCHEDULER, STREAMS, encode_event
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.feature("DUR-01"), pytest.mark.durable]


@asynccontextmanager
async def in_files(folder: Path, *, compact_after: int = COMPACT_AFTER, **more: Any) -> Any:
    """A store that finds what an earlier one left in the folder."""
    store = FileExecutionLogStore(folder, RETAINED, compact_after, **more)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def files(folder: Path) -> list[str]:
    return [str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()]


async def all_of(store: Any) -> dict[str, Any]:
    """All that a store says, by what it is asked."""
    runs = await store.runs()
    return {
        "runs": runs,
        "unfinished": await store.unfinished(),
        "keys": await store.idempotency_keys(NOW),
        **{run.started.execution_id: await store.read(run.started.execution_id) for run in runs},
        **{stream: await store.read(stream) for stream in sorted(STREAMS)},
    }


async def test_everything_is_there_when_the_log_is_opened_again(tmp_path: Path) -> None:
    async with in_files(tmp_path) as store:
        await store.append_start(started("a", {"when": NOW, "nul": "x\u0000"}), key("a"))
        await store.append([note("a"), note(SCHEDULER, "SetLimits"), finished("a")])
        await store.append_start(started("b"), key("b", "other"))
        before = await all_of(store)
    async with in_files(tmp_path) as store:
        assert await all_of(store) == before
        assert await store.append_start(started("c"), key("c")) == key("a")
        await store.append([note("b")])
        assert (await store.read("b"))[-1].seq > max(entry.seq for entry in before[SCHEDULER])


@pytest.mark.slow
async def test_a_write_that_a_crash_cut_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / NAME
    async with in_files(tmp_path) as store:
        await store.append_start(started("a"))
        size = path.stat().st_size
        await store.append_start(started("b", {"x": 1}), key("b"))
    whole = path.read_bytes()

    for end in range(size, len(whole) + 1):
        path.write_bytes(whole[:end])
        async with in_files(tmp_path) as store:
            assert await of(store, "a") == [started("a")]
            found = await of(store, "b")
            assert found == ([started("b", {"x": 1}), key("b")] if end == len(whole) else [])
            assert len(await store.idempotency_keys(NOW)) == int(end == len(whole))


async def test_cases_33_and_35_what_json_has_no_word_for_is_there_again(tmp_path: Path) -> None:
    payload = {"nul": "x\u0000y", "a": [{"b": math.nan}, math.inf], "lines": "\n\u2028 ", "t": (1,)}
    others = [note("a", f"c{number}") for number in range(99)]
    async with in_files(tmp_path, compact_after=1000) as store:
        await store.append_start(started("a", payload))
        with pytest.raises(UnserialisablePayloadError):
            await store.append([*others[:10], note("a", "\ud800")])
        await asyncio.gather(*(store.append([other]) for other in others))
    async with in_files(tmp_path, compact_after=1000) as store:
        [first, *rest] = await of(store, "a")
        assert rest == others
        assert math.isnan(first.payload["a"][0].pop("b"))
        assert first.payload == {**payload, "a": [{}, math.inf]}


@pytest.mark.parametrize("run", ["../../x", "..%2Fs", "..\\x", ".", "a\u0000b", "CON", "a\nb"])
async def test_case_39_an_id_is_never_the_name_of_a_file(tmp_path: Path, run: str) -> None:
    folder = tmp_path / "data"
    async with in_files(folder) as store:
        await store.append_start(started(run), key(run, run))
    async with in_files(folder) as store:
        assert [one.execution_id for one in await store.unfinished()] == [run]
        assert await store.append_start(started("b"), key("b", run)) == key(run, run)
    assert files(tmp_path) == [f"data/{NAME}"]


EVENT_OF = {
    "start": started,
    "end": finished,
    "note": note,
    "free": lambda run: key(run, f"k-{run}", seconds=-1),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*EVENT_OF, "keyed", "keyed", "reopen"]), st.sampled_from("abcdefgh")
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_it_says_what_memory_says_and_goes_on_saying_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    model = MemoryExecutionLogStore(RETAINED, COMPACT_AFTER)

    async def agrees(store: Any) -> None:
        said, right = await all_of(store), await all_of(model)
        # A log that was opened again has looked at what it keeps at other moments. What is said
        # of a run that was dropped before counts as a run.
        streams = {name: one.places[-1] for name, one in model._streams.items()}
        newest = sorted(streams.keys() - STREAMS, key=streams.__getitem__)[-RETAINED:]
        runs = {run.started.execution_id for run in right["runs"]}
        kept = [name for name in newest if name in runs]
        for name in ("unfinished", "keys"):
            assert sorted(said[name], key=repr) == sorted(right[name], key=repr)
        for name in kept:
            assert [one.event for one in said[name]] == [one.event for one in right[name]]

    async def main() -> None:
        begun: set[str] = set()
        left = list(steps)
        while left:
            async with in_files(folder) as store:
                while left and (step := left.pop(0))[0] != "reopen":
                    kind, run = step
                    if kind in ("start", "keyed") and run in begun:
                        continue
                    if kind not in ("start", "keyed") and run not in begun:
                        continue
                    for each in (store, model):
                        if kind == "keyed":
                            given_back = await each.append_start(started(run), key(run, f"k-{run}"))
                            assert given_back is None
                        else:
                            await each.append([EVENT_OF[kind](run)])
                    begun.add(run)
                await agrees(store)
        async with in_files(folder) as store:
            await agrees(store)

    run_virtual(main())


@pytest.mark.slow
async def test_the_file_holds_what_is_kept_and_little_more(tmp_path: Path) -> None:
    path = tmp_path / NAME
    async with in_files(tmp_path) as store:
        await store.append_start(started("live"), key("live"))
        await store.append_start(started("old"), key("old", "kept"))
        await store.append([finished("old")])
        for number in range(200):
            await store.append_start(started(f"r{number}"))
            await store.append([finished(f"r{number}")])
        await compacted(store)
    assert len(path.read_bytes().splitlines()) < 2 * RETAINED + 4 * COMPACT_AFTER
    async with in_files(tmp_path) as store:
        assert [one.execution_id for one in await store.unfinished()] == ["live"]
        assert await of(store, "old") == []
        assert await store.append_start(started("new"), key("new", "kept")) == key("old", "kept")
        runs = [run.started.execution_id for run in await store.runs()]
        assert runs[-RETAINED:] == ["r197", "r198", "r199"]


@pytest.mark.slow
async def test_what_is_written_while_the_file_is_rewritten_is_in_the_new_one(
    tmp_path: Path,
) -> None:
    async def runs(store: Any, name: str) -> None:
        for number in range(40):
            await store.append([started(f"{name}{number}-done"), finished(f"{name}{number}-done")])
            await store.append_start(started(f"{name}{number}"), key(f"{name}{number}", f"{name}"))
            await store.append([key(f"{name}{number}", name, seconds=-1)])

    async with in_files(tmp_path) as store:
        await asyncio.gather(*(runs(store, name) for name in "abcdef"))
        before = await all_of(store)
    left = {f"{name}{number}" for name in "abcdef" for number in range(40)}
    assert {run.execution_id for run in before["unfinished"]} == left
    # 240 runs that stay with 3 events each, of 240 that do not a few.
    assert len((tmp_path / NAME).read_bytes().splitlines()) < 3 * 240 + 240
    async with in_files(tmp_path) as store:
        after = await all_of(store)
        assert after["unfinished"] == before["unfinished"]
        assert after["keys"] == before["keys"] == []
        assert {run: after[run] for run in left} == {run: before[run] for run in left}


async def test_a_log_that_grew_by_far_is_made_shorter_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / NAME
    async with in_files(tmp_path, compact_after=10_000) as store:
        for number in range(50):
            await store.append([started(f"r{number}"), finished(f"r{number}")])
        last = (await store.read("r49"))[-1].seq
    async with in_files(tmp_path) as store:
        assert len(path.read_bytes().splitlines()) <= 2 * RETAINED + COMPACT_AFTER
        assert (await store.read("r49"))[-1].seq == last
        await store.append([note("r49")])
        assert (await store.read("r49"))[-1].seq > last


async def test_a_log_that_cannot_be_rewritten_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_files(tmp_path) as store:
        (tmp_path / f"{NAME}.tmp").mkdir()
        for number in range(20):
            await store.append([started(f"r{number}"), finished(f"r{number}")])
        before = await all_of(store)
    assert "could not be made shorter" in caplog.text
    assert len((tmp_path / NAME).read_bytes().splitlines()) == 40
    (tmp_path / f"{NAME}.tmp").rmdir()
    async with in_files(tmp_path) as store:
        after = await all_of(store)
        assert after["runs"][-RETAINED:] == before["runs"][-RETAINED:]


async def test_a_line_without_a_place_comes_behind_the_others(tmp_path: Path) -> None:
    events = [started("a"), *(note("a", f"c{number}") for number in range(4))]
    bare = [encode_event(event) for event in events]
    lines = [b'{"seq":70,' + bare[0][1:], bare[1], b'{"seq":"?",' + bare[2][1:]]
    lines += [b'{"seq":70,' + bare[3][1:], b'{"seq":90,' + bare[4][1:]]
    (tmp_path / NAME).write_bytes(b"".join(line + b"\n" for line in lines))

    async with in_files(tmp_path) as store:
        assert await of(store, "a") == events
        assert [entry.seq for entry in await store.read("a")] == [70, 71, 72, 73, 90]
        await store.append([finished("a")])
        assert (await store.read("a"))[-1].seq == 91


async def test_lines_that_cannot_be_read_are_set_aside_counted_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / NAME
    async with in_files(tmp_path) as store:
        await store.append([started("a"), note("a")])
        await store.append_start(started("b"), key("b"))
    good = path.read_bytes().splitlines(keepends=True)
    bad = [
        b"not JSON\n",
        b"\xff\xfe\n",
        b"\n",
        b'{"type":"NEVER","executionId":"a","time":"2026-12-01T12:00:00Z"}\n',
        b'{"type":"RUN_FINISHED","executionId":"a","time":"2026-12-01T12:00:00Z"}\n',
        b'{"type":"RUN_STARTED","executionId":"c","time":"2026-12-01T12:00:00Z"}\n',
        b'{"type":"IDEMPOTENCY_KEY","executionId":"c","time":"2026-12-01T12:00:00Z"}\n',
        b"\0" * 20 + b"\n",
    ]
    found = b"".join([good[0], *bad[:4], *good[1:], *bad[4:]])
    path.write_bytes(found)
    meters = Meters()

    async with in_files(tmp_path, meters=meters) as store:
        assert len(store.quarantined) == len(bad)
        assert str(store.quarantined[0]).startswith(f"{NAME}, line 2: ")
        assert [run.started.execution_id for run in await store.runs()] == ["a", "b"]
        assert len(await store.unfinished()) == 2
        assert await of(store, "a") == [started("a"), note("a")]
        assert await of(store, "b") == [started("b"), key("b")]
    assert f"{NAME}, line 2: not JSON" in caplog.text
    aside = (tmp_path / "executions.quarantine.jsonl").read_bytes().splitlines()
    assert len(aside) == len(bad)
    assert json.loads(aside[0])["line"] == "not JSON"
    assert meters.counter("yukta.store.quarantined", store="execution-log").value == len(bad)
    async with in_files(tmp_path) as store:
        assert store.quarantined == []
    # As after a crash between the writes of the two files.
    path.write_bytes(found)
    async with in_files(tmp_path):
        pass
    assert len((tmp_path / "executions.quarantine.jsonl").read_bytes().splitlines()) == len(bad)


async def test_case_40_of_many_starts_with_one_key_one_is_written(tmp_path: Path) -> None:
    async with in_files(tmp_path, compact_after=1000) as store:
        asked = [store.append_start(started(f"r{n}"), key(f"r{n}")) for n in range(20)]
        said = await asyncio.gather(*asked)

        assert [known for known in said if known is None] == [None]
        [run] = await store.runs()
        assert {known.execution_id for known in said if known} == {run.started.execution_id}


async def test_a_start_that_nobody_waits_for_any_more_holds_its_key(tmp_path: Path) -> None:
    async with in_files(tmp_path) as store:
        first = asyncio.create_task(store.append_start(started("a"), key("a")))
        await asyncio.sleep(0)
        first.cancel()
        assert await store.append_start(started("b"), key("b")) == key("a")
        assert [run.started.execution_id for run in await store.runs()] == ["a"]


async def test_what_cannot_be_opened_or_is_closed_gives_no_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match=f"file/{NAME}: .*Not a directory"):
        async with in_files(tmp_path / "file"):
            pass

    async with in_files(tmp_path) as store:
        await store.append_start(started("a"), key("a"))
    for ask in (
        lambda: store.read("a"),
        store.runs,
        store.unfinished,
        lambda: store.idempotency_keys(NOW),
        lambda: store.append([note("a")]),
        lambda: store.append_start(started("b")),
        lambda: store.append_start(started("b"), key("b")),
    ):
        with pytest.raises(StoreUnavailableError, match="is not open"):
            await ask()


PROGRAM = """
import asyncio, resource, signal, sys
from pathlib import Path
from tests.contract.execution_log import key, note, started
from yukta_rx.durability.file.execution_log import FileExecutionLogStore
from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main():
    store = FileExecutionLogStore(Path(sys.argv[1]), 1000, 100000)
    await store.start()
    BODY

asyncio.run(main())
"""


async def run_program(body: str, folder: Path) -> asyncio.subprocess.Process:
    """A process of its own with an open store: it may be killed, and limits are for all files."""
    program = PROGRAM.replace("BODY", textwrap.indent(textwrap.dedent(body), "    ").strip())
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(folder), stdout=PIPE
    )


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 50, 333])
async def test_what_was_acknowledged_outlives_a_kill(tmp_path: Path, after: int) -> None:
    other = await run_program(
        """
        async def go_on(name):
            for n in range(100000):
                await store.append_start(started(f"{name}{n}"), key(f"{name}{n}", f"{name}{n}"))
                print(f"{name}{n}", flush=True)
        await asyncio.gather(*(go_on(name) for name in "abcdef"))
        """,
        tmp_path,
    )
    assert other.stdout is not None
    seen = [(await other.stdout.readline()).decode().strip() for _ in range(after)]
    other.kill()
    # The last line may be cut.
    seen += [line.decode() for line in (await other.stdout.read()).split(b"\n")[:-1]]
    await other.wait()

    assert all(seen)
    async with in_files(tmp_path, compact_after=1_000_000) as store:
        assert {run.execution_id for run in await store.unfinished()} >= set(seen)
        assert {one.execution_id for one in await store.idempotency_keys(NOW)} >= set(seen)


@pytest.mark.slow
async def test_a_full_disk_refuses_a_start_whole_and_its_key_stays_free(tmp_path: Path) -> None:
    other = await run_program(
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))
        try:
            await store.append_start(started("a", "x" * 600), key("a"))
        except StoreUnavailableError as error:
            print(error.detail.removeprefix(sys.argv[1]))
        print(await store.runs(), await store.append_start(started("b"), key("b")))
        await store.close()
        """,
        tmp_path,
    )
    said, _ = await other.communicate()

    assert said.decode().splitlines() == [f"/{NAME}: cannot be written: File too large", "[] None"]
    async with in_files(tmp_path) as store:
        assert await of(store, "a") == []
        assert await of(store, "b") == [started("b"), key("b")]
