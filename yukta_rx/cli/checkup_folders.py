"""What `yukta doctor` finds out about folders: space, what kind of disk, how long a write takes.

Features: DUR-05, OBS-04.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from yukta_rx.cli.checkup import SKEW, Check, fail, ok, warn
from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from yukta_rx.config.settings import Settings

WRITES: Final = 20
"""Writes that are measured."""

WRITE_BYTES: Final = 4096

SLOW: Final = 0.05
"""Seconds of a durable write from which on it is said that starts wait for it."""

LITTLE_SPACE: Final = 1024**3
FEW_NAMES: Final = 10_000

_OF_NETWORK: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"})
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def check_folders(settings: Settings) -> Iterator[Check]:
    """Try out each folder that stores or outputs would go to, without taking it."""
    disks: set[int] = set()
    for folder, users in _folders(settings).items():
        yield from _check_folder(folder, ", ".join(users), disks)


def _folders(settings: Settings) -> dict[Path, list[str]]:
    found: dict[Path, list[str]] = {}
    for switch, kind in store_types(settings).items():
        folder = getattr(settings, switch.replace("-", "_")).dir
        if kind is StoreType.FILE and folder is not None:
            found.setdefault(folder.resolve(), []).append(switch)
    if settings.restart.store_type is StoreType.MEMORY and settings.restart.spill_dir is not None:
        found.setdefault(settings.restart.spill_dir.resolve(), []).append("spill")
    return found


def _check_folder(folder: Path, users: str, disks: set[int]) -> Iterator[Check]:
    """Try out a folder; the space of a disk is told with the first folder that is on it."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        times, skew = _measure(there)
    except OSError as error:
        told = f"{folder} ({users}): {error.strerror or error}"
        yield fail("folder", told, folder=str(folder))
        return
    middle, worst = median(times), max(times)
    made = "" if there == folder else ", made at the first start"
    kind = _kind_of(there)
    yield ok(
        "folder",
        f"{folder} ({users}){made}: a durable write takes {middle * 1000:.2f} ms,"
        f" {worst * 1000:.2f} at worst",
        folder=str(folder),
        writeMs=round(middle * 1000, 3),
        worstMs=round(worst * 1000, 3),
        fileSystem=kind,
    )
    if middle > SLOW:
        yield warn("folder", f"{folder}: the disk is slow, and every start waits for a write")
    if kind in _IN_MEMORY:
        yield warn("folder", f"{folder} is in memory ({kind}) and does not survive a power loss")
    elif kind in _OF_NETWORK:
        told = f"{folder} is on a network ({kind}): it must keep locks and forced writes"
        yield warn("folder", told)
    elif kind == "overlay":
        yield warn("folder", f"{folder} is in a layer of a container and goes with that")
    if abs(skew) > SKEW:
        told = f"the disk of {folder} is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        yield warn("clock", told)
    device = os.stat(there).st_dev
    if device not in disks:
        disks.add(device)
        yield from _check_space(folder, there)


def _measure(folder: Path) -> tuple[list[float], float]:
    """Seconds that each of some durable writes took, and how far ahead the disk's clock is.

    Raises:
        OSError: it cannot be written.
    """
    fd, name = tempfile.mkstemp(prefix=".yukta-doctor-", dir=folder)
    try:
        times = []
        for _ in range(WRITES):
            began = time.perf_counter()
            os.write(fd, b"\0" * WRITE_BYTES)
            os.fsync(fd)
            times.append(time.perf_counter() - began)
        return times, os.fstat(fd).st_mtime - time.time()
    finally:
        os.close(fd)
        os.unlink(name)


def _check_space(folder: Path, there: Path) -> Iterator[Check]:
    state = os.statvfs(there)
    free, whole = state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize
    told = f"{folder}: {free / 1024**3:.1f} GiB free"
    facts = {"folder": str(folder), "freeBytes": free, "bytes": whole}
    if not free:
        yield fail("space", told, **facts)
    elif free < LITTLE_SPACE:
        yield warn("space", f"{told}, which is little", **facts)
    else:
        yield ok("space", told, **facts)
    # Some file systems do not count names.
    if state.f_files and state.f_favail < FEW_NAMES:
        yield warn("space", f"{folder}: only {state.f_favail} more files can be made", **facts)


def _kind_of(folder: Path) -> str | None:
    """The type of the file system of a folder, None if the system does not tell."""
    with suppress(OSError, ValueError):
        device = os.stat(folder).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, more = line.partition(" - ")
            if fields.split()[2] == wanted:
                return more.split()[0]
    return None
