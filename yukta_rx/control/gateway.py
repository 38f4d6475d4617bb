"""ControlGateway: the one facade that HTTP, the command line and embedding programs call.

Features: CTL-01, OBS-01.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.audit import AuditTrail, Submission
from yukta_rx.control.commands import (
    COMMANDS,
    Command,
    CommandResult,
    OfNode,
    Outcome,
    Role,
    StopWorkflow,
)
from yukta_rx.control.queries import RunQueries
from yukta_rx.errors import ConflictError, Fault, RoleError, ValidationError, YuktaError
from yukta_rx.model.ids import id_fault
from yukta_rx.streams.circuit import StopMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.sequencer import Sequencer
    from yukta_rx.control.starter import Started, Starter, StartRequest
    from yukta_rx.observe.tracker import Tracker

KILL_WAIT: Final = 1.0
"""Seconds that the answer to a kill waits for the end of the run; plugins may close for longer."""

_IN_FORCE: Final = frozenset({Outcome.APPLIED, Outcome.NO_OP, Outcome.QUEUED})


class ControlGateway(RunQueries):
    """Starts, commands and reads of runs."""

    def __init__(
        self,
        starter: Starter,
        sequencer: Sequencer,
        tracker: Tracker,
        trail: AuditTrail,
        resumes: Resumes,
    ) -> None:
        super().__init__(starter, tracker, trail, resumes)
        self._sequencer = sequencer

    async def start(self, request: StartRequest, patience: float | None = None) -> Started:
        """Start a run; see `Starter.start`."""
        started = await self._starter.start(request, patience)
        await self._tracker.drained()
        state = self._tracker.state(started.execution_id) if started.replayed else None
        return started if state is None else replace(started, status=str(state.status))

    def would_admit(self, session_id: str, workflow_id: str) -> str:
        """What would become of a start now: WOULD_RUN, WOULD_QUEUE or WOULD_REJECT."""
        return str(self._starter.scheduler.outlook(session_id, workflow_id))

    def stop_admitting(self) -> None:
        """Refuse new starts and those that wait, as the first step of a shutdown."""
        self._starter.scheduler.close()

    def limits(self) -> dict[str, Any]:
        """The limits of the scheduler, and how far they are used."""
        return self._starter.scheduler.limits()

    def queue(self) -> list[dict[str, Any]]:
        """The starts that wait for a slot, in their order."""
        return [waiting.as_dict() for waiting in self._starter.scheduler.queue()]

    # -- commands

    async def command(
        self,
        command: Command,
        *,
        actor: str,
        via: str,
        reason: str | None = None,
        dry_run: bool = False,
        command_id: str | None = None,
        request_id: str | None = None,
    ) -> CommandResult:
        """Carry a command out; what is returned is in force, and reads show it.

        Raises:
            NotFoundError: there is no such run or node.
            ConflictError: the run has ended, or the command cannot be applied to it.
            ControlRejectedError: a reviewer refuses it.
        """
        try:
            result = await self._sequencer.send(
                Submission(
                    command=command,
                    actor=actor,
                    via=via,
                    reason=reason,
                    dry_run=dry_run,
                    command_id=command_id,
                    request_id=request_id,
                )
            )
        finally:
            await self._said()
        return await self._settled(command, result)

    async def _said(self) -> None:
        """Let what was said so far be written, and reads show it."""
        await self._starter.history.settled()
        await self._tracker.drained()

    async def _settled(self, command: Command, result: CommandResult) -> CommandResult:
        done = result.outcome in (Outcome.APPLIED, Outcome.NO_OP)
        if done and isinstance(command, StopWorkflow) and command.mode is StopMode.KILL:
            # A kill waits for no call, so its effect, the end of the run, is there in a moment.
            await self._tracker.wait(command.execution_id, KILL_WAIT)
        await self._said()
        lacks = self._starter.history.lacks
        if result.outcome in _IN_FORCE and lacks(result.execution_id, result.command_id):
            return replace(result, recorded=False)
        return result

    def parse(self, body: Any, execution_id: str | None = None) -> Command:
        """The command that a body names: `{type, executionId, nodeId?, ...}`.

        Args:
            body: the JSON value.
            execution_id: the run that it has to be about, where the address says so.

        Raises:
            ValidationError: the type or a field is wrong; lists every fault.
        """
        if not isinstance(body, dict):
            raise ValidationError([Fault("", "invalid_type", "must be an object with a type")])
        kind = body.get("type")
        if not isinstance(kind, str) or kind not in COMMANDS:
            known = ", ".join(COMMANDS)
            raise ValidationError([Fault("/type", "invalid_value", f"must be one of {known}")])
        fields = {key: value for key, value in body.items() if key not in ("type", "reason")}
        if execution_id is not None:
            fields.setdefault("executionId", execution_id)
            if fields["executionId"] != execution_id:
                detail = f"must be {execution_id}, as in the address"
                raise ValidationError([Fault("/executionId", "invalid_value", detail)])
        command = COMMANDS[kind].parse(fields)
        ids = {"executionId": command.execution_id}
        if isinstance(command, OfNode):
            ids["nodeId"] = command.node_id
        faults = [
            Fault(f"/{name}", "invalid_id", fault)
            for name, value in ids.items()
            if (fault := id_fault(name, value))
        ]
        if faults:
            raise ValidationError(faults)
        return command

    async def batch(
        self, submissions: Sequence[Submission], *, atomic: bool = False
    ) -> list[CommandResult | YuktaError]:
        """Carry several commands out, in their order; what each came to, also a refusal.

        Args:
            submissions: for any runs.
            atomic: examine all first, and apply none if one would be refused.

        Raises:
            ValidationError: `atomic`, and some would be refused; lists them by their place.
        """
        if atomic:
            faults = []
            for place, submission in enumerate(submissions):
                refused = await self._outcome(replace(submission, dry_run=True, command_id=None))
                if isinstance(refused, YuktaError):
                    faults.append(Fault(f"/{place}", refused.code, refused.detail))
            if faults:
                raise ValidationError(faults)
        return [await self._outcome(submission) for submission in submissions]

    async def _outcome(self, submission: Submission) -> CommandResult | YuktaError:
        try:
            result = await self._sequencer.send(submission)
        except YuktaError as error:
            await self._said()
            return error
        return await self._settled(submission.command, result)

    async def stop_workflow(
        self, session_id: str, workflow_id: str, make: Callable[[str], Command], **who: Any
    ) -> list[CommandResult]:
        """Send the command that `make` gives for each run of a workflow that goes on or waits.

        Those that wait come first, so that none gets a slot meanwhile. One that ends meanwhile,
        because a run that it belongs to was stopped, is passed over.
        """
        scheduler = self._starter.scheduler
        ids = scheduler.waiting_ids(session_id, workflow_id)
        ids += [
            run.execution_id
            for run in self._starter.live.every()
            if run.session_id == session_id and run.workflow_id == workflow_id
        ]
        results = []
        for execution_id in ids:
            try:
                if execution_id in self._starter.live or scheduler.pending(execution_id):
                    results.append(await self.command(make(execution_id), **who))
            except ConflictError as error:
                if error.code != "execution_not_running":
                    raise
        return results

    # -- held commands

    def held(self) -> list[dict[str, Any]]:
        """The commands that wait for a second actor, oldest first."""
        return [self._trail.mask(held.as_dict()) for held in self._sequencer.held.list()]

    def held_command(self, command_id: str) -> Command:
        """The held command of an id; raises NotFoundError if there is none."""
        return self._sequencer.held.get(command_id).submission.command

    async def decide(
        self, command_id: str, *, approve: bool, actor: str, role: Role, reason: str | None = None
    ) -> CommandResult:
        """Let a held command pass, or refuse it; see `Sequencer.decide`.

        Raises:
            NotFoundError: no command of that id is held.
            RoleError: the actor gave it, or may not give such a command.
        """
        command = self.held_command(command_id)
        if role.rank < command.role.rank:
            detail = f"deciding about {command.name()} needs the role {command.role}"
            raise RoleError(detail, requiredRole=str(command.role))
        try:
            result = await self._sequencer.decide(
                command_id, approve=approve, actor=actor, reason=reason
            )
        finally:
            await self._said()
        return await self._settled(command, result)


__all__ = ["ControlGateway"]
