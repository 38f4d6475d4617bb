"""`yukta validate`: checks workflow files without running them.  Feature: DEF-02."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import EXIT_INVALID, EXIT_USAGE, CliError, Console
from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from yukta_rx.cli.documents import CheckedFile, Finding

FORMATS = ("text", "json", "github", "sarif")
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@click.command(name="validate")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--format", "form", type=click.Choice(FORMATS), default=None, help="Default: text.")
@common_options
@config_option
@click.pass_obj
def command(console: Console, paths: tuple[str, ...], form: str | None, config: str | None) -> int:
    """Check workflow files, or all in a folder, and name every fault with its line.

    In a folder, JSON files that are no workflows (no `nodes` and no `workflowId`) are passed over.
    Exits with 3 if a file is not valid.
    """
    from yukta_rx.cli.documents import check_file, settings_for
    from yukta_rx.plugins.registry import PluginRegistry

    settings = settings_for(config)
    registry = PluginRegistry.load(settings)
    checked = [check_file(path, registry, settings, text) for path, text in _files(paths)]
    if not checked:
        raise CliError(f"no workflow file in {', '.join(paths)}", exit_code=EXIT_USAGE)
    for line in _WRITERS[form or ("json" if console.as_json else "text")](checked):
        console.result(line.encode())
    return EXIT_INVALID if any(file.faults for file in checked) else 0


def _files(paths: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    from yukta_rx.cli.files import is_workflow, json_files, read_text

    for path in paths:
        if not os.path.isdir(path):
            yield path, read_text(path)
            continue
        for found in json_files(path):
            text = read_text(found)
            if is_workflow(text):
                yield found, text


def _text(checked: list[CheckedFile]) -> Iterator[str]:
    for file in checked:
        for finding in file.faults:
            yield f"{file.path}:{finding.line}: {finding.fault}"
        for finding in file.warnings:
            yield f"{file.path}:{finding.line}: warning: {finding.fault}"
        if not file.faults:
            yield f"{file.path}: valid{_size(file)}"
    bad = sum(bool(file.faults) for file in checked)
    if bad and len(checked) > 1:
        yield f"{bad} of {len(checked)} files are not valid"


def _size(file: CheckedFile) -> str:
    definition = file.validation.definition if file.validation else None
    if definition is None:
        return ""
    return f", {len(definition.nodes)} nodes, {len(definition.edges)} edges"


def _json(checked: list[CheckedFile]) -> Iterator[str]:
    for file in checked:
        yield json.dumps(
            {
                "file": file.path,
                "valid": not file.faults,
                "errors": [finding.as_dict() for finding in file.faults],
                "warnings": [finding.as_dict() for finding in file.warnings],
            }
        )


def _github(checked: list[CheckedFile]) -> Iterator[str]:
    """Yield workflow commands that show as annotations on a pull request."""
    for file, level, finding in _findings(checked):
        name = file.path.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
        text = str(finding.fault).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        yield f"::{level} file={name},line={finding.line},title={finding.fault.code}::{text}"


def _sarif(checked: list[CheckedFile]) -> Iterator[str]:
    from yukta_rx import __version__

    results = [
        {
            "ruleId": finding.fault.code,
            "level": level,
            "message": {"text": str(finding.fault)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": Path(file.path).as_posix()},
                        "region": {"startLine": finding.line},
                    }
                }
            ],
        }
        for file, level, finding in _findings(checked)
    ]
    driver = {"name": "yukta", "version": __version__}
    log: dict[str, Any] = {"$schema": _SARIF, "version": "2.1.0"}
    log["runs"] = [{"tool": {"driver": driver}, "results": results}]
    yield json.dumps(log)


def _findings(checked: list[CheckedFile]) -> Iterator[tuple[CheckedFile, str, Finding]]:
    for file in checked:
        for finding in file.faults:
            yield file, "error", finding
        for finding in file.warnings:
            yield file, "warning", finding


_WRITERS: dict[str, Callable[[list[CheckedFile]], Iterator[str]]] = {
    "text": _text,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
}
