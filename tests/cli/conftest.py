"""Runs the command in this process, or as a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import yukta_rx
from yukta_rx.cli.main import execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


# --- servers -------------------------------------------------------------------------------------


def rest(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Read both streams to their ends; unlike `communicate`, behind lines that were read before."""
    out = (process.stdout.read() if process.stdout else b"").decode()
    err = (process.stderr.read() if process.stderr else b"").decode()
    process.wait(timeout=30)
    return out, err


class Served:
    """A server process, and command lines that talk to it.

    Attributes:
        url: where it listens.
        said: what it had written to stderr when it was ready.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], yukta: Callable[..., Ended] | None = None
    ) -> None:
        self.process = process
        self._yukta = yukta
        self.said: list[str] = []
        self.url = ""
        for line in process.stderr or ():
            self.said.append(line.decode())
            if found := re.search(r"serving on (\S+),", self.said[-1]):
                self.url = found[1]
            if self.said[-1].startswith("yukta:   - log lines"):
                return
        raise AssertionError(f"the server did not start: {self.said}")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def until(self, word: str) -> str:
        """Read what it says until a line holds `word`."""
        for line in self.process.stderr or ():
            self.said.append(line.decode())
            if word in self.said[-1]:
                return self.said[-1]
        raise AssertionError(f"it ended without {word!r}: {self.said}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; returns exit code and what it said from then on."""
        self.process.send_signal(number)
        _, err = rest(self.process)
        return self.process.returncode, err

    @property
    def environ(self) -> dict[str, str]:
        """The environment of command lines that talk to this server."""
        return os.environ | {"YUKTA_URL": self.url}

    def ask(self, *args: str) -> Ended:
        """Run a command line that talks to this server, in this process."""
        assert self._yukta is not None
        return self._yukta(*args, "--url", self.url)

    def run(self, *args: str) -> Ended:
        """Run a command line that talks to this server, as a process."""
        done = subprocess.run(
            [sys.executable, "-m", "yukta_rx", *args],
            capture_output=True,
            env=self.environ,
            timeout=30,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def serve(spawn, yukta) -> Callable[..., Served]:
    """Start a server on a free port and wait until it is ready."""

    def start(*args: str, command: str = "serve", port: int = 0) -> Served:
        return Served(spawn(command, "--port", str(port), *args), yukta)

    return start


FLOWS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "s/tick": [
        ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20}),
        ("show", "CONSOLE_TERMINAL", {}),
    ],
    "s/echo": [("in", "API_TRIGGER", {}), ("out", "COLLECT_TERMINAL", {})],
    "s/split": [
        ("in", "API_TRIGGER", {}),
        ("s", "SPLIT", {"path": "items"}),
        ("out", "CONSOLE_TERMINAL", {"prefix": "item "}),
    ],
    "plain": [("t", "SEQUENCE_TRIGGER", {"count": 1}), ("e", "NULL_TERMINAL", {})],
}


def document(workflow_id: str, nodes: list[tuple[str, str, dict[str, Any]]]) -> str:
    """A line of nodes as a workflow document."""
    return json.dumps(
        {
            "workflowId": workflow_id,
            "nodes": [{"nodeId": id, "type": type, "config": more} for id, type, more in nodes],
            "edges": [{"source": a, "target": b} for (a, *_), (b, *_) in itertools.pairwise(nodes)],
        },
        indent=2,
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that only talk to it; sessions `s` and `default`."""
    folder = tmp_path_factory.mktemp("flows")
    for name, nodes in FLOWS.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(document(path.stem, nodes))
    environ = {name: text for name, text in os.environ.items() if not name.startswith("YUKTA_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "yukta_rx", "serve", "--port", "0", "--apply", str(folder)],
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environ | {"PYTHONPATH": str(Path(yukta_rx.__file__).parents[1])},
    )
    yield Served(process)
    process.kill()
    process.communicate()


@pytest.fixture
def ask(server, yukta, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run a command line in this process that talks to the shared server."""
    monkeypatch.setenv("YUKTA_URL", server.url)
    return yukta


@pytest.fixture(name="rest")
def _rest() -> Callable[..., tuple[str, str]]:
    """Read what a process writes from here on, to its end."""
    return rest


@pytest.fixture
def talk(server, spawn) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a command line that talks to the shared server, as a process."""
    return lambda *args, **options: spawn(*args, **{"env": server.environ} | options)
