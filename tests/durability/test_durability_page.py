"""The page for operators says what is so: what survives, and where files are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.durability.matrix import durability_matrix
from yukta_rx.durability.open import open_stores
from yukta_rx.metrics import Meters
from yukta_rx.streams.pool import BlockingPool

pytestmark = pytest.mark.feature("DUR-05")

PAGE = (Path(__file__).parents[2] / "docs/durability.md").read_text(encoding="utf-8")
POOL = BlockingPool(2)


def settings_of(**overrides: Any) -> Any:
    return load_settings(environ={}, overrides=overrides)


def below(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in folder.rglob("*") if path.name[0] != "."]


def table() -> dict[str, list[str]]:
    """The rows of the matrix on the page, by their first cell."""
    part = PAGE.split("## What survives what", 1)[1].split("##", 1)[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


@pytest.mark.parametrize("profile", ["memory", "file"])
def test_the_matrix_on_the_page_is_that_of_the_server(profile: str) -> None:
    matrix = durability_matrix(settings_of(**{"yukta.profile": profile}))
    column = {"memory": 1, "file": 2}[profile]

    shown = table()
    assert list(shown) == [row.what for row in matrix]
    for row in matrix:
        assert (shown[row.what][column] == "lost") == row.lost, row.what
        switches = [name.split(".")[1] for name in row.settings] or ["none"]
        assert sorted(shown[row.what][0].split(", ")) == sorted(switches)


async def test_the_page_names_every_folder_and_file_of_the_stores(tmp_path: Path) -> None:
    settings = settings_of(**{"yukta.profile": "file", "yukta.data.dir": str(tmp_path)})
    async with open_stores(settings, POOL.call, Meters()) as stores:
        await stores.checkpoints.start()
        await stores.checkpoints.close()

    layout = PAGE.split("```\nyukta-data/\n", 1)[1].split("```", 1)[0]
    documented = set(re.findall(r"^ +([\w./<>-]+)", layout, re.MULTILINE))
    names = {part.rstrip("/") for entry in documented for part in (entry, *entry.split("/"))}
    told = [path for path in below(tmp_path) if len(path.parts) <= 2]
    assert {path.parts[0] for path in told} == {
        "execution-log",
        "kv",
        "restart",
        "session",
        "session-memory",
    }
    assert [str(path) for path in told if path.name not in names] == []
