"""What a process runs on: Python, packages, limits. Reads only; may block. Feature: OBS-04."""

from __future__ import annotations

import os
import platform
import re
import sys
import threading
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from yukta_rx import __version__

try:
    import resource
except ImportError:  # not on every system
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NEEDED: Final = (
    "aiohttp>=3.14,<4",
    "aiohttp-sse>=3.0,<4",
    "cachetools>=6,<9",
    "click>=8.2,<9",
    "msgspec>=0.23,<1",
    "orjson>=3.13,<4",
    "prometheus-client>=0.22,<1",
    "pydantic>=2.12,<3",
    "reactivex>=6.1,<7",
)
"""What nothing works without, as in pyproject.toml."""

OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": ("sqlalchemy[asyncio]>=2.1,<3", "asyncpg>=0.32,<1", "alembic>=1.20,<2"),
    "mcp": ("mcp>=2.3,<3",),
    "cli": ("rich>=14,<16",),
    "script": ("quickjs-ng>=0.17,<1",),
    "otel": (
        "opentelemetry-api>=1.45,<2",
        "opentelemetry-sdk>=1.45,<2",
        "opentelemetry-exporter-otlp-proto-http>=1.45,<2",
    ),
}
"""What the extras bring."""

OLDEST_PYTHON: Final = (3, 11)


@dataclass(frozen=True, slots=True)
class Package:
    """A package that is used.

    Attributes:
        name: as it is published.
        extra: the extra that brings it, None if it is needed.
        installed: its version, None if it is not there.
        wanted: the versions that work.
    """

    name: str
    extra: str | None
    installed: str | None
    wanted: str

    @property
    def fits(self) -> bool:
        """Whether the version that is there is one that works."""
        return self.installed is not None and _fits(self.installed, self.wanted)


def packages() -> Iterator[Package]:
    """Yield every package that the program uses or can use."""
    for extra, requirements in [(None, NEEDED), *OPTIONAL.items()]:
        for requirement in requirements:
            name = re.split(r"[\[><=]", requirement, maxsplit=1)[0]
            wanted = requirement[len(name) :].partition("]")[2] or requirement[len(name) :]
            yield Package(name, extra, _installed(name), wanted)


def versions() -> dict[str, Any]:
    """Return the versions of everything, as JSON."""
    return {
        "yukta_rx": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "packages": {package.name: package.installed for package in packages()},
    }


def process_facts() -> dict[str, Any]:
    """Return what this process uses, as JSON; null for what the system does not tell."""
    limit = open_files_limit()
    return {
        "pid": os.getpid(),
        "threads": threading.active_count(),
        "openFiles": open_files(),
        "openFilesLimit": limit,
        "maxRssBytes": _max_rss(),
        "cpuSeconds": round(time.process_time(), 3),
    }


def open_files() -> int | None:
    """How many files and sockets this process has open."""
    try:
        return len(os.listdir("/proc/self/fd")) - 1  # the one that lists them
    except OSError:
        return None


def open_files_limit() -> int | None:
    """How many it may have open; None for no limit, or if the system does not tell."""
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else int(soft)


def _max_rss() -> int | None:
    if resource is None:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(used) * (1 if sys.platform == "darwin" else 1024)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _fits(installed: str, wanted: str) -> bool:
    have = _numbers(installed)
    low, _, high = wanted.partition(",")
    return _numbers(low) <= have and (not high or have < _numbers(high))


def _numbers(text: str) -> tuple[int, ...]:
    """The release part of a version, without what an alpha or a build adds."""
    release = re.search(r"\d+(\.\d+)*", text)
    numbers = [int(part) for part in release[0].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
