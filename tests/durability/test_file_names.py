"""File names of ids: one for each, on any file system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.durability.file._names import id_of, name_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DEF-01")

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
DEVICES = (
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{name}{n}" for name in ("com", "lpt") for n in range(10)),
)
HARD = st.sampled_from([*DEVICES, "Con", "con.json", "nul.", "a.", "A", "a", "A" * 128, "a" * 128])


@given(IDS | HARD)
def test_a_name_leads_back_to_its_id_and_is_legal_everywhere(legal_id: str) -> None:
    name = name_of(legal_id)

    assert id_of(name) == legal_id
    assert re.fullmatch(r"[A-Za-z0-9._%~-]+", name)
    assert len(name) <= 250 - len(".json")
    assert not name.endswith(".")
    assert not name.startswith(".")
    assert name.split(".")[0].lower() not in DEVICES


@given(IDS | HARD, IDS | HARD)
def test_two_ids_never_share_a_name_whatever_the_case(first: str, second: str) -> None:
    for other in (second, first.swapcase(), first.lower()):
        same = name_of(first).casefold() == name_of(other).casefold()
        assert same == (first == other)


@given(IDS)
def test_names_that_others_gave_lead_to_the_id_too(legal_id: str) -> None:
    assert id_of(legal_id) == legal_id
    assert id_of("".join(f"%{ord(letter):02x}" for letter in legal_id)) == legal_id


@pytest.mark.parametrize(
    "name", ["", ".git", "a b", "%2e%2e", "..", "a%2Fb", "é", "a~x", "~1", "%"]
)
def test_other_names_stand_for_no_id(name: str) -> None:
    assert id_of(name) is None


def test_a_long_name_of_capitals_fits_a_file_system(tmp_path: Path) -> None:
    legal_id = "Con" + "A" * 125

    (tmp_path / f"{name_of(legal_id)}.json").write_text("x")

    assert [id_of(path.stem) for path in tmp_path.iterdir()] == [legal_id]
