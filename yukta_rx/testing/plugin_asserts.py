"""What a harness can assert about a plugin, each in trials of its own.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
from itertools import cycle, islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.model.message import Message
from yukta_rx.plugins.contract import Shape
from yukta_rx.testing.plugin_trial import SINK, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yukta_rx.testing.observed import Outputs
    from yukta_rx.testing.plugin_trial import PluginTrial, TrialBench

MORE: Final = 500
"""Messages beyond those that a plugin may hold that a trial has for it."""

LONG: Final = 600.0
"""Virtual seconds for which nobody takes what the plugin emits."""

MOMENTS: Final = (0.0, 0.001, 0.1, 1.0)
"""Virtual seconds after the start of a run at which it is cancelled."""

TURNS: Final = 1000
"""Turns of the loop that a run gets to send a call to a thread."""


async def back_pressure(bench: TrialBench, payloads: Sequence[Any], max_in_flight: int) -> None:
    """See how much the plugin takes, or a trigger emits, while nobody takes what it emits.

    Each edge holds one message here, so what the plugin holds shows.

    Raises:
        AssertionError: it is more than `max_in_flight`, it failed, or it emitted nothing.
        TypeError: it is a terminal.
    """
    if bench.ends:
        raise TypeError("a terminal emits nothing, so nobody can hold it up")
    trial = bench.start(Seen(), prefetch=1)
    trial.run.pause(SINK)
    trial.feed.put(islice(cycle(payloads), max_in_flight + MORE))
    await trial.pass_time(LONG)
    counters = trial.node.counters
    error = trial.node.error
    await trial.cancel()
    if error is not None:
        raise AssertionError(f"it failed while nobody took its outputs: {error!r}") from error
    if not counters["out"]:
        raise AssertionError("it emitted nothing for these payloads, so nothing held it up")
    in_flight = counters["out" if bench.triggers else "in"]
    if in_flight > max_in_flight:
        verb = "emitted" if bench.triggers else "took"
        raise AssertionError(
            f"it {verb} {in_flight} messages while nobody took what it emitted; "
            f"{max_in_flight} may be in flight"
        )


async def idempotent(bench: TrialBench, msg: Any, patience: float) -> None:
    """Deliver one message twice, as happens after a crash, and compare what comes of it.

    A function gets it twice in one run; a stream plugin, which may rightly treat the second as one
    more of its stream, in two runs.

    Raises:
        AssertionError: ids or payloads differ, or it failed.
        TypeError: it is a trigger.
    """
    if bench.triggers:
        raise TypeError("a trigger takes no message, so none can be sent to it twice")
    given = _with_own_id(msg)
    if bench.spec.shape is Shape.STREAM:
        deliveries = [await _delivered(bench, given, patience, 1) for _ in range(2)]
        first, second = (outputs for [outputs] in deliveries)
    else:
        first, second = await _delivered(bench, given, patience, 2)
    for what, one, two in (
        ("payloads", first.payloads, second.payloads),
        ("ids", first.ids, second.ids),
    ):
        if one != two:
            raise AssertionError(
                f"message {given.id} gave other {what} the second time: {two}, at first {one}"
            )


def _with_own_id(msg: Any) -> Message:
    if not isinstance(msg, Message):
        return Message.of(msg, id="sent-twice")
    return Message.of(msg.payload, msg.headers, msg.own_id or msg.id)


async def _delivered(bench: TrialBench, msg: Message, patience: float, times: int) -> list[Outputs]:
    """What comes of each of several deliveries of `msg` in one trial."""
    seen = Seen()
    trial = bench.start(seen)
    found = []
    for left in reversed(range(times)):
        before = len(seen.outputs)
        trial.feed.put([msg])
        await trial.settle(patience)
        if not left:
            await trial.ended(patience)
        if seen.failures:
            raise AssertionError(f"it failed: {seen.failures[0]}") from seen.failures[0].exception
        found.append(seen.outputs.since(before))
    return found


async def cancels_within(bench: TrialBench, payloads: Sequence[Any], seconds: float) -> None:
    """Cancel a run at several moments, and see how long the plugin takes to let go.

    In virtual time; of a plugin that works in threads, whose clock nobody can turn, in real time.

    Raises:
        AssertionError: it takes longer than `seconds`.
    """
    blocking = bench.spec.blocking
    for moment in MOMENTS[:2] if blocking else MOMENTS:
        trial = bench.start(Seen())
        trial.feed.put(islice(cycle(payloads), MORE))
        if not blocking:
            await trial.pass_time(moment)
        elif moment:
            await _called(trial)
        virtual, real = trial.loop.time(), perf_counter()
        await trial.cancel()
        await trial.loop.quiet()
        took = perf_counter() - real if blocking else trial.loop.time() - virtual
        if took > seconds:
            raise AssertionError(
                f"it took {took:.3g} s to end after it was cancelled; {seconds:g} s were allowed"
            )


async def _called(trial: PluginTrial) -> None:
    """Wait for a call to be out in a thread; no time may pass, it would wait for the thread."""
    for _ in range(TURNS):
        stage = trial.node.stage
        if trial.over or (stage is not None and stage.working()):
            return
        await asyncio.sleep(0)
