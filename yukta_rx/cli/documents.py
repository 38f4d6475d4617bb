"""Workflow files: read, checked, and every fault given its line.  Feature: DEF-02."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yukta_rx.cli.console import EXIT_INVALID, CliError
from yukta_rx.cli.files import read_text
from yukta_rx.cli.locate import LineMap
from yukta_rx.config.load import load_settings
from yukta_rx.definitions.validate import Validation, validate
from yukta_rx.errors import Fault, YuktaError
from yukta_rx.model.codec import loads_external

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yukta_rx.config.settings import Settings
    from yukta_rx.plugins.registry import PluginRegistry

_NOT_A_SETTING = "YUKTA_DEBUG"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a file and the line it is at."""

    line: int
    fault: Fault

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**self.fault.as_dict(), "line": self.line}


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A workflow file and what is to be said about it.

    Attributes:
        path: as it was named.
        validation: None if it is not JSON.
        faults: why it is refused.
        warnings: what is odd but allowed.
    """

    path: str
    validation: Validation | None
    faults: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    def refusal(self) -> CliError:
        """Return the faults as a refusal, one line each."""
        lines = [f"{self.path}:{finding.line}: {finding.fault}" for finding in self.faults]
        members = {"file": self.path, "errors": [finding.as_dict() for finding in self.faults]}
        return CliError(*lines, exit_code=EXIT_INVALID, code="validation", members=members)


def settings_for(config: str | None, overrides: Mapping[str, object] | None = None) -> Settings:
    """Return the settings in force.

    Args:
        config: the file that `--config` names.
        overrides: full names and values that other options set.

    Raises:
        ConfigError: they are refused; lists every problem.
    """
    environ = {name: value for name, value in os.environ.items() if name != _NOT_A_SETTING}
    return load_settings(config, environ, overrides)


def with_folder(settings: Settings, folder: Path) -> Settings:
    """Return the settings with one more folder that file nodes may read."""
    files = settings.files.model_copy(
        update={"allowed_dirs": (*settings.files.allowed_dirs, folder)}
    )
    return settings.model_copy(update={"files": files})


def folder_of(path: str) -> Path:
    """Return the folder that relative paths in a workflow file start from."""
    return Path(path).resolve().parent


def check_file(
    path: str, registry: PluginRegistry, settings: Settings, text: str | None = None
) -> CheckedFile:
    """Read and examine a workflow file; its own folder counts as allowed.

    Raises:
        CliError: it cannot be read.
    """
    folder = folder_of(path)
    text = read_text(path) if text is None else text
    return check_text(path, text, registry, with_folder(settings, folder), folder)


def check_text(
    path: str, text: str, registry: PluginRegistry, settings: Settings, base_dir: Path | None
) -> CheckedFile:
    """Examine a workflow whose relative paths start from `base_dir`."""
    try:
        document = loads_external(text)
    except YuktaError as error:
        fault = Fault(str(error.members.get("pointer", "")), error.code, error.detail)
        return CheckedFile(path, None, (Finding(line_in(error.detail), fault),), ())
    found = validate(document, registry, settings=settings, base_dir=base_dir)
    if not (found.faults or found.warnings):
        return CheckedFile(path, found, (), ())
    lines = LineMap(text)
    faults, warnings = (
        tuple(Finding(lines.line(fault.pointer), fault) for fault in group)
        for group in (found.faults, found.warnings)
    )
    return CheckedFile(path, found, faults, warnings)


def line_in(detail: str) -> int:
    """Return the line that the JSON reader names in its complaint, 1 if it names none."""
    _, found, rest = detail.rpartition(", line ")
    number = rest.split(" ", 1)[0]
    return int(number) if found and number.isdigit() else 1
