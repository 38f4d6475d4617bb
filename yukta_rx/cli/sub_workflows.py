"""The workflows that SUB_WORKFLOW nodes name: other files of the same folder.  Feature: ENG-07.

Without a server there is no session to look them up in, so they are read before the run begins,
and one that is missing refuses the run.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.cli.console import CliError
from yukta_rx.cli.documents import CheckedFile, Finding, check_file
from yukta_rx.cli.files import read_text
from yukta_rx.cli.locate import LineMap
from yukta_rx.definitions.prepare import prepare
from yukta_rx.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedWorkflow
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.plugins.registry import PluginRegistry

log = logging.getLogger(__name__)

TYPE: Final = "SUB_WORKFLOW"
OPTION: Final = "workflowId"


def workflows_below(
    path: str,
    prepared: PreparedWorkflow,
    registry: PluginRegistry,
    settings: Settings,
    folder: Path,
) -> dict[str, PreparedWorkflow]:
    """Return a workflow and all that it may run, by id; files are only looked for if it names any.

    Args:
        path: the file of the workflow.
        prepared: the workflow.
        registry: the node types.
        settings: the settings in force.
        folder: where the other files are.

    Raises:
        CliError: a workflow is in no file, or in two, or is not valid.
    """
    found = {prepared.definition.workflow_id: prepared}
    files: dict[str, list[str]] | None = None
    waiting = [(path, prepared.definition)]
    while waiting:
        place, definition = waiting.pop()
        for pointer, node_id, wanted in _named(definition):
            if wanted in found:
                continue
            files = _files_of(folder) if files is None else files
            match files.get(wanted, []):
                case [file]:
                    found[wanted] = _read(file, registry, settings, folder)
                    waiting.append((file, found[wanted].definition))
                case several:
                    in_files = ", ".join(several)
                    detail = (
                        f"the workflow {wanted} is in several files: {in_files}"
                        if several
                        else f"no file in {folder} has the workflow {wanted}"
                    )
                    raise _refusal(place, Fault(pointer, "invalid_value", detail, node_id, OPTION))
    return found


def _named(definition: WorkflowDefinition) -> Iterator[tuple[str, str, str]]:
    """The workflows that a definition names: pointer to the place, node, workflow id."""
    for index, node in enumerate(definition.nodes):
        if node.type == TYPE:
            yield f"/nodes/{index}/config/{OPTION}", node.node_id, node.plugin_config[OPTION]


def _files_of(folder: Path) -> dict[str, list[str]]:
    """The JSON files of a folder by the id of the workflow in them."""
    files: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            document: Any = json.loads(read_text(str(path)))
        except (CliError, ValueError, RecursionError):
            # It may be anything; if it is what is looked for, that is said to be missing.
            log.debug("%s is no workflow", path)
            continue
        if isinstance(document, dict) and isinstance(document.get("workflowId"), str):
            files.setdefault(document["workflowId"], []).append(str(path))
    return files


def _read(
    path: str, registry: PluginRegistry, settings: Settings, folder: Path
) -> PreparedWorkflow:
    checked = check_file(path, registry, settings)
    if checked.faults or checked.validation is None or checked.validation.definition is None:
        raise checked.refusal()
    for finding in checked.warnings:
        log.warning("%s:%d: %s", path, finding.line, finding.fault)
    return prepare(checked.validation.definition, registry, settings=settings, base_dir=folder)


def _refusal(path: str, fault: Fault) -> CliError:
    line = LineMap(read_text(path)).line(fault.pointer)
    return CheckedFile(path, None, (Finding(line, fault),), ()).refusal()


def lines_of(show: Callable[[ExecutionEvent], None]) -> Callable[[ExecutionEvent], None]:
    """Return what shows, of the events of runs below, the log lines, with the workflow in front."""

    def event(event: ExecutionEvent) -> None:
        if event.type == "node.log":
            name = f"{event.workflow_id}/{event.node_id}"
            show(msgspec.structs.replace(event, node_id=name))

    return event
