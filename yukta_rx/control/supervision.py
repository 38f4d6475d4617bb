"""Supervision: what a supervisor is, and one run of it over the events, in any of its forms.

A supervisor watches the events of all runs and answers with commands. It is written over an
Observable, or as an async generator, or as a plain function of either kind; what runs here runs in
the server (`control.supervisors`) and in a program of its own (`yukta supervise`) alike.

Feature: CTL-07.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.errors import ConfigError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.ids import id_fault
from yukta_rx.observe.filters import matching_types
from yukta_rx.streams.attempts import close_iterator
from yukta_rx.streams.hot import HotSource
from yukta_rx.streams.rx import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from yukta_rx.control.commands import Command

_NOTHING: Final = object()


class ExecutionSupervisor(ABC):
    """A program that steers runs.

    1. `supervise` is called once per subscription: at the begin, and after a failure of its own
       again, which then goes on behind the last event that it was given.
    2. It is given events in order, each once, on the event loop, and never its own commands'
       `control.*` events. Of one that reads slowly the oldest 256 or more go, which is told by
       `supervisor.dropped`.
    3. What becomes of each of its commands comes as one `supervisor.command`
       `{commandId, outcome, reason?}`, about the run of the command, to it alone.
    4. What it raises ends the subscription and nothing else.

    Attributes:
        id: its name, the actor of its commands in the audit.
        order: place in lists; the lowest first.
        outcomes: whether it is given the outcomes of its commands.
        types: event types that it wants, `node.*` for a family; nothing is all of them.
        scheduler: reactivex scheduler in the loop's time; the host fills it in where it is None.
    """

    id: str
    order: int = 0
    outcomes: bool = True
    types: tuple[str, ...] = ()
    scheduler: LoopScheduler | None = None

    @abstractmethod
    def supervise(self, events: Any) -> Any:
        """Answer events with commands.

        Args:
            events: an `Observable[ExecutionEvent]`; in an async generator an
                `AsyncIterator[ExecutionEvent]`.

        Returns:
            An `Observable` or an async iterator of `Command`, or of `Proposal` where a command
            has a reason or an id of its own.
        """


@dataclass(frozen=True, slots=True)
class Proposal:
    """A command with what a supervisor says about it.

    Attributes:
        command: what is to be done.
        reason: why, for the audit.
        command_id: its own id, with which the outcome comes back; a repeat with the same one gets
            the first answer again.
    """

    command: Command
    reason: str | None = None
    command_id: str | None = None


class Supervises(Protocol):
    """What is asked of a supervisor, whether or not it is an `ExecutionSupervisor`."""

    id: str

    def supervise(self, events: Any) -> Any:
        """See `ExecutionSupervisor.supervise`."""


class _Function:
    """A plain function as a supervisor; attributes of the function are those of the supervisor."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.supervise = function
        self.__doc__ = function.__doc__
        self.id = str(getattr(function, "id", None) or getattr(function, "__name__", ""))
        self.order = int(getattr(function, "order", 0))
        self.outcomes = bool(getattr(function, "outcomes", True))
        self.types = tuple(getattr(function, "types", ()))


def supervisor_of(given: Any, scheduler: LoopScheduler | None = None) -> Supervises:
    """Return what was given as a supervisor: an instance as it is, of a class a new instance.

    Args:
        given: an instance, a class that needs no arguments, or a function of the events.
        scheduler: for one that has a `scheduler`, an argument or an attribute that is None.

    Raises:
        ConfigError: it is none of these, or its id or its event types cannot be.
    """
    made = given
    if inspect.isclass(given):
        made = _instance(given, scheduler)
    elif not hasattr(given, "supervise") and callable(given):
        made = _Function(given)
    what = getattr(given, "__qualname__", type(given).__qualname__)
    if not callable(getattr(made, "supervise", None)):
        raise ConfigError([f"{what} is no supervisor: it has no method `supervise(events)`"])
    if (fault := id_fault("its id", getattr(made, "id", None))) is not None:
        raise ConfigError([f"supervisor {what}: {fault}"])
    words = getattr(made, "types", ())
    unknown = [words] if isinstance(words, str) else [w for w in words if not matching_types(w)]
    if unknown:
        detail = f"no event type {unknown[0]!a}; `types` is a tuple such as ('node.*',)"
        raise ConfigError([f"supervisor {made.id}: {detail}"])
    if scheduler is not None and getattr(made, "scheduler", _NOTHING) is None:
        made.scheduler = scheduler
    supervisor: Supervises = made
    return supervisor


def _instance(kind: type, scheduler: LoopScheduler | None) -> Any:
    try:
        wants = "scheduler" in inspect.signature(kind).parameters
        return kind(scheduler=scheduler) if wants else kind()
    except (TypeError, ValueError) as error:
        detail = f"supervisor class {kind.__qualname__} cannot be made without arguments: {error}"
        raise ConfigError([detail]) from error


async def drive(
    supervisor: Supervises,
    events: AsyncIterator[ExecutionEvent],
    take: Callable[[Any], None],
    settle: Callable[[], Awaitable[None]],
) -> None:
    """Subscribe a supervisor once, and return when it has no more to say.

    Args:
        supervisor: which.
        events: what it watches.
        take: gets what it answers, on the loop; must not raise.
        settle: awaited after each answer of an async generator, before it goes on.

    Raises:
        Exception: whatever it raises.
    """
    supervise = supervisor.supervise
    if inspect.isasyncgenfunction(supervise):
        await _iterate(supervise(events), take, settle)
        return
    source = HotSource(events)
    made = supervise(source)
    if inspect.iscoroutine(made):
        made = await made
    if hasattr(made, "subscribe"):
        await _observe(made, source, take)
    elif hasattr(made, "__aiter__"):
        await _iterate(made, take, settle)
    else:
        wanted = "an Observable or an async iterator of commands"
        raise TypeError(f"supervise() returned {type(made).__name__}, not {wanted}")


async def _iterate(
    made: AsyncIterator[Any], take: Callable[[Any], None], settle: Callable[[], Awaitable[None]]
) -> None:
    iterator = made.__aiter__()
    try:
        async for answer in iterator:
            take(answer)
            await settle()
    finally:
        await close_iterator(iterator)


async def _observe(
    made: Any, source: HotSource[ExecutionEvent], take: Callable[[Any], None]
) -> None:
    """Push the events into an Observable chain until that ends; answers may come from threads."""
    loop = asyncio.get_running_loop()
    thread = threading.get_ident()
    over: asyncio.Future[None] = loop.create_future()

    def here(work: Callable[[Any], None], value: Any) -> None:
        if threading.get_ident() == thread:
            work(value)
        else:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(work, value)

    def end(error: Exception | None) -> None:
        if not over.done():
            over.set_result(None) if error is None else over.set_exception(error)

    async def push() -> None:
        try:
            await source.push_all()
        except Exception as error:
            end(error)
        else:
            end(None)

    subscription = made.subscribe(
        lambda answer: here(take, answer),
        lambda error: here(end, error),
        lambda: here(end, None),
        scheduler=LoopScheduler(loop),
    )
    task = asyncio.current_task()
    try:
        async with asyncio.TaskGroup() as group:
            # The name is what the watchdog says of a callback that holds the loop.
            pushing = group.create_task(push(), name=task.get_name() if task else None)
            await asyncio.wait((over,))
            pushing.cancel()
    finally:
        subscription.dispose()
        if over.done():
            over.exception()  # looked at, also where a cancellation takes its place
        else:
            over.cancel()
    over.result()


def event_of(form: Mapping[str, Any]) -> ExecutionEvent:
    """Return an event from its JSON form, as `/api/events` and the event streams show it.

    Raises:
        ValueError: it is none.
    """
    try:
        return ExecutionEvent(
            type=form["type"],
            time=datetime.fromisoformat(form["time"]),
            session_id=form.get("sessionId", ""),
            workflow_id=form.get("workflowId", ""),
            execution_id=form.get("executionId", ""),
            node_id=form.get("nodeId"),
            data=form.get("data", {}),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this is no event: {error}") from error
