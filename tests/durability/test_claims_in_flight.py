"""Runs whose payloads all travel as references: on real stores, cut off behind every record."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.durability.test_file_checkpoints import POOL, opened, put, texts
from tests.engine.conftest import World
from tests.engine.test_gone import parts
from tests.engine.test_resume import Crashes, listed
from tests.engine.test_resume_nodes import calls, crashes_of
from yukta_rx.durability.file.blobs import FileBlobStore
from yukta_rx.durability.file.checkpoints import FileNodeCheckpointStore
from yukta_rx.durability.recorder import RunRecorder
from yukta_rx.durability.stores.blobs import blob_of
from yukta_rx.engine.breakpoints import Breakpoint
from yukta_rx.model import codec
from yukta_rx.model.claim import Claim
from yukta_rx.plugins.contract import processor, trigger
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.claims import ClaimedBody
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from yukta_rx.durability.postgres.database import Database
    from yukta_rx.model.codec import Blob

pytestmark = pytest.mark.feature("DUR-02", "DUR-03")

LIMIT = 5000
LARGE = [{"text": f"{n} " * LIMIT, "n": n} for n in range(6)]
"""Payloads that travel as references."""

SEEN: list[tuple[str, Any]] = []
"""What plugins were given: node and payload."""


@trigger("LARGE", blocking=False, pure=True)
def large(cfg, ctx):
    """Payloads, large and small in turns."""
    for payload in LARGE:
        yield payload
        yield {"n": -payload["n"]}


@processor("SEES", blocking=False, pure=True)
def sees(msg, cfg, ctx):
    """Pass on what comes."""
    SEEN.append((ctx.node_id, msg.payload))
    return msg


@processor("BLOCKS", pure=True)
def blocks(msg, cfg, ctx):
    """The same, in a thread."""
    SEEN.append((ctx.node_id, msg.payload))
    return msg


@processor("CHANGES", blocking=False)
def changes(msg, cfg, ctx):
    """Change what comes, in place."""
    SEEN.append((ctx.node_id, dict(msg.payload)))
    msg.payload["n"] += 100
    return msg.payload


@processor("AWAITS", pure=True)
async def awaits(msg, cfg, ctx):
    """The same as SEES, and wait a little."""
    SEEN.append((ctx.node_id, msg.payload))
    await asyncio.sleep(0.001)
    return msg.payload


@processor("BOTH", blocking=False, pure=True)
def twice(msg, cfg, ctx):
    """Twice what comes."""
    SEEN.append((ctx.node_id, msg.payload))
    yield msg
    yield {**msg.payload, "twice": True}


@processor("BOTH_ASYNC", pure=True)
async def twice_async(msg, cfg, ctx):
    """The same, as an async generator."""
    SEEN.append((ctx.node_id, msg.payload))
    yield msg
    yield {**msg.payload, "twice": True}


PLUGINS = (large, sees, blocks, changes, awaits, twice, twice_async)


class Counting(FileNodeCheckpointStore):
    """Counts how often a payload is read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reads: Counter[str] = Counter()

    async def payload(self, blob: Blob) -> Any:
        self.reads[blob.sha256] += 1
        return await super().payload(blob)


@asynccontextmanager
async def stored(
    folder: Path, limit: int = LIMIT, kind: type[Counting] | None = None
) -> AsyncIterator[Counting]:
    """A store in files that keeps large payloads apart."""
    blobs = FileBlobStore(folder / "blobs", POOL.call)
    store = (kind or Counting)(folder / "outputs", POOL.call, blobs=blobs, claim_bytes=limit)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def objects(folder: Path) -> set[str]:
    """The blobs that there are."""

    def names() -> set[str]:
        return {one.name for one in (folder / "blobs" / "objects").rglob("*") if one.is_file()}

    return await POOL.call(names)


async def payload_of(item: Any) -> Any:
    payload = item.message.payload
    return await payload.open() if type(payload) is Claim else payload


async def payloads(crashes: Crashes, node: str = "out") -> list[Any]:
    """The results of a terminal, opened."""
    results = [one for one in crashes.results if one.type == "RESULT" and one.node_id == node]
    return [await payload_of(one) for one in results]


def sha_of(payload: Any) -> str:
    return blob_of(codec.encode(payload)).sha256


@pytest.fixture(autouse=True)
def fresh() -> None:
    SEEN.clear()


@pytest.fixture
def world() -> World:
    return World()


# --- what travels, and what plugins are given ----------------------------------------------------


@pytest.mark.parametrize("kind", ["SEES", "BLOCKS", "AWAITS", "BOTH", "BOTH_ASYNC"])
@virtual_time
async def test_a_plugin_is_given_payloads_and_what_it_passes_on_is_the_reference_that_came(
    tmp_path: Path, world: Any, kind: str
) -> None:
    nodes = {"in": "LARGE", "a": kind, "b": kind, "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>b>out", *PLUGINS)
    async with stored(tmp_path) as store:
        outcome = await crashes.run(store, "run")
        made = await payloads(crashes)
        kept = [
            msg.payload
            async for row in store.read("run", "in", whole=False)
            for _, msg in row.messages
        ]

    assert outcome.status == "SUCCESS"
    both = [one for payload in LARGE for one in (payload, {"n": -payload["n"]})]
    assert [payload for node, payload in SEEN if node == "a"] == both
    assert {type(one) for one in kept} == {Claim, dict}
    twice = [{**one, "twice": True} for one in both]
    if kind.startswith("BOTH"):
        assert Counter(map(repr, made)) == Counter(map(repr, both + twice + twice + twice))
    else:
        assert made == both
        assert await objects(tmp_path) == {sha_of(one) for one in LARGE}


@virtual_time
async def test_a_plugin_that_changes_a_payload_changes_it_for_nobody_else(
    tmp_path: Path, world: Any
) -> None:
    nodes = {"in": "LARGE", "a": "CHANGES", "b": "SEES", "c": "CHANGES", "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>out, in>b>c>out", *PLUGINS)
    async with stored(tmp_path) as store:
        await crashes.run(store, "run")
        made = await payloads(crashes)
        stays = [payload async for row in store.read("run", "in") for _, payload in row.messages]

    both = [one for payload in LARGE for one in (payload, {"n": -payload["n"]})]
    assert [one.payload for one in stays] == both
    assert [one for node, one in SEEN if node == "c"] == both
    changed = [{**one, "n": one["n"] + 100} for one in both]
    assert Counter(map(repr, made)) == Counter(map(repr, changed + changed))


@virtual_time
async def test_a_payload_is_read_once_for_all_children_that_want_it(
    tmp_path: Path, world: Any
) -> None:
    nodes = {"in": "LARGE", "a": "SEES", "b": "BLOCKS", "c": "AWAITS", "out": "NULL_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>out, in>b>out, in>c>out", *PLUGINS)
    async with stored(tmp_path) as store:
        await crashes.run(store, "run")

    assert store.reads == {sha_of(one): 1 for one in LARGE}
    assert len(SEEN) == 3 * 2 * len(LARGE)


@pytest.mark.parametrize("limit", [LIMIT, 0])
@virtual_time
async def test_where_nothing_is_kept_apart_nothing_is_in_the_graph(
    tmp_path: Path, world: Any, limit: int
) -> None:
    nodes = {"in": "LARGE", "a": "SEES", "b": "AWAITS", "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>b>out", *PLUGINS)
    runs: list[Any] = []

    def paused(run: Any) -> None:
        run.nodes["out"].pause()
        runs.append(run)

    crashes.before = paused
    async with stored(tmp_path, limit) as store:
        running = asyncio.ensure_future(crashes.run(store, "run"))
        while not runs or runs[0].nodes["b"].counters["out"] < 2 * len(LARGE):
            await asyncio.sleep(0.01)
        [run] = runs
        plans = [node.stage.plan for node in run.nodes.values()]
        around = [type(plan.body) is ClaimedBody for plan in plans]
        stages = len(run._circuit.stages)
        run.nodes["out"].resume()
        await running

    assert around == [bool(limit)] * 4
    # Opening and sealing takes no stages of its own.
    assert stages == 4


@virtual_time
async def test_a_payload_that_cannot_be_written_travels_as_it_is(
    tmp_path: Path, world: Any
) -> None:
    class Own:
        def __sizeof__(self) -> int:
            return LIMIT * 10

    @trigger("OWN", blocking=False, pure=True)
    def own(cfg, ctx):
        """What JSON cannot say."""
        yield Own()
        yield {"text": "x" * LIMIT}

    nodes = {"in": "OWN", "a": "SEES", "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>out", *PLUGINS, own)
    async with stored(tmp_path) as store:
        outcome = await crashes.run(store, "run")
        states = await store.states("run")

    assert outcome.status == "SUCCESS"
    assert [type(payload).__name__ for _, payload in SEEN] == ["Own", "dict"]
    assert states["in"].reason == "output_unserialisable"


# --- what cannot be opened -----------------------------------------------------------------------


async def lose(store: Counting, payload: Any) -> None:
    """Remove a blob that a run refers to."""
    assert store._blobs is not None
    await POOL.call(store._blobs._object(sha_of(payload)).unlink)


@pytest.mark.parametrize("kind", ["SEES", "BLOCKS", "AWAITS", "BOTH"])
@pytest.mark.parametrize("policy", ["FAIL", "ROUTE"])
@virtual_time
async def test_a_payload_that_is_gone_fails_its_message_by_the_policy_of_the_node(
    tmp_path: Path, world: Any, kind: str, policy: str
) -> None:
    nodes = {
        "in": "LARGE",
        "a": (kind, {"engine": {"onError": policy}}),
        "out": "COLLECT_TERMINAL",
        "dead": "NULL_TERMINAL",
    }
    edges = "in>a>out" + (", a.error>dead" if policy == "ROUTE" else ", in>dead")
    crashes = crashes_of(world, nodes, edges, *PLUGINS)
    runs: list[Any] = []

    def paused(run: Any) -> None:
        run.nodes["a"].pause()
        runs.append(run)

    crashes.before = paused
    async with stored(tmp_path) as store:
        running = asyncio.ensure_future(crashes.run(store, "run"))
        while len(await objects(tmp_path)) < len(LARGE):
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        await lose(store, LARGE[2])
        runs[0].nodes["a"].resume()
        outcome = await running
        if policy == "ROUTE":
            assert outcome.status == "SUCCESS"
            assert outcome.nodes["dead"]["in"] == outcome.nodes["a"]["deadLettered"] == 1
        else:
            told = outcome.nodes["a"]["error"]["detail"]
            assert outcome.status == "FAILURE"
            assert "node a: the payload of message " in told
            blob = f"blob {sha_of(LARGE[2])} of {len(codec.encode(LARGE[2]))} bytes"
            assert f"{blob} is missing" in told

    worked = [payload["n"] for node, payload in SEEN if node == "a"]
    assert (worked == [0, 0, 1, -1, -2, 3, -3, 4, -4, 5, -5]) is (policy == "ROUTE")
    assert worked[:4] == [0, 0, 1, -1]


class TooLarge(Counting):
    """Has no memory for one of its payloads."""

    async def payload(self, blob: Blob) -> Any:
        if blob.sha256 == sha_of(LARGE[1]):
            raise MemoryError("no room")
        return await super().payload(blob)


@virtual_time
async def test_a_breakpoint_lets_pass_what_cannot_be_opened_whatever_the_reason(
    tmp_path: Path, world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = {
        "in": "LARGE",
        "a": ("SEES", {"engine": {"onError": "CONTINUE"}}),
        "out": "NULL_TERMINAL",
    }
    crashes = crashes_of(world, nodes, "in>a>out", *PLUGINS)
    runs: list[Any] = []

    def watched(run: Any) -> None:
        run.nodes["a"].set_breakpoint(Breakpoint(when="payload.n == 3"))
        runs.append(run)

    crashes.before = watched
    async with stored(tmp_path, kind=TooLarge) as store:
        running = asyncio.ensure_future(crashes.run(store, "run"))
        async with asyncio.timeout(60):
            while not runs or not runs[0].nodes["a"].valve.holds:
                await asyncio.sleep(0.01)
        runs[0].nodes["a"].resume()
        outcome = await running

    assert outcome.status == "SUCCESS"
    assert outcome.nodes["a"]["failed"] == 1
    assert [payload["n"] for _, payload in SEEN] == [0, 0, -1, 2, -2, 3, -3, 4, -4, 5, -5]
    # No store said that, so nobody else would.
    [told] = [one for one in caplog.records if one.getMessage().startswith("breakpoints of node a")]
    assert told.exc_info is not None
    assert told.exc_info[0] is MemoryError


# --- afterwards ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SEES", "BLOCKS", "AWAITS", "BOTH", "BOTH_ASYNC"])
@virtual_time
async def test_a_run_of_references_that_has_ended_is_gone_without_the_collector(
    tmp_path: Path, world: Any, kind: str
) -> None:
    nodes = {"in": "LARGE", "a": kind, "out": "COLLECT_TERMINAL"}
    async with stored(tmp_path) as store:
        tasks = Tasks(asyncio.get_running_loop())
        recorder = RunRecorder(store, "run", tasks, lambda: None)
        gc.collect()
        before = parts()
        gc.disable()
        try:
            made = [world.run(nodes, "in>a>out", *PLUGINS, recorder=recorder, execution_id="run")]
            outcome = await made[0].execute()
            assert outcome.status == "SUCCESS"
            assert parts() >= before + 10
            recorder.close()
            del made, outcome, recorder
            # Payloads that are open, and what asyncio still has to do for tasks that are done.
            await asyncio.sleep(5)
            assert parts() == before
        finally:
            gc.enable()


# --- crashes -------------------------------------------------------------------------------------

ALL = 1
"""A limit that every payload is above."""

NODES = {
    "in": "NUMBERS",
    "double": "DOUBLE",
    "fan": "FAN",
    "out": "THREAD_END",
    "side": "COLLECT_TERMINAL",
}


@virtual_time
async def test_a_run_of_references_goes_on_from_what_any_crash_leaves(tmp_path: Path) -> None:
    crashes = crashes_of(World(), NODES, "in>double>fan>out, fan.side>side", row=5)
    plain = await opened(tmp_path / "plain")
    await crashes.run(plain, "run")
    await plain.close()
    without = {
        (one.message_id, repr(await payload_of(one))) for one in crashes.results if one.message
    }
    async with stored(tmp_path / "whole", ALL) as store:
        outcome = await crashes.run(store, "run")
        assert {
            (one.message_id, repr(await payload_of(one))) for one in crashes.results if one.message
        } == without
        assert all(type(one.payload) is Claim for one in crashes.results if one.message)
    wanted = crashes.shown()
    assert outcome.status == "SUCCESS"
    [(name, text)] = (await POOL.call(texts, tmp_path / "whole" / "outputs")).items()
    ends = [at + 1 for at, byte in enumerate(text) if byte == ord("\n")]
    assert len(ends) > 20
    assert text.count(b'"payload":{"$yukta":"blob"') == text.count(b'"payload":') > 20

    for number, end in enumerate(ends):
        cut = tmp_path / f"cut{number}"
        await POOL.call(shutil.copytree, tmp_path / "whole" / "blobs", cut / "blobs")
        await POOL.call(put, cut / "outputs", {name: text[:end]})
        async with stored(cut, ALL) as left:
            done = await listed(left, "run")
            calls.clear()
            _, outcome = await crashes.resume(left, "run", "again")
            assert outcome.status == "SUCCESS"
            assert crashes.shown() == wanted
            assert not done & Counter(calls)
            await left.clear("run")
            for one in crashes.results:
                # They are kept for the run that went on.
                assert one.message is None or await payload_of(one) is not None
            states = await left.states("again")
            assert all(states[node].complete for node in NODES)
            await left.clear("again")
            assert await objects(cut) == set()
        await POOL.call(shutil.rmtree, cut)


@virtual_time
async def test_what_stands_in_for_a_node_is_not_opened(tmp_path: Path, world: Any) -> None:
    nodes = {"in": "LARGE", "a": "SEES", "out": "COLLECT_TERMINAL", "end": "NULL_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>out, a>end", *PLUGINS)
    async with stored(tmp_path) as store:
        await crashes.run(store, "run")
        SEEN.clear()
        store.reads.clear()
        plan, outcome = await crashes.resume(store, "run", "again")
        assert outcome.status == "SUCCESS"
        assert (SEEN, store.reads) == ([], {})
        assert plan.passed == {"out", "end"}
        assert len(await payloads(crashes)) == 2 * len(LARGE)


# --- PostgreSQL ----------------------------------------------------------------------------------


@pytest.mark.durable
async def test_a_run_of_references_is_recorded_and_goes_on_in_a_database(
    postgres: Database, world: Any
) -> None:
    from yukta_rx.durability.postgres.blobs import PostgresBlobStore
    from yukta_rx.durability.postgres.checkpoints import PostgresNodeCheckpointStore

    blobs = PostgresBlobStore(postgres, POOL.call)
    store = PostgresNodeCheckpointStore(postgres, blobs=blobs, claim_bytes=LIMIT)
    await store.start()
    nodes = {"in": "LARGE", "a": "SEES", "b": "AWAITS", "c": "CHANGES", "out": "COLLECT_TERMINAL"}
    crashes = crashes_of(world, nodes, "in>a>b>c>out", *PLUGINS)
    outcome = await crashes.run(store, "run")
    made = await payloads(crashes)
    both = [one for payload in LARGE for one in (payload, {"n": -payload["n"]})]
    changed = [{**one, "n": one["n"] + 100} for one in both]
    assert outcome.status == "SUCCESS"
    assert made == changed
    for node, wanted in (("in", both), ("a", both), ("b", both), ("c", changed)):
        rows = [msg.payload async for row in store.read("run", node) for _, msg in row.messages]
        assert rows == wanted
    size = sum(len(codec.encode(one)) for one in [*LARGE, *changed[::2]])
    assert blobs.size == size

    _, outcome = await crashes.resume(store, "run", "again")
    assert outcome.status == "SUCCESS"
    assert await payloads(crashes) == made
    await store.clear("run")
    assert await payloads(crashes) == made
    assert blobs.size == size
    await store.clear("again")
    assert blobs.size == 0
    await store.close()
