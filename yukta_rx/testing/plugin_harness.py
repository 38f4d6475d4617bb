"""PluginHarness: one plugin in a live run of the real engine, in virtual time.

From a plain test function:

    with PluginHarness(greet, {"name": "${payload.name}"}) as h:
        assert h.send({"name": "Ada"}).payloads == [{"text": "hello Ada"}]

and from a coroutine that runs in virtual time (`run_virtual`, `virtual_time`):

    async with PluginHarness(greet, {"name": "Ada"}) as h:
        sent = await h.send({})

The run lasts from the first `send` to `close`, so what a plugin keeps between messages is kept.
When the plugin ends its node, by failing or of itself, the run is over: what was sent and not
taken counts as `dropped`, and the next `send` begins a new run, in which the plugin is opened anew.

Feature: EXT-01.
"""

from __future__ import annotations

import asyncio
import atexit
import weakref
from typing import TYPE_CHECKING, Any, Self, TypeVar

from yukta_rx.plugins.signals import APPROVE
from yukta_rx.testing import plugin_asserts
from yukta_rx.testing.clock import VirtualLoop
from yukta_rx.testing.observed import LogLine, Outputs, lines_of
from yukta_rx.testing.plugin_trial import PLUGIN, PluginTrial, Seen, TrialBench
from yukta_rx.testing.plugins import PAYLOADS
from yukta_rx.testing.watched_run import PATIENCE, virtual_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from yukta_rx.model.status import TaskStatus
    from yukta_rx.testing.observed import Failure

T = TypeVar("T")


class _Findings:
    """What either form of the harness shows."""

    _seen: Seen

    @property
    def outputs(self) -> Outputs:
        """Everything that the plugin emitted so far; of a terminal, what it took."""
        return self._seen.outputs

    @property
    def errors(self) -> list[Failure]:
        """Every failure so far: the exception, and the message that it came of."""
        return self._seen.failures

    @property
    def logs(self) -> list[LogLine]:
        """Every line that the plugin logged so far."""
        return list(lines_of(self._seen.events, PLUGIN))

    @property
    def heartbeats(self) -> int:
        """How often the plugin called `ctx.heartbeat()` so far."""
        return self._seen.beats

    @property
    def metrics(self) -> dict[str, int]:
        """What the plugin counted with `ctx.count` so far, by outcome."""
        return self._seen.counts

    @property
    def dropped(self) -> int:
        """Payloads that were sent and never taken, because the plugin's node ended before."""
        return self._seen.dropped

    @property
    def status(self) -> TaskStatus | None:
        """Status of the plugin's node in the newest run; None before the first."""
        return self._seen.trials[-1].node.status if self._seen.trials else None


class AsyncPluginHarness(_Findings):
    """The harness inside a coroutine: the methods of `PluginHarness`, to be awaited.

    `async with PluginHarness(...)` gives it.
    """

    def __init__(self, bench: TrialBench, patience: float) -> None:
        self._bench = bench
        self._patience = patience
        self._seen = Seen()
        self._trial: PluginTrial | None = None

    async def send(self, *payloads: Any) -> Outputs:
        """See `PluginHarness.send`."""
        if self._bench.triggers:
            raise TypeError("a trigger takes no messages: take(n) asks it for some")
        trial, before = self._live(), len(self.outputs)
        trial.feed.put(payloads)
        await trial.settle(self._patience)
        return self.outputs.since(before)

    async def take(self, n: int) -> Outputs:
        """See `PluginHarness.take`."""
        if not self._bench.triggers:
            raise TypeError("only a trigger emits by itself: send it messages")
        trial, before = self._trial or self._live(), len(self.outputs)
        if not trial.over:
            await trial.taken(n, self._patience)
        return self.outputs.since(before)

    async def advance(self, seconds: float) -> Outputs:
        """See `PluginHarness.advance`."""
        trial, before = self._live(), len(self.outputs)
        await trial.pass_time(seconds)
        return self.outputs.since(before)

    async def complete(self) -> Outputs:
        """See `PluginHarness.complete`."""
        trial, before = self._live(), len(self.outputs)
        await trial.ended(self._patience)
        return self.outputs.since(before)

    async def signal(self, name: str, decision: str = APPROVE, data: Any = None) -> bool:
        """See `PluginHarness.signal`."""
        trial = self._live()
        return await trial.signals.send(trial.run, PLUGIN, name, decision, data)

    async def assert_back_pressure(self, *payloads: Any, max_in_flight: int) -> None:
        """See `PluginHarness.assert_back_pressure`."""
        await plugin_asserts.back_pressure(self._bench, payloads or PAYLOADS, max_in_flight)

    async def assert_idempotent(self, msg: Any) -> None:
        """See `PluginHarness.assert_idempotent`."""
        await plugin_asserts.idempotent(self._bench, msg, self._patience)

    async def assert_cancels_within(self, seconds: float, *payloads: Any) -> None:
        """See `PluginHarness.assert_cancels_within`."""
        await plugin_asserts.cancels_within(self._bench, payloads or PAYLOADS, seconds)

    async def close(self) -> None:
        """See `PluginHarness.close`."""
        if self._trial is not None:
            await self._trial.cancel()

    def _live(self) -> PluginTrial:
        if self._trial is None or (self._trial.over and not self._bench.triggers):
            self._trial = self._bench.start(self._seen)
        return self._trial


class PluginHarness(_Findings):
    """Runs one plugin, of any kind, in the real engine and in virtual time.

    `with` closes it; without, it is closed once nothing refers to it. Inside a coroutine in virtual
    time use `async with`, which gives the same methods to be awaited.

    Args:
        plugin: a decorated function or class, or its spec.
        config: its options as a workflow document writes them, with the policy under `engine`; the
            declared example if None.
        payload: the start payload, as triggers see it.
        settings: settings by their full names; the defaults otherwise.
        base_dir: folder that relative paths start from, and that files may be read from.
        patience: seconds of virtual time that it may take to work off what is sent.

    Raises:
        TypeError: it is not a plugin.
        DefinitionError: the options are refused; lists every fault.
        ConfigError: a setting is.
    """

    def __init__(
        self,
        plugin: Any,
        config: Mapping[str, Any] | None = None,
        *,
        payload: Any = None,
        settings: Mapping[str, Any] | None = None,
        base_dir: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        bench = TrialBench(plugin, config, payload=payload, settings=settings, base_dir=base_dir)
        self._inner = AsyncPluginHarness(bench, patience)
        self._seen = self._inner._seen
        self._driver = _Driver(self._inner)
        self.close = weakref.finalize(self, self._driver.close)
        """Cancels the run that is live, if one is; what was seen stays."""

    def send(self, *payloads: Any) -> Outputs:
        """Send payloads, or messages, and return what is emitted for them.

        Returns once the plugin has taken all of them and every call has ended; time passes
        meanwhile as calls need it. A stream plugin is waited for until it asks for more; what it
        emits later is in `outputs`, and in what `advance` and `complete` return.

        Raises:
            AssertionError: it took longer than the harness is patient.
            TypeError: the plugin is a trigger.
        """
        return self._driver.run(lambda: self._inner.send(*payloads))

    def take(self, n: int) -> Outputs:
        """Ask a trigger for `n` messages; fewer come if it ends, and none after that.

        Raises:
            AssertionError: it took longer than the harness is patient.
            TypeError: the plugin is no trigger.
            ValueError: `n` is below 1.
        """
        return self._driver.run(lambda: self._inner.take(n))

    def advance(self, seconds: float) -> Outputs:
        """Let virtual time pass and return what was emitted meanwhile."""
        return self._driver.run(lambda: self._inner.advance(seconds))

    def complete(self) -> Outputs:
        """End the input, wait for the end of the run, and return what still came.

        A terminal's `finish` is called on the way, and every `close`. A trigger goes on to its
        end, so it has to have one.

        Raises:
            AssertionError: it took longer than the harness is patient.
        """
        return self._driver.run(self._inner.complete)

    def signal(self, name: str, decision: str = APPROVE, data: Any = None) -> bool:
        """Give the plugin a signal: before the message that will wait for it is sent.

        `send` lets time pass until every call has ended, and so until every wait is over.

        Args:
            name: of the signal.
            decision: `reject`, or any other word for a yes.
            data: any JSON value.

        Returns:
            False if it is kept, because no message waits for it yet.

        Raises:
            SignalBufferFullError: too many are kept.
        """
        return self._driver.run(lambda: self._inner.signal(name, decision, data))

    def assert_back_pressure(self, *payloads: Any, max_in_flight: int) -> None:
        """Assert that it holds at most `max_in_flight` messages while nobody takes its outputs.

        In a run of its own, whose edges hold one message each. A processor is counted by what it
        took, a trigger by what it emitted.

        Args:
            payloads: repeated as input; small objects by default.
            max_in_flight: how many; 2 for one that emits as it takes, more for one that gathers.

        Raises:
            AssertionError: it holds more, it failed, or it emitted nothing.
            TypeError: it is a terminal.
        """
        self._driver.run(
            lambda: self._inner.assert_back_pressure(*payloads, max_in_flight=max_in_flight)
        )

    def assert_idempotent(self, msg: Any) -> None:
        """Assert that a message delivered twice gives the same payloads under the same ids.

        In runs of its own. A plugin that fails this does things twice when a run is resumed.

        Args:
            msg: a payload, or a message.

        Raises:
            AssertionError: they differ, or it failed.
            TypeError: it is a trigger.
        """
        self._driver.run(lambda: self._inner.assert_idempotent(msg))

    def assert_cancels_within(self, seconds: float, *payloads: Any) -> None:
        """Assert that it lets go in time when it is cancelled, whatever it is doing.

        In runs of its own. The seconds are virtual, but real for a plugin that works in threads.

        Args:
            seconds: how long it may take.
            payloads: repeated as input; small objects by default.

        Raises:
            AssertionError: it takes longer.
        """
        self._driver.run(lambda: self._inner.assert_cancels_within(seconds, *payloads))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncPluginHarness:
        """Give the harness whose methods are awaited.

        Raises:
            TypeError: the running loop is not in virtual time.
        """
        virtual_loop("PluginHarness")
        return self._inner

    async def __aexit__(self, *exc: object) -> None:
        await self._inner.close()


class _Driver:
    """The loop in virtual time that a harness in plain code turns; it stands still in between."""

    def __init__(self, inner: AsyncPluginHarness) -> None:
        self._inner = inner
        self._runner: asyncio.Runner | None = None
        self._closed = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if _in_a_loop():
            raise RuntimeError(
                "in a coroutine write `async with PluginHarness(...) as h` and await its methods"
            )
        _close_left()
        if self._closed:
            raise RuntimeError("the harness is closed")
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        return self._runner.run(work())

    def close(self) -> None:
        self._closed = True
        if self._runner is None:
            return
        if _in_a_loop():
            # Collected as garbage while another loop runs, whose thread can run no second one.
            _left.append(self)
            return
        runner, self._runner = self._runner, None
        with runner:
            runner.run(self._inner.close())


_left: list[_Driver] = []
"""Let go while a loop ran; closed by the next harness, at the latest when the process ends."""


@atexit.register
def _close_left() -> None:
    while _left:
        _left.pop().close()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
