"""The feature page says what is there: no card drifts away from code, tests and settings."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from yukta_rx.config.load import catalogue
from yukta_rx.metrics import METERS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/features.md"
GROUPS = {
    "DEF": 3,
    "ENG": 7,
    "ADM": 3,
    "CTL": 8,
    "OBS": 5,
    "DUR": 5,
    "SCL": 2,
    "SEC": 3,
    "EXT": 3,
}
IDS = [f"{group}-{number:02}" for group, count in GROUPS.items() for number in range(1, count + 1)]
STATUSES = {"stable", "optional", "partial", "planned"}
# Keys of a start payload and names of spans: written like settings, but none.
NOT_SETTINGS = {
    "yukta.priority",
    "yukta.version",
    "yukta.depth",
    "yukta.parentExecutionId",
    "yukta.run",
    "yukta.node",
    "yukta.toml",
    "yukta.example.toml",
}


@dataclass(frozen=True)
class Card:
    id: str
    status: str
    text: str

    @property
    def source(self) -> str:
        found = re.search(r"^\*\*Source:\*\*(.*?)(?:\n\n|\Z)", self.text, re.MULTILINE | re.DOTALL)
        return found[1] if found else ""


def cards(page: str) -> list[Card]:
    found = []
    for heading in re.finditer(r"^### (\S+): .*$", page, re.MULTILINE):
        rest = page[heading.end() :]
        text = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
        status = re.match(r"\s*\*\*Status:\*\* (\S+)", text)
        found.append(Card(heading[1], status[1] if status else "none", text))
    return found


def retired(page: str) -> set[str]:
    section = page.partition("## Retired ids")[2]
    return set(re.findall(r"^- ([A-Z]{3}-\d\d)", section, re.MULTILINE))


def faults(page: str, tested: set[str], root: Path = ROOT) -> list[str]:
    """Everything in which the page differs from the code."""
    found = cards(page)
    ids = [card.id for card in found]
    problems = [f"{id} has no card" for id in IDS if id not in ids and id not in retired(page)]
    problems += [f"{id} has {ids.count(id)} cards" for id in sorted(set(ids)) if ids.count(id) > 1]
    problems += [f"{id} is no feature" for id in ids if id not in IDS]
    problems += [f"{id} is retired but has a card" for id in ids if id in retired(page)]
    for card in found:
        problems += card_faults(card, tested, root)
    problems += [
        f"`{name}` is neither setting nor meter"
        for name in sorted(set(re.findall(r"`((?:yukta|llm)\.[A-Za-z.-]+[A-Za-z])`", page)))
        if name not in catalogue() and name not in METERS and name not in NOT_SETTINGS
    ]
    return problems


def card_faults(card: Card, tested: set[str], root: Path) -> Iterator[str]:
    if card.status not in STATUSES:
        yield f"{card.id} has the unknown status {card.status}"
    if card.status != "planned" and card.id not in tested:
        yield f"{card.id} is {card.status} but no test is marked with it"
    cited = re.findall(r"`([^`]+)`", card.source)
    if card.status != "planned" and not cited:
        yield f"{card.id} is {card.status} but cites no source"
    for name in cited:
        if "/" in name:
            if not (root / name).exists():
                yield f"{card.id} cites {name}, which is gone"
        elif name not in defined_names():
            yield f"{card.id} cites `{name}`, which is defined nowhere"


def sources() -> list[Path]:
    return sorted((ROOT / "yukta_rx").rglob("*.py"))


@cache
def defined_names() -> frozenset[str]:
    names = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return frozenset(names)


def marked_ids() -> set[str]:
    return {
        id
        for path in (ROOT / "tests").rglob("test_*.py")
        for marks in re.findall(r"mark\.feature\(([^)]*)\)", path.read_text(encoding="utf-8"))
        for id in re.findall(r"[A-Z]{3}-\d\d", marks)
    }


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tested() -> set[str]:
    return marked_ids()


def test_the_feature_page_agrees_with_the_code(page: str, tested: set[str]) -> None:
    assert faults(page, tested) == []


def test_every_id_that_a_test_carries_is_a_feature(tested: set[str]) -> None:
    assert tested - set(IDS) == set()


def test_every_id_that_a_module_names_is_a_feature() -> None:
    named = {
        id
        for path in sources()
        for line in re.findall(r"Features?: ([A-Z0-9, -]+)", path.read_text(encoding="utf-8"))
        for id in re.findall(r"[A-Z]{3}-\d\d", line)
    }

    assert named - set(IDS) == set()


def test_every_setting_and_meter_belongs_to_features_that_exist() -> None:
    owners = {id for setting in catalogue().values() for id in setting.features}
    owners |= {id for meter in METERS.values() for id in meter.features}

    assert owners <= set(IDS)


def test_every_setting_is_named_by_a_card_that_owns_it(page: str) -> None:
    texts = {card.id: card.text for card in cards(page)}

    missing = [
        setting.name
        for setting in catalogue().values()
        if not any(f"`{setting.name}" in texts.get(id, "") for id in setting.features)
    ]

    assert missing == []


def test_every_meter_is_named_by_a_card_that_owns_it(page: str) -> None:
    texts = {card.id: card.text for card in cards(page)}

    missing = [
        meter.name
        for meter in METERS.values()
        if not any(f"`{meter.name}`" in texts.get(id, "") for id in meter.features)
    ]

    assert missing == []


def test_every_setting_that_the_code_speaks_of_is_declared() -> None:
    spoken = {
        name
        for path in sources()
        for name in re.findall(
            r"\b(yukta\.[a-z][a-z0-9.-]*[a-z0-9])\b(?![.\w-])", path.read_text(encoding="utf-8")
        )
    }
    known = {*catalogue(), *METERS, *NOT_SETTINGS}
    maps = tuple(f"{name}." for name, setting in catalogue().items() if setting.is_map)

    unknown = [
        name
        for name in sorted(spoken)
        if name not in known
        and not name.startswith(maps)
        and not any(other.startswith(f"{name}.") for other in known)
    ]

    assert unknown == []


# --- the check itself ----------------------------------------------------------------------------


def test_the_check_sees_a_missing_card(page: str, tested: set[str]) -> None:
    broken = page.replace("### ENG-03:", "#### ENG-03:")

    assert "ENG-03 has no card" in faults(broken, tested)


def test_the_check_sees_a_card_that_is_there_twice(page: str, tested: set[str]) -> None:
    broken = page + "\n### ENG-03: Again\n\n**Status:** planned\n"

    assert "ENG-03 has 2 cards" in faults(broken, tested)


def test_the_check_sees_an_id_that_is_retired(page: str, tested: set[str]) -> None:
    broken = page.replace("## Retired ids", "## Retired ids\n\n- ENG-03 in 2026\n")

    assert "ENG-03 is retired but has a card" in faults(broken, tested)


def test_the_check_sees_an_unknown_status(page: str, tested: set[str]) -> None:
    broken = page.replace("**Status:** planned", "**Status:** soon", 1)

    assert any("unknown status soon" in fault for fault in faults(broken, tested))


def test_the_check_sees_a_card_without_a_test(page: str, tested: set[str]) -> None:
    assert any("ENG-01 is" in fault for fault in faults(page, tested - {"ENG-01"}))


@pytest.mark.parametrize("source", ["`yukta_rx/gone.py`", "`GoneClass`"])
def test_the_check_sees_a_source_that_is_gone(source: str, page: str, tested: set[str]) -> None:
    broken = page.replace("**Source:** ", f"**Source:** {source} ", 1)

    assert any(source.strip("`") in fault for fault in faults(broken, tested))


def test_the_check_sees_a_setting_that_does_not_exist(page: str, tested: set[str]) -> None:
    broken = page + "\n`yukta.execution.gone`\n"

    assert "`yukta.execution.gone` is neither setting nor meter" in faults(broken, tested)
