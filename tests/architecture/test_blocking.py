"""The watch over the event loop that tests/conftest.py sets up."""

from __future__ import annotations

import time

import pytest
from blockbuster import BlockingError

from yukta_rx.config import load
from yukta_rx.config.load import load_settings


async def test_code_of_ours_that_sleeps_on_the_loop_is_noticed() -> None:
    program = compile("def nap():\n    time.sleep(0)\n", load.__file__, "exec")
    ours: dict[str, object] = {"time": time}
    exec(program, ours)
    nap = ours["nap"]
    assert callable(nap)

    with pytest.raises(BlockingError):
        nap()


async def test_settings_may_be_read_inside_a_test() -> None:
    assert load_settings("/dev/null", environ={}).execution.prefetch == 64
