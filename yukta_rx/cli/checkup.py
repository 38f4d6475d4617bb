"""What `yukta doctor` looks at: whether a server would start here, and what will surprise someone.

Nothing here changes anything that a start would not change.  Features: DUR-05, OBS-04.
"""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.checks import check, store_types
from yukta_rx.config.settings import HaMode, StoreType
from yukta_rx.durability.open import open_stores, refused_stores
from yukta_rx.errors import ConfigError, YuktaError
from yukta_rx.metrics import Meters
from yukta_rx.observe.machine import OLDEST_PYTHON, open_files_limit, packages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from yukta_rx.config.settings import Settings

FEW_FILES: Final = 1024
"""Open files that a server with some hundred clients needs."""

SKEW: Final = 5.0
"""Seconds by which clocks may differ before that is said."""

OLDEST_DAY: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows a time before this."""


class Verdict(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what, one word.
        verdict: FAIL where a server would not start.
        told: one sentence.
        facts: what was measured.
    """

    name: str
    verdict: Verdict
    told: str
    facts: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "check": self.name,
            "verdict": str(self.verdict),
            "detail": self.told,
            **self.facts,
        }


def ok(name: str, told: str, **facts: Any) -> Check:
    """All is well."""
    return Check(name, Verdict.OK, told, facts)


def warn(name: str, told: str, **facts: Any) -> Check:
    """A server starts, and somebody will be surprised."""
    return Check(name, Verdict.WARN, told, facts)


def fail(name: str, told: str, **facts: Any) -> Check:
    """A server does not start."""
    return Check(name, Verdict.FAIL, told, facts)


# --- without settings ----------------------------------------------------------------------------


def check_python() -> Iterator[Check]:
    """Look at the interpreter and the packages."""
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    wanted = ".".join(map(str, OLDEST_PYTHON))
    if sys.version_info < OLDEST_PYTHON:
        yield fail("python", f"{python} is too old: {wanted} or newer")
    else:
        yield ok("python", f"{python}, {platform.platform()}")
    found = list(packages())
    needed = [package for package in found if package.extra is None]
    for package in needed:
        if package.installed is None:
            yield fail("packages", f"{package.name} is not installed: {package.wanted} is needed")
        elif not package.fits:
            yield warn(
                "packages",
                f"{package.name} {package.installed} was not tried: it should be {package.wanted}",
            )
    if all(package.fits for package in needed):
        yield ok("packages", f"all {len(needed)} that are needed are there")
    extras: dict[str, list[bool]] = {}
    for package in found:
        if package.extra is not None:
            extras.setdefault(package.extra, []).append(package.installed is not None)
            if package.installed is not None and not package.fits:
                yield warn(
                    "packages",
                    f"{package.name} {package.installed} was not tried: {package.wanted} is",
                )
    absent = [extra for extra, there in extras.items() if not all(there)]
    if absent:
        yield ok("extras", f"not installed: {', '.join(absent)}")


def check_clock() -> Iterator[Check]:
    """Look at the clock, as far as it can be seen from here."""
    now = datetime.now(UTC)
    if now < OLDEST_DAY:
        yield warn("clock", f"it is not {now:%Y-%m-%d}: ids, keys and retention go by the clock")
    else:
        yield ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def check_open_files() -> Iterator[Check]:
    """Look at the limit of open files."""
    limit = open_files_limit()
    if limit is None:
        yield ok("open-files", "no limit")
    elif limit < FEW_FILES:
        told = f"at most {limit}: each client of a stream needs one; `ulimit -n` raises it"
        yield warn("open-files", told, limit=limit)
    else:
        yield ok("open-files", f"at most {limit}", limit=limit)


# --- with settings -------------------------------------------------------------------------------


def check_config(settings: Settings) -> Iterator[Check]:
    """Look at what the settings say together."""
    told = [fail("settings", finding.text) for finding in check(settings) if finding.refused]
    told += [fail("settings", text) for text in refused_stores(settings)]
    told += [warn("settings", finding.text) for finding in check(settings) if not finding.refused]
    told += [warn("settings", text) for text in settings.warnings]
    if not any(one.verdict is Verdict.FAIL for one in told):
        told.insert(0, ok("settings", f"profile {settings.profile}, they work together"))
    yield from told


def check_plugins(settings: Settings) -> Iterator[Check]:
    """Look at the node types."""
    from yukta_rx.plugins.registry import PluginRegistry

    try:
        registry = PluginRegistry.load(settings)
    except ConfigError as error:
        yield from (fail("plugins", text) for text in error.problems)
        return
    broken = registry.broken()
    for type, reason in broken.items():
        yield warn("plugins", f"{type} cannot be loaded: {reason}")
    yield ok("plugins", f"{len(list(registry.specs()))} node types")


def check_port(settings: Settings) -> Iterator[Check]:
    """Look whether the address can be had."""
    host, port = settings.http.host, settings.http.port
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if not port:
        yield ok("port", f"a free one of {host}")
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield fail("port", f"{place}: {error.strerror or error}")
        return
    family, kind, proto, _, address = found[0]
    with socket.socket(family, kind, proto) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(address)
            tried.listen(1)
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            told = f"cannot listen on {place}: {reason}"
            if error.errno == errno.EADDRINUSE and _is_ours(host, port):
                told += ", by a server of yukta"
            yield fail("port", told)
            return
    yield ok("port", f"{place} is free")


def _is_ours(host: str, port: int) -> bool:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().headers.get("Server") == "yukta"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def check_leader(settings: Settings) -> Iterator[Check]:
    """Look who leads."""
    if settings.ha.mode is HaMode.SINGLE:
        yield ok("leader", "this server always leads (yukta.ha.mode = single)")


# --- the stores ----------------------------------------------------------------------------------


async def check_stores(settings: Settings) -> AsyncIterator[Check]:
    """Open every store as a start would, if its folders are there, and close it again."""
    if set(store_types(settings).values()) == {StoreType.MEMORY}:
        yield ok("stores", "all of them in memory")
        return
    absent = [
        str(folder)
        for switch, kind in store_types(settings).items()
        if kind is StoreType.FILE
        and (folder := getattr(settings, switch.replace("-", "_")).dir) is not None
        and not await asyncio.to_thread(folder.is_dir)
    ]
    if absent:
        yield ok("stores", f"made at the first start: {', '.join(absent)}")
        return
    began = time.perf_counter()
    try:
        async with open_stores(settings, asyncio.to_thread, Meters(), "yukta doctor") as stores:
            await stores.checkpoints.start()
            await stores.checkpoints.close()
            seconds = time.perf_counter() - began
            for one in stores.quarantined:
                yield warn("stores", f"cannot be read, and is left out: {one}")
            runs = await stores.execution_log.runs()
            open_runs = sum(run.ended is None for run in runs)
            waiting = len(await stores.queued_starts.list())
            newest = max((run.started.time for run in runs), default=None)
            yield ok(
                "stores",
                f"opened in {seconds * 1000:.0f} ms: {len(runs)} runs, {open_runs} without an end,"
                f" {waiting} starts that wait",
                openMs=round(seconds * 1000, 1),
                runs=len(runs),
                unfinished=open_runs,
                queued=waiting,
            )
    except YuktaError as error:
        yield fail("stores", error.detail)
        return
    if newest is not None and (newest - datetime.now(UTC)).total_seconds() > SKEW:
        yield warn(
            "clock", f"the newest run began at {newest:%Y-%m-%d %H:%M:%S} UTC, in the future"
        )
