"""Together: what several ask for at the same time is one statement.  Feature: DUR-04."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """Collects what is asked for while a statement is under way, for the next one.

    So what is asked sees all that was written before it was asked. Who is cancelled meanwhile gets
    no answer; what was asked for is done all the same.

    Args:
        work: does it for all of them in one statement, or transaction, and answers each in turn.
        most: of one statement.
    """

    def __init__(
        self, work: Callable[[Sequence[Asked]], Awaitable[Sequence[Answer]]], most: int = 100
    ) -> None:
        self._work = work
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._running = False
        self._tasks: Tasks | None = None

    async def __call__(self, asked: Asked) -> Answer:
        """Have it done; what came of it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((asked, answer))
        if self._tasks is None:
            self._tasks = Tasks(loop, lambda: None)
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), "yukta write together")
        return await answer

    async def ended(self) -> None:
        """Wait for what is under way."""
        if self._tasks is not None:
            await self._tasks.ended()

    async def _run(self) -> None:
        try:
            await self._work_off()
        finally:
            self._running = False

    async def _work_off(self) -> None:
        while self._waiting:
            batch = self._waiting[: self._most]
            del self._waiting[: self._most]
            try:
                answers = await self._work([asked for asked, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), given in zip(batch, answers, strict=True):
                    if not answer.done():
                        answer.set_result(given)
