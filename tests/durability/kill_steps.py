"""A program that is killed at every step it takes in a folder, one process for each step.

    python -m tests.durability.kill_steps commit|open <template> <below>

Copies `<template>` to `<below>/<n>` for n = 1, 2, ... and does its work there in a child process,
which gets SIGKILL right before the n-th time it opens something to write, renames, removes or makes
something. It ends with the first child that came through, and prints how many there were.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.contract.definitions import record
from tests.contract.sessions import session
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.file.sessions import FileSessionConfigStore
from yukta_rx.durability.stores.sessions import SessionChange

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def changes() -> list[SessionChange]:
    """A new session, one that changes, and one that goes."""
    return [
        SessionChange(
            session_id="new",
            record=session("new", name="2"),
            put=(record("a", 2, "new"),),
        ),
        SessionChange(
            session_id="Old",
            record=session("Old", name="2"),
            put=(record("changes", 2, "Old"),),
            remove=("goes", "broken"),
        ),
        SessionChange(session_id="gone", remove=("w",), gone=True),
    ]


async def work(path: Path, kind: str, arm: Callable[[], None]) -> None:
    """Open the stores, and commit; what is not of interest is done before `arm`."""
    async with Folder(path) as folder:
        store = FileWorkflowDefinitionStore(folder)
        if kind == "open":
            arm()
        await store.open()
        if kind == "commit":
            arm()
            await FileSessionConfigStore(store).commit(changes())


def killed(path: Path, kind: str, at: int) -> bool:
    """Do the work in a child that is killed before its step `at`; whether it got there."""
    child = os.fork()
    if not child:
        seen = itertools.count(1)

        def watch(event: str, args: tuple[Any, ...]) -> None:
            counts = event in STEPS or (event == "open" and args[2] & WRITES)
            if counts and str(args[0]).startswith(str(path)) and next(seen) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(work(path, kind, lambda: sys.addaudithook(watch)))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        raise SystemExit(f"step {at}: the child ended with {status}")
    return status != 0


def main(kind: str, template: Path, below: Path) -> None:
    for step in itertools.count(1):
        path = below / str(step)
        shutil.copytree(template, path)
        if not killed(path, kind, step):
            sys.stdout.write(f"{step}\n")
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
