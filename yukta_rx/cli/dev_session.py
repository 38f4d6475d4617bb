"""DevSession: workflow files that are applied again whenever they change.  Feature: DEF-01.

Looks at times and sizes twice a second, in a thread: no dependency, and the same on every file
system, also where none tells of changes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from yukta_rx.cli.applying import apply, documents_of, say_plan, without_repeats
from yukta_rx.cli.console import EXIT_USAGE, CliError, Console
from yukta_rx.cli.documents import CheckedFile, check_file, folder_of
from yukta_rx.cli.files import is_workflow, json_files, read_text
from yukta_rx.errors import YuktaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yukta_rx.app import Engine
    from yukta_rx.config.settings import Settings
    from yukta_rx.plugins.registry import PluginRegistry

log = logging.getLogger(__name__)

SESSION: Final = "dev"
PERIOD: Final = 0.5
"""Seconds between two looks at the files."""

_Mark = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Source:
    """A file that was read.

    Attributes:
        mark: changes when the file does.
        refusal: why it is not taken as it is now.
        good: its last valid form.
        text: the text of that.
        folder: where relative paths in it start.
        fresh: whether it was read just now and not before.
    """

    mark: _Mark
    refusal: CliError | None = None
    good: CheckedFile | None = None
    text: str = ""
    folder: Path = Path()
    fresh: bool = True


class DevSession:
    """Keeps the session `dev` like the files.

    Args:
        console: where plans and faults are said.
        paths: files and folders.
        registry: the node types.
        settings: the settings in force.
    """

    def __init__(
        self,
        console: Console,
        paths: Iterable[str],
        registry: PluginRegistry,
        settings: Settings,
    ) -> None:
        self._console = console
        self._paths = tuple(paths)
        self._registry = registry
        self._settings = settings
        self._sources: dict[str, _Source] = {}
        self._said: dict[str, tuple[str, ...]] = {}
        self._applied: dict[str, str] | None = None
        self._refused: str | None = None

    async def follow(self, engine: Engine) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(PERIOD)
            await self.look(engine)

    async def look(self, engine: Engine) -> None:
        """Read what changed, say what is wrong with it, apply the rest.

        Raises:
            CliError: the first look finds no workflow at all.
        """
        before = self._sources
        self._sources = await asyncio.to_thread(self._read)
        if self._applied is None and not self._sources:
            raise CliError(f"no workflow file in {', '.join(self._paths)}", exit_code=EXIT_USAGE)
        if self._sources == before and self._applied is not None and self._refused is None:
            return
        valid = self._say_faults()
        wanted = {file.path: _version(file) for file in valid}
        if wanted != self._applied:
            await self._apply(engine, valid, wanted)

    def _read(self) -> dict[str, _Source]:
        return {
            path: source
            for path, mark in _marks(self._paths).items()
            if (source := self._source(path, mark)) is not None
        }

    def _source(self, path: str, mark: _Mark) -> _Source | None:
        old = self._sources.get(path)
        if old is not None and old.mark == mark and old.refusal is None:
            return replace(old, fresh=False)
        # A file that was refused is looked at again: what it refers to may be there by now.
        kept = old or _Source(mark)
        try:
            now = read_text(path)
            if path not in self._paths and not is_workflow(now):
                return None
            checked = check_file(path, self._registry, self._settings, now)
        except CliError as error:
            return replace(kept, mark=mark, refusal=error)
        if checked.faults:
            return replace(kept, mark=mark, refusal=checked.refusal())
        return _Source(mark, None, checked, now, folder_of(path))

    def _say_faults(self) -> list[CheckedFile]:
        """Say what is wrong that was not said before; returns what can be applied."""
        good = {path: source.good for path, source in self._sources.items() if source.good}
        texts = {path: self._sources[path].text for path in good}
        found = {file.path: file for file in without_repeats(good.values(), texts)}
        said: dict[str, tuple[str, ...]] = {}
        for path, source in self._sources.items():
            refusal = source.refusal
            if refusal is None and path in found and found[path].faults:
                refusal = found[path].refusal()
            if refusal is not None:
                said[path] = refusal.lines
                if self._said.get(path) != refusal.lines:
                    self._console.refuse(refusal)
            elif source.fresh and source.good is not None:
                for finding in source.good.warnings:
                    log.warning("%s:%d: %s", path, finding.line, finding.fault)
        self._said = said
        return [file for file in found.values() if not file.faults]

    async def _apply(
        self, engine: Engine, valid: list[CheckedFile], wanted: dict[str, str]
    ) -> None:
        folders = {_id(file): self._sources[file.path].folder for file in valid}
        try:
            applied = await apply(engine, SESSION, documents_of(valid), folders)
        except YuktaError as error:
            if self._refused != error.detail:
                self._console.refuse(error)
            self._refused = error.detail
            if self._applied is None:
                self._applied = {}
            return
        first = self._applied is None
        self._applied, self._refused = wanted, None
        if first or applied.created or applied.changed or applied.removed:
            say_plan(self._console, applied)


def roots(paths: Iterable[str]) -> list[Path]:
    """Return the folders that are named, and those of the files that are.

    Raises:
        CliError: one of them is not there.
    """
    found = []
    for path in paths:
        if not os.path.exists(path):
            raise CliError(f"{path}: no such file or directory", exit_code=EXIT_USAGE)
        found.append(Path(path).resolve() if os.path.isdir(path) else folder_of(path))
    return list(dict.fromkeys(found))


def _marks(paths: Iterable[str]) -> dict[str, _Mark]:
    """Return every file with what changes when it does; those that are gone are left out."""
    found: dict[str, _Mark] = {}
    for path in paths:
        for file in json_files(path) if os.path.isdir(path) else (path,):
            try:
                state = os.stat(file)
            except OSError:
                continue
            found[file] = (state.st_mtime_ns, state.st_size, state.st_ino)
    return found


def _id(file: CheckedFile) -> str:
    definition = file.validation.definition if file.validation else None
    return definition.workflow_id if definition is not None else ""


def _version(file: CheckedFile) -> str:
    definition = file.validation.definition if file.validation else None
    return definition.version if definition is not None else ""
