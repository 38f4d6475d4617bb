"""`yukta db`, against a real PostgreSQL: from the repository, and from an installed wheel."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.databases import empty_database, run, server_or_skip
from yukta_rx.durability.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.feature("DUR-04")

STEPS = [name for name, _ in migrate.history()]
LAST = STEPS[-1]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with server_or_skip() as url:
        yield url


@pytest.fixture
def database(server: str) -> Iterator[str]:
    """The address of a database with nothing in it."""
    with empty_database(server) as url:
        yield url


@pytest.mark.durable
@pytest.mark.slow
def test_upgrade_goes_to_the_newest_step_and_says_which_it_made(yukta: Any, database: str) -> None:
    first = yukta("db", "upgrade", "--url", database)
    again = yukta("db", "upgrade", "--url", database)

    lines = first.out.splitlines()
    assert (first.code, first.err) == (0, "")
    assert [line.split()[0] for line in lines[:-1]] == STEPS
    assert lines[-1] == f"none -> {LAST}"
    assert (again.code, again.out) == (0, f"is at {LAST}\n")
    assert migrate.differences(database) == []


@pytest.mark.durable
@pytest.mark.slow
def test_migrate_is_another_word_for_it_and_speaks_json(yukta: Any, database: str) -> None:
    migrate.upgrade(database, "0002")

    ended = yukta("migrate", "--url", database, "--json")

    assert ended.results == [{"before": "0002", "after": LAST, "steps": STEPS[2:]}]
    assert yukta("db", "current", "--url", database, "--json").results == [
        {"current": LAST, "needed": LAST}
    ]


@pytest.mark.durable
@pytest.mark.slow
def test_check_says_what_is_missing_and_exits_with_3(yukta: Any, database: str) -> None:
    bare = yukta("db", "check", "--url", database)
    migrate.upgrade(database, STEPS[-3])
    behind = yukta("db", "check", "--url", database)
    at = yukta("db", "current", "--url", database)
    as_json = yukta("db", "check", "--url", database, "--json")
    migrate.upgrade(database)
    good = yukta("db", "check", "--url", database)

    assert (bare.code, bare.out) == (3, "")
    assert f"is at step none, this version needs {LAST}: run `yukta db upgrade`" in bare.err
    assert behind.code == 3
    missing = [line for line in behind.err.splitlines() if "missing: " in line]
    assert [line.split("missing: ")[1].split()[0] for line in missing] == STEPS[-2:]
    assert at.out == f"{STEPS[-3]}, needed: {LAST}\n"
    assert json.loads(as_json.err)["missing"] == STEPS[-2:]
    assert as_json.code == 3
    assert (good.code, good.out) == (0, f"ok, at step {LAST}\n")
    assert yukta("db", "current", "--url", database).out == f"{LAST} (needed)\n"


@pytest.mark.durable
@pytest.mark.slow
def test_a_newer_database_is_refused_by_every_command_that_minds(yukta: Any, database: str) -> None:
    migrate.upgrade(database)
    run(database, "UPDATE alembic_version SET version_num = '9999'")

    for words in (("db", "check"), ("db", "upgrade")):
        ended = yukta(*words, "--url", database)
        assert (ended.code, ended.out) == (1, "")
        assert "newer than this program" in ended.err
        assert "9999" in ended.err
    assert yukta("db", "current", "--url", database).out == f"9999, needed: {LAST}\n"


@pytest.mark.durable
@pytest.mark.slow
def test_a_step_that_fails_says_where_the_schema_is_left(yukta: Any, database: str) -> None:
    # A table of the next step is there already.
    migrate.upgrade(database, "0006")
    run(database, "CREATE TABLE workflow_number (mine int)")

    ended = yukta("db", "upgrade", "--url", database)

    assert (ended.code, ended.out) == (1, "")
    assert "the schema stays at step 0006" in ended.last
    assert "workflow_number" in ended.last


@pytest.mark.durable
@pytest.mark.slow
def test_the_database_is_that_of_the_settings(
    yukta: Any, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yukta.toml").write_text(f'[yukta.postgres]\nurl = "{database}"\n')
    assert yukta("db", "upgrade").code == 0

    # The account that may change the schema comes first.
    nowhere = database + "_nowhere"
    monkeypatch.setenv("YUKTA_POSTGRES_MIGRATION_URL", nowhere)
    refused = yukta("db", "check")
    assert refused.code == 8
    assert nowhere.rpartition("/")[2] in refused.err
    assert yukta("db", "check", "--url", database).code == 0


def test_without_a_database_it_is_said_how_to_name_one(yukta: Any) -> None:
    for words in ("upgrade", "current", "check"):
        ended = yukta("db", words)
        assert ended.code == 2
        assert "yukta.postgres.url" in ended.err
        assert "--url" in ended.err


def test_a_database_that_cannot_be_reached_is_another_code_and_no_secret(yukta: Any) -> None:
    for url in ("postgresql://u:hidden-word@127.0.0.1:9/x", "mysql://u:hidden-word@h/x", "words"):
        for words in ("upgrade", "current", "check"):
            ended = yukta("db", words, "--url", url)
            assert ended.code == 8, ended.err
            assert len(ended.err.splitlines()) == 1
            assert "hidden-word" not in ended.err


def test_history_lists_the_steps_and_asks_no_database(yukta: Any) -> None:
    shown = yukta("db", "history")
    as_json = yukta("db", "history", "--json")

    assert [line.split()[0] for line in shown.out.splitlines()] == STEPS
    assert [one["step"] for one in as_json.results] == STEPS
    assert all(one["meaning"] for one in as_json.results)


@pytest.mark.durable
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_installed_wheel_carries_the_steps(database: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = tmp_path / "dist"
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", str(built), str(root)], check=True, timeout=200
    )
    [wheel] = built.glob("*.whl")
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    scheme = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", scheme))
    # What it needs is that of this environment; it itself is only there from the wheel.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [*pip, "install", "--no-deps", "--target", str(packages), str(wheel)],
        check=True,
        timeout=200,
    )

    def yukta(*words: str) -> str:
        program = [str(home / "bin" / "python"), "-I", "-m", "yukta_rx", *words]
        ended = subprocess.run(
            program, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        )
        return ended.stdout

    assert yukta("db", "upgrade", "--url", database).endswith(f"none -> {LAST}\n")
    assert yukta("db", "check", "--url", database) == f"ok, at step {LAST}\n"
    where = "import yukta_rx.durability.postgres.steps as steps; print(steps.scripts())"
    found = subprocess.run(
        [str(home / "bin" / "python"), "-I", "-c", where],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert Path(found.stdout.strip()) == packages / "yukta_rx" / "_alembic"
    assert migrate.differences(database) == []
