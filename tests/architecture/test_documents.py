"""The documents of the repository: links lead somewhere, lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from yukta_rx.errors import ERRORS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
)
# Built from parts, so that this file does not name them itself.
MACHINE_PATHS = re.compile("/wo" + "rk/(main|shared)|/ro" + "ot/|/tmp/te" + "am")
TEXTS = {".py", ".md", ".toml", ".cfg", ".json", ".yml", ".yaml", ".txt", ""}


def anchors(page: Path) -> set[str]:
    found = set()
    for title in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", title.lower())
        found.add(plain.replace(" ", "-"))
    return found


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        other = (page.parent / path) if path else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_link_to_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Some title\n[a](gone.md) [b](#gone) [c](#some-title) [d](https://x.y/z)\n")

    assert broken_links(page) == ["gone.md", "#gone"]


def test_the_error_page_lists_every_code_with_its_class() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))

    assert listed == {code: cls.__name__ for code, cls in ERRORS.items()}


def project_files() -> list[Path]:
    skipped = {".venv", ".git", "build", "dist", "__pycache__"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and path.suffix in TEXTS
        and not any(part in skipped or part.endswith("_cache") for part in path.parts)
        and ".hypothesis" not in path.parts
        and not path.name.startswith(".coverage")
    ]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    naming = [
        str(path.relative_to(ROOT))
        for path in project_files()
        if MACHINE_PATHS.search(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert naming == []
