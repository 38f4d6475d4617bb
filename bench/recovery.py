"""What a crash costs: until the first resumed step, for a run that waits, and with a long log."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.durable import folder
from bench.harness import Bar, Family, Form, Found, at_most, table
from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.durability.file.execution_log import FileExecutionLogStore
from yukta_rx.engine.interrupt import interrupt
from yukta_rx.model.execution_log import LogEvent, NodeFinished, RunFinished, RunStarted
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
SESSION = "bench"
PATIENCE = 60.0
"""Seconds that a server gets."""


def line_of(workflow_id: str, *nodes: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A workflow whose nodes stand in a line."""
    ids = [node_id for node_id, _, _ in nodes]
    return {
        "workflowId": workflow_id,
        "nodes": [{"nodeId": a, "type": b, "config": c} for a, b, c in nodes],
        "edges": [{"source": a, "target": b} for a, b in pairwise(ids)],
    }


# --- until the first resumed step ----------------------------------------------------------------

STEPS = line_of(
    "steps",
    ("in", "SEQUENCE_TRIGGER", {"count": 10_000}),
    ("wait", "DELAY", {"ms": 10}),
    ("out", "FILE_TERMINAL", {"path": "steps.jsonl"}),
)


@cache
def compiled() -> str:
    """A folder for compiled modules, so that each start finds them, whatever the environment."""
    path = Path(tempfile.gettempdir()) / f"yukta-bench-compiled-{os.getuid()}"
    path.mkdir(exist_ok=True)
    return str(path)


def environment(path: Path) -> dict[str, str]:
    """Of a server that keeps everything in files there, and resumes by itself."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("YUKTA_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {
        "PYTHONPYCACHEPREFIX": compiled(),
        "YUKTA_PROFILE": "file",
        "YUKTA_DATA_DIR": str(path),
        "YUKTA_FILES_ALLOWED_DIRS": str(path),
        "YUKTA_RESTART_AUTO_RESUME": "true",
    }


def begun(path: Path) -> subprocess.Popen[bytes]:
    """A server process."""
    command = [sys.executable, "-m", "yukta_rx", "serve", "--port", "0"]
    return subprocess.Popen(command, cwd=ROOT, env=environment(path), stderr=subprocess.PIPE)


def served(process: subprocess.Popen[bytes]) -> str:
    """Where it listens, once it does."""
    assert process.stderr is not None
    for line in process.stderr:
        if b"serving on http://" in line:
            return line.decode().partition("serving on ")[2].partition(",")[0]
    raise RuntimeError("the server did not start")


def ended(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGKILL) -> None:
    """End a server; what it says until then is of no interest."""
    process.send_signal(number)
    process.communicate()


def ask(url: str, method: str, body: Any) -> None:
    """A request."""
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer.read()


def grown(path: Path, size: int) -> float:
    """When the file is longer than that."""
    limit = time.perf_counter() + PATIENCE
    while not path.exists() or path.stat().st_size <= size:
        if time.perf_counter() > limit:
            raise RuntimeError(f"{path} does not grow")
        time.sleep(0.001)
    return time.perf_counter()


def computed(process: subprocess.Popen[bytes]) -> float:
    """Seconds that a process has computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_step(_count: int, alone: bool = False) -> float:
    """Seconds from the start of the process to the first step of a run that goes on.

    Args:
        alone: only those in which the server computed, whatever else the machine did.
    """
    with folder() as parent:
        path = (parent / "data").resolve()
        path.mkdir()
        first = begun(path)
        try:
            url = served(first)
            ask(f"{url}/api/sessions/{SESSION}", "PUT", {"workflows": [STEPS]})
            ask(f"{url}/api/workflow/{SESSION}/steps/start", "POST", {})
            grown(path / "steps.jsonl", 200)
        finally:
            ended(first)
        size = (path / "steps.jsonl").stat().st_size
        start = time.perf_counter()
        second = begun(path)
        try:
            taken = grown(path / "steps.jsonl", size) - start
            return computed(second) if alone else taken
        finally:
            ended(second)


def listening(_count: int) -> float:
    """Seconds from the start of a process, with nothing to resume, to where it listens."""
    with folder() as parent:
        start = time.perf_counter()
        process = begun(parent.resolve())
        try:
            served(process)
            return time.perf_counter() - start
        finally:
            ended(process)


def bare(_count: int) -> float:
    """Seconds that Python takes with what every server needs of others, and nothing of ours."""
    code = "import asyncio, aiohttp.web, pydantic, msgspec, click"
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=environment(ROOT), check=True)
    return time.perf_counter() - start


STEP = "first step of a resumed run"
START_FORMS = (
    Form("Python with aiohttp, pydantic, msgspec, click", bare),
    Form("serving, with an empty folder", listening),
    Form(STEP, first_step),
    Form("the same, only what the server computed", partial(first_step, alone=True)),
)


def start_tables(found: Found) -> list[str]:
    """One row per moment."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in START_FORMS
    ]
    return [
        "Seconds from the start of a server's process to a moment, modules compiled. The run has"
        " three nodes, the one in the middle waits 10 ms, and `auto-resume` is set.",
        "",
        *table(("moment", "seconds", "range"), rows),
    ]


def start_bars(found: Found) -> list[Bar]:
    """A crash is a short break."""
    return [at_most("process start to the first resumed step", 0.8, found.spread(STEP), " s")]


START = Family(
    "resume-start",
    "From a start to the first resumed step",
    (1,),
    START_FORMS,
    start_tables,
    start_bars,
)


# --- runs that wait ------------------------------------------------------------------------------

ASKING = line_of(
    "asking",
    ("in", "API_TRIGGER", {}),
    ("ask", "WAIT_FOR_SIGNAL", {"signal": "go", "prompt": "Pay ${payload.amount}?"}),
    ("out", "COLLECT_TERMINAL", {}),
)
PAYLOAD = {"amount": 12.5, "customer": "c-1042", "text": "x" * 40}


def engine_in(path: Path, **settings: Any) -> Engine:
    """An engine that keeps everything in files there."""
    given = {"profile": "file", "data.dir": str(path)} | settings
    overrides = {f"yukta.{name}": value for name, value in given.items()}
    return Engine(load_settings(environ={}, overrides=overrides))


def resident() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def on_disk(path: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


AT_ONCE = 10
"""Runs that are started before those before them are suspended."""


async def _wait(path: Path, count: int, how: str) -> dict[str, float]:
    """Bytes of each of so many runs, which wait in some way."""
    # What the first of them bring along is none of the others' business, and what the feed keeps
    # of events, which is bounded, is full by then.
    first = max(2, count // 10)
    queued, suspended = how == QUEUED, how == SUSPENDED
    settings = {
        "execution.max-concurrent": int(queued),
        "execution.queue-capacity": first + count,
        "tracker.max-executions": first + count,
        "streaming.replay-events": first,
        "execution.suspend-after": "0.1s" if suspended else "0s",
    }
    async with engine_in(path, **settings) as engine:
        await _start(engine, ASKING, first, 1 if queued else first)
        await _asleep(engine, first if suspended else 0)
        before = resident(), on_disk(path)
        wave = AT_ONCE if suspended else count
        for done in range(first, first + count, wave):
            rest = 0.0 if suspended else 0.5
            await _start(engine, "asking", wave, 1 if queued else done + wave, rest)
            await _asleep(engine, done + wave if suspended else 0)
        after = resident(), on_disk(path)
        engine._starter.scheduler.close()
        await engine._starter.cut_off(interrupt)
    return {"memory": (after[0] - before[0]) / count, "disk": (after[1] - before[1]) / count}


async def _start(engine: Engine, workflow: Any, count: int, asked: int, rest: float = 0.5) -> None:
    """Start so many runs, until so many of all wait for their answer."""
    await engine.start(SESSION, workflow, PAYLOAD, patience=0)
    for _ in range(count - 1):
        await engine.start(SESSION, "asking", PAYLOAD, patience=0)
    async with asyncio.timeout(PATIENCE):
        while True:
            if len(engine.approvals.signals.approvals(lambda _request: True)) >= asked:
                break
            await asyncio.sleep(0.01)
    # Everything that is told of them is written by then.
    await asyncio.sleep(rest)


async def _asleep(engine: Engine, count: int) -> None:
    """Wait until so many runs are suspended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if len(engine._starter.live.suspended) >= count:
                break
            await asyncio.sleep(0.01)


_MEASURED: dict[tuple[int, str, str], float] = {}
"""What a process found out beside what it was asked for."""


def waiting(count: int, how: str, what: str) -> float:
    """KiB of a run that waits; measured in a process of its own, memory and disk together."""
    if (count, how, what) not in _MEASURED:
        with folder() as path:
            about = str(path), str(count), how
            command = [sys.executable, "-m", "bench.recovery", *about]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        for name, size in json.loads(done.stdout).items():
            _MEASURED[count, how, name] = size / 1024
    return _MEASURED.pop((count, how, what))


QUEUED = "waits for a slot"
SUSPENDED = "waits for an approval, suspended"
AWAKE = "waits for an approval, without `suspend-after`"
WAIT_FORMS = tuple(
    Form(f"{how}: {what}", partial(waiting, how=how, what=what))
    for how in (QUEUED, SUSPENDED, AWAKE)
    for what in ("memory", "disk")
)


def wait_tables(found: Found) -> list[str]:
    """One row per figure."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in WAIT_FORMS
    ]
    return [
        f"KiB of one of {found.size:,} runs of three nodes that wait, its payload of 100 bytes"
        " included.",
        "",
        *table(("a run that", "KiB", "range"), rows),
    ]


def wait_bars(found: Found) -> list[Bar]:
    """Many may wait."""
    return [
        at_most(f"KiB of a run that {form.name}", 10, found.spread(form.name), " KiB")
        for form in WAIT_FORMS
        if not form.name.startswith(AWAKE)
    ]


WAIT = Family("waiting-runs", "Runs that wait", (1_000,), WAIT_FORMS, wait_tables, wait_bars)


# --- a long log ----------------------------------------------------------------------------------

OPEN_RUNS = 100
EACH = 20
"""Events of a run."""


def log_of(events: int, each: int = EACH) -> Iterator[list[LogEvent]]:
    """So many events, of runs with as many each; the last 100 runs have no end."""
    now = datetime.now(UTC)
    runs = max(OPEN_RUNS, events // each)
    for n in range(runs):
        name = f"{n:032x}"
        yield [
            RunStarted(
                execution_id=name,
                time=now,
                session_id=SESSION,
                workflow_id="asking",
                definition_version="0" * 64,
                payload=PAYLOAD,
                lineage=name,
            ),
            *(
                NodeFinished(
                    execution_id=name, time=now, node_id=f"n{m}", status=TaskStatus.SUCCESS
                )
                for m in range(each - 2)
            ),
            *(
                [RunFinished(execution_id=name, time=now, status=TaskStatus.SUCCESS)]
                if n < runs - OPEN_RUNS
                else []
            ),
        ]


async def reopened(count: int, kept: int) -> float:
    """Seconds until an engine is open that finds a log of so many events."""
    with folder() as path:
        place = path / "execution-log"
        place.mkdir()
        async with FileExecutionLogStore(place, 10**6, 10**9) as store:
            await asyncio.gather(*(store.append(events) for events in log_of(count)))
        engine = engine_in(path, **{"execution-log.retained-runs": kept})
        start = time.perf_counter()
        async with engine:
            taken = time.perf_counter() - start
            shown = [run.status for run in engine.tracker.runs()]
            assert shown.count(TaskStatus.ABORTED) == OPEN_RUNS
        return taken


async def read_lines(count: int) -> float:
    """Seconds to read as many lines, and no more."""
    with folder() as path:
        async with FileExecutionLogStore(path, 10**6, 10**9) as store:
            await asyncio.gather(*(store.append(events) for events in log_of(count)))
        file = path / "executions.jsonl"
        start = time.perf_counter()
        lines = [json.loads(line) for line in file.read_bytes().splitlines()]
        assert lines
        return time.perf_counter() - start


LOG_ALL = "all runs are kept (`retained-runs` 10,000)"
LOG_FORMS = (
    Form("each line is parsed by `json`, and nothing else", read_lines),
    Form("500 runs are kept, as by default", partial(reopened, kept=500)),
    Form(LOG_ALL, partial(reopened, kept=10_000)),
)


def log_tables(found: Found) -> list[str]:
    """One row per number of runs that are kept."""
    rows = [
        (form.name, found.spread(form.name).show(), found.spread(form.name).range())
        for form in LOG_FORMS
    ]
    return [
        f"Seconds until an engine is open that finds a log of {found.size:,} events, of runs with"
        f" {EACH} each, of which {OPEN_RUNS} have no end.",
        "",
        *table(("form", "seconds", "range"), rows),
    ]


LOG = Family("long-log", "Recovery of a long log", (200_000,), LOG_FORMS, log_tables)


if __name__ == "__main__":
    arguments = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(json.dumps(asyncio.run(_wait(*arguments))))
