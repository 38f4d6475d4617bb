"""DefinitionService: sessions and their workflows, saved as a whole or not at all.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError as PydanticError

from yukta_rx.definitions.bundle import read_bundle, write_zip
from yukta_rx.definitions.parse import fault_of
from yukta_rx.definitions.views import (
    ANY,
    Saved,
    SessionApplied,
    SessionRequest,
    SessionView,
    check_match,
    mendable,
)
from yukta_rx.definitions.workflows import WorkflowService
from yukta_rx.durability.stores.sessions import SessionChange, SessionRecord
from yukta_rx.errors import (
    ConflictError,
    Fault,
    PreconditionRequiredError,
    StoreUnavailableError,
    ValidationError,
)
from yukta_rx.model.session import SessionConfig

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.model.workflow import WorkflowDefinition

__all__ = [
    "ANY",
    "DefinitionService",
    "Saved",
    "SessionApplied",
    "SessionRequest",
    "SessionView",
]


@dataclass(slots=True)
class _Wanted:
    """A request that was read and validated."""

    request: SessionRequest
    config: SessionConfig
    definitions: list[WorkflowDefinition]


@dataclass(slots=True)
class _Plan:
    """What a request comes to."""

    before: SessionRecord | None
    session: SessionRecord
    put: list[WorkflowRecord] = field(default_factory=list)
    replaced: list[WorkflowRecord] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def change(self) -> SessionChange:
        return SessionChange(
            session_id=self.session.session_id,
            record=None if self.session is self.before else self.session,
            put=tuple(self.put),
            remove=tuple(self.removed),
        )


class DefinitionService(WorkflowService):
    """Saves, reads and removes sessions and workflows; one writer at a time.

    Args:
        definitions: where workflows are kept.
        sessions: where sessions are kept.
        registry: node types, for validation.
        settings: the settings in force.
        preparer: forgets what it prepared of a definition that is replaced.
        base_dir: folder that relative paths of a definition start from.
        offload: runs validation off the event loop; on it if None.
        in_use: whether runs of a session, or of one of its workflows, are live.
        now: the time of day.
        emit: gets `definition.saved` and `definition.rolled_back`.
        going: removes what else is kept of a session, before the session is.
    """

    async def sessions(self) -> list[SessionView]:
        """Every session, by id."""
        return [
            SessionView(record, await self._definitions.list(record.session_id))
            for record in await self._sessions.list()
        ]

    async def get_session(self, session_id: str) -> SessionView:
        """One session.

        Raises:
            NotFoundError: there is none of that id.
        """
        record = await self.session_record(session_id)
        return SessionView(record, await self._definitions.list(session_id))

    async def apply_session(
        self,
        document: Mapping[str, Any],
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        dry_run: bool = False,
        base_dirs: Mapping[str, Path] = {},
        actor: str = "anonymous",
    ) -> SessionApplied:
        """Store a session with exactly the workflows of its document, all or nothing.

        Args:
            document: a whole session document.
            if_match: the `etag` that the change is based on; `*` for any.
            if_none_match: create only.
            dry_run: only say what would happen.
            base_dirs: by workflow id, where relative paths start; else at the server's folder.
            actor: who applies it.

        Raises:
            ValidationError: the document or one of its workflows is refused; lists every fault.
            StaleDefinitionError: the session is not what `if_match` says.
            ConflictError: a workflow that would be removed has live runs.
        """
        request = SessionRequest(
            document=document,
            if_match=if_match,
            if_none_match=if_none_match,
            base_dirs=base_dirs,
        )
        [applied] = await self.apply_sessions([request], dry_run=dry_run, actor=actor)
        return applied

    async def apply_sessions(
        self,
        requests: Sequence[SessionRequest],
        *,
        dry_run: bool = False,
        actor: str = "anonymous",
    ) -> list[SessionApplied]:
        """Store several sessions with their workflows: all of them or, if one is refused, none.

        Args:
            requests: each about another session.
            dry_run: only say what would happen.
            actor: who applies them.

        Raises:
            ValidationError: a document or workflow is refused; lists the faults of all.
            StaleDefinitionError: a session is not what its `if_match` says.
            ConflictError: a workflow that would be removed has live runs.
        """
        wanted: list[_Wanted] = await self._off_loop(self._parsed_sessions, requests)
        async with self._writing:
            plans = [await self._planned(item, actor) for item in wanted]
            if not dry_run:
                stored = await self._sessions.commit([plan.change() for plan in plans])
                for plan in plans:
                    self._forget(plan.replaced)
                for record in stored:
                    self._say("definition.saved", record)
            return [
                SessionApplied(
                    session=SessionView(
                        plan.session, await self._definitions.list(plan.session.session_id)
                    ),
                    existed=plan.before is not None,
                    created=plan.created,
                    changed=plan.changed,
                    unchanged=plan.unchanged,
                    removed=plan.removed,
                )
                for plan in plans
            ]

    async def patch_session(
        self, session_id: str, changes: Mapping[str, Any], *, if_match: str | None = None
    ) -> SessionView:
        """Merge changes into a session's own settings (RFC 7396); workflows stay as they are.

        Raises:
            NotFoundError: there is no such session.
            ValidationError: the outcome is refused.
            StaleDefinitionError: the session is not what `if_match` says.
        """
        if "workflows" in changes or changes.get("sessionId", session_id) != session_id:
            raise ValidationError(
                [Fault("", "invalid_option", "workflows and sessionId cannot be patched")]
            )
        async with self._writing:
            view = await self.get_session(session_id)
            check_match(view.etag, if_match, False, session_id)
            merged = view.settings()
            for key, value in changes.items():
                if isinstance(value, Mapping):
                    members = {**(merged.get(key) or {}), **value}
                    value = {name: item for name, item in members.items() if item is not None}
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            [wanted] = await self._off_loop(
                self._parsed_sessions, [SessionRequest(document=merged)]
            )
            record = SessionRecord(
                config=wanted.config, created_at=view.record.created_at, updated_at=self._now()
            )
            await self._sessions.commit([SessionChange(session_id=session_id, record=record)])
        return SessionView(record, view.workflows)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session, its workflows, and what their plugins left behind.

        Raises:
            NotFoundError: there is none of that id.
            ConflictError: it has live runs.
            StoreUnavailableError: not all of it could be removed; the session is still there.
        """
        async with self._writing:
            view = await self.get_session(session_id)
            if self._in_use(session_id, None):
                raise ConflictError(
                    f"session {session_id} has live runs: stop them first",
                    code="in_use",
                    sessionId=session_id,
                )
            if self._going is not None:
                await self._going(session_id)
            ids = tuple(item.workflow_id for item in view.workflows)
            await self._sessions.commit(
                [SessionChange(session_id=session_id, remove=ids, gone=True)]
            )
            self._forget(view.workflows)

    # -- bundles

    async def export(self, session_ids: Sequence[str] = ()) -> bytes:
        """Sessions and their workflows as a zip of folders.

        Args:
            session_ids: these; all of them if there are none.

        Raises:
            NotFoundError: there is no such session.
        """
        if session_ids:
            views = [await self.get_session(name) for name in dict.fromkeys(session_ids)]
        else:
            views = await self.sessions()
        return await self._off_loop(write_zip, views)

    async def bring_in(
        self,
        bundle: bytes,
        *,
        max_bytes: int,
        prune: bool = False,
        dry_run: bool = False,
        actor: str = "anonymous",
        permit: Callable[[str], None] = lambda session_id: None,
    ) -> list[SessionApplied]:
        """Store the sessions of a bundle, all of them or none; see `read_bundle`.

        Args:
            bundle: a zip, or JSON.
            max_bytes: bytes that a zip may unpack to.
            prune: remove workflows that the bundle does not have from the sessions that it has.
            dry_run: only say what would happen.
            actor: who brings it.
            permit: raises for the id of a session that they may not change.

        Raises:
            BadRequestError: it is neither a zip nor JSON.
            ValidationError: it is not a bundle, or something in it is refused; lists every fault.
            StaleDefinitionError: a session is not what its `etag` says.
            PreconditionRequiredError: a session that is there needs an `etag` on this server.
            ConflictError: a workflow that would be removed has live runs.
        """
        requests = await self._off_loop(
            lambda: read_bundle(bundle, max_bytes=max_bytes, prune=prune)
        )
        for request in requests:
            permit(str(request.document.get("sessionId")))
        if self._settings.http.require_if_match and not dry_run:
            requests = [replace(request, must_match=True) for request in requests]
        return await self.apply_sessions(requests, dry_run=dry_run, actor=actor)

    # -- parts

    async def _planned(self, wanted: _Wanted, actor: str) -> _Plan:
        """Compare a request with what is there; called by the one that writes."""
        request, config = wanted.request, wanted.config
        session_id = config.session_id
        if_match = request.if_match
        try:
            before = await self._sessions.get(session_id)
        except StoreUnavailableError as error:
            if not mendable(error, if_match, request.if_none_match):
                raise
            before, if_match = None, None
        known = {item.workflow_id: item for item in await self._definitions.list(session_id)}
        view = None if before is None else SessionView(before, list(known.values()))
        etag = None if view is None else view.etag
        if request.must_match and before is not None and request.if_match is None:
            raise PreconditionRequiredError(
                f"session {session_id} is there, and this server wants the etag that the change is"
                " based on: bring it as JSON with `etag`"
            )
        check_match(etag, if_match, request.if_none_match, session_id)
        if before is not None and request.keep_settings and set(request.document) <= _BARE:
            config = before.config
        now = self._now()
        session = SessionRecord(
            config=config, created_at=before.created_at if before else now, updated_at=now
        )
        if before is not None and before.config == config:
            session = before
        plan = _Plan(before, session)
        for definition in wanted.definitions:
            old = known.pop(definition.workflow_id, None)
            folder = request.base_dirs.get(definition.workflow_id)
            record = self._record(session_id, definition, old, folder, actor=actor)
            if old is None:
                plan.created.append(definition.workflow_id)
            elif record.same_as(old):
                plan.unchanged.append(definition.workflow_id)
                continue
            else:
                plan.changed.append(definition.workflow_id)
                plan.replaced.append(old)
            plan.put.append(record)
        if request.prune:
            plan.removed = sorted(known)
            plan.replaced += known.values()
            self._check_unused(session_id, plan.removed)
        return plan

    def _parsed_sessions(self, requests: Sequence[SessionRequest]) -> list[_Wanted]:
        """Read and validate every request.

        Raises:
            ValidationError: lists the faults of all.
        """
        faults: list[Fault] = []
        wanted: list[_Wanted] = []
        seen: set[str] = set()
        for request in requests:
            found = self._parsed_workflows(request, faults)
            own = {key: value for key, value in request.document.items() if key != "workflows"}
            try:
                config = SessionConfig.model_validate(own)
            except PydanticError as error:
                own_faults = (fault_of(own, item) for item in error.errors())
                faults += [
                    replace(fault, pointer=request.place + fault.pointer) for fault in own_faults
                ]
                continue
            if config.session_id in seen:
                detail = f"session {config.session_id} is there twice"
                faults.append(Fault(f"{request.place}/sessionId", "duplicate_id", detail))
            seen.add(config.session_id)
            wanted.append(_Wanted(request, config, found))
        if faults:
            raise ValidationError(faults)
        return wanted

    def _parsed_workflows(
        self, request: SessionRequest, faults: list[Fault]
    ) -> list[WorkflowDefinition]:
        workflows = request.document.get("workflows", [])
        if not isinstance(workflows, list):
            detail = "must be a list of workflows"
            faults.append(Fault(f"{request.place}/workflows", "invalid_type", detail))
            return []
        definitions: list[WorkflowDefinition] = []
        seen: set[str] = set()
        for index, workflow in enumerate(workflows):
            named = workflow.get("workflowId") if isinstance(workflow, Mapping) else None
            folder = request.base_dirs.get(named) if isinstance(named, str) else None
            validation = self._validated(workflow, folder)
            pointer = request.place_of(index)
            faults += [
                replace(fault, pointer=pointer + fault.pointer) for fault in validation.faults
            ]
            definition = validation.definition
            if definition is None:
                continue
            if definition.workflow_id in seen:
                detail = f"the session has workflow {definition.workflow_id} twice"
                faults.append(Fault(f"{pointer}/workflowId", "duplicate_id", detail))
            seen.add(definition.workflow_id)
            definitions.append(definition)
        return definitions


_BARE = frozenset({"sessionId", "workflows"})
