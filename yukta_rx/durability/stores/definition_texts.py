"""Workflows and sessions as text that is read back exactly; files and rows hold the same members.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from pydantic import ValidationError as PydanticError

from yukta_rx.durability.stores.definitions import WorkflowRecord
from yukta_rx.durability.stores.sessions import SessionRecord
from yukta_rx.errors import YuktaError, json_pointer
from yukta_rx.model.codec import decode
from yukta_rx.model.session import SessionConfig
from yukta_rx.model.workflow import WorkflowDefinition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

log = logging.getLogger(__name__)

S = TypeVar("S", bound=msgspec.Struct)
M = TypeVar("M", bound="BaseModel")

FORMAT: Final = 1
"""Of the texts written here; a text without `format` is of this one."""

Aware = Annotated[datetime, msgspec.Meta(tz=True)]

_FAULTS_TOLD = 3


class Unreadable(Exception):
    """A text that cannot be read: the place in it, and what is wrong there."""


class _Versioned(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One version of a workflow, as it is written."""

    version: int
    definition_version: str = ""
    created_at: Aware
    updated_at: Aware
    actor: str = "anonymous"
    note: str | None = None
    base_dir: str | None = None
    document: Any


class _Session(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A session, as it is written."""

    created_at: Aware
    updated_at: Aware
    config: dict[str, Any]


# --- workflows -----------------------------------------------------------------------------------


def version_members(record: WorkflowRecord) -> dict[str, Any]:
    """Return what is written of one version."""
    optional = {
        "note": record.note,
        "baseDir": None if record.base_dir is None else str(record.base_dir),
    }
    return {
        "format": FORMAT,
        "version": record.version,
        "definitionVersion": record.definition_version,
        "createdAt": record.created_at.isoformat(),
        "updatedAt": record.updated_at.isoformat(),
        "actor": record.actor,
        **{name: value for name, value in optional.items() if value is not None},
        "document": record.document,
    }


def read_version(
    data: bytes, session_id: str, workflow_id: str, number: int, *, holder: str = "folder"
) -> WorkflowRecord:
    """Return one version.

    Args:
        data: the text.
        session_id: the session that it belongs to.
        workflow_id: the workflow that it is of.
        number: its number.
        holder: what says so: a folder, a row.

    Raises:
        Unreadable: it is not that of a version of this workflow.
    """
    read = converted(parsed(decode, data), _Versioned)
    if read.version != number:
        raise Unreadable(f"/version: is {read.version}, but it is kept as {number}")
    return WorkflowRecord(
        session_id=session_id,
        definition=read_definition(read.document, workflow_id, "/document", holder=holder),
        version=number,
        created_at=read.created_at,
        updated_at=read.updated_at,
        base_dir=None if read.base_dir is None else Path(read.base_dir),
        actor=read.actor,
        note=read.note or None,
    )


def read_definition(
    document: Any, workflow_id: str, at: str = "", *, holder: str = "folder"
) -> WorkflowDefinition:
    """Return the workflow of a document.

    Raises:
        Unreadable: it is none, or one of another id.
    """
    found = _modelled(WorkflowDefinition, document, at)
    if found.workflow_id != workflow_id:
        raise Unreadable(
            f"{at}/workflowId: is {found.workflow_id}, but the {holder} is that of {workflow_id}"
        )
    return found


# --- sessions ------------------------------------------------------------------------------------


def session_members(record: SessionRecord) -> dict[str, Any]:
    """Return what is written of a session."""
    return {
        "format": FORMAT,
        "createdAt": record.created_at.isoformat(),
        "updatedAt": record.updated_at.isoformat(),
        "config": record.config.model_dump(mode="json", by_alias=True, exclude_unset=True),
    }


def read_session(data: bytes, session_id: str, *, holder: str = "file") -> SessionRecord:
    """Return a session; members that this version does not know are passed over.

    Raises:
        Unreadable: the text is not that of this session.
    """
    read = converted(parsed(decode, data), _Session)
    known = {field.alias or name for name, field in SessionConfig.model_fields.items()}
    unknown = sorted(read.config.keys() - known)
    if unknown:
        log.warning("session %s: unknown members are passed over: %s", session_id, unknown)
    document = {name: value for name, value in read.config.items() if name in known}
    config = _modelled(SessionConfig, document, "/config")
    if config.session_id != session_id:
        raise Unreadable(
            f"/config/sessionId: is {config.session_id}, but the {holder} is that of {session_id}"
        )
    return SessionRecord(config=config, created_at=read.created_at, updated_at=read.updated_at)


# --- JSON ----------------------------------------------------------------------------------------


def parsed(read: Callable[[bytes], Any], data: bytes) -> Any:
    """Return the value of a text.

    Raises:
        Unreadable: it is no JSON.
    """
    try:
        return read(data)
    except YuktaError as error:
        raise Unreadable(f"{_line_of(data)}{error.detail}") from error


def _line_of(data: bytes) -> str:
    """Say in which line a text stops being JSON; nothing if it is JSON for the standard parser."""
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return f"line {error.lineno}, column {error.colno}: "
    except (ValueError, RecursionError):
        return ""
    return ""


def converted(value: Any, kind: type[S]) -> S:
    """Return the struct of a value.

    Raises:
        Unreadable: it is none, or of a newer form.
    """
    version = value.get("format", FORMAT) if isinstance(value, dict) else FORMAT
    if version != FORMAT:
        raise Unreadable(f"/format: is {version!r}; this version of yukta reads {FORMAT}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Unreadable(str(error)) from error


def _modelled(model: type[M], document: Any, at: str) -> M:
    try:
        return model.model_validate(document, by_alias=True, by_name=False)
    except PydanticError as error:
        faults = error.errors(include_url=False)
        told = [_told(fault.get("ctx") or {}, fault, at) for fault in faults[:_FAULTS_TOLD]]
        if len(faults) > _FAULTS_TOLD:
            told.append(f"and {len(faults) - _FAULTS_TOLD} more")
        raise Unreadable("; ".join(told)) from error


def _told(context: dict[str, Any], fault: ErrorDetails, at: str) -> str:
    """Say one fault in a sentence; our own validators bring place and words themselves."""
    pointer = at + json_pointer([*fault["loc"], *context.get("place", ())])
    detail = context.get("detail") or f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
    return f"{pointer or 'the document'}: {detail}"
