"""Small stores in files: what was answered is there again, whatever happened in between."""

from __future__ import annotations

import asyncio
import json
import sys
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract import archive as archived
from tests.contract.input_requests import LIVE, NOON, answer, early, request
from tests.contract.queued_starts import start
from yukta_rx.durability.file import archive, input_requests, queued_starts
from yukta_rx.durability.file._journaled import SLACK, at_once
from yukta_rx.durability.stores.archive import ArchivedRun
from yukta_rx.durability.stores.input_requests import RequestState
from yukta_rx.errors import StoreUnavailableError, YuktaError
from yukta_rx.metrics import Meters
from yukta_rx.model import codec
from yukta_rx.model.status import TaskStatus
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.feature("DUR-05", "ADM-01", "CTL-04", "CTL-05"), pytest.mark.durable]

QUEUE, ASKED, ARCHIVE = "queued-starts", "input-requests", "archive"
STORES: dict[str, Callable[..., Any]] = {
    QUEUE: queued_starts.FileQueuedStartStore,
    ASKED: input_requests.FileInputRequestStore,
    ARCHIVE: archive.FileExecutionArchiveStore,
}
STATES: dict[str, Callable[[], Any]] = {
    QUEUE: queued_starts._State,
    ASKED: input_requests._State,
    ARCHIVE: archive._State,
}
names = pytest.mark.parametrize("name", STORES)


def seen(state: Any) -> Any:
    """All that a state holds, in its order."""
    held = {
        key: list(value.items()) if isinstance(value, dict) else sorted(value)
        for key, value in vars(state).items()
    }
    if "_early" in held:
        # Nothing kept for a node is the same as no node.
        nodes = {line: {n: q for n, q in of.items() if q} for line, of in held["_early"]}
        held["_early"] = [(line, of) for line, of in nodes.items() if of]
    return deepcopy(held)


# --- anything that may be done to a store --------------------------------------------------------

NUMBERS = st.integers(1, 6)
RUNS = st.sampled_from([*LIVE, "run-gone"])
MOMENTS = NUMBERS.map(lambda n: NOON + timedelta(seconds=100 * n))
LINES = st.sampled_from(["line", "other"])
IDS = NUMBERS.map(lambda n: f"r-{n:04}")


def call(method: str, *args: Any) -> Any:
    return st.tuples(st.just(method), st.tuples(*args))


STEPS: dict[str, Any] = {
    QUEUE: st.one_of(
        call("put", st.builds(lambda n, after: start(f"s{n}", after=after), NUMBERS, NUMBERS)),
        call("claim", NUMBERS.map("s{}".format)),
        call("remove", NUMBERS.map("s{}".format)),
        call("set_priority", NUMBERS.map("s{}".format), st.floats(allow_nan=False)),
    ),
    ASKED: st.one_of(
        call(
            "ask",
            st.builds(
                lambda n, m, line, run: request(
                    n, message_id=f"m-{m}", lineage=line, execution_id=run
                ),
                NUMBERS,
                NUMBERS,
                LINES,
                RUNS,
            ),
            MOMENTS,
            st.just(LIVE),
        ),
        call("answer", IDS, st.builds(answer, st.sampled_from(["yes", "reject"]), NUMBERS)),
        call("close", IDS, RUNS, st.sampled_from([RequestState.EXPIRED, RequestState.CANCELLED])),
        call(
            "keep",
            st.builds(lambda n, line: early(f"e{n}", lasts=100 * n, lineage=line), NUMBERS, LINES),
            MOMENTS,
            st.just(3),
        ),
        call("forget", LINES),
    ),
    ARCHIVE: st.one_of(
        call("put", st.builds(archived.run, IDS, NUMBERS), st.integers(0, 4)),
        call("remove", IDS),
    ),
}


async def outcome(step: Any) -> Any:
    try:
        return await step
    except YuktaError as error:
        return type(error), error.detail


@pytest.mark.slow
@names
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_does_what_memory_does_and_is_the_same_when_it_is_opened_again(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    steps = data.draw(st.lists(st.one_of(st.just(None), STEPS[name], STEPS[name]), max_size=30))
    folder = tmp_path_factory.mktemp("store")
    model = STATES[name]()
    used: set[str] = set()

    def fresh(step: Any) -> bool:
        """Whether the id of a request is new, as every asker sees to."""
        method, args = step
        if method not in ("ask", "put") or name == ARCHIVE:
            return True
        one = args[0].request_id if name == ASKED else args[0].execution_id
        return one not in used and not used.add(one)

    async def main() -> None:
        left = list(steps)
        while left:
            async with STORES[name](folder) as store:
                while left and (step := left.pop(0)) is not None:
                    if fresh(step):
                        method, args = step
                        here = await outcome(getattr(store, method)(*args))
                        assert here == await outcome(getattr(model, method)(*args))
                assert seen(store._state) == seen(model)
        async with STORES[name](folder) as store:
            assert seen(store._state) == seen(model)

    run_virtual(main())

    again = STATES[name]()
    for change in list(model.changes()):
        again.apply(codec.decode(codec.encode(change)))
    assert seen(again) == seen(model)
    assert len(list(model.changes())) == model.needed()


# --- a crash, a full disk, a line that cannot be read --------------------------------------------


async def fill(store: Any, name: str, upto: int, begin: int = 0) -> None:
    for number in range(begin, upto):
        match name:
            case "queued-starts":
                await store.put(start(f"s{number}"))
            case "input-requests":
                await store.ask(request(number), NOON, LIVE)
            case "archive":
                await store.put(archived.run(f"a{number}"), 100)


def journal_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.jsonl"


@pytest.mark.slow
@names
async def test_a_write_that_a_crash_cut_was_never_made(name: str, tmp_path: Path) -> None:
    path = journal_of(tmp_path, name)
    async with STORES[name](tmp_path) as store:
        await fill(store, name, 1)
        before, size = seen(store._state), path.stat().st_size
        await fill(store, name, 2, 1)
        after = seen(store._state)
    whole = path.read_bytes()

    for end in range(size, len(whole) + 1):
        path.write_bytes(whole[:end])
        async with STORES[name](tmp_path) as store:
            assert seen(store._state) == (after if end == len(whole) else before)


@names
async def test_a_line_that_cannot_be_read_is_set_aside_counted_and_said(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, meters = journal_of(tmp_path, name), Meters()
    async with STORES[name](tmp_path) as store:
        await fill(store, name, 3)
        before = seen(store._state)
    good = path.read_bytes().splitlines(keepends=True)
    half = json.loads(good[0])
    half[next(iter(half.keys() - {"op", "now", "live", "retain"}))] = {"executionId": 7}
    bad = [b"?\n", b"[]\n", b"{}\n", b'{"op":"never"}\n', json.dumps(half).encode() + b"\n"]
    path.write_bytes(b"".join([*good[:2], *bad, *good[2:]]))

    async with STORES[name](tmp_path, meters=meters) as store:
        assert seen(store._state) == before
        assert [str(one).split(":")[0] for one in store.quarantined] == [
            f"{name}.jsonl, line {number}" for number in range(3, 8)
        ]
    assert meters.counter("yukta.store.quarantined", store=name).value == len(bad)
    assert f"{name}.jsonl, line 3: " in caplog.text
    aside = (tmp_path / f"{name}.quarantine.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["line"].encode() + b"\n" for line in aside] == bad
    async with STORES[name](tmp_path) as store:
        assert (store.quarantined, seen(store._state)) == ([], before)


@names
async def test_what_cannot_be_opened_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = STORES[name](tmp_path / "file")
    with pytest.raises(StoreUnavailableError, match=rf"file/{name}\.jsonl: .*Not a directory"):
        await store.start()
    with pytest.raises(StoreUnavailableError, match="is not open"):
        await fill(store, name, 1)


PROGRAM = """
import asyncio, resource, signal, sys
from pathlib import Path
from tests.durability.test_journaled import STORES, fill, seen
from yukta_rx.errors import StoreUnavailableError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def main(name, folder):
    async with STORES[name](folder) as store:
        await fill(store, name, 3)
        before = seen(store._state)
        size = (folder / f"{name}.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, resource.RLIM_INFINITY))
        try:
            await fill(store, name, 4, 3)
        except StoreUnavailableError as error:
            print(error.detail.removeprefix(str(folder)))
        print(seen(store._state) == before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await fill(store, name, 5, 4)

asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
"""


@names
@pytest.mark.slow
async def test_a_full_disk_refuses_a_change_and_takes_the_next_one(
    name: str, tmp_path: Path
) -> None:
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, name, str(tmp_path), stdout=PIPE
    )
    said, _ = await other.communicate()

    refused = f"/{name}.jsonl: cannot be written: File too large"
    assert said.decode().splitlines() == [refused, "True"]
    async with STORES[name](tmp_path) as store:
        again = STORES[name](tmp_path / "again")
        async with again:
            await fill(again, name, 3)
            await fill(again, name, 5, 4)
            assert seen(store._state) == seen(again._state)


async def test_a_journal_is_rewritten_before_most_of_it_is_garbage(tmp_path: Path) -> None:
    path = journal_of(tmp_path, QUEUE)
    async with STORES[QUEUE](tmp_path) as store:
        await store.put(start("stays"))
        for round_ in range(20):
            several = [f"s{round_}-{number}" for number in range(200)]
            await asyncio.gather(*(store.put(start(one)) for one in several))
            assert all(await asyncio.gather(*(store.remove(one) for one in several)))
    assert len(path.read_bytes().splitlines()) < 2 * SLACK
    async with STORES[QUEUE](tmp_path) as store:
        assert list(await store.list()) == [start("stays")]


async def test_who_waits_no_more_has_taken_nothing_back(tmp_path: Path) -> None:
    async with STORES[QUEUE](tmp_path) as store:
        put = asyncio.create_task(store.put(start("a")))
        await asyncio.sleep(0)
        put.cancel()
        assert await store.claim("a") == start("a")
        assert await store.claim("a") is None


async def test_what_is_known_not_to_be_there_costs_no_write(tmp_path: Path) -> None:
    for name in STORES:
        async with STORES[name](tmp_path):
            pass
    async with STORES[QUEUE](tmp_path) as queue, STORES[ASKED](tmp_path) as asked:
        assert await queue.claim("never") is None
        assert not await queue.remove("never")
        assert not await queue.set_priority("never", 1)
        await asked.forget("never")
        async with STORES[ARCHIVE](tmp_path) as runs:
            await runs.remove("never")

    assert [journal_of(tmp_path, name).read_bytes() for name in STORES] == [b"", b"", b""]


async def test_of_the_live_runs_only_those_are_written_that_ask_the_same(tmp_path: Path) -> None:
    many = [f"run-{number}" for number in range(1000)]
    async with STORES[ASKED](tmp_path) as store:
        both = [request(1), request(2, message_id="m-1", execution_id="run-2")]
        asked = await asyncio.gather(*(store.ask(one, NOON, many) for one in both))
        # The second one asks for itself, since the first one is live.
        assert [one.request_id for one in asked] == ["r-0001", "r-0002"]
    lines = journal_of(tmp_path, ASKED).read_bytes().splitlines()
    assert [json.loads(line)["live"] for line in lines] == [[], ["run-1"]]


@pytest.mark.feature("CTL-05")
async def test_case_64_an_open_approval_outlives_an_upgrade_and_is_answered(tmp_path: Path) -> None:
    path = journal_of(tmp_path, ASKED)
    async with STORES[ASKED](tmp_path) as store:
        await store.ask(request(1), NOON, LIVE)
        await store.keep(early("yes", node_id="later"), NOON, 10)
    asked, kept = map(json.loads, path.read_bytes().splitlines())
    # A version that knew less, and one that knew more.
    for member in ("prompt", "payloadPreview", "remaining"):
        del asked["request"][member]
    asked["request"]["colour"] = kept["signal"]["answer"]["colour"] = "red"
    kept["colour"] = "red"
    path.write_text("".join(json.dumps(line) + "\n" for line in (asked, kept)))

    async with STORES[ASKED](tmp_path) as store:
        assert store.quarantined == []
        [found] = await store.open_requests()
        assert found == request(1, prompt=None, payload_preview="", remaining=None)
        # The run is another one by now, and asks for the same message.
        again = await store.ask(request(7, message_id="m-1", execution_id="run-2"), NOON, LIVE[1:])
        assert (again.request_id, again.execution_id) == ("r-0001", "run-2")
        assert (await store.answer("r-0001", answer("yes"))).answer == answer("yes")
        asked_later = await store.ask(request(8, node_id="later"), NOON, LIVE)
        assert asked_later.answer == answer("yes")
    async with STORES[ASKED](tmp_path) as store:
        answered = await store.get("r-0001")
        assert answered.answer == answer("yes")


@pytest.mark.feature("CTL-04")
async def test_an_archived_run_comes_back_whole(tmp_path: Path) -> None:
    put = archived.run("a", {"t": (1, 2), "nul": "\u0000", "when": NOON})
    async with STORES[ARCHIVE](tmp_path) as store:
        await store.put(put, 10)
        bare = ArchivedRun(
            execution_id="bare", session_id="s", definition=put.definition, lineage="bare"
        )
        await store.put(bare, 10)
    async with STORES[ARCHIVE](tmp_path) as store:
        found = await store.get("a")
        assert found == put
        assert found.definition.as_document() == put.definition.as_document()
        assert found.definition.version == put.definition.version
        assert isinstance(found.base_dir, Path)
        assert [type(one) for one in found.nodes.values()] == [TaskStatus] * 2
        assert type(found.payload["t"]) is tuple
        assert await store.get("bare") == bare


def test_a_state_that_waits_is_no_state() -> None:
    with pytest.raises(RuntimeError, match="waits for something"):
        at_once(asyncio.sleep(0))
