"""`yukta run` as a process: signals, pipes, terminals, keys."""

from __future__ import annotations

import json
import os
import pty
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.feature("CTL-03")]

ENDLESS = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})

PLUGINS = """
import time
from yukta_rx.plugins.contract import processor

@processor("HOG", blocking=False)
def hog(msg, cfg, ctx):
    ctx.log("hogging")
    time.sleep(60)

@processor("WAITER")
def waiter(msg, cfg, ctx):
    ctx.log("waiting")
    time.sleep(60)

@processor("OPAQUE")
def opaque(msg, cfg, ctx):
    return object()

@processor("NOISY")
def noisy(msg, cfg, ctx):
    ctx.log("red \\x1b[31m alert\\rgone", "stderr")
    return msg
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with plugins, laid out as pip would."""
    site = tmp_path / "site"
    info = site / "trouble-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "trouble.py").write_text(PLUGINS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trouble\nVersion: 1.0\n")
    points = "\n".join(f"{name} = trouble:{name.lower()}" for name in ("HOG", "WAITER", "OPAQUE"))
    (info / "entry_points.txt").write_text(f"[yukta_rx.plugins]\n{points}\nNOISY = trouble:noisy\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ["PYTHONPATH"], str(site)]))


def until(process: subprocess.Popen[bytes], word: str) -> list[str]:
    """Read stderr until a line holds `word`."""
    lines = []
    for line in process.stderr or ():
        lines.append(line.decode())
        if word in lines[-1]:
            return lines
    raise AssertionError(f"ended without {word!r}: {lines}")


def end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_drains_the_run_and_exits_with_130(spawn, workflow, number) -> None:
    process = spawn("run", workflow(ENDLESS, ("out", "COLLECT_TERMINAL")))
    until(process, "out: RUNNING")

    process.send_signal(number)
    code, out, err = end(process)

    assert code == 130
    assert "yukta: draining" in err
    assert err.splitlines()[-1].startswith("STOPPED flow: ")
    payloads = [json.loads(line)["payload"]["n"] for line in out.splitlines()]
    assert payloads == list(range(len(payloads)))


def test_a_run_that_finishes_while_it_is_drained_keeps_its_own_end(spawn, workflow) -> None:
    path = workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 1}), ("d", "DELAY", {"ms": 600}), ("e", "NULL_TERMINAL")
    )
    process = spawn("run", path)
    until(process, "d: RUNNING")

    process.send_signal(signal.SIGINT)
    code, _, err = end(process)

    assert code == 0
    assert err.splitlines()[-1].startswith("SUCCESS flow: ")


@pytest.mark.parametrize("node", [("d", "DELAY", {"ms": 60_000}), ("d", "WAITER")])
def test_a_second_interrupt_ends_the_run_at_once(spawn, workflow, plugins, node) -> None:
    process = spawn("run", workflow(ENDLESS, node, ("e", "NULL_TERMINAL")))
    until(process, "d: RUNNING")

    process.send_signal(signal.SIGINT)
    until(process, "draining")
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)

    assert code == 130
    assert err.splitlines()[-1].startswith("CANCELLED flow: ")
    assert "Traceback" not in err


def test_a_third_interrupt_ends_even_a_process_whose_loop_is_held_up(
    spawn, workflow, plugins
) -> None:
    process = spawn("run", workflow(ENDLESS, ("d", "HOG"), ("e", "NULL_TERMINAL")))
    until(process, "hogging")

    for _ in range(3):
        process.send_signal(signal.SIGINT)
        # The handler has run once the signal is no longer pending.
        while f"{1 << (signal.SIGINT - 1):016x}" in _pending(process.pid):
            pass
    code, _, err = end(process)

    assert code == 130
    assert err.splitlines()[-1] == "yukta: gave up waiting for the run"


@pytest.mark.feature("EXT-01")
def test_a_node_that_holds_the_loop_is_named_while_it_does(
    spawn, workflow, plugins, monkeypatch
) -> None:
    monkeypatch.setenv("YUKTA_WATCHDOG_LIMIT", "50ms")
    process = spawn("run", workflow(ENDLESS, ("d", "HOG"), ("e", "NULL_TERMINAL")))

    *_, last = until(process, "holds the event loop")

    assert last.startswith("yukta: warning: node d of run ")
    assert last.endswith(" at trouble.py:8 in hog\n")


def _pending(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/status") as status:
            return "".join(line for line in status if line.startswith(("SigPnd", "ShdPnd")))
    except OSError:
        return ""


def test_a_reader_that_leaves_ends_the_run_quietly(spawn, workflow) -> None:
    process = spawn("run", workflow(ENDLESS, ("out", "COLLECT_TERMINAL")))
    first = process.stdout.readline()

    process.stdout.close()
    err = process.stderr.read().decode()
    code = process.wait(timeout=30)

    assert json.loads(first)["payload"] == {"n": 0}
    assert code == 141
    assert "Traceback" not in err
    assert "rror" not in err


@pytest.mark.parametrize("command", [["plugins"], ["version"], ["--help"]])
def test_other_commands_are_quiet_too_when_nobody_reads(spawn, command) -> None:
    read, write = os.pipe()
    os.close(read)

    process = spawn(*command, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=30)

    assert process.returncode == 141
    assert err == b""


def test_a_payload_that_json_cannot_hold_is_a_line_that_says_so(spawn, workflow, plugins) -> None:
    path = workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 1}), ("o", "OPAQUE"), ("out", "COLLECT_TERMINAL")
    )

    code, out, _ = end(spawn("run", path))

    line = json.loads(out)
    assert code == 0
    assert line["payload"] is None
    assert line["error"]["code"] == "unserialisable_payload"


@pytest.mark.feature("OBS-02")
def test_a_line_of_a_plugin_cannot_steer_the_terminal(spawn, workflow, plugins) -> None:
    path = workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 1}), ("n", "NOISY"), ("out", "NULL_TERMINAL")
    )

    _, _, err = end(spawn("run", path))

    assert "n | red \\x1b[31m alert\\x0dgone\n" in err


# --- step mode -----------------------------------------------------------------------------------


@pytest.mark.feature("CTL-02")
def test_in_step_mode_nothing_moves_until_a_line_comes_and_c_goes_on(spawn, workflow) -> None:
    path = workflow(("t", "SEQUENCE_TRIGGER", {"count": 5}), ("out", "COLLECT_TERMINAL"))
    process = spawn("run", "--step", path)
    until(process, "paused")

    process.stdin.write(b"2\n")
    process.stdin.flush()
    stepped = [json.loads(process.stdout.readline())["payload"]["n"] for _ in range(2)]
    process.stdin.write(b"c\n")
    process.stdin.flush()
    code, out, _ = end(process)

    assert stepped == [0, 1]
    assert [json.loads(line)["payload"]["n"] for line in out.splitlines()] == [2, 3, 4]
    assert code == 0


@pytest.mark.feature("CTL-02")
def test_in_step_mode_the_end_of_stdin_lets_the_run_go_on(spawn, workflow) -> None:
    path = workflow(("t", "SEQUENCE_TRIGGER", {"count": 5}), ("out", "COLLECT_TERMINAL"))
    process = spawn("run", "--step", path)

    out, _ = process.communicate(b"what\n", timeout=30)

    assert len(out.splitlines()) == 5
    assert process.returncode == 0


# --- on a terminal -------------------------------------------------------------------------------


def on_terminal(spawn: Any, *args: str, **options: Any) -> tuple[int, str, str]:
    """Run with a terminal as stderr; returns exit code, stdout and what the terminal got."""
    leader, follower = pty.openpty()
    process = spawn(*args, stderr=follower, stdin=follower, **options)
    os.close(follower)
    shown = b""
    while True:
        try:
            data = os.read(leader, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(leader)
    out, _ = process.communicate(timeout=30)
    return process.returncode, out.decode(), shown.decode()


@pytest.mark.feature("OBS-01")
def test_on_a_terminal_the_nodes_and_edges_are_a_live_table(spawn, workflow) -> None:
    path = workflow(
        ("t", "SEQUENCE_TRIGGER", {"count": 20, "intervalMs": 20}),
        ("show", "CONSOLE_TERMINAL", {"prefix": "line "}),
    )

    code, out, shown = on_terminal(spawn, "run", path, env=os.environ | {"TERM": "xterm"})

    assert code == 0
    assert len(out.splitlines()) == 20
    assert "SEQUENCE_TRIGGER" in shown
    assert "t -> show" in shown
    assert shown.count("show | line") == 20
    assert "\x1b[" in shown
    assert "SUCCESS flow: 2 nodes" in shown


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize("how", ["dumb terminal", "no rich"])
def test_without_a_terminal_that_can_or_without_rich_there_are_lines(
    spawn, workflow, tmp_path, monkeypatch, how
) -> None:
    path = workflow(("t", "SEQUENCE_TRIGGER", {"count": 1}), ("out", "NULL_TERMINAL"))
    environ = os.environ | {"TERM": "dumb" if how == "dumb terminal" else "xterm"}
    if how == "no rich":
        (tmp_path / "hide").mkdir()
        (tmp_path / "hide" / "sitecustomize.py").write_text(
            "import sys; sys.modules['rich'] = None\n"
        )
        environ["PYTHONPATH"] += os.pathsep + str(tmp_path / "hide")

    code, _, shown = on_terminal(spawn, "run", path, env=environ)

    assert code == 0
    assert "out: SUCCESS (in 1, out 0)" in shown
