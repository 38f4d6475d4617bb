"""What every test shares: code of ours that blocks the event loop fails the test."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

if TYPE_CHECKING:
    from collections.abc import Iterator

# Done once before a loop runs; a test may do it inside its own.
BEFORE_THE_LOOP = (
    # The driver looks for certificates and passwords in the home folder whenever it connects.
    ("yukta_rx/durability/postgres/database.py", {"__aenter__", "connect", "_acquired", "_read"}),
    # A loop of its own, in a thread or in a command.
    (
        "yukta_rx/durability/postgres/migrate.py",
        {"work", "_connected", "_connect", "_asked", "compare"},
    ),
    ("yukta_rx/config/load.py", {"load_settings"}),
    ("yukta_rx/plugins/registry.py", {"load"}),
)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control has what it runs behind it ignore Ctrl-C, and whoever is started
    # by a test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Raise BlockingError when yukta_rx sleeps, reads or waits on the thread of an event loop."""
    with blockbuster_ctx("yukta_rx") as active:
        for function in active.functions.values():
            for file, names in BEFORE_THE_LOOP:
                function.can_block_in(file, names)
        yield active
