"""Runs pytest as an author of plugins does: in a process and a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
ASYNCIO = """[pytest]
asyncio_default_fixture_loop_scope = function
"""


class Outside:
    """A folder with files and installed packages, in which pytest is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        # The entry points as they stand, also where yukta_rx was installed before they did.
        self.install("yukta_rx_entry_points", project["entry-points"])
        self.write({"pytest.ini": ASYNCIO})

    def install(self, name: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
        """Have a package with these entry points, whose modules are in the folder."""
        lines = []
        for group, entries in entry_points.items():
            lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
        info = f"{name}-1.0.dist-info"
        self.write(
            {
                f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
                f"{info}/entry_points.txt": "\n".join(lines) + "\n",
            }
        )

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def pytest(self, *options: str) -> dict[str, int]:
        """Run it; how many tests passed, failed and so on. `output` is what it printed."""
        always = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "--color=no")
        done = self.python("-m", "pytest", *always, *options)
        self.output = done.stdout + done.stderr
        last = self.output.strip().rpartition("\n")[2]
        return {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)}

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), str(ROOT)])
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path)
