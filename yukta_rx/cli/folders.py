"""A folder of workflow files as the bundle that a server is sent.  Features: DEF-01, DUR-05.

Only the shape of a file is looked at here: which node types there are, and what they take, is for
the server to say, and its faults come back to the lines of the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli.applying import DEFAULT_SESSION, joined, without_repeats
from yukta_rx.cli.console import EXIT_INVALID, EXIT_USAGE, CliError
from yukta_rx.cli.documents import CheckedFile, Finding, line_in
from yukta_rx.cli.files import is_workflow, json_files, read_text
from yukta_rx.cli.locate import LineMap
from yukta_rx.definitions.bundle import SETTINGS_FILE
from yukta_rx.definitions.parse import read_definition
from yukta_rx.definitions.validate import Validation
from yukta_rx.errors import Fault, YuktaError
from yukta_rx.model.codec import loads_external
from yukta_rx.model.ids import id_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yukta_rx.model.workflow import WorkflowDefinition

_SESSIONS: Final = "sessions"


@dataclass(frozen=True, slots=True)
class WorkflowFile:
    """A workflow and the file that it is in."""

    path: str
    text: str
    definition: WorkflowDefinition


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """What a folder has for one session; `settings` is None if it has none."""

    session_id: str
    files: tuple[WorkflowFile, ...]
    settings: dict[str, Any] | None = None
    settings_path: str = ""
    settings_text: str = ""

    def document(self, etag: str | None) -> dict[str, Any]:
        """The session as it goes into a bundle."""
        made = {**(self.settings or {}), "sessionId": self.session_id}
        if etag is not None:
            made["etag"] = etag
        return made | {"workflows": [file.definition.as_document() for file in self.files]}


def read_folder(folder: str, session: str | None) -> list[SessionFiles]:
    """Return the sessions of a folder, by name.

    Each sub-folder is a session of that name, and `_session.json` in it has its settings; the
    files in the folder itself are those of the session `default`.

    Args:
        folder: where to look; JSON files that are no workflows are passed over.
        session: everything below the folder belongs to this session.

    Raises:
        CliError: the folder cannot be read or has no workflow (exit code 2), or a file has not the
            shape of a workflow (3); lists every fault.
    """
    if not os.path.isdir(folder):
        reason = "not a folder" if os.path.exists(folder) else "no such folder"
        raise CliError(f"{folder}: {reason}", exit_code=EXIT_USAGE)
    texts: dict[str, dict[str, str]] = {}
    settings: dict[str, tuple[str, str]] = {}
    for path in json_files(folder):
        text = read_text(path)
        inside = os.path.relpath(path, folder).split(os.sep)
        name = session or (inside[0] if len(inside) > 1 else DEFAULT_SESSION)
        if inside[-1] == SETTINGS_FILE and len(inside) == (1 if session else 2):
            settings[name] = path, text
        elif is_workflow(text):
            texts.setdefault(name, {})[path] = text
    if not (texts or settings):
        raise CliError(f"no workflow file in {folder}", exit_code=EXIT_USAGE)
    found, refused = [], list[CliError]()
    for name in sorted({*texts, *settings}):
        if (fault := id_fault("the name of a session folder", name)) is not None:
            refused.append(CliError(f"{os.path.join(folder, name)}: {fault}"))
            continue
        files = texts.get(name, {})
        checked = without_repeats([_checked(path, text) for path, text in files.items()], files)
        refused += [file.refusal() for file in checked if file.faults]
        own, written = None, settings.get(name, ("", ""))
        if name in settings:
            own = _settings(*written, refused)
        found.append(SessionFiles(name, _workflows(checked, files), own, *written))
    if refused:
        raise joined(refused)
    return found


def _checked(path: str, text: str) -> CheckedFile:
    try:
        definition, faults = read_definition(loads_external(text))
    except YuktaError as error:
        fault = Fault(str(error.members.get("pointer", "")), error.code, error.detail)
        return CheckedFile(path, None, (Finding(line_in(error.detail), fault),), ())
    lines = LineMap(text) if faults else None
    findings = tuple(Finding(lines.line(fault.pointer), fault) for fault in faults if lines)
    return CheckedFile(path, Validation(definition, tuple(faults), (), {}), findings, ())


def _workflows(checked: list[CheckedFile], texts: Mapping[str, str]) -> tuple[WorkflowFile, ...]:
    found = [
        WorkflowFile(file.path, texts[file.path], file.validation.definition)
        for file in checked
        if file.validation and file.validation.definition and not file.faults
    ]
    return tuple(sorted(found, key=lambda file: file.definition.workflow_id))


def _settings(path: str, text: str, refused: list[CliError]) -> dict[str, Any] | None:
    try:
        document = loads_external(text)
    except YuktaError as error:
        refused.append(CliError(f"{path}:{line_in(error.detail)}: {error.detail}"))
        return None
    if not isinstance(document, dict) or "workflows" in document:
        refused.append(CliError(f"{path}:1: must be the settings of a session, without workflows"))
        return None
    return {name: value for name, value in document.items() if name != "sessionId"}


def bundle_of(sessions: list[SessionFiles], etags: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the bundle of a folder, each session based on the state that its tag names."""
    return {_SESSIONS: [item.document(etags.get(item.session_id)) for item in sessions]}


def with_lines(refusal: CliError, sessions: list[SessionFiles]) -> CliError:
    """Return what a server says about a bundle as faults of the files that it was made of."""
    errors = refusal.members.get("errors")
    if not isinstance(errors, list):
        return refusal
    lines, placed = [], []
    for error in errors:
        pointer = str(error.get("pointer", ""))
        try:
            path, line, inside = _origin(pointer, sessions)
        except IndexError:
            # A server that counts otherwise; what it says is still worth reading.
            path, line, inside = "", 0, pointer
        named = Fault(
            inside,
            str(error.get("code")),
            str(error.get("detail")),
            error.get("nodeId"),
            error.get("option"),
        )
        lines.append(f"{path}:{line}: {named}" if path else str(named))
        placed.append({**error, "file": path, "line": line} if path else error)
    members = {**refusal.members, "errors": placed}
    return CliError(*lines, exit_code=EXIT_INVALID, code=refusal.code, members=members)


def _origin(pointer: str, sessions: list[SessionFiles]) -> tuple[str, int, str]:
    """Return file, line and the pointer in that file of a place in the bundle."""
    parts = pointer.split("/")[1:]
    if len(parts) < 2 or parts[0] != _SESSIONS or not parts[1].isdecimal():
        return "", 0, pointer
    session = sessions[int(parts[1])]
    if len(parts) > 3 and parts[2] == "workflows" and parts[3].isdecimal():
        file = session.files[int(parts[3])]
        inside = "".join(f"/{part}" for part in parts[4:])
        return file.path, LineMap(file.text).line(inside), inside
    inside = "".join(f"/{part}" for part in parts[2:])
    if session.settings is None:
        return "", 0, inside
    return session.settings_path, LineMap(session.settings_text).line(inside), inside
