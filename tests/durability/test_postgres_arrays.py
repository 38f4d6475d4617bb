"""Columns that are given to PostgreSQL as texts come out as what they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from yukta_rx.durability.postgres._arrays import (
    arrays,
    flags,
    long_texts,
    numbers,
    texts,
    texts_or_none,
    times,
)

pytestmark = pytest.mark.feature("DUR-04")

ODD = (
    "",
    " ",
    "NULL",
    "null",
    "a,b",
    "{a}",
    '"',
    '""',
    "\\",
    '\\"',
    "\\\\",
    "\n\t",
    "é\u2028𝄞",
    "'",
)

QUERY = """
SELECT * FROM unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::text::bool[],
    $5::text::timestamptz[], $6::text::timestamptz[], $7::text[])
"""
TIME = datetime(2026, 3, 1, 12, 0, 0, 125_001, tzinfo=UTC)


async def test_what_is_given_as_text_comes_out_as_it_was(postgres) -> None:
    rows = [
        (
            one,
            None if n % 3 == 0 else one,
            (-(2**63), 2**63 - 1, 0)[n % 3],
            n % 2 == 0,
            (TIME + timedelta(days=n)).astimezone(timezone(timedelta(hours=n % 5 - 2))),
            None if n % 3 else datetime(2026, 3, n + 1, tzinfo=UTC),
            one * 100,
        )
        for n, one in enumerate(ODD)
    ]
    given = arrays(rows, texts, texts_or_none, numbers, flags, times, times, long_texts)

    assert [tuple(row) for row in await postgres.fetch(QUERY, *given)] == rows


async def test_no_rows_are_no_rows(postgres) -> None:
    given = arrays([], texts, texts_or_none, numbers, flags, times, times, long_texts)

    assert await postgres.fetch(QUERY, *given) == []
