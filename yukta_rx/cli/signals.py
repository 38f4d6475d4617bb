"""Ctrl-C and SIGTERM while something goes on: the first two are acted on, the third ends all.

Feature: CTL-03.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

from yukta_rx.cli.console import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PATIENCE: Final = 2


class Signals(ABC):
    """Catches the signals while entered.

    Handlers of the process and not of the loop: they also run while the loop is held up, by a
    plugin or by a full pipe.

    Attributes:
        count: signals that came so far.
        waited_for: what is given up at the third one.
    """

    waited_for: str

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._before: dict[int, Any] = {}

    @abstractmethod
    def act(self, count: int) -> None:
        """Do what the first or second signal asks for, on the loop."""

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
        if self.count > _PATIENCE:
            os.write(2, f"yukta: gave up waiting for {self.waited_for}\n".encode())
            os._exit(EXIT_INTERRUPTED)
        # No writing here: the interrupted code may be in the middle of it.
        self._loop.call_soon_threadsafe(self.act, self.count)
