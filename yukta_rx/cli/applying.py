"""Workflow files become the workflows of a session, as a whole.  Features: DEF-01, HA-01."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli.console import EXIT_INVALID, EXIT_USAGE, CliError
from yukta_rx.cli.documents import CheckedFile, Finding, check_text
from yukta_rx.cli.files import is_workflow, json_files, read_text
from yukta_rx.cli.locate import LineMap
from yukta_rx.errors import Fault, NotFoundError
from yukta_rx.model.ids import id_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from yukta_rx.app import Engine
    from yukta_rx.cli.console import Console
    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.service import SessionApplied
    from yukta_rx.plugins.registry import PluginRegistry

DEFAULT_SESSION: Final = "default"
"""Session of the files that are not in a sub-folder."""


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The workflows that a folder has for one session."""

    session_id: str
    documents: tuple[dict[str, Any], ...]


def read_sessions(folder: str, registry: PluginRegistry, settings: Settings) -> list[SessionFolder]:
    """Return the sessions of a folder, every file examined as the server will.

    Each sub-folder is a session of that name; the files in the folder itself are those of the
    session `default`. JSON files that are no workflows are passed over.

    Raises:
        CliError: the folder cannot be read or has no workflow (exit code 2), or a file is not
            valid (3); lists every fault.
    """
    if not os.path.isdir(folder):
        reason = "not a folder" if os.path.exists(folder) else "no such folder"
        raise CliError(f"{folder}: {reason}", exit_code=EXIT_USAGE)
    texts: dict[str, dict[str, str]] = {}
    for path in json_files(folder):
        text = read_text(path)
        if is_workflow(text):
            inside = os.path.relpath(path, folder).split(os.sep)
            session_id = inside[0] if len(inside) > 1 else DEFAULT_SESSION
            texts.setdefault(session_id, {})[path] = text
    if not texts:
        raise CliError(f"no workflow file in {folder}", exit_code=EXIT_USAGE)
    sessions, refused = [], list[CliError]()
    for session_id, files in texts.items():
        if (fault := id_fault("the name of a session folder", session_id)) is not None:
            refused.append(CliError(f"{os.path.join(folder, session_id)}: {fault}"))
        checked = [
            check_text(path, text, registry, settings, settings.data.dir)
            for path, text in files.items()
        ]
        checked = without_repeats(checked, files)
        refused += [file.refusal() for file in checked if file.faults]
        sessions.append(SessionFolder(session_id, tuple(documents_of(checked))))
    if refused:
        raise joined(refused)
    return sessions


def without_repeats(checked: Iterable[CheckedFile], texts: Mapping[str, str]) -> list[CheckedFile]:
    """Return the files, with a fault in each whose workflow id an earlier one has too."""
    owners: dict[str, str] = {}
    found = []
    for file in checked:
        definition = file.validation.definition if file.validation else None
        if definition is not None and not file.faults:
            owner = owners.setdefault(definition.workflow_id, file.path)
            if owner != file.path:
                detail = f"workflow {definition.workflow_id} is also in {owner}"
                fault = Fault("/workflowId", "duplicate_id", detail)
                line = LineMap(texts[file.path]).line(fault.pointer)
                file = CheckedFile(file.path, file.validation, (Finding(line, fault),), ())
        found.append(file)
    return found


def documents_of(checked: Iterable[CheckedFile]) -> list[dict[str, Any]]:
    """Return the documents of the valid files."""
    return [
        file.validation.definition.as_document()
        for file in checked
        if not file.faults and file.validation and file.validation.definition
    ]


def joined(refusals: Iterable[CliError]) -> CliError:
    """Return the refusals of several files as one."""
    refusals = list(refusals)
    lines = [line for refusal in refusals for line in refusal.lines]
    files = [refusal.members for refusal in refusals if refusal.members]
    return CliError(*lines, exit_code=EXIT_INVALID, code="validation", members={"files": files})


async def apply(
    engine: Engine,
    session_id: str,
    documents: Iterable[Mapping[str, Any]],
    base_dirs: Mapping[str, Path] = {},
) -> SessionApplied:
    """Let a session have exactly these workflows; its settings stay as they are.

    Raises:
        YuktaError: they are refused.
    """
    own: dict[str, Any] = {"sessionId": session_id}
    try:
        view = await engine.definitions.get_session(session_id)
    except NotFoundError:
        pass
    else:
        config = view.record.config
        own = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document = {**own, "workflows": list(documents)}
    return await engine.definitions.apply_session(document, base_dirs=base_dirs, actor="server")


def say_plan(console: Console, applied: SessionApplied) -> None:
    """Say what applying a session changed."""
    plan = applied.as_dict()
    if console.as_json:
        console.say_json({"type": "applied", **plan})
        return
    kinds = ("created", "changed", "removed", "unchanged")
    parts = [f"{kind} {', '.join(plan[kind])}" for kind in kinds if plan[kind]]
    console.say(f"yukta: session {plan['sessionId']}: {'; '.join(parts) or 'no workflows'}")
