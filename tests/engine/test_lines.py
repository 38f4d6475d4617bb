"""LineRelay: lines from threads reach the loop in order, fairly, and what is missing is told."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from yukta_rx.engine.lines import WAITING, LineRelay

pytestmark = [pytest.mark.feature("EXT-02"), pytest.mark.feature("OBS-02")]


def written(*bursts: tuple[str, int]) -> tuple[LineRelay, list[tuple[str, str]]]:
    """What comes of some lines that a thread writes while the loop does not get to them."""
    said: list[tuple[str, str]] = []

    def emit(node_id: str, data: dict[str, Any]) -> None:
        said.append((node_id, data["line"]))

    loop = asyncio.new_event_loop()
    relay = LineRelay(loop, emit)

    def write() -> None:
        for node_id, n in bursts:
            for number in range(n):
                relay.write(node_id, str(number), "stdout")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    return relay, said


def test_a_thread_that_writes_without_end_costs_another_node_no_line() -> None:
    relay, said = written(("chatty", WAITING + 500), ("quiet", 300), ("chatty", 7))

    quiet = [line for node, line in said if node == "quiet"]
    assert quiet == [str(number) for number in range(300)]
    chatty = [line for node, line in said if node == "chatty"]
    assert chatty == [*(str(number) for number in range(WAITING)), "507 lines dropped here"]
    assert relay.dropped == 507
    assert relay.losses() == {"droppedLines": 507}


def test_up_to_the_bound_no_line_is_dropped() -> None:
    relay, said = written(("a", WAITING))

    assert len(said) == WAITING
    assert relay.losses() == {}
