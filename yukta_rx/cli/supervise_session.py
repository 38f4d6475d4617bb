"""SuperviseSession: a supervisor outside the server, from its registration to its end.

It reads its own event stream, which goes on where it left after every break, and sends its commands
in batches. Each command has an id, so one whose answer was lost is sent again without being done
twice. The lease is renewed by the open stream; where it ran out the program registers again.

Feature: CTL-07.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import deque
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli import texts
from yukta_rx.cli.console import EXIT_LIMIT, CliError
from yukta_rx.cli.follow import PATIENCE, RETRY_MS, Follower, passes
from yukta_rx.cli.signals import Signals
from yukta_rx.control.commands import Command, OfNode
from yukta_rx.control.supervision import Proposal, drive, event_of, supervisor_of
from yukta_rx.control.supervisors import Backoff
from yukta_rx.errors import YuktaError
from yukta_rx.model.codec import dumps_plain
from yukta_rx.streams.rx import LoopScheduler

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from yukta_rx.cli.client import Client
    from yukta_rx.cli.console import Console
    from yukta_rx.model.events import ExecutionEvent

BATCH: Final = 100
"""Commands of one request; an async generator waits while as many are waiting."""

CAPACITY: Final = 256
"""Commands that may wait; one more is refused here."""

LAST_WORDS: Final = 5.0
"""Seconds that commands still waiting get at the end."""

_LEASE_OVER: Final = frozenset({"lease_expired", "supervisor_not_found"})


class _Signals(Signals):
    """The first signal ends the supervisor, the second what it still has to send."""

    waited_for = "the supervisor"

    def __init__(self, session: SuperviseSession) -> None:
        super().__init__()
        self._session = session

    def act(self, count: int) -> None:
        """End it."""
        self._session.stop(hard=count > 1)


class SuperviseSession:
    """Runs one supervisor against one server.

    Args:
        client: an open client.
        console: where outcomes, failures and gaps are said.
        given: the supervisor: an instance, a class or a function.
        lease: seconds that the lease lasts without being used.
        dry_run: whether its commands are only recorded.

    Raises:
        ConfigError: that is no supervisor.
    """

    def __init__(
        self, client: Client, console: Console, given: Any, *, lease: float, dry_run: bool
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._client = client
        self._console = console
        self._supervisor = supervisor_of(given, LoopScheduler(self._loop))
        self._lease = lease
        self._query = [("dryRun", "true")] if dry_run else []
        self._path = f"/api/supervisors/{self._supervisor.id}"
        self._token: str | None = None
        self._last_id = ""
        self._waiting: deque[dict[str, Any]] = deque()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._driver: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Supervise until the supervisor or a signal ends it; returns the exit code.

        Raises:
            CliError: the server refuses, or cannot be reached for a minute.
        """
        await self._register()
        self._said("supervising", f"supervising as {self._supervisor.id}")
        try:
            with _Signals(self):
                async with asyncio.TaskGroup() as group:
                    name = f"yukta supervisor {self._supervisor.id}"
                    sender = group.create_task(self._send_all())
                    self._driver = group.create_task(self._drive(), name=name)
                    await asyncio.wait((self._driver,))
                    if self._driver.cancelled() or self._driver.exception() is None:
                        await self._flush()
                    sender.cancel()
        except BaseExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None
        finally:
            with suppress(CliError):
                await self._register(0)
        return 0

    def stop(self, *, hard: bool = False) -> None:
        """End it; `hard` gives up what waits to be sent as well."""
        if hard:
            self._idle.set()
        if self._driver is not None:
            self._driver.cancel()

    # -- the lease

    async def _register(self, seconds: float | None = None) -> None:
        body: dict[str, Any] = {
            "id": self._supervisor.id,
            "description": (self._supervisor.__doc__ or "").strip().partition("\n")[0][:1000],
            "leaseSeconds": self._lease if seconds is None else seconds,
        }
        if self._token is not None:
            body["leaseToken"] = self._token
        answer = (await self._client.post("/api/supervisors", body=body)).json()
        self._token = answer["leaseToken"]

    # -- the supervisor

    async def _drive(self) -> None:
        backoff = Backoff(self._loop.time)
        while True:
            backoff.begin()
            try:
                async with aclosing(self._events()) as events:
                    await drive(self._supervisor, events, self._take, self._settle)
                return
            except CliError:
                raise
            except Exception as error:
                delay = backoff.after_failure()
                why = f"{type(error).__name__}: {error}"
                self._said("supervisor.failed", f"{why}; begins again in {delay:.1f} s", "red")
                await asyncio.sleep(delay)

    async def _events(self) -> AsyncGenerator[ExecutionEvent, None]:
        query = [("type", word) for word in getattr(self._supervisor, "types", ())]
        told = getattr(self._supervisor, "outcomes", True)
        while True:
            follower = Follower(
                self._client, self._console, f"{self._path}/events", query, live=True
            )
            follower.last_id = self._last_id
            try:
                async with aclosing(follower.batches()) as batches:
                    async for batch in batches:
                        for sent in batch:
                            if told or sent.type != "supervisor.command":
                                yield event_of(json.loads(sent.data))
                        self._last_id = follower.last_id
            except CliError as error:
                if error.code not in _LEASE_OVER:
                    raise
                self._last_id = follower.last_id
                await self._register()

    def _take(self, answer: Any) -> None:
        proposal = Proposal(answer) if isinstance(answer, Command) else answer
        if not isinstance(proposal, Proposal) or not isinstance(proposal.command, Command):
            said = answer.detail if isinstance(answer, YuktaError) else f"no command: {answer!r}"
            self._said("supervisor.failed", said[:200], "red")
            return
        if len(self._waiting) >= CAPACITY:
            name = proposal.command.name()
            self._said("refused", f"{name}: refused, {CAPACITY} commands wait already", "red")
            return
        self._waiting.append(_form(proposal))
        self._idle.clear()
        self._work.set()
        if len(self._waiting) >= BATCH:
            self._room.clear()

    async def _settle(self) -> None:
        await asyncio.sleep(0)
        await self._room.wait()

    # -- its commands

    async def _send_all(self) -> None:
        while True:
            await self._work.wait()
            batch = [self._waiting[place] for place in range(min(BATCH, len(self._waiting)))]
            results = await self._sent(batch)
            for result in results:
                self._show(self._waiting.popleft(), result)
            if not self._waiting:
                self._work.clear()
                self._idle.set()
            if len(self._waiting) < BATCH:
                self._room.set()

    async def _sent(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What became of commands, however often they have to be sent until that is known."""
        contact = time.monotonic()
        while True:
            try:
                answer = await self._client.post(
                    f"{self._path}/commands", self._query, {"commands": batch}
                )
            except CliError as error:
                if error.exit_code == EXIT_LIMIT:
                    refusal = {"code": error.code, "detail": " ".join(error.lines)}
                    return [refusal] * len(batch)
                if error.code in _LEASE_OVER:
                    await self._register()
                elif not passes(error) or time.monotonic() - contact > PATIENCE:
                    raise
                else:
                    await asyncio.sleep(RETRY_MS / 1000)
            else:
                results: list[dict[str, Any]] = answer.json()["results"]
                return results

    async def _flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._idle.wait()
        if self._waiting:
            self._said("lost", f"{len(self._waiting)} commands were not sent", "red")

    # -- what is said

    def _show(self, form: dict[str, Any], result: dict[str, Any]) -> None:
        if self._console.as_json:
            self._console.result(dumps_plain({**form, **result}))
        else:
            run = form["executionId"]
            if "outcome" in result:
                self._console.line(f"{run}: {texts.command(result)}")
            else:
                refused = f"{form['type']}: refused, {result['code']}: {result['detail']}"
                self._console.line(f"{run}: {refused}", "red")
        self._console.flush()

    def _said(self, kind: str, text: str, style: str | None = None) -> None:
        if self._console.as_json:
            self._console.say_json({"type": kind, "id": self._supervisor.id, "detail": text})
        else:
            self._console.say(f"yukta: {text}", style)


def _form(proposal: Proposal) -> dict[str, Any]:
    """A command as a batch has it, with an id, so that it can be sent again."""
    command = proposal.command
    form: dict[str, Any] = {"type": command.name(), "executionId": command.execution_id}
    if isinstance(command, OfNode):
        form["nodeId"] = command.node_id
    defaults = {name: default for name, (_, default) in command.own_fields().items()}
    form |= {name: value for name, value in command.arguments().items() if value != defaults[name]}
    if (reason := proposal.reason or command.reason) is not None:
        form["reason"] = reason
    return {**form, "commandId": proposal.command_id or uuid.uuid4().hex}
