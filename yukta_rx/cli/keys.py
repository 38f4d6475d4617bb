"""What a user does while a run goes on: Ctrl-C, and Enter in step mode.

Features: CTL-02, CTL-03.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from yukta_rx.cli.signals import Signals
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from yukta_rx.cli.console import Console
    from yukta_rx.engine.run import Run


class Interrupts(Signals):
    """The first Ctrl-C drains the run, the second kills it, the third ends the process."""

    waited_for = "the run"

    def __init__(self, run: Run, console: Console) -> None:
        super().__init__()
        self._run = run
        self._console = console

    def act(self, count: int) -> None:
        """Drain at the first signal, kill at the second."""
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
