"""idle_timeout: ends a node that has work and shows no sign of life. Feature: ENG-05."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import IdleTimeoutError
from yukta_rx.operators._kind import BackPressureKind, Operator, back_pressure
from yukta_rx.streams.plan import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from yukta_rx.streams.clock import Clock, Timer
    from yukta_rx.streams.flow import Flow
    from yukta_rx.streams.stage import Stage

CHECKS_PER_LIMIT: Final = 4
_ROUNDING: Final = 1e-6


def _never() -> float:
    return 0.0


class IdleClock:
    """The idle clock of one node; looks four times per limit, so elements cost it nothing.

    Args:
        clock: the node's time; it stands still while the node is paused.
        limit: seconds of silence that end the node; infinite to wait for `retime`.
        last_beat: `clock.now()` of the plugin's last heartbeat.
    """

    __slots__ = ("_activity", "_clock", "_last_beat", "_limit", "_since", "_stage", "_timer")

    def __init__(self, clock: Clock, limit: float, last_beat: Callable[[], float] = _never) -> None:
        self._clock = clock
        self._limit = limit
        self._last_beat = last_beat
        self._since: float | None = None
        self._activity = 0
        self._stage: Stage | None = None
        self._timer: Timer | None = None

    def start(self, stage: Stage) -> None:
        """Begin to watch `stage`, unless its kind cannot be silent without holding the loop."""
        if stage.can_hang or stage.plan.barrier is not None:
            self._stage = stage
            if self._limit < math.inf:
                self._arm()

    @property
    def limit(self) -> float:
        """Seconds of silence that end the node now; infinite where nobody watches."""
        return math.inf if self._stage is None else self._limit

    @limit.setter
    def limit(self, seconds: float) -> None:
        """Watch with another limit from the start."""
        self._limit = seconds

    def touched(self) -> None:
        """Nothing: the clock looks for itself."""

    def stop(self) -> None:
        """Stop watching."""
        self._stage = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def retime(self, limit: float | None) -> None:
        """Go on with another limit, from now; None for no limit."""
        stage = self._stage
        self.stop()
        self._since = None
        if limit is not None and stage is not None:
            self._limit = limit
            self.start(stage)

    def _arm(self) -> None:
        when = self._clock.now() + self._limit / CHECKS_PER_LIMIT
        self._timer = self._clock.call_at(when, self._look)

    def _look(self) -> None:
        stage = self._stage
        assert stage is not None, "the timer is cancelled when the node ends"
        now = self._clock.now()
        activity = stage.activity()
        if not (stage.working() or stage.sealing is not None):
            self._since = None
        elif self._since is None or activity != self._activity or self._last_beat() > self._since:
            self._since = now
        elif now - self._since >= self._limit - _ROUNDING:
            stage.fail(
                IdleTimeoutError(
                    f"no sign of life for {self._limit:g} s; a plugin that works silently "
                    "calls heartbeat(), and timeoutSeconds sets the limit"
                ),
                stage.culprit,
            )
            return
        self._activity = activity
        self._arm()


@back_pressure(BackPressureKind.PASS_THROUGH)
def idle_timeout(clock: IdleClock) -> Operator:
    """Fail a node that is silent although it has work that only it can do.

    Marble (limit 30, `s` the call for 2 hangs)::

        source: --1--2s------------------|
        result: --1---------------------X

    The clock runs while a call is out, while an input waits that the valve would let through,
    while a stream function or the barrier works after the last input, and, for a source, while
    there is unmet demand. It stands still, and starts from zero when work comes, while the node
    waits for parents, for demand or at a closed valve. Inputs, outputs and heartbeats restart it.

    Emits when: the source does.
    Back-pressures when: the children do.
    Completes when: the source completes.
    Fails when: the node is silent for 1 to 1.25 times the limit: `IdleTimeoutError`; the call is
        cancelled, a thread abandoned. Or the source fails.
    Cancels when: the children cancel.
    Discards: what is waiting when it fires.

    Args:
        clock: watches one subscription of the flow.
    """

    def apply(flow: Flow[Any]) -> Flow[Any]:
        return flow.write(Slot.IDLE_TIMEOUT, idle=clock)

    return apply
