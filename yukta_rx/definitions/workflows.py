"""WorkflowService: workflows and their versions, saved one at a time. Feature: DEF-01."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from yukta_rx.definitions.diff import WorkflowDiff, diff_definitions
from yukta_rx.definitions.dry_run import dry_run
from yukta_rx.definitions.graph import Graph, graph_of
from yukta_rx.definitions.validate import Validation, validate
from yukta_rx.definitions.views import Saved, check_match, mendable
from yukta_rx.durability.stores.definitions import WorkflowRecord
from yukta_rx.errors import (
    ConflictError,
    DefinitionError,
    Fault,
    NotFoundError,
    StoreUnavailableError,
)
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.model.times import utc_now

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import Offload, Preparer
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore
    from yukta_rx.durability.stores.sessions import SessionConfigStore, SessionRecord
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.plugins.registry import PluginRegistry

T = TypeVar("T")


class WorkflowService:
    """Saves, reads and removes workflows; one writer at a time. See `DefinitionService`."""

    def __init__(
        self,
        definitions: WorkflowDefinitionStore,
        sessions: SessionConfigStore,
        registry: PluginRegistry,
        settings: Settings,
        preparer: Preparer,
        *,
        base_dir: Path | None = None,
        offload: Offload | None = None,
        in_use: Callable[[str, str | None], bool] = lambda session_id, workflow_id: False,
        now: Callable[[], datetime] = utc_now,
        emit: Callable[[ExecutionEvent], None] = lambda event: None,
        going: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._definitions = definitions
        self._sessions = sessions
        self._registry = registry
        self._settings = settings
        self._preparer = preparer
        self._base_dir = base_dir
        self._offload = offload
        self._in_use = in_use
        self._now = now
        self._emit = emit
        self._going = going
        self._writing = asyncio.Lock()

    @property
    def base_dir(self) -> Path | None:
        """Folder that relative paths of a definition start from."""
        return self._base_dir

    # -- the current form

    async def workflows(self, session_id: str) -> Sequence[WorkflowRecord]:
        """Every workflow of a session, by id.

        Raises:
            NotFoundError: there is no such session.
        """
        await self.session_record(session_id)
        return await self._definitions.list(session_id)

    async def get(self, session_id: str, workflow_id: str) -> WorkflowRecord:
        """The current form of a workflow.

        Raises:
            NotFoundError: there is no such session or workflow.
        """
        record = await self._definitions.get(session_id, workflow_id)
        if record is None:
            # It goes with its session, so only now it matters whether there is one.
            await self.session_record(session_id)
            raise _no_workflow(session_id, workflow_id)
        return record

    async def save(
        self,
        session_id: str,
        workflow_id: str,
        document: Any,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
        note: str | None = None,
        actor: str = "anonymous",
    ) -> Saved:
        """Store a workflow; saving what is there already adds no version.

        Args:
            session_id: must exist.
            workflow_id: must be the document's own.
            document: the workflow document; `workflowId` may be left out.
            if_match: the `definitionVersion` that the change is based on; `*` for any.
            if_none_match: create only.
            note: what to write about the version, also about one that is there already.
            actor: who saves it.

        Raises:
            DefinitionError: the document is refused; lists every fault.
            NotFoundError: there is no such session.
            StaleDefinitionError: the workflow is not what `if_match` says.
        """
        await self.session_record(session_id)
        if isinstance(document, Mapping):
            document = {"workflowId": workflow_id, **document}
        validation = await self.validate(document)
        faults = list(validation.faults)
        definition = validation.definition
        if definition is not None and definition.workflow_id != workflow_id:
            detail = f"is {definition.workflow_id}, but the address says {workflow_id}"
            faults.insert(0, Fault("/workflowId", "invalid_id", detail))
        if faults or definition is None:
            raise DefinitionError(faults)
        async with self._writing:
            await self.session_record(session_id)
            try:
                old = await self._definitions.get(session_id, workflow_id)
            except StoreUnavailableError as error:
                if not mendable(error, if_match, if_none_match):
                    raise
                old, if_match = None, None
            current = None if old is None else old.definition_version
            check_match(current, if_match, if_none_match, workflow_id)
            if old is not None and current == definition.version:
                if note:
                    noted = await self._definitions.annotate(
                        session_id, workflow_id, old.version, note
                    )
                    old = noted or old
                return Saved(old, created=False, unchanged=True, warnings=validation.warnings)
            record = self._record(session_id, definition, old, actor=actor, note=note)
            [record] = await self._definitions.write(session_id, (record,))
            if old is not None:
                self._forget((old,))
            self._say("definition.saved", record)
        return Saved(record, created=old is None, unchanged=False, warnings=validation.warnings)

    async def delete(
        self, session_id: str, workflow_id: str, *, if_match: str | None = None
    ) -> None:
        """Remove a workflow with all its versions.

        Raises:
            NotFoundError: there is no such session or workflow.
            StaleDefinitionError: the workflow is not what `if_match` says.
            ConflictError: it has live runs.
        """
        async with self._writing:
            try:
                old = await self.get(session_id, workflow_id)
            except StoreUnavailableError as error:
                if not mendable(error, if_match, False):
                    raise
                old = None
            if old is not None:
                check_match(old.definition_version, if_match, False, workflow_id)
            self._check_unused(session_id, (workflow_id,))
            await self._definitions.write(session_id, (), (workflow_id,))
            self._forget(() if old is None else (old,))

    async def validate(self, document: Any) -> Validation:
        """What is to be said about a workflow document."""
        return await self._off_loop(self._validated, document)

    # -- versions

    async def versions(self, session_id: str, workflow_id: str) -> Sequence[WorkflowRecord]:
        """The versions that are kept, the newest, which is the current one, first.

        Raises:
            NotFoundError: there is no such session or workflow.
        """
        await self.session_record(session_id)
        found = await self._definitions.versions(session_id, workflow_id)
        if not found:
            raise _no_workflow(session_id, workflow_id)
        return found

    async def version(self, session_id: str, workflow_id: str, version: int) -> WorkflowRecord:
        """One version.

        Raises:
            NotFoundError: there is no such session, workflow or version.
        """
        await self.get(session_id, workflow_id)
        found = await self._definitions.version(session_id, workflow_id, version)
        if found is None:
            raise _no_version(session_id, workflow_id, version)
        return found

    async def pinned(self, session_id: str, workflow_id: str, version: Any) -> WorkflowRecord:
        """The version that a start names (`yukta.version`): its number, also as text.

        Raises:
            NotFoundError: there is no such session, workflow or version.
        """
        number = version
        if isinstance(version, str) and version.isdecimal() and len(version) < 19:
            number = int(version)
        if isinstance(number, bool) or not isinstance(number, int):
            await self.get(session_id, workflow_id)
            raise _no_version(session_id, workflow_id, version)
        return await self.version(session_id, workflow_id, number)

    async def of_content(
        self, session_id: str, workflow_id: str, definition_version: str
    ) -> WorkflowRecord:
        """The newest version with this content hash.

        Raises:
            NotFoundError: there is no such session or workflow, or no such version is kept.
        """
        for record in await self.versions(session_id, workflow_id):
            if record.definition_version == definition_version:
                return record
        raise _no_version(session_id, workflow_id, definition_version)

    async def diff(
        self, session_id: str, workflow_id: str, from_version: int, to_version: int | None = None
    ) -> WorkflowDiff:
        """What changed from one version to another, or to the current one.

        Raises:
            NotFoundError: there is no such session, workflow or version.
        """
        old = await self.version(session_id, workflow_id, from_version)
        if to_version is None:
            new = await self.get(session_id, workflow_id)
        else:
            new = await self.version(session_id, workflow_id, to_version)
        return await self._off_loop(
            diff_definitions, old.definition, new.definition, old.version, new.version
        )

    async def note(
        self, session_id: str, workflow_id: str, version: int, note: str | None
    ) -> WorkflowRecord:
        """Write something about a version; an empty note takes the old one away.

        Raises:
            NotFoundError: there is no such session, workflow or version.
        """
        async with self._writing:
            await self.get(session_id, workflow_id)
            found = await self._definitions.annotate(session_id, workflow_id, version, note or None)
            if found is None:
                raise _no_version(session_id, workflow_id, version)
            return found

    async def rollback(
        self,
        session_id: str,
        workflow_id: str,
        version: int,
        *,
        if_match: str | None = None,
        actor: str = "anonymous",
    ) -> Saved:
        """Make the content of an older version the current one, as a new version.

        It is validated again: node types and settings may have changed since.

        Raises:
            DefinitionError: it would be refused today.
            NotFoundError: there is no such session, workflow or version.
            StaleDefinitionError: the workflow is not what `if_match` says.
        """
        wanted = await self.version(session_id, workflow_id, version)
        validation = await self._off_loop(self._validated, wanted.definition, wanted.base_dir)
        if validation.faults:
            raise DefinitionError(validation.faults)
        async with self._writing:
            old = await self.get(session_id, workflow_id)
            check_match(old.definition_version, if_match, False, workflow_id)
            if wanted.same_as(old):
                return Saved(old, created=False, unchanged=True, warnings=validation.warnings)
            record = self._record(session_id, wanted.definition, old, wanted.base_dir, actor=actor)
            [record] = await self._definitions.write(session_id, (record,))
            self._forget((old,))
            self._say("definition.rolled_back", record)
        return Saved(record, created=False, unchanged=False, warnings=validation.warnings)

    # -- looking ahead

    async def graph(self, session_id: str, workflow_id: str) -> Graph:
        """The current form as a graph with its layout.

        Raises:
            NotFoundError: there is no such session or workflow.
        """
        record = await self.get(session_id, workflow_id)
        return await self._off_loop(graph_of, record.definition, self._registry)

    async def graph_of_content(
        self, session_id: str, workflow_id: str, definition_version: str
    ) -> Graph | None:
        """The graph of the version with this content hash; None if it is not kept (any more)."""
        for record in await self._definitions.versions(session_id, workflow_id):
            if record.definition_version == definition_version:
                return await self._off_loop(graph_of, record.definition, self._registry)
        return None

    async def dry_run(
        self, session_id: str, workflow_id: str, payload: Any = None
    ) -> dict[str, Any]:
        """What a start with this payload would do, without a run; see `dry_run`.

        Raises:
            DefinitionError: the workflow would be refused today.
            NotFoundError: there is no such session or workflow, or version of `yukta.version`.
        """
        record = await self.get(session_id, workflow_id)
        if isinstance(payload, Mapping) and "yukta.version" in payload:
            record = await self.pinned(session_id, workflow_id, payload["yukta.version"])
        folder = record.base_dir or self._base_dir
        prepared = await self._preparer.prepare(record.definition, folder)
        return await self._off_loop(dry_run, prepared, self._settings, payload)

    # -- parts

    async def session_record(self, session_id: str) -> SessionRecord:
        """Return a session as it is stored; raises NotFoundError."""
        record = await self._sessions.get(session_id)
        if record is None:
            raise NotFoundError(
                f"there is no session {session_id}",
                code="session_not_found",
                sessionId=session_id,
            )
        return record

    async def _off_loop(self, work: Callable[..., T], *args: Any) -> T:
        """Some ten milliseconds for the largest graph, plus looks at the file system."""
        if self._offload is None:
            return work(*args)
        made: T = await self._offload(work, *args)
        return made

    def _validated(self, document: Any, base_dir: Path | None = None) -> Validation:
        folder = base_dir or self._base_dir
        return validate(document, self._registry, settings=self._settings, base_dir=folder)

    def _record(
        self,
        session_id: str,
        definition: WorkflowDefinition,
        old: WorkflowRecord | None,
        base_dir: Path | None = None,
        *,
        actor: str,
        note: str | None = None,
    ) -> WorkflowRecord:
        now = self._now()
        return WorkflowRecord(
            session_id=session_id,
            definition=definition,
            created_at=now if old is None else old.created_at,
            updated_at=now,
            base_dir=base_dir,
            actor=actor,
            note=note or None,
        )

    def _check_unused(self, session_id: str, workflow_ids: Iterable[str]) -> None:
        for workflow_id in workflow_ids:
            if self._in_use(session_id, workflow_id):
                raise ConflictError(
                    f"workflow {workflow_id} has live runs: stop them first",
                    code="in_use",
                    sessionId=session_id,
                    workflowId=workflow_id,
                )

    def _forget(self, records: Iterable[WorkflowRecord]) -> None:
        for record in records:
            self._preparer.drop(record.definition_version)

    def _say(self, kind: str, record: WorkflowRecord) -> None:
        """Tell the feed about a new current version."""
        self._emit(
            ExecutionEvent(
                type=kind,
                time=record.updated_at,
                session_id=record.session_id,
                workflow_id=record.workflow_id,
                execution_id="",
                data=record.as_row(current=True),
            )
        )


def _no_workflow(session_id: str, workflow_id: str) -> NotFoundError:
    return NotFoundError(
        f"session {session_id} has no workflow {workflow_id}",
        code="workflow_not_found",
        sessionId=session_id,
        workflowId=workflow_id,
    )


def _no_version(session_id: str, workflow_id: str, version: Any) -> NotFoundError:
    return NotFoundError(
        f"workflow {workflow_id} of session {session_id} has no version"
        f" {str(version)[:40]!r} (any more)",
        code="version_not_found",
        sessionId=session_id,
        workflowId=workflow_id,
        version=version if isinstance(version, int) else str(version)[:40],
    )
