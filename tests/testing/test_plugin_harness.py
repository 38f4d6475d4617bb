"""PluginHarness: a plugin of any kind in the real engine, from plain tests and in coroutines."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import Field
from reactivex import operators as rx

from yukta_rx import (
    BadInputError,
    Message,
    NodeContext,
    PluginConfig,
    ProcessorPlugin,
    TaskStatus,
    processor,
    terminal,
    to_port,
    trigger,
)
from yukta_rx.errors import ConfigError, DefinitionError
from yukta_rx.plugins.registry import PluginRegistry
from yukta_rx.testing import PluginHarness, run_virtual, virtual_time
from yukta_rx.testing.clock import DeadlockError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

pytestmark = pytest.mark.feature("EXT-01")


class Times(PluginConfig):
    factor: int = Field(2, description="What numbers are multiplied by.")


# -- one plugin per shape; each doubles numbers and fails at 13


def doubled(msg: Message, cfg: Times, ctx: NodeContext) -> int:
    ctx.heartbeat()
    ctx.count("seen")
    ctx.log(f"got {msg.payload}")
    if msg.payload == 13:
        raise LookupError("thirteen")
    return int(msg.payload) * cfg.factor


@processor("ON_LOOP", config=Times, blocking=False)
def on_loop(msg: Message, cfg: Times, ctx: NodeContext) -> int:
    """Double on the loop."""
    return doubled(msg, cfg, ctx)


@processor("IN_THREAD", config=Times)
def in_thread(msg: Message, cfg: Times, ctx: NodeContext) -> int:
    """Double in a thread."""
    return doubled(msg, cfg, ctx)


@processor("AWAITED", config=Times)
async def awaited(msg: Message, cfg: Times, ctx: NodeContext) -> int:
    """Double after three seconds."""
    await ctx.clock.sleep(3)
    return doubled(msg, cfg, ctx)


@processor("GENERATED", config=Times)
async def generated(msg: Message, cfg: Times, ctx: NodeContext) -> AsyncIterator[int]:
    """Double, as a generator."""
    yield doubled(msg, cfg, ctx)


@processor("STREAMED", config=Times)
class Streamed(ProcessorPlugin):
    """Double a stream."""

    async def transform(self, stream: Any, cfg: Times, ctx: NodeContext) -> AsyncIterator[int]:
        async for msg in stream:
            yield doubled(msg, cfg, ctx)


@processor("OBSERVED", config=Times)
class Observed(ProcessorPlugin):
    """Double a stream with Rx operators."""

    def transform(self, stream: Any, cfg: Times, ctx: NodeContext) -> Any:
        return stream.pipe(rx.map(lambda msg: doubled(msg, cfg, ctx)))


SHAPES = [on_loop, in_thread, awaited, generated, Streamed, Observed]
every_shape = pytest.mark.parametrize("plugin", SHAPES, ids=lambda it: it.spec.type)
# Rx operators take from their input whatever is there.
paced_shapes = pytest.mark.parametrize("plugin", SHAPES[:-1], ids=lambda it: it.spec.type)
# A stream plugin has no attempts at a message.
functions = pytest.mark.parametrize("plugin", SHAPES[:-2], ids=lambda it: it.spec.type)


@every_shape
def test_what_is_sent_comes_out_of_every_shape(plugin: Any) -> None:
    with PluginHarness(plugin, {"factor": 3}) as h:
        assert h.send(1, 2).payloads == [3, 6]
        assert h.send(3).payloads == [9]

        assert h.outputs.payloads == [3, 6, 9]
        assert h.status is TaskStatus.RUNNING
        assert (h.errors, h.dropped) == ([], 0)


@every_shape
def test_what_the_plugin_says_of_itself_is_kept(plugin: Any) -> None:
    with PluginHarness(plugin) as h:
        h.send(1, 2)
        h.send(3)

        assert h.logs == [("got 1", "stdout"), ("got 2", "stdout"), ("got 3", "stdout")]
        assert h.metrics == {"seen": 3}
        assert h.heartbeats == 3


@paced_shapes
def test_a_failure_is_told_and_the_next_send_begins_anew(plugin: Any) -> None:
    with PluginHarness(plugin) as h:
        assert h.send(1, Message.of(13, id="bad"), 2, 3).payloads == [2]

        [failure] = h.errors
        assert isinstance(failure.exception, LookupError)
        assert (failure.kind, failure.detail, failure.ended) == ("LookupError", "thirteen", True)
        assert failure.message_id == "bad"
        assert h.dropped == 2
        assert h.status is TaskStatus.FAILURE

        assert h.send(4).payloads == [8]
        assert h.status is TaskStatus.RUNNING
        assert (len(h.errors), h.dropped, h.metrics["seen"]) == (1, 2, 3)


@every_shape
def test_the_input_can_end(plugin: Any) -> None:
    with PluginHarness(plugin) as h:
        h.send(1)

        assert h.complete() == []
        assert h.status is TaskStatus.SUCCESS


@paced_shapes
def test_every_right_shape_keeps_the_three_promises(plugin: Any) -> None:
    with PluginHarness(plugin) as h:
        h.assert_back_pressure(1, 2, max_in_flight=2)
        h.assert_idempotent(5)
        # Real seconds for the one in a thread, on a machine that may be busy.
        h.assert_cancels_within(4, 1, 2)

        assert (h.outputs, h.errors, h.status) == ([], [], None)


# -- the engine's policies


@functions
def test_a_message_that_is_given_up_is_told_and_the_run_goes_on(plugin: Any) -> None:
    with PluginHarness(plugin, {"engine": {"onError": "CONTINUE"}}) as h:
        assert h.send(1, Message.of(13, id="bad"), 2).payloads == [2, 4]

        [failure] = h.errors
        assert (failure.kind, failure.detail, failure.message_id) == (
            *("LookupError", "thirteen"),
            "bad",
        )
        assert (failure.exception, failure.attempts, failure.ended) == (None, 1, False)
        assert (h.status, h.dropped) == (TaskStatus.RUNNING, 0)


@functions
def test_retries_are_waited_for_in_virtual_time(plugin: Any) -> None:
    retry = {"maxAttempts": 3, "backoffMs": 10_000, "maxBackoffMs": 20_000}
    with PluginHarness(plugin, {"engine": {"retry": retry}}) as h:
        assert h.send(1, 13, 2).payloads == [2]

        [failure] = h.errors
        assert (failure.attempts, failure.ended) == (3, True)
        assert isinstance(failure.exception, LookupError)
        assert h.metrics == {"seen": 4}
        assert h.send(4).payloads == [8]


def test_dead_letters_leave_by_the_port_error() -> None:
    with PluginHarness(on_loop, {"engine": {"onError": "ROUTE"}}) as h:
        sent = h.send(1, 13, 2)

        assert sent.to(None).payloads == [2, 4]
        assert sent.to("error").payloads == [13]
        assert sent.to("error")[0].headers["failure.exception"] == "LookupError"
        assert len(h.errors) == 1


def test_what_an_edge_buffer_has_no_room_for_leaves_by_the_port_dropped() -> None:
    with PluginHarness(awaited, {"engine": {"edgeBuffer": {"size": 2}}}) as h:
        sent = h.send(*range(1, 9))

        kept = [payload // 2 for payload in sent.to(None).payloads]
        assert len(kept) < 8
        assert sorted([*kept, *sent.to("dropped").payloads]) == list(range(1, 9))
        h.complete()
        assert h.dropped == 0


def test_several_messages_at_once_are_waited_for_too() -> None:
    with PluginHarness(awaited, {"engine": {"concurrency": {"max": 4}}}) as h:
        assert [output.time for output in h.send(1, 2, 3, 4, 5)] == [3, 3, 3, 3, 6]


# -- time


def test_time_passes_as_calls_need_it() -> None:
    with PluginHarness(awaited) as h:
        start = time.perf_counter()
        h.send(*range(13))

        assert [output.time for output in h.outputs] == [3.0 * n for n in range(1, 14)]
        assert time.perf_counter() - start < 3


def test_a_call_that_says_nothing_for_too_long_is_timed_out_as_in_any_run() -> None:
    @processor("HANGS", default_timeout=10)
    async def hangs(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        await asyncio.Event().wait()

    with PluginHarness(hangs) as h:
        h.send(1)

        assert h.status is TaskStatus.TIMED_OUT
        assert h.errors[0].kind == "IdleTimeoutError"


def test_a_plugin_that_is_never_done_is_told_after_a_while() -> None:
    @processor("BUSY")
    async def busy(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        while True:
            await asyncio.sleep(1)
            ctx.heartbeat()

    with PluginHarness(busy, patience=60) as h:
        with pytest.raises(AssertionError, match="60 s of virtual time after it works on what"):
            h.send(1)

        assert h.heartbeats == 60


def test_what_a_plugin_emits_later_comes_as_time_passes() -> None:
    with PluginHarness(PluginRegistry.load().get("BATCH"), {"size": 3, "maxWaitMs": 500}) as h:
        assert h.send(1, 2, 3, 4).payloads == [{"items": [1, 2, 3]}]
        assert h.advance(0.4) == []
        assert h.advance(0.2).payloads == [{"items": [4]}]
        assert h.send(5) == []
        assert h.complete().payloads == [{"items": [5]}]


# -- what stays between messages


def test_state_lives_as_long_as_the_run() -> None:
    calls: list[str] = []

    def begin(cfg: Any, ctx: NodeContext) -> None:
        calls.append("open")
        ctx.state = 0

    @processor("COUNTS", open=begin, close=lambda cfg, ctx: calls.append("close"), blocking=False)
    def counts(msg: Message, cfg: Any, ctx: NodeContext) -> int:
        ctx.state += 1
        if msg.payload == "fail":
            raise LookupError
        return int(ctx.state)

    with PluginHarness(counts) as h:
        assert h.send("a", "b").payloads == [1, 2]
        assert h.send("c").payloads == [3]
        assert calls == ["open"]

        h.send("fail")
        assert h.send("d").payloads == [1]
        assert calls == ["open", "close", "open"]

    assert calls == ["open", "close", "open", "close"]


def test_a_plugin_that_cannot_be_opened_is_a_failure_without_a_message() -> None:
    def begin(cfg: Any, ctx: NodeContext) -> None:
        raise OSError("no such host")

    @processor("SHUT", open=begin, blocking=False)
    def shut(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        """Never called."""

    with PluginHarness(shut) as h:
        h.send(1, 2)

        assert [(it.kind, it.detail, it.message_id) for it in h.errors] == [
            ("OSError", "no such host", None)
        ]
        assert h.dropped == 2


def test_a_stream_plugin_that_ends_by_itself_leaves_the_rest() -> None:
    @processor("FIRST_TWO")
    class FirstTwo(ProcessorPlugin):
        async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
            for _ in range(2):
                yield await anext(stream)

    with PluginHarness(FirstTwo) as h:
        assert h.send(1, 2, 3, 4, 5).payloads == [1, 2]

        assert (h.status, h.dropped, h.errors) == (TaskStatus.SUCCESS, 3, [])


# -- messages, ports, options


def test_messages_keep_their_id_and_headers_on_the_way_in() -> None:
    @processor("SHOWS", blocking=False)
    def shows(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        return [msg.id, dict(msg.headers)]

    with PluginHarness(shows) as h:
        sent = h.send(Message.of(1, {"k": "v"}, id="mine"))

        assert sent.payloads == [["mine", {"k": "v"}]]
        assert sent[0].headers == {"k": "v"}
        assert sent[0].message.cause == "mine"
        assert sent.ids == [sent[0].id]


def test_ids_are_the_same_in_every_test() -> None:
    first, second = [PluginHarness(on_loop).send(1, 2).ids for _ in range(2)]

    assert first == second
    assert len(set(first)) == 2


def test_what_leaves_by_a_port_says_so() -> None:
    @processor("SORTS", ports=["odd"], blocking=False)
    def sorts(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        return to_port("odd", msg) if msg.payload % 2 else msg

    with PluginHarness(sorts) as h:
        sent = h.send(1, 2, 3)

        assert sent.to("odd").payloads == [1, 3]
        assert sent.to(None).payloads == [2]


def test_ports_that_come_of_the_options_are_connected_too() -> None:
    switch = PluginRegistry.load().get("SWITCH")
    with PluginHarness(switch, {"cases": [{"port": "big", "when": "payload > 9"}]}) as h:
        assert [(out.payload, out.port) for out in h.send(10)] == [(10, "big")]


def test_options_may_read_the_message() -> None:
    with PluginHarness(on_loop, {"factor": "${payload}"}) as h:
        assert h.send(3, 5).payloads == [9, 25]


def test_the_declared_example_is_the_default_configuration() -> None:
    @processor("EXAMPLE", config=Times, example={"factor": 7}, blocking=False)
    def example(msg: Message, cfg: Times, ctx: NodeContext) -> int:
        return cfg.factor

    assert PluginHarness(example).send(1).payloads == [7]
    assert PluginHarness(example, {}).send(1).payloads == [2]


def test_wrong_options_are_refused_by_name() -> None:
    with pytest.raises(DefinitionError) as caught:
        PluginHarness(on_loop, {"faktor": 3})

    assert [fault.option for fault in caught.value.errors] == ["faktor"]


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"yukta\.nothing"):
        PluginHarness(on_loop, settings={"yukta.nothing": 1})


def test_what_is_no_plugin_is_refused() -> None:
    with pytest.raises(TypeError, match="is not a plugin"):
        PluginHarness(print)


def test_bad_input_of_an_option_is_a_failure_that_names_it() -> None:
    with PluginHarness(on_loop, {"factor": "${payload.by}"}) as h:
        h.send({"by": "many"})

        assert isinstance(h.errors[0].exception, BadInputError)
        assert "factor" in h.errors[0].detail


# -- triggers


@trigger("EVERY_MINUTE", ports=["odd"])
async def every_minute(cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
    """Count to five, one a minute."""
    for n in range(1, 6):
        await ctx.clock.sleep(60)
        yield to_port("odd", n) if n % 2 else n


@trigger("ENDLESS", blocking=False)
def endless(cfg: Any, ctx: NodeContext) -> Iterator[int]:
    """Count for ever."""
    n = 0
    while True:
        yield n
        n += 1


@trigger("ENDLESS_IN_THREAD")
def endless_in_thread(cfg: Any, ctx: NodeContext) -> Iterator[int]:
    """Count for ever, in a thread."""
    n = 0
    while True:
        yield n
        n += 1


@pytest.mark.parametrize("plugin", [endless, endless_in_thread], ids=["loop", "thread"])
def test_a_trigger_gives_what_it_is_asked_for_and_no_more(plugin: Any) -> None:
    with PluginHarness(plugin) as h:
        assert h.take(3).payloads == [0, 1, 2]
        assert h.take(200).payloads == list(range(3, 203))

        assert len(h.outputs) == 203
        h.assert_back_pressure(max_in_flight=64)
        h.assert_cancels_within(4)


def test_time_passes_as_a_trigger_needs_it_and_its_ports_are_seen() -> None:
    with PluginHarness(every_minute) as h:
        taken = h.take(2)

        assert [(out.payload, out.port, out.time) for out in taken] == [
            (1, "odd", 60.0),
            (2, None, 120.0),
        ]
        assert h.take(9).payloads == [3, 4, 5]
        assert h.status is TaskStatus.SUCCESS
        assert h.take(1) == []


def test_a_trigger_reads_the_start_payload() -> None:
    api = PluginRegistry.load().get("API_TRIGGER")
    with PluginHarness(api, {"splitPath": "items"}, payload={"items": [1, 2, 3]}) as h:
        assert h.take(2).payloads == [1, 2]
        assert h.complete().payloads == [3]


def test_a_trigger_reads_files_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    files = PluginRegistry.load().get("FILE_TRIGGER")

    with PluginHarness(files, {"path": "lines.txt", "format": "text"}, base_dir=tmp_path) as h:
        assert len(h.complete()) == 2


def test_a_trigger_that_fails_is_told() -> None:
    @trigger("BREAKS", blocking=False)
    def breaks(cfg: Any, ctx: NodeContext) -> Iterator[int]:
        yield 1
        raise LookupError("gone")

    with PluginHarness(breaks) as h:
        assert h.take(5).payloads == [1]
        assert [failure.kind for failure in h.errors] == ["LookupError"]
        assert h.dropped == 0


def test_triggers_take_and_others_are_sent() -> None:
    with pytest.raises(TypeError, match=r"take\(n\) asks it for some"):
        PluginHarness(endless).send(1)
    with pytest.raises(TypeError, match="only a trigger emits by itself"):
        PluginHarness(on_loop).take(1)
    with pytest.raises(TypeError, match="a trigger takes no message"):
        PluginHarness(endless).assert_idempotent(1)
    with pytest.raises(ValueError, match="1 message or more"):
        PluginHarness(endless).take(0)


# -- terminals


def test_the_outputs_of_a_terminal_are_what_it_took() -> None:
    written: list[Any] = []

    @terminal("WRITES", finish=lambda cfg, ctx: written.append("end"), blocking=False)
    def writes(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        if msg.payload == "full":
            raise OSError("disk full")
        written.append(msg.payload)

    with PluginHarness(writes) as h:
        assert h.send(1, 2).payloads == [1, 2]
        assert written == [1, 2]
        h.complete()
        assert written == [1, 2, "end"]

        assert h.send(3, "full", 4).payloads == [3]
        assert h.errors[0].detail == "disk full"
        assert h.dropped == 1
        h.assert_idempotent(5)
        h.assert_cancels_within(1)


def test_a_finish_that_fails_is_a_failure() -> None:
    def finish(cfg: Any, ctx: NodeContext) -> None:
        raise OSError("cannot rename")

    @terminal("RENAMES", finish=finish)
    async def renames(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        """Take everything."""

    with PluginHarness(renames) as h:
        h.send(1)
        h.complete()

        assert [failure.detail for failure in h.errors] == ["cannot rename"]
        assert h.status is TaskStatus.FAILURE


def test_nobody_can_hold_up_a_terminal() -> None:
    with pytest.raises(TypeError, match="a terminal emits nothing"):
        PluginHarness(PluginRegistry.load().get("NULL_TERMINAL")).assert_back_pressure(
            max_in_flight=1
        )


# -- promises that are broken


@processor("HOARDS")
class Hoards(ProcessorPlugin):
    """Take everything, whether somebody wants it or not."""

    async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
        kept: list[Any] = []
        came = asyncio.Event()

        async def read() -> None:
            async for msg in stream:
                kept.append(msg)
                came.set()

        ctx.spawn(read())
        while True:
            await came.wait()
            came.clear()
            while kept:
                yield kept.pop(0)


def test_hoarding_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"it took 510 messages .* 10 may be in flight"):
        PluginHarness(Hoards).assert_back_pressure(max_in_flight=10)


def test_rx_operators_that_take_all_there_is_are_noticed() -> None:
    with pytest.raises(AssertionError, match="it took 502 messages"):
        PluginHarness(Observed).assert_back_pressure(1, max_in_flight=2)


def test_a_plugin_that_fails_is_not_taken_for_one_that_waits() -> None:
    with pytest.raises(AssertionError, match="it failed while nobody took its outputs: LookupE"):
        PluginHarness(on_loop).assert_back_pressure(13, max_in_flight=2)


def test_a_trigger_that_emits_more_than_it_may_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"it emitted 1 messages .* 0 may be in flight"):
        PluginHarness(endless).assert_back_pressure(max_in_flight=0)


def test_back_pressure_that_was_not_put_to_the_test_is_no_success() -> None:
    @processor("SWALLOWS", blocking=False)
    def swallows(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        """Emit nothing."""

    with pytest.raises(AssertionError, match="it emitted nothing for these payloads"):
        PluginHarness(swallows).assert_back_pressure(max_in_flight=10)


def test_ids_that_change_are_noticed() -> None:
    numbers = iter(range(100))

    @processor("NEW_IDS", blocking=False)
    def new_ids(msg: Message, cfg: Any, ctx: NodeContext) -> Message:
        return Message.of(msg.payload, id=f"id-{next(numbers)}")

    with pytest.raises(AssertionError, match="gave other ids the second time"):
        PluginHarness(new_ids).assert_idempotent(1)


def test_payloads_that_change_are_noticed_in_functions_and_in_streams() -> None:
    numbers = iter(range(100))

    @processor("NUMBERED", blocking=False)
    def numbered(msg: Message, cfg: Any, ctx: NodeContext) -> int:
        return next(numbers)

    @processor("NUMBERED_STREAM")
    class NumberedStream(ProcessorPlugin):
        async def transform(self, stream: Any, cfg: Any, ctx: NodeContext) -> AsyncIterator[Any]:
            async for _ in stream:
                yield next(numbers)

    for plugin in (numbered, NumberedStream):
        with pytest.raises(AssertionError, match="message m gave other payloads the second time"):
            PluginHarness(plugin).assert_idempotent(Message.of(1, id="m"))


def test_a_second_delivery_that_fails_is_noticed() -> None:
    seen: set[str] = set()

    @terminal("ONCE_ONLY", blocking=False)
    def once_only(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        if msg.id in seen:
            raise LookupError("twice")
        seen.add(msg.id)

    with pytest.raises(AssertionError, match="it failed: LookupError: twice at message"):
        PluginHarness(once_only).assert_idempotent({"n": 1})


def test_a_call_that_ignores_cancellation_is_noticed() -> None:
    @processor("STUBBORN")
    async def stubborn(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        for _ in range(20):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    with pytest.raises(AssertionError, match="it took 5 s to end after it was cancelled; 2 s"):
        PluginHarness(stubborn).assert_cancels_within(2)


@pytest.mark.slow
def test_a_thread_that_ignores_cancellation_is_noticed_in_real_time() -> None:
    never = threading.Event()

    @processor("DEAF")
    def deaf(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        never.wait(1.5)

    @processor("LISTENS")
    def listens(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        for _ in range(500):
            if ctx.cancelled:
                return
            never.wait(0.01)

    with pytest.raises(AssertionError, match=r"0\.2 s were allowed"):
        PluginHarness(deaf).assert_cancels_within(0.2)
    assert PluginHarness(listens).assert_cancels_within(4) is None


# -- in a coroutine


@virtual_time
async def test_in_a_coroutine_the_same_methods_are_awaited() -> None:
    async with PluginHarness(awaited, {"factor": 3}) as h:
        assert (await h.send(1, 2)).payloads == [3, 6]
        assert await h.advance(10) == []
        assert asyncio.get_running_loop().time() == 16
        await h.assert_back_pressure(1, max_in_flight=2)
        await h.assert_idempotent(1)
        await h.assert_cancels_within(1, 1)
        assert await h.complete() == []

        assert h.outputs.payloads == [3, 6]
        assert h.metrics == {"seen": 2}

    async with PluginHarness(every_minute) as clock:
        assert (await clock.take(1)).payloads == [1]


def test_no_task_is_left_of_a_harness_in_a_coroutine() -> None:
    async def main() -> set[str]:
        async with PluginHarness(awaited) as h:
            await h.send(1)
        return {task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}}

    assert run_virtual(main()) == set()


def test_real_time_is_refused() -> None:
    async def main() -> None:
        async with PluginHarness(on_loop):
            pass

    with pytest.raises(TypeError, match="PluginHarness needs virtual time: run the test with"):
        asyncio.run(main())


@virtual_time
async def test_the_plain_form_is_refused_in_a_coroutine() -> None:
    with pytest.raises(RuntimeError, match="in a coroutine write `async with PluginHarness"):
        PluginHarness(on_loop).send(1)


# -- closing


def test_a_harness_that_is_let_go_closes_its_plugin() -> None:
    closed: list[bool] = []

    @processor("CLOSES", close=lambda cfg, ctx: closed.append(True), blocking=False)
    def closes(msg: Message, cfg: Any, ctx: NodeContext) -> Message:
        return msg

    h = PluginHarness(closes)
    h.send(1)
    assert closed == []

    del h
    gc.collect()

    assert closed == [True]


def test_a_closed_harness_still_shows_what_it_saw() -> None:
    with PluginHarness(on_loop) as h:
        h.send(1)

    h.close()
    assert h.outputs.payloads == [2]
    with pytest.raises(RuntimeError, match="the harness is closed"):
        h.send(2)


def test_a_harness_let_go_while_a_loop_runs_is_closed_by_the_next_one() -> None:
    closed: list[bool] = []

    @processor("CLOSES_TOO", close=lambda cfg, ctx: closed.append(True), blocking=False)
    def closes(msg: Message, cfg: Any, ctx: NodeContext) -> Message:
        return msg

    kept = [PluginHarness(closes)]
    kept[0].send(1)

    async def main() -> None:
        kept.clear()

    asyncio.run(main())
    assert closed == []

    PluginHarness(on_loop).send(1)

    assert closed == [True]


# -- the option that the harness passes on


class Labelled(PluginConfig):
    label: Annotated[str, Field(description="What is written.")]


def test_a_missing_option_is_refused_before_anything_runs() -> None:
    @processor("LABELS", config=Labelled)
    async def labels(msg: Message, cfg: Labelled, ctx: NodeContext) -> str:
        return cfg.label

    with pytest.raises(DefinitionError, match="label"):
        PluginHarness(labels)
    assert PluginHarness(labels, {"label": "x"}).send(1).payloads == ["x"]


def test_a_deadlock_is_told_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yukta_rx.testing.clock.PATIENCE", 0.05)
    never = threading.Event()

    @processor("STUCK", default_timeout=None)
    def stuck(msg: Message, cfg: Any, ctx: NodeContext) -> None:
        never.wait(10)

    h = PluginHarness(stuck)
    try:
        with pytest.raises(DeadlockError):
            h.send(1)
    finally:
        never.set()
