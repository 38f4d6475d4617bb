"""Reviewers: policies that look at every command before it is applied. Feature: CTL-06.

A reviewer allows, denies, changes or holds a command. The first refusal in `order` wins; one that
raises, answers nonsense or takes too long refuses.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from yukta_rx.errors import ControlRejectedError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Iterable

    from yukta_rx.control.commands.base import Command

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Allow:
    """The command may pass."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The command is refused, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Modify:
    """Another command to the same run takes its place, for this reason."""

    command: Command
    reason: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The command waits for a second actor, for this reason."""

    reason: str


Verdict: TypeAlias = Allow | Deny | Modify | Hold | None
"""What a reviewer says; None is Allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """What a reviewer is shown.

    Attributes:
        command: what is to be done, as reviewers before this one left it.
        actor: who gives it.
        via: REST, MCP, CLI, SUPERVISOR or ENGINE.
        reason: why, if the actor said.
        dry_run: whether it is only asked about.
        session_id: of the run; empty for what is no run.
        workflow_id: of the run; empty for what is no run.
    """

    command: Command
    actor: str
    via: str
    reason: str | None
    dry_run: bool
    session_id: str
    workflow_id: str


class ControlReviewer(Protocol):
    """A policy over commands.

    Attributes:
        order: reviewers with a lower one are asked first. 0 if it has none.
        id: its name in answers and in the audit; the name of its class if it has none.
    """

    def review(self, request: ControlRequest) -> Verdict | Awaitable[Verdict]:
        """Say what becomes of a command; may be `async`. On the event loop, so it must not block.

        What it raises refuses the command.
        """


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What the reviewers made of a command.

    Attributes:
        command: what is to be applied.
        notes: what was changed, and why.
        held_by: the reviewer that wants a second actor, None if none does.
        hold_reason: its words.
    """

    command: Command
    notes: tuple[str, ...] = ()
    held_by: str | None = None
    hold_reason: str = ""


def name_of(reviewer: Any) -> str:
    """Return the name of a reviewer."""
    return str(getattr(reviewer, "id", None) or type(reviewer).__name__)


class Reviewers:
    """All reviewers, in order.

    Args:
        reviewers: any number; equal orders keep this order.
        timeout: seconds that each gets.
    """

    def __init__(self, reviewers: Iterable[ControlReviewer], timeout: float) -> None:
        self.all = sorted(reviewers, key=lambda reviewer: getattr(reviewer, "order", 0))
        self._timeout = timeout
        self._tasks = Tasks(asyncio.get_running_loop(), lambda: None)

    def __bool__(self) -> bool:
        return bool(self.all)

    async def review(self, request: ControlRequest, passed: Collection[str] = ()) -> Reviewed:
        """Ask every reviewer.

        Args:
            request: what is to be done.
            passed: names of reviewers whose hold a second actor has lifted; not asked again.

        Raises:
            ControlRejectedError: one refuses.
        """
        reviewed = Reviewed(request.command)
        for reviewer in self.all:
            name = name_of(reviewer)
            if name in passed:
                continue
            verdict = await self._ask(reviewer, name, replace(request, command=reviewed.command))
            if isinstance(verdict, Deny):
                raise ControlRejectedError(name, verdict.reason)
            if isinstance(verdict, Modify):
                if verdict.command.execution_id != request.command.execution_id:
                    raise ControlRejectedError(name, "it put a command to another run in its place")
                note = f"changed by reviewer {name}: {verdict.reason}"
                reviewed = replace(reviewed, command=verdict.command, notes=(*reviewed.notes, note))
            elif isinstance(verdict, Hold) and reviewed.held_by is None:
                reviewed = replace(reviewed, held_by=name, hold_reason=verdict.reason)
        return reviewed

    async def _ask(self, reviewer: ControlReviewer, name: str, request: ControlRequest) -> Verdict:
        try:
            verdict = reviewer.review(request)
            if inspect.isawaitable(verdict):
                verdict = await self._within(verdict, name)
        except ControlRejectedError:
            raise
        except Exception as error:
            log.exception("reviewer %s failed, so it refuses %s", name, request.command.name())
            raise ControlRejectedError(name, f"it failed: {type(error).__name__}") from error
        if verdict is not None and not isinstance(verdict, Allow | Deny | Modify | Hold):
            raise ControlRejectedError(name, f"it answered {type(verdict).__name__}, no verdict")
        return verdict

    async def _within(self, verdict: Awaitable[Verdict], name: str) -> Verdict:
        """Await an answer; one that does not even heed its cancellation is left behind."""
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        async def ask() -> None:
            try:
                said = await verdict
            except asyncio.CancelledError:
                answer.cancel()
            except Exception as error:
                if answer.done():
                    log.warning("reviewer %s failed after its time", name, exc_info=error)
                else:
                    answer.set_exception(error)
            else:
                if not answer.done():
                    answer.set_result(said)

        task = self._tasks.spawn(ask(), f"yukta reviewer {name}")
        try:
            await asyncio.wait((answer,), timeout=self._timeout)
            if not answer.done():
                raise ControlRejectedError(name, f"it did not answer within {self._timeout:g} s")
            if answer.cancelled():
                raise ControlRejectedError(name, "it cancelled itself")
            return answer.result()
        finally:
            task.cancel()
            # What still comes is not looked at any more.
            answer.cancel()

    async def close(self, grace: float) -> None:
        """Cancel what still asks, and wait for it for so many seconds."""
        self._tasks.cancel()
        try:
            async with asyncio.timeout(grace):
                await self._tasks.ended()
        except TimeoutError:
            log.warning("left behind: %s", ", ".join(self._tasks.names()))
