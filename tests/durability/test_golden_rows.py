"""Rows that older versions wrote are read by this one: a committed sample of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.durability.test_golden import covers
from tests.golden_rows.write import EXPECTED, HERE, ROWS, dump, fill, load, read

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.feature("DUR-04"), pytest.mark.durable]

SAMPLES = sorted(path for path in HERE.iterdir() if path.is_dir() and path.name[0] not in "._")


def parsed(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
async def test_rows_that_were_written_then_are_read_today(sample: Path, postgres: Any) -> None:
    await load(postgres, parsed(sample / ROWS))

    assert covers(await read(postgres), parsed(sample / EXPECTED)) == []


async def test_what_is_written_today_is_what_the_newest_sample_expects(postgres: Any) -> None:
    await fill(postgres)
    rows = await dump(postgres)

    assert parsed(SAMPLES[-1] / ROWS).keys() <= rows.keys()
    assert covers(await read(postgres), parsed(SAMPLES[-1] / EXPECTED)) == []
