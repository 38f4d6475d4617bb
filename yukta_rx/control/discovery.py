"""Discovery: supervisors and reviewers of installed packages, and the rules of the settings.

Entry points of the groups `yukta_rx.supervisors` and `yukta_rx.reviewers` name an instance, a class
that needs no arguments, or for supervisors a function; the entry's name is the id. All of this
reads files, so it is done in a thread.

Features: CTL-06, CTL-07.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.control.rule_supervisor import RuleSupervisor
from yukta_rx.control.supervision import supervisor_of
from yukta_rx.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoint

    from yukta_rx.config.settings import Settings
    from yukta_rx.control.reviewers import ControlReviewer

log = logging.getLogger(__name__)

SUPERVISORS: Final = "yukta_rx.supervisors"
REVIEWERS: Final = "yukta_rx.reviewers"


@dataclass(frozen=True, slots=True)
class Found:
    """What steers and reviews beside what a program passes in.

    Attributes:
        supervisors: loaded, not started.
        reviewers: loaded.
        broken: id and reason of supervisors that cannot be loaded.
    """

    supervisors: tuple[Any, ...] = ()
    reviewers: tuple[ControlReviewer, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()


def discover(settings: Settings) -> Found:
    """Load what is installed and not named in `yukta.plugins.disabled`; blocks.

    A supervisor that cannot be loaded is left out and listed, unless `yukta.plugins.strict`. A
    reviewer that cannot be loaded always stops the start: without it everything would pass.

    Raises:
        ConfigError: as said; two have one id; or a fault in the rules; all at once.
    """
    problems: list[str] = []
    disabled = frozenset(settings.plugins.disabled)
    supervisors: list[Any] = []
    broken: list[tuple[str, str]] = []
    for entry in _entries(SUPERVISORS, disabled, problems):
        made, why = _loaded(entry, _supervisor)
        if why is None:
            supervisors.append(made)
        else:
            broken.append((entry.name, why))
            log.warning("%s", why)
    if settings.plugins.strict:
        problems += [why for _, why in broken]
    reviewers: list[ControlReviewer] = []
    for entry in _entries(REVIEWERS, disabled, problems):
        made, why = _loaded(entry, _reviewer)
        if why is None:
            reviewers.append(made)
        else:
            problems.append(why)
    if settings.supervisor.rules.file is not None:
        try:
            supervisors.append(RuleSupervisor.read(settings.supervisor.rules.file))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Found(tuple(supervisors), tuple(reviewers), tuple(broken))


def _entries(group: str, disabled: frozenset[str], problems: list[str]) -> Iterator[EntryPoint]:
    seen: dict[str, EntryPoint] = {}
    for entry in metadata.entry_points(group=group):
        if entry.name in disabled:
            continue
        first = seen.setdefault(entry.name, entry)
        if first is entry:
            yield entry
        else:
            problems.append(
                f"{group}: {entry.name} is there twice: {_origin(first)} and {_origin(entry)};"
                " uninstall one, or name it in yukta.plugins.disabled"
            )


def _loaded(entry: EntryPoint, check: Callable[[Any, str], Any]) -> tuple[Any, str | None]:
    try:
        return check(entry.load(), entry.name), None
    except (Exception, SystemExit) as error:  # a module may do anything while it is imported
        what = entry.group.rpartition(".")[2].removesuffix("s")
        reason = str(error) or type(error).__name__
        return None, f"{what} {entry.name} cannot be loaded from {_origin(entry)}: {reason}"


def _supervisor(given: Any, name: str) -> Any:
    made = supervisor_of(given)
    if made.id != name:
        raise TypeError(f"its id is {made.id}, not that of the entry point")
    return made


def _reviewer(given: Any, name: str) -> Any:
    made = given() if inspect.isclass(given) else given
    if not callable(getattr(made, "review", None)):
        raise TypeError("it has no method `review(request)`")
    return made


def _origin(entry: EntryPoint) -> str:
    owner = f" ({entry.dist.name} {entry.dist.version})" if entry.dist else ""
    return entry.value + owner
