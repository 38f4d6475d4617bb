"""`yukta doctor`: what would keep a server from starting, what a restart would lose, the bundle."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from yukta_rx.cli.checkup import FEW_FILES, check_open_files, check_python
from yukta_rx.observe import machine

pytestmark = [pytest.mark.slow, pytest.mark.feature("DUR-05", "OBS-04")]

SECRET = "s3cr3t-of-the-test-0123456789"


@pytest.fixture(autouse=True)
def _any_port(monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_HTTP_PORT", "0")


def checks(ended: Any) -> list[dict[str, Any]]:
    return [line for line in ended.results if "check" in line]


def of(ended: Any, name: str, verdict: str | None = None) -> list[str]:
    return [
        line["detail"]
        for line in checks(ended)
        if line["check"] == name and verdict in (None, line["verdict"])
    ]


def test_where_all_is_well_it_says_so_and_what_a_restart_loses(yukta) -> None:
    ended = yukta("doctor")

    lines = ended.out.splitlines()
    assert (ended.code, ended.err) == (0, "")
    assert any(line.startswith("ok    python     3.") for line in lines)
    assert "a restart loses:" in lines
    assert not any(line.startswith("fail") for line in lines)


def test_with_json_each_check_is_a_line_and_the_matrix_another(yukta) -> None:
    ended = yukta("doctor", "--json")

    assert {"python", "packages", "settings", "plugins", "port", "open-files", "clock"} <= {
        line["check"] for line in checks(ended)
    }
    assert ended.results[-1]["durability"][0]["item"] == "definitions"


def test_settings_that_are_refused_are_all_told_and_the_code_is_1(yukta, monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "fil")
    monkeypatch.setenv("YUKTA_HTTP_PORT", "99999")

    ended = yukta("doctor", "--json")

    assert ended.code == 1
    assert len(of(ended, "settings", "fail")) == 2


def test_half_durable_mixes_are_warned_of_and_contradictions_refused(
    yukta, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("YUKTA_EXECUTION_LOG_DIR", str(tmp_path / "log"))
    warned = yukta("doctor", "--json")
    monkeypatch.setenv("YUKTA_RESTART_AUTO_RESUME", "true")
    refused = yukta("doctor", "--json")

    assert warned.code == 0
    assert any("no run can be resumed" in told for told in of(warned, "settings", "warn"))
    assert refused.code == 1
    assert any("auto-resume needs" in told for told in of(refused, "settings", "fail"))


def test_folders_are_measured_and_nothing_is_left_behind(yukta, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "file")

    ended = yukta("doctor", "--json")

    measured = [line for line in checks(ended) if line["check"] == "folder" and "writeMs" in line]
    assert ended.code == 0
    assert {line["folder"] for line in measured} == {
        str(tmp_path / "yukta-data" / name)
        for name in ("session", "execution-log", "restart", "kv", "session-memory")
    }
    assert all(0 < line["writeMs"] <= line["worstMs"] for line in measured)
    assert len([line for line in checks(ended) if "freeBytes" in line]) == 1
    assert list(tmp_path.iterdir()) == []


def test_stores_that_are_there_are_opened_and_what_they_hold_is_told(
    yukta, serve, workflow, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "file")
    (tmp_path / "flows" / "s").mkdir(parents=True)
    nodes = (("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20}), ("e", "NULL_TERMINAL"))
    workflow(*nodes, name="flows/s/flow.json")
    server = serve("--apply", "flows")
    server.ask("start", "s/flow")
    held = yukta("doctor", "--json")
    server.process.kill()
    server.process.wait()
    free = yukta("doctor", "--json")

    assert held.code == 1
    assert f"pid {server.process.pid} on" in of(held, "stores", "fail")[0]
    assert free.code == 0
    assert "1 runs, 1 without an end" in of(free, "stores", "ok")[0]


def test_what_a_store_cannot_read_is_told(yukta, serve, workflow, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "file")
    serve().end()
    log = tmp_path / "yukta-data" / "execution-log" / "executions.jsonl"
    log.write_bytes(log.read_bytes() + b'{"type":"NEVER"}\n')

    ended = yukta("doctor", "--json")

    assert ended.code == 0
    assert any("executions" in told for told in of(ended, "stores", "warn"))


def test_a_folder_that_cannot_be_is_told_and_the_code_is_1(yukta, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("YUKTA_EXECUTION_LOG_DIR", str(tmp_path / "file" / "log"))
    monkeypatch.setenv("YUKTA_RESTART_DIR", str(tmp_path / "file"))

    ended = yukta("doctor", "--json")

    told = of(ended, "folder", "fail")
    assert ended.code == 1
    assert [one.partition(" ")[0] for one in told] == [
        str(tmp_path / "file" / "log"),
        str(tmp_path / "file"),
    ]


def test_a_port_that_is_taken_is_told_and_by_whom(yukta, serve, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("YUKTA_HTTP_PORT", str(taken.getsockname()[1]))
        by_another = yukta("doctor", "--json")
    server = serve()
    monkeypatch.setenv("YUKTA_HTTP_PORT", str(server.port))
    by_ours = yukta("doctor", "--json")

    assert (by_another.code, by_ours.code) == (1, 1)
    assert of(by_another, "port", "fail")[0].endswith("address already in use")
    assert of(by_ours, "port", "fail")[0].endswith("address already in use, by a server of yukta")


# --- the machine ---------------------------------------------------------------------------------


def test_the_packages_are_those_of_the_project() -> None:
    document = tomllib.loads((Path(machine.__file__).parents[2] / "pyproject.toml").read_text())
    project = document["project"]
    extras = project["optional-dependencies"]

    assert list(machine.NEEDED) == project["dependencies"]
    assert {name: tuple(extras[name]) for name in machine.OPTIONAL} == machine.OPTIONAL
    assert project["requires-python"] == f">={'.'.join(map(str, machine.OLDEST_PYTHON))}"


@pytest.mark.parametrize(
    ("installed", "wanted", "fits"),
    [
        ("3.14.5", ">=3.14,<4", True),
        ("3.14", ">=3.14,<4", True),
        ("3.13.9", ">=3.14,<4", False),
        ("4.0.0", ">=3.14,<4", False),
        ("4.0.0b1", ">=3.14,<4", False),
        ("0.17.0", ">=0.17,<0.18", True),
        (None, ">=1,<2", False),
    ],
)
def test_a_version_fits_or_not(installed: str | None, wanted: str, fits: bool) -> None:
    assert machine.Package("p", None, installed, wanted).fits is fits


def test_the_packages_of_this_machine_are_well() -> None:
    assert all(package.fits for package in machine.packages() if package.extra is None)
    assert {check.verdict for check in check_python()} <= {"ok", "warn"}


def test_a_low_limit_of_open_files_is_warned_of() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES - 1, hard))
    try:
        low = list(check_open_files())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert [check.verdict for check in low] == ["warn"]


# --- the bundle ----------------------------------------------------------------------------------


@pytest.mark.feature("SEC-02")
def test_the_bundle_says_much_and_nothing_secret(yukta, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("YUKTA_API_KEY", SECRET)
    monkeypatch.setenv("YUKTA_VAR_TOKEN", f"{SECRET}-2")
    monkeypatch.setenv("YUKTA_SECRET_DB", f"{SECRET}-3")
    monkeypatch.setenv("YUKTA_EXECUTION_LOG_DIR", str(tmp_path / "log"))

    ended = yukta("doctor", "--bundle", "report.zip")

    assert (ended.code, ended.last) == (0, "yukta: wrote report.zip")
    assert stat.S_IMODE(os.stat("report.zip").st_mode) == 0o600
    with zipfile.ZipFile("report.zip") as bundle:
        parts = {name: json.loads(bundle.read(name)) for name in bundle.namelist()}
        whole = b"".join(bundle.read(name) for name in bundle.namelist())
    assert set(parts) == {
        *("checks.json", "versions.json", "process.json", "environment.json"),
        *("settings.json", "durability.json", "folders.json"),
    }
    assert "YUKTA_API_KEY" in parts["environment.json"]
    assert parts["versions.json"]["packages"]["aiohttp"]
    assert SECRET.encode() not in whole
    assert not re.search(rb"[0-9a-f]{64}", whole)


def test_a_bundle_is_written_also_where_the_settings_are_refused(yukta, monkeypatch) -> None:
    monkeypatch.setenv("YUKTA_PROFILE", "fil")

    ended = yukta("doctor", "--bundle", "report.zip")

    assert ended.code == 1
    with zipfile.ZipFile("report.zip") as bundle:
        assert "settings.json" not in bundle.namelist()
        assert "expected one of" in bundle.read("checks.json").decode()


def test_a_bundle_that_cannot_be_written_is_one_line_and_leaves_nothing(yukta, tmp_path) -> None:
    (tmp_path / "there").mkdir()

    ended = yukta("doctor", "--bundle", "there")

    assert ended.code == 1
    assert ended.err.startswith("yukta: there: cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_it_loads_neither_the_web_nor_a_database() -> None:
    program = (
        "import sys\n"
        "from yukta_rx.cli.main import execute\n"
        "execute(['doctor'])\n"
        "print([name for name in ('aiohttp.web', 'sqlalchemy', 'mcp') if name in sys.modules])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )

    assert done.stdout.splitlines()[-1] == "[]"
