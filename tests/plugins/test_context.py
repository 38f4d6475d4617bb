"""NodeContext: what a plugin may do with the run around it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from yukta_rx.plugins.context import NodeContext


@pytest.mark.feature("ENG-02")
def test_a_heartbeat_marks_the_time_of_the_clock(ctx: NodeContext, clock) -> None:
    clock.time = 12.5

    ctx.heartbeat()

    assert ctx.last_beat == 12.5


@pytest.mark.feature("ENG-02")
def test_lineage_is_the_run_itself_unless_it_goes_on_from_another(ctx: NodeContext) -> None:
    assert ctx.lineage == "run-1"
    assert ctx.attempt == 1
    assert ctx.cancelled is False


@pytest.mark.feature("EXT-02")
def test_a_text_of_several_lines_becomes_several_log_lines(ctx: NodeContext, lines) -> None:
    ctx.log("a\nb\r\n\nc\n")

    assert lines == [("a", "stdout"), ("b", "stdout"), ("", "stdout"), ("c", "stdout")]


@pytest.mark.feature("EXT-02")
def test_a_line_is_altered_in_no_other_way(ctx: NodeContext, lines) -> None:
    text = "a\rdata: b \u2028 \x0b\x1b[31m \t end "

    ctx.log(text, "stderr")

    assert lines == [(text, "stderr")]


@pytest.mark.feature("EXT-02")
def test_an_empty_text_is_an_empty_line(ctx: NodeContext, lines) -> None:
    ctx.log("")

    assert lines == [("", "stdout")]


@pytest.mark.feature("EXT-02")
def test_a_stream_that_does_not_exist_is_refused(ctx: NodeContext) -> None:
    with pytest.raises(ValueError, match="use stdout or stderr"):
        ctx.log("x", "stdlog")


@pytest.mark.feature("EXT-02")
def test_what_is_not_text_is_refused_and_not_guessed_at(ctx: NodeContext) -> None:
    with pytest.raises(TypeError, match="a log line is text, not dict"):
        ctx.log({"a": 1})  # type: ignore[arg-type]


@pytest.mark.feature("EXT-02")
def test_lines_may_be_written_from_many_threads(ctx: NodeContext, lines) -> None:
    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(lambda i: ctx.log(f"{i}\n{i}"), range(200)):
            pass

    assert sorted(int(line) for line, _ in lines) == sorted([*range(200), *range(200)])


@pytest.mark.feature("EXT-01")
def test_outcomes_are_counted(ctx: NodeContext, counts) -> None:
    ctx.count("cached")
    ctx.count("fetched", 3)

    assert counts == [("cached", 1), ("fetched", 3)]


@pytest.mark.feature("EXT-01")
@pytest.mark.parametrize(("outcome", "n"), [("", 1), ("x", -1)])
def test_a_count_without_a_name_or_below_zero_is_refused(ctx: NodeContext, outcome, n) -> None:
    with pytest.raises(ValueError, match="count needs an outcome"):
        ctx.count(outcome, n)


@pytest.mark.feature("ENG-02")
async def test_a_blocking_call_is_awaited_through_the_engine(ctx: NodeContext) -> None:
    assert await ctx.blocking(divmod, 7, 2) == (3, 1)


@pytest.mark.feature("ENG-02")
def test_a_plugin_cannot_hang_attributes_on_its_context(ctx: NodeContext) -> None:
    with pytest.raises(AttributeError):
        ctx.cache = {}  # type: ignore[attr-defined]


@pytest.mark.feature("ENG-02")
async def test_a_task_beside_the_plugin_is_owned_until_it_is_done(ctx: NodeContext) -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    task = ctx.spawn(work(), "reader")
    await task

    assert done.is_set()
    assert task.get_name() == "yukta n reader"


@pytest.mark.feature("ENG-02")
async def test_what_a_plugin_leaves_running_is_cancelled_at_the_end(ctx: NodeContext) -> None:
    task = ctx.spawn(asyncio.Event().wait())

    ctx.release()
    await asyncio.wait([task])

    assert task.cancelled()


def test_releasing_a_context_without_tasks_is_no_error(ctx: NodeContext) -> None:
    assert ctx.release() is None
