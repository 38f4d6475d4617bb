"""Where the steps of the schema are, and the newest of them; known without loading Alembic.

Feature: DUR-04.
"""

from __future__ import annotations

from pathlib import Path


def scripts() -> Path:
    """The folder of the steps: in the package where it was installed, else in the repository."""
    package = Path(__file__).parents[2]
    installed = package / "_alembic"
    return installed if (installed / "env.py").exists() else package.parent / "alembic"


def newest() -> str:
    """The step that this version needs, by the names of the files: `0007_what_it_is.py`."""
    return max(path.name.partition("_")[0] for path in scripts().glob("versions/[0-9]*_*.py"))
