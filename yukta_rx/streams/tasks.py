"""Tasks: the owner of every task. Feature: ENG-01."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Tasks:
    """Owner of a circuit's tasks: holds them, knows when the last has gone, cancels them.

    The only place in the engine that makes tasks; `idle`, if given, is called when the last one is
    done.
    """

    __slots__ = ("_idle", "_loop", "_tasks")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle: Callable[[], None] | None = None
    ) -> None:
        self._loop = loop
        self._idle = idle
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work`, which reports its own errors, as a task of this owner."""
        task = self._loop.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def cancel(self) -> None:
        """Cancel every task that is left."""
        for task in tuple(self._tasks):
            task.cancel()

    async def ended(self) -> None:
        """Wait until no task is left."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def forget(self) -> None:
        """Tell nobody any more when the last one is done."""
        self._idle = None

    def names(self) -> list[str]:
        """Names of the tasks that are left."""
        return [task.get_name() for task in self._tasks]

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": f"task {task.get_name()} failed", "exception": error, "task": task}
            )
        if not self._tasks and self._idle is not None:
            self._idle()
