"""Crashes, with everything in PostgreSQL: as `test_crash.py`, with the stores of a database."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.crash_server import Shop
from tests.acceptance.random_workflows import uninterrupted
from tests.acceptance.test_crash import Found, Round
from tests.acceptance.test_postgres import new_database, postgres
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from pathlib import Path

    from yukta_rx.testing.postgres import PostgresServer

ROUNDS = int(os.environ.get("YUKTA_TEST_CRASHES", "5"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.durable,
    pytest.mark.timeout(240),
    pytest.mark.feature("DUR-01", "DUR-02", "DUR-03", "DUR-04", "CTL-04", "CTL-05"),
]

__all__ = ["postgres"]


class RoundOnPostgres(Round):
    """Servers on one database that are killed, all but the last.

    Args:
        seed: decides.
        folder: where files are that nodes read and write.
        address: where the shop is.
        url: the database.
    """

    def __init__(self, seed: str, folder: Path, address: str, url: str) -> None:
        super().__init__(seed, folder, address)
        self.settings |= {"YUKTA_PROFILE": "postgres", "YUKTA_POSTGRES_URL": url}


@pytest.mark.parametrize("seed", [f"crash-{n}" for n in range(ROUNDS)])
def test_what_was_acknowledged_outlives_crashes_and_the_rest_goes_on(
    seed: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    shop = Shop()

    async def play() -> tuple[Round, Found]:
        url = await new_database(postgres)
        async with shop.open() as address:
            made = RoundOnPostgres(seed, tmp_path / "data", address, url)
            return made, await made.play()

    made, found = asyncio.run(play())
    wholes, counts = run_virtual(uninterrupted(made.folder, made.wanted()))
    made.check(found, wholes, counts, shop)
