"""What a user does while a run goes on: Ctrl-C, and Enter in step mode.

Features: CTL-02, CTL-03.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.cli.console import EXIT_INTERRUPTED, Console
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from types import FrameType, TracebackType

    from yukta_rx.engine.run import Run

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered: the first Ctrl-C drains the run, the second kills it, the third the process.

    Handlers of the process and not of the loop: they also run while the loop is held up, by a
    plugin or by a full pipe.
    """

    def __init__(self, run: Run, console: Console) -> None:
        self.count = 0
        self._run = run
        self._console = console
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._caught)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count > 2:
            os.write(2, b"yukta: gave up waiting for the run\n")
            os._exit(EXIT_INTERRUPTED)
        # No writing here: the interrupted code may be in the middle of it.
        self._loop.call_soon_threadsafe(self._stop, self.count)

    def _stop(self, count: int) -> None:
        if count == 1:
            self._say("draining: messages under way are finished; Ctrl-C again stops at once")
            self._run.stop(StopMode.DRAIN)
        else:
            self._say("stopping at once")
            self._run.stop(StopMode.KILL)

    def _say(self, text: str) -> None:
        if not self._console.as_json:
            self._console.say(f"yukta: {text}", "yellow")


class StepKeys:
    """Reads stdin in step mode: Enter or a number steps, `c` goes on, `q` drains."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        """Begin to listen, in a thread that ends with the process."""
        if not self._console.as_json:
            self._console.say(
                "yukta: paused; Enter lets one message into each node, a number that many,"
                " c goes on, q drains",
                "yellow",
            )
        threading.Thread(target=self._listen, name="yukta-keys", daemon=True).start()

    def _listen(self) -> None:
        try:
            number = sys.stdin.fileno()
        except (OSError, ValueError, AttributeError):
            self._send("c")
            return
        waiting = b""
        # Unbuffered: a thread inside sys.stdin would hold its lock when the process ends.
        while data := os.read(number, 4096):
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                self._send(line.decode(errors="replace").strip())
        self._send("c")

    def _send(self, line: str) -> None:
        with contextlib.suppress(RuntimeError):  # the run is over and its loop closed
            self._loop.call_soon_threadsafe(self._apply, line)

    def _apply(self, line: str) -> None:
        if line == "":
            self._run.step(1)
        elif line.isascii() and line.isdigit() and 0 < int(line) <= 1_000_000:
            self._run.step(int(line))
        elif line == "c":
            self._run.resume()
        elif line == "q":
            self._run.stop(StopMode.DRAIN)
        elif not self._console.as_json:
            self._console.say("yukta: Enter, a number, c or q", "yellow")
