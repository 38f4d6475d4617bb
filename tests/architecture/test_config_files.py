"""One tool, one file: nothing is configured in two places."""

from __future__ import annotations

import configparser
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import yukta_rx

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_setup_cfg_holds_the_contracts_of_the_layers_and_nothing_else() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")

    assert config.sections()
    assert all(re.fullmatch(r"importlinter(:contract:\w+)?", name) for name in config.sections())


def test_pyproject_holds_no_contracts(pyproject: dict[str, Any]) -> None:
    assert "importlinter" not in pyproject["tool"]


@pytest.mark.parametrize(
    "name",
    [
        ".coveragerc",
        ".importlinter",
        "alembic.ini",
        "mypy.ini",
        ".mypy.ini",
        "pytest.ini",
        "pytest.toml",
        "tox.ini",
        "ruff.toml",
        ".ruff.toml",
        "setup.py",
    ],
)
def test_no_tool_has_a_file_of_its_own(name: str) -> None:
    assert not (ROOT / name).exists()


def test_the_folder_of_migrations_does_not_hide_the_library_of_that_name() -> None:
    assert (ROOT / "alembic").is_dir()
    assert not (ROOT / "alembic/__init__.py").exists()


def test_the_version_is_written_once(pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", yukta_rx.__version__)


def test_every_dependency_names_a_floor_and_a_ceiling(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += [entry for entry in extra if not entry.startswith(("yukta_rx[", "types-"))]

    assert [entry for entry in wanted if not re.search(r">=[\d.]+,<[\d.]+$", entry)] == []


def test_what_a_plain_install_brings_is_what_the_core_needs(pyproject: dict[str, Any]) -> None:
    names = {re.split(r"[>\[]", entry)[0] for entry in pyproject["project"]["dependencies"]}

    assert names == {
        "aiohttp",
        "aiohttp-sse",
        "cachetools",
        "click",
        "msgspec",
        "orjson",
        "prometheus-client",
        "pydantic",
        "reactivex",
    }


@pytest.mark.parametrize("script", [".ci/run", ".ci/wheel-test"])
def test_the_scripts_of_ci_can_be_run_and_stop_at_the_first_failure(script: str) -> None:
    path = ROOT / script

    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in path.read_text()


def test_the_example_of_the_demo_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (demo,) = re.findall(r"^DEMO \?= (.*)$", makefile, re.MULTILINE)

    assert (ROOT / demo).is_file()
