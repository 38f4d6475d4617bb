"""DefinitionService: sessions and their workflows, saved as a whole or not at all.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError as PydanticError

from yukta_rx.definitions.parse import fault_of
from yukta_rx.definitions.validate import Validation, validate
from yukta_rx.durability.stores.definitions import WorkflowRecord
from yukta_rx.durability.stores.sessions import SessionRecord
from yukta_rx.errors import (
    ConflictError,
    DefinitionError,
    Fault,
    NotFoundError,
    StaleDefinitionError,
    ValidationError,
)
from yukta_rx.model.codec import canonical
from yukta_rx.model.session import SessionConfig
from yukta_rx.model.times import rfc3339, utc_now

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import Offload, Preparer
    from yukta_rx.durability.stores.definitions import WorkflowDefinitionStore
    from yukta_rx.durability.stores.sessions import SessionConfigStore
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.plugins.registry import PluginRegistry

T = TypeVar("T")

ANY: Final = "*"
"""`if_match="*"`: whatever is there, but something must be."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What saving a workflow did."""

    record: WorkflowRecord
    created: bool
    unchanged: bool
    warnings: Sequence[Fault]

    def as_dict(self) -> dict[str, Any]:
        """The answer to a save: camelCase."""
        return {
            "workflowId": self.record.workflow_id,
            "version": self.record.version,
            "definitionVersion": self.record.definition_version,
            "created": self.created,
            "unchanged": self.unchanged,
            "warnings": [warning.as_dict() for warning in self.warnings],
        }


@dataclass(frozen=True, slots=True)
class SessionApplied:
    """What applying a session did, or with a dry run would do; lists of workflow ids."""

    session: SessionView
    existed: bool
    created: Sequence[str]
    changed: Sequence[str]
    unchanged: Sequence[str]
    removed: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The plan, as it is answered."""
        return {
            "sessionId": self.session.session_id,
            "created": list(self.created),
            "changed": list(self.changed),
            "unchanged": list(self.unchanged),
            "removed": list(self.removed),
        }


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session with the workflows that it has now."""

    record: SessionRecord
    workflows: Sequence[WorkflowRecord]

    @property
    def session_id(self) -> str:
        """Unique on the server."""
        return self.record.session_id

    @property
    def etag(self) -> str:
        """Changes with the configuration and with every workflow."""
        state: list[Any] = [self.record.config.model_dump(mode="json", by_alias=True)]
        state += [[item.workflow_id, item.definition_version] for item in self.workflows]
        return sha256(canonical(state)).hexdigest()

    def as_dict(self, include_workflows: bool = False) -> dict[str, Any]:
        """The session as API.md's `Session`."""
        shown: dict[str, Any] = self.record.config.model_dump(mode="json", by_alias=True)
        shown.pop("workflows", None)
        shown = {key: value for key, value in shown.items() if value is not None}
        if include_workflows:
            shown["workflows"] = [item.document for item in self.workflows]
        shown["workflowIds"] = [item.workflow_id for item in self.workflows]
        shown["createdAt"] = rfc3339(self.record.created_at)
        shown["updatedAt"] = rfc3339(self.record.updated_at)
        shown["etag"] = self.etag
        return shown


class DefinitionService:
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
    """

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
        self._writing = asyncio.Lock()

    @property
    def base_dir(self) -> Path | None:
        """Folder that relative paths of a definition start from."""
        return self._base_dir

    # -- sessions

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
    ) -> SessionApplied:
        """Store a session with exactly the workflows of its document, all or nothing.

        Args:
            document: a whole session document.
            if_match: the `etag` that the change is based on; `*` for any.
            if_none_match: create only.
            dry_run: only say what would happen.
            base_dirs: by workflow id, where relative paths start; else at the server's folder.

        Raises:
            ValidationError: the document or one of its workflows is refused; lists every fault.
            StaleDefinitionError: the session is not what `if_match` says.
            ConflictError: a workflow that would be removed has live runs.
        """
        config, definitions = await self._off_loop(self._parsed_session, document, base_dirs)
        async with self._writing:
            before = await self._sessions.get(config.session_id)
            stored = await self._definitions.list(config.session_id)
            known = {item.workflow_id: item for item in stored}
            view = None if before is None else SessionView(before, list(known.values()))
            _check_match(view.etag if view else None, if_match, if_none_match, config.session_id)
            put: list[WorkflowRecord] = []
            created: list[str] = []
            changed: list[str] = []
            unchanged: list[str] = []
            for definition in definitions:
                old = known.pop(definition.workflow_id, None)
                folder = base_dirs.get(definition.workflow_id)
                record = self._record(config.session_id, definition, old, folder)
                if old is not None and record.same_as(old):
                    unchanged.append(definition.workflow_id)
                    continue
                (created if old is None else changed).append(definition.workflow_id)
                put.append(record)
            removed = sorted(known)
            self._check_unused(config.session_id, removed)
            now = self._now()
            session = SessionRecord(
                config=config, created_at=before.created_at if before else now, updated_at=now
            )
            if before is not None and before.config == config:
                session = before
            if not dry_run:
                await self._definitions.write(config.session_id, put, removed)
                await self._sessions.put(session)
                self._forget(known.values())
            workflows = await self._definitions.list(config.session_id)
        return SessionApplied(
            session=SessionView(session, workflows),
            existed=before is not None,
            created=created,
            changed=changed,
            unchanged=unchanged,
            removed=removed,
        )

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
            _check_match(view.etag, if_match, False, session_id)
            merged = view.record.config.model_dump(mode="json", by_alias=True, exclude_unset=True)
            merged.pop("workflows", None)
            for key, value in changes.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = value
            config, _ = await self._off_loop(self._parsed_session, merged, {})
            record = SessionRecord(
                config=config, created_at=view.record.created_at, updated_at=self._now()
            )
            await self._sessions.put(record)
        return SessionView(record, view.workflows)

    async def delete_session(self, session_id: str) -> None:
        """Remove a session and its workflows.

        Raises:
            NotFoundError: there is none of that id.
            ConflictError: it has live runs.
        """
        async with self._writing:
            view = await self.get_session(session_id)
            if self._in_use(session_id, None):
                raise ConflictError(
                    f"session {session_id} has live runs: stop them first",
                    code="in_use",
                    sessionId=session_id,
                )
            ids = [item.workflow_id for item in view.workflows]
            await self._definitions.write(session_id, (), ids)
            await self._sessions.remove(session_id)
            self._forget(view.workflows)

    # -- workflows

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
        await self.session_record(session_id)
        record = await self._definitions.get(session_id, workflow_id)
        if record is None:
            raise NotFoundError(
                f"session {session_id} has no workflow {workflow_id}",
                code="workflow_not_found",
                sessionId=session_id,
                workflowId=workflow_id,
            )
        return record

    async def save(
        self,
        session_id: str,
        workflow_id: str,
        document: Any,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
    ) -> Saved:
        """Store a workflow; saving what is there already changes nothing.

        Args:
            session_id: must exist.
            workflow_id: must be the document's own.
            document: the workflow document; `workflowId` may be left out.
            if_match: the `definitionVersion` that the change is based on; `*` for any.
            if_none_match: create only.

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
            old = await self._definitions.get(session_id, workflow_id)
            current = None if old is None else old.definition_version
            _check_match(current, if_match, if_none_match, workflow_id)
            if old is not None and current == definition.version:
                return Saved(old, created=False, unchanged=True, warnings=validation.warnings)
            record = self._record(session_id, definition, old)
            await self._definitions.write(session_id, (record,), ())
            if old is not None:
                self._forget((old,))
        return Saved(record, created=old is None, unchanged=False, warnings=validation.warnings)

    async def delete(
        self, session_id: str, workflow_id: str, *, if_match: str | None = None
    ) -> None:
        """Remove a workflow.

        Raises:
            NotFoundError: there is no such session or workflow.
            StaleDefinitionError: the workflow is not what `if_match` says.
            ConflictError: it has live runs.
        """
        async with self._writing:
            old = await self.get(session_id, workflow_id)
            _check_match(old.definition_version, if_match, False, workflow_id)
            self._check_unused(session_id, (workflow_id,))
            await self._definitions.write(session_id, (), (workflow_id,))
            self._forget((old,))

    async def validate(self, document: Any) -> Validation:
        """What is to be said about a workflow document."""
        return await self._off_loop(self._validated, document)

    # -- parts

    async def _off_loop(self, work: Callable[..., T], *args: Any) -> T:
        """Some ten milliseconds for the largest graph, plus looks at the file system."""
        if self._offload is None:
            return work(*args)
        made: T = await self._offload(work, *args)
        return made

    def _validated(self, document: Any, base_dir: Path | None = None) -> Validation:
        folder = base_dir or self._base_dir
        return validate(document, self._registry, settings=self._settings, base_dir=folder)

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

    def _parsed_session(
        self, document: Mapping[str, Any], base_dirs: Mapping[str, Path]
    ) -> tuple[SessionConfig, list[WorkflowDefinition]]:
        faults: list[Fault] = []
        definitions: list[WorkflowDefinition] = []
        seen: set[str] = set()
        workflows = document.get("workflows", [])
        if not isinstance(workflows, list):
            faults.append(Fault("/workflows", "invalid_type", "must be a list of workflows"))
            workflows = []
        for place, workflow in enumerate(workflows):
            named = workflow.get("workflowId") if isinstance(workflow, Mapping) else None
            folder = base_dirs.get(named) if isinstance(named, str) else None
            validation = self._validated(workflow, folder)
            pointer = f"/workflows/{place}"
            faults += [
                replace(fault, pointer=pointer + fault.pointer) for fault in validation.faults
            ]
            if validation.definition is None:
                continue
            if validation.definition.workflow_id in seen:
                detail = f"the session has workflow {validation.definition.workflow_id} twice"
                faults.append(Fault(f"{pointer}/workflowId", "duplicate_id", detail))
            seen.add(validation.definition.workflow_id)
            definitions.append(validation.definition)
        own = {key: value for key, value in document.items() if key != "workflows"}
        config = None
        try:
            config = SessionConfig.model_validate(own)
        except PydanticError as error:
            faults = [*(fault_of(own, item) for item in error.errors()), *faults]
        if faults or config is None:
            raise ValidationError(faults)
        return config, definitions

    def _record(
        self,
        session_id: str,
        definition: WorkflowDefinition,
        old: WorkflowRecord | None,
        base_dir: Path | None = None,
    ) -> WorkflowRecord:
        now = self._now()
        return WorkflowRecord(
            session_id=session_id,
            definition=definition,
            version=1 if old is None else old.version + 1,
            created_at=now if old is None else old.created_at,
            updated_at=now,
            base_dir=base_dir,
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


def _check_match(current: str | None, if_match: str | None, if_none_match: bool, what: str) -> None:
    if if_none_match and current is not None:
        raise StaleDefinitionError(f"{what} exists already", expected=None, current=current)
    if if_match is None or (if_match == ANY and current is not None) or if_match == current:
        return
    raise StaleDefinitionError(
        f"{what} was changed meanwhile: read it again and repeat the change",
        expected=if_match,
        current=current,
    )
