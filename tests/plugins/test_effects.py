"""Effects: done once for a message, by however many, and recorded before anything else happens."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from yukta_rx import Message, NodeContext, ProcessorPlugin, processor
from yukta_rx.durability.memory.effects import MemoryEffectStore
from yukta_rx.durability.memory.histories import MemoryHistoryStore
from yukta_rx.durability.memory.key_values import MemoryKeyValueStore
from yukta_rx.durability.stores.effects import LARGEST, EffectKey
from yukta_rx.errors import BadInputError, PluginContractError, StoreUnavailableError
from yukta_rx.plugins.context import CallContext
from yukta_rx.plugins.effects import Effects
from yukta_rx.plugins.keeping import Keeping
from yukta_rx.streams.clock import LoopClock
from yukta_rx.testing import PluginHarness, WorkflowHarness, virtual_time

pytestmark = pytest.mark.feature("DUR-02")

KEY = EffectKey("line", "n", "m", "charge")


class Failing(MemoryEffectStore):
    """A store that is away while `away`, and waits for `gate` before it records."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def find(self, key: EffectKey) -> bytes | None:
        if self.away:
            raise StoreUnavailableError("no answer")
        return await super().find(key)

    async def record(self, key: EffectKey, result: bytes) -> bytes:
        await self.gate.wait()
        if self.away:
            raise StoreUnavailableError("no answer")
        return await super().record(key, result)


class Doing:
    """Something that is done, and how often it was."""

    def __init__(self, result: Any = "done") -> None:
        self.result = result
        self.times = 0
        self.going = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None

    async def __call__(self) -> Any:
        self.times += 1
        self.going.set()
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return self.result


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# --- once ----------------------------------------------------------------------------------------


async def test_it_is_done_once_and_what_it_gave_is_given_again() -> None:
    effects, charge = Effects(Failing()), Doing({"id": 7, "parts": (1, b"x")})

    given = [await effects.once(KEY, charge) for _ in range(3)]

    assert given == [{"id": 7, "parts": (1, b"x")}] * 3
    assert charge.times == 1
    assert given[0] is not given[1]
    assert await effects.once(KEY._replace(message_id="m2"), charge) == given[0]
    assert charge.times == 2


async def test_a_plain_function_is_as_good() -> None:
    effects = Effects(Failing())

    assert await effects.once(KEY, lambda: None) is None
    assert await effects.once(KEY, lambda: 1 / 0) is None


async def test_nothing_is_recorded_of_what_fails() -> None:
    effects, charge = Effects(Failing()), Doing()
    charge.error = ConnectionError("no network")

    with pytest.raises(ConnectionError, match="no network"):
        await effects.once(KEY, charge)
    charge.error = None

    assert effects.store.kept == 0
    assert await effects.once(KEY, charge) == "done"
    assert charge.times == 2


async def test_who_wants_the_same_waits_and_nobody_else() -> None:
    effects, charge = Effects(Failing()), Doing()
    charge.go_on.clear()
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(effects.once(KEY, charge)) for _ in range(5)]
        await charge.going.wait()
        assert await effects.once(KEY._replace(name="other"), lambda: 1) == 1
        await settle()
        assert charge.times == 1
        assert not any(one.done() for one in waiting)
        charge.go_on.set()

    assert [one.result() for one in waiting] == ["done"] * 5
    assert charge.times == 1


async def test_where_one_fails_or_is_cancelled_the_next_one_does_it() -> None:
    effects = Effects(Failing())
    failing, hanging, good = Doing(), Doing(), Doing()
    failing.go_on.clear()
    hanging.go_on.clear()
    failing.error = ValueError("no")
    first = asyncio.ensure_future(effects.once(KEY, failing))
    await failing.going.wait()
    second = asyncio.ensure_future(effects.once(KEY, hanging))
    await settle()
    third = asyncio.ensure_future(effects.once(KEY, good))
    await settle()
    assert (failing.times, hanging.times, good.times) == (1, 0, 0)

    failing.go_on.set()
    await hanging.going.wait()
    with pytest.raises(ValueError, match="no"):
        await first
    second.cancel()

    assert await third == "done"
    assert (failing.times, hanging.times, good.times) == (1, 1, 1)


async def test_what_was_done_is_recorded_also_if_nobody_waits_any_more() -> None:
    store = Failing()
    effects, charge = Effects(store), Doing()
    store.gate.clear()
    first = asyncio.ensure_future(effects.once(KEY, charge))
    await charge.going.wait()
    await settle()
    first.cancel()
    await settle()
    assert first.cancelled()
    second = asyncio.ensure_future(effects.once(KEY, charge))
    await settle()
    store.gate.set()

    assert await second == "done"
    assert charge.times == 1
    assert store.kept == 1


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (object(), "JSON values"),
        ({"a": [1, {2}]}, "/a/1"),
        ("half \ud83d", "surrogate"),
        ("x" * LARGEST, "may have"),
    ],
)
async def test_what_cannot_be_recorded_is_said_and_not_tried_again_by_a_policy(
    result, told
) -> None:
    effects, charge = Effects(Failing()), Doing(result)

    with pytest.raises(PluginContractError, match=told) as caught:
        await effects.once(KEY, charge)

    assert "node n" in caught.value.detail
    assert "once(`charge`)" in caught.value.detail
    assert effects.store.kept == 0


async def test_a_store_that_gives_no_answer_is_never_not_done() -> None:
    store = Failing()
    effects, charge = Effects(store), Doing()
    store.away = True

    with pytest.raises(StoreUnavailableError):
        await effects.once(KEY, charge)
    assert charge.times == 0

    store.away = False
    assert await effects.once(KEY, charge) == "done"


async def test_what_was_done_but_not_recorded_is_recorded_later_and_not_done_again() -> None:
    store = Failing()
    effects, charge = Effects(store), Doing()
    charge.go_on.clear()
    first = asyncio.ensure_future(effects.once(KEY, charge))
    await charge.going.wait()
    store.away = True
    charge.go_on.set()
    with pytest.raises(StoreUnavailableError):
        await first

    with pytest.raises(StoreUnavailableError):
        await effects.once(KEY, charge)
    store.away = False

    assert await effects.once(KEY, charge) == "done"
    assert charge.times == 1
    assert store.kept == 1
    assert effects._unrecorded == {}


async def test_only_so_many_results_wait_for_a_store(caplog) -> None:
    store = Failing()
    effects = Effects(store, unrecorded=2)

    def fall_away() -> int:
        store.away = True
        return 1

    for name in "abc":
        store.away = False
        with pytest.raises(StoreUnavailableError):
            await effects.once(KEY._replace(name=name), fall_away)

    assert [key.name for key in effects._unrecorded] == ["b", "c"]
    assert "`a` of message m was done, cannot be recorded" in caplog.text


async def test_once_inside_of_itself_is_refused_and_not_waited_for() -> None:
    effects = Effects(Failing())

    with pytest.raises(PluginContractError, match="inside of itself"):
        await effects.once(KEY, lambda: effects.once(KEY, lambda: 1))

    assert await effects.once(KEY, lambda: 2) == 2


async def test_a_store_in_memory_does_as_well() -> None:
    effects, charge = Effects(MemoryEffectStore()), Doing()

    assert [await effects.once(KEY, charge) for _ in range(2)] == ["done", "done"]
    assert charge.times == 1
    assert effects._under_way == {}


async def test_a_lineage_can_be_forgotten() -> None:
    effects, charge = Effects(Failing()), Doing()
    for lineage in ("line", "line2"):
        await effects.once(KEY._replace(lineage=lineage), charge)

    await effects.forget("line")
    await effects.once(KEY, charge)
    await effects.once(KEY._replace(lineage="line2"), charge)

    assert charge.times == 3


# --- in threads ----------------------------------------------------------------------------------


async def test_threads_do_it_once_too_and_share_what_it_gave() -> None:
    effects, calls, here = Effects(Failing()), [], []
    begin = threading.Barrier(4)

    def charge() -> list[int]:
        calls.append(threading.get_ident())
        return [len(calls)]

    def work() -> Any:
        here.append(threading.get_ident())
        begin.wait(10)
        return effects.once_blocking(KEY, charge)

    given = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))

    assert given == [[1]] * 4
    assert len(calls) == 1
    assert calls[0] in here
    assert await effects.once(KEY, lambda: "never") == [1]
    await effects.close()


async def test_in_a_thread_nothing_is_recorded_of_what_fails() -> None:
    effects = Effects(Failing())

    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(effects.once_blocking, KEY, lambda: 1 // 0)
    with pytest.raises(PluginContractError, match="plain function"):
        await asyncio.to_thread(effects.once_blocking, KEY, Doing())
    with pytest.raises(PluginContractError, match="JSON values"):
        await asyncio.to_thread(effects.once_blocking, KEY, object)

    assert await asyncio.to_thread(effects.once_blocking, KEY, lambda: 1) == 1
    assert effects._under_way == {}


async def test_the_loop_is_not_held_up_by_mistake() -> None:
    with pytest.raises(RuntimeError, match=r"await ctx\.once"):
        Effects(Failing()).once_blocking(KEY, lambda: 1)


# --- in plugins ----------------------------------------------------------------------------------


def keeping(store: MemoryEffectStore | None = None) -> Keeping:
    """What plugins keep, in memory."""
    clock = LoopClock(asyncio.get_running_loop())
    return Keeping(store or Failing(), MemoryKeyValueStore(), MemoryHistoryStore(), clock)


def graph(kind: str, **config: Any) -> dict[str, Any]:
    return {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 20}},
            {"nodeId": "do", "type": kind, "config": config},
            {"nodeId": "out", "type": "COLLECT_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "do"}, {"source": "do", "target": "out"}],
    }


class Shop:
    """Plugins that charge for each message and then fail once."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    def plugins(self) -> list[Any]:
        shop = self

        @processor("CHARGE")
        async def charge(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
            """Charge in a coroutine."""

            async def charged() -> str:
                await ctx.clock.sleep(1)
                shop.charged.append(msg.payload["n"])
                return f"receipt {msg.payload['n']}"

            receipt = await ctx.once("charge", charged)
            if ctx.attempt == 1:
                raise ConnectionError("after the charge")
            return receipt

        @processor("CHARGE_IN_THREAD")
        def charge_in_thread(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
            """Charge in a thread."""

            def charged() -> str:
                shop.charged.append(msg.payload["n"])
                return f"receipt {msg.payload['n']}"

            receipt = ctx.once_blocking("charge", charged)
            if ctx.attempt == 1:
                raise ConnectionError("after the charge")
            return receipt

        return [charge, charge_in_thread]


RETRY = {"retry": {"maxAttempts": 2, "backoffMs": 10}}


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("CHARGE", RETRY),
        ("CHARGE", {**RETRY, "concurrency": {"max": 8}}),
        ("CHARGE_IN_THREAD", RETRY),
    ],
)
@virtual_time
async def test_neither_an_attempt_nor_a_resumed_run_charges_again(kind, engine) -> None:
    shop, kept = Shop(), keeping()
    results = []
    for _ in range(2):
        # Of one lineage, as a run and its resumed one are.
        document = graph(kind, engine=engine)
        async with WorkflowHarness(document, shop.plugins(), keeping=kept) as h:
            await h.until(status="SUCCESS")
            results.append(h.results("out").payloads)

    assert results == [[f"receipt {n}" for n in range(20)]] * 2
    assert sorted(shop.charged) == list(range(20))
    assert kept.effects.store.kept == 20


@virtual_time
async def test_no_output_leaves_before_the_record_is_kept() -> None:
    shop, store = Shop(), Failing()
    store.gate.clear()
    document = graph("CHARGE", engine=RETRY)
    async with WorkflowHarness(document, shop.plugins(), keeping=keeping(store)) as h:
        await h.advance(20)
        assert shop.charged == [0]
        assert h.results("out").payloads == []

        store.gate.set()
        await h.until(status="SUCCESS")
        assert shop.charged == list(range(20))


@virtual_time
async def test_a_stream_plugin_names_the_message() -> None:
    @processor("NAMES")
    class Names(ProcessorPlugin):
        """Do something for each message of a stream."""

        async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> Any:
            async for msg in stream:
                n = msg.payload["n"]
                yield await ctx.once("it", lambda n=n: n, msg)

    @processor("FORGETS")
    class Forgets(ProcessorPlugin):
        """Do something for who knows what."""

        async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> Any:
            async for _ in stream:
                yield await ctx.once("it", lambda: 1)

    async with WorkflowHarness(graph("NAMES"), [Names]) as h:
        await h.until(status="SUCCESS")
        assert h.results("out").payloads == list(range(20))
    async with WorkflowHarness(graph("FORGETS"), [Forgets]) as h:
        await h.until(status="FAILURE")
        assert "once(key, fn, msg)" in h.error["detail"]


def test_a_plain_function_on_the_loop_is_told_what_to_do() -> None:
    @processor("PLAIN", blocking=False)
    def plain(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        """Wait where nobody may."""
        return ctx.once_blocking("it", lambda: 1, msg)

    with PluginHarness(plain) as h:
        h.send(1)

        assert "await ctx.once" in h.errors[0].detail


# --- contexts ------------------------------------------------------------------------------------


def context(kept: Keeping | None) -> NodeContext:
    async def blocking(fn: Any, *args: Any) -> Any:
        return fn(*args)

    class Standing:
        def now(self) -> float:
            return 1.0

        async def sleep(self, seconds: float) -> None:
            raise NotImplementedError

    return NodeContext(
        execution_id="run-1",
        session_id="s",
        workflow_id="w",
        node_id="n",
        clock=Standing(),
        log=lambda *_: None,
        count=lambda *_: None,
        blocking=blocking,
        keeping=kept,
    )


async def test_a_call_that_was_left_behind_keeps_its_own_message_and_attempt() -> None:
    ctx = context(keeping())
    first, second = Message.of(1), Message.of(2, id="second")
    left = CallContext(ctx, first)
    later = CallContext(ctx, second)

    assert await later.once("it", lambda: "for the second") == "for the second"
    assert await left.once("it", lambda: "for the first") == "for the first"
    assert (left.attempt, later.attempt) == (1, 1)
    assert await ctx.once("it", lambda: "never", second) == "for the second"


async def test_calls_share_what_belongs_to_the_node() -> None:
    ctx = context(keeping())
    call = CallContext(ctx, Message.of(1))

    call.state = {"a": 1}
    call.heartbeat()
    ctx.cancelled = True

    assert ctx.state == {"a": 1}
    assert ctx.beats == 1
    assert call.cancelled
    assert (call.execution_id, call.lineage, call.clock) == ("run-1", "run-1", ctx.clock)
    with pytest.raises(AttributeError):
        call.mine = 1


async def test_a_node_that_has_ended_does_nothing_more() -> None:
    ctx = context(keeping())
    call = CallContext(ctx, Message.of(1))
    ctx.cancelled = True

    with pytest.raises(BadInputError, match="node n has ended"):
        await call.once("it", lambda: 1)
    with pytest.raises(BadInputError, match="node n has ended"):
        call.once_blocking("it", lambda: 1)
    with pytest.raises(BadInputError, match="node n has ended"):
        await call.kv.incr("n", once="it")


async def test_where_nothing_is_kept_it_says_so() -> None:
    ctx = CallContext(context(None), Message.of(1))

    with pytest.raises(BadInputError, match="nothing here keeps"):
        await ctx.once("it", lambda: 1)
    with pytest.raises(BadInputError, match="nothing here keeps"):
        _ = ctx.kv
    with pytest.raises(BadInputError, match="nothing here keeps"):
        _ = ctx.histories


@pytest.mark.parametrize("key", ["", None, 1, "x" * 2000])
async def test_a_key_is_text(key) -> None:
    ctx = CallContext(context(keeping()), Message.of(1))

    with pytest.raises(TypeError, match="key"):
        await ctx.once(key, lambda: 1)


# --- values and conversations --------------------------------------------------------------------


async def test_a_change_without_a_name_counts_each_time_and_with_one_once_a_message() -> None:
    ctx = context(keeping())
    call, other = CallContext(ctx, Message.of(1)), CallContext(ctx, Message.of(2))

    assert [await call.kv.incr("n") for _ in range(3)] == [1, 2, 3]
    assert [await call.kv.incr("n", once="x") for _ in range(3)] == [4, 4, 4]
    assert await call.kv.incr("n", once="y") == 5
    assert await other.kv.incr("n", once="x") == 6
    assert await call.kv.incr("m", once="x") == 1
    await call.kv.put("n", "text", once="x")
    assert await call.kv.get("n") == "text"
    assert await call.kv.remove("n", "none", once="x") == "text"
    assert await call.kv.get("n", "none") == "none"
    assert await call.kv.remove("n", "none") == "none"


@pytest.mark.parametrize("key", ["", "x" * 501, 5, "half \ud83d"])
async def test_a_key_has_bounds(key) -> None:
    kv = context(keeping()).kv

    for ask in (lambda: kv.get(key), lambda: kv.put(key, 1), lambda: kv.incr(key)):
        with pytest.raises(BadInputError, match="key"):
            await ask()


async def test_a_value_has_bounds() -> None:
    kv = context(keeping()).kv

    with pytest.raises(BadInputError, match="1048576"):
        await kv.put("k", "x" * 1024 * 1024)
    with pytest.raises(BadInputError, match="/a"):
        await kv.put("k", {"a": object()})
    assert await kv.get("k") is None


@pytest.mark.parametrize(
    ("key", "role", "text", "told"),
    [
        ("", "user", "x", "key"),
        ("k" * 501, "user", "x", "key"),
        ("k", "", "x", "role"),
        ("k", "user", 5, "text"),
        ("k", "user", "x" * (1024 * 1024 + 1), "text"),
        ("k", "user", "half \ud83d", "surrogate"),
    ],
)
async def test_a_turn_has_bounds(key, role, text, told) -> None:
    histories = context(keeping()).histories

    with pytest.raises(BadInputError, match=told):
        await histories.append(key, role, text)


async def test_sessions_of_plugins_are_apart_and_can_be_dropped() -> None:
    kept = keeping()
    one, two = context(kept), context(kept)
    two.session_id = "t"
    for ctx in (one, two):
        await ctx.kv.incr("n")
        await ctx.histories.append("chat", "user", ctx.session_id)

    assert await one.kv.get("n") == await two.kv.get("n") == 1
    assert [turn.text for turn in await one.histories.load("chat")] == ["s"]

    await kept.drop_session("s")
    assert await one.kv.get("n") is None
    assert await one.histories.load("chat") == []
    assert await two.kv.get("n") == 1
    assert [turn.text for turn in await two.histories.load("chat")] == ["t"]


async def test_forgetting_a_lineage_lets_everything_be_done_again() -> None:
    kept = keeping()
    call = CallContext(context(kept), Message.of(1))

    async def done() -> list[Any]:
        return [
            await call.once("it", lambda: 1),
            await call.kv.incr("n", once="it"),
            len(await call.histories.append("chat", "user", "x", once="it")),
        ]

    assert await done() == await done() == [1, 1, 1]
    await kept.forget("run-1")
    assert await done() == [1, 2, 2]
