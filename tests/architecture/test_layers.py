"""The rooms and what they may import, as setup.cfg says."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS_OF_OUR_OWN = {"__init__", "__main__", "_alembic"}
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"

# Each line breaks one contract.
WRONG = {
    "model/wrong.py": "import yukta_rx.engine.run",
    "engine/wrong.py": "import sqlalchemy",
    "streams/wrong.py": "import aiohttp",
    "config/wrong.py": "import reactivex",
    "plugins/wrong.py": "import orjson",
    "operators/one.py": "import yukta_rx.operators.two",
    "operators/two.py": "import yukta_rx.operators.one",
}
RIGHT = {
    "engine/run.py": "import yukta_rx.model.message, reactivex",
    "model/codec.py": "import orjson",
    "model/message.py": "import orjson",
    "nodes/http_request.py": "import aiohttp",
    "durability/postgres/tables.py": "import sqlalchemy",
    "streams/rx.py": "import reactivex.operators",
}


def lint(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LINT],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def tree(folder: Path, files: dict[str, str]) -> Path:
    (folder / "setup.cfg").write_text((ROOT / "setup.cfg").read_text())
    for name, text in {"errors.py": "", **files}.items():
        path = folder / "yukta_rx" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
        for package in [path.parent, *path.parent.parents]:
            if package.is_relative_to(folder / "yukta_rx"):
                (package / "__init__.py").touch()
    return folder


def layers() -> set[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["importlinter:contract:layers"]["layers"]
    return set(re.findall(r"[\w.]+", lines))


@pytest.mark.slow
def test_every_room_imports_only_what_lies_below_it() -> None:
    report = lint(ROOT)

    assert re.search(r"Contracts: \d+ kept, 0 broken", report), report


def test_every_room_has_its_place_in_the_layers() -> None:
    rooms = {
        path.stem
        for path in (ROOT / "yukta_rx").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert rooms - ROOMS_OF_OUR_OWN <= {name.partition(".")[0] for name in layers()}


@pytest.mark.slow
def test_the_contracts_let_the_rooms_do_what_they_are_for(tmp_path: Path) -> None:
    report = lint(tree(tmp_path, RIGHT))

    assert "0 broken" in report


@pytest.mark.slow
def test_each_contract_notices_what_it_forbids(tmp_path: Path) -> None:
    report = lint(tree(tmp_path, RIGHT | WRONG))

    assert "0 kept, 6 broken" in report
