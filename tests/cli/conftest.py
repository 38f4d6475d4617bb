"""Runs the command in this process, or as a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import yukta_rx
from yukta_rx.cli.main import execute

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Ended:
    """What a command wrote and how it ended."""

    code: int
    out: str
    err: str

    @property
    def results(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def last(self) -> str:
        return self.err.splitlines()[-1]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("YUKTA_")]:
        monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    # Processes find the package wherever they are started, installed or not.
    monkeypatch.setenv("PYTHONPATH", str(Path(yukta_rx.__file__).parents[1]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def yukta(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Ended]:
    """Run a command line in this process; everything but signals and pipes is as outside."""

    def run(*args: str) -> Ended:
        code = execute(args)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return Ended(code, out.decode(), err.decode())

    return run


@pytest.fixture
def spawn() -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command line as a process; it is killed at the end if it still runs."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[bytes]:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE) | options
        process = subprocess.Popen([sys.executable, "-m", "yukta_rx", *args], **streams)
        started.append(process)
        return process

    yield start

    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def workflow(tmp_path: Path) -> Callable[..., str]:
    """Write a line of nodes as a workflow file; each node is `(id, type, config)`."""

    def write(*nodes: tuple[Any, ...], name: str = "flow.json", **more: Any) -> str:
        ids = [node[0] for node in nodes]
        document = {
            "workflowId": "flow",
            "nodes": [
                {"nodeId": node[0], "type": node[1], "config": node[2] if len(node) > 2 else {}}
                for node in nodes
            ],
            "edges": [{"source": a, "target": b} for a, b in itertools.pairwise(ids)],
        } | more
        path = tmp_path / name
        path.write_text(json.dumps(document, indent=2))
        return str(path)

    return write
