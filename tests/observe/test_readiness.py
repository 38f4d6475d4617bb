"""What a server says of itself before it takes requests, and when a store is down."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.errors import StoreUnavailableError
from yukta_rx.observe.readiness import FRESH, PATIENCE, Readiness
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("DUR-05", "OBS-04")


class Disk:
    """A store that answers, refuses or says nothing, as it is told."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self.silent = False
        self.asked = 0

    async def check(self) -> None:
        self.asked += 1
        if self.silent:
            await asyncio.sleep(3600)
        if self.fault is not None:
            raise StoreUnavailableError(self.fault)


def started() -> Readiness:
    readiness = Readiness()
    readiness.started()
    return readiness


@virtual_time
async def test_until_it_has_started_it_recovers() -> None:
    readiness = Readiness()

    before = await readiness.fault()
    with readiness.during("recovering 3 runs"):
        meanwhile = readiness.waits_for
        readiness.started()
        still = readiness.waits_for
    after = await readiness.fault()

    assert before is not None
    assert (before.code, before.detail) == ("recovering", "the server is starting")
    assert meanwhile is not None
    assert meanwhile.detail == "the server is starting, recovering 3 runs"
    assert still is not None
    assert still.detail == "the server is recovering 3 runs"
    assert after is None


@virtual_time
async def test_a_store_that_is_down_is_named_and_what_is_wrong_is_for_those_with_a_key() -> None:
    readiness, disk = started(), Disk()
    readiness.watch("session", disk.check)
    disk.fault = "/data/session: no space left on device"

    fault = await readiness.fault()

    assert fault is not None
    assert (fault.code, fault.members["stores"]) == ("store_unavailable", ["session"])
    assert "session" in fault.detail
    assert "/data" not in fault.detail
    assert await readiness.down() == {"session": disk.fault}


@virtual_time
async def test_a_store_is_tried_now_and_then_however_often_somebody_asks() -> None:
    readiness, disk = started(), Disk()
    readiness.watch("session", disk.check)

    for _ in range(100):
        assert await readiness.fault() is None
    asked = disk.asked
    disk.fault = "gone"
    await asyncio.sleep(FRESH)
    down = await readiness.down()
    disk.fault = None
    await asyncio.sleep(FRESH)

    assert (asked, down) == (1, {"session": "gone"})
    assert await readiness.fault() is None
    assert disk.asked == 3


@virtual_time
async def test_a_store_that_hangs_is_down_and_asked_only_once_and_the_others_are_not() -> None:
    readiness, hangs, well = started(), Disk(), Disk()
    hangs.silent = True
    readiness.watch("session", hangs.check)
    readiness.watch("kv", well.check)
    began = asyncio.get_running_loop().time()

    down = await readiness.down()
    waited = asyncio.get_running_loop().time() - began
    await asyncio.sleep(FRESH)
    again = await readiness.down()
    await readiness.close()

    assert down == again == {"session": f"gives no answer for {PATIENCE:g} s"}
    assert waited == pytest.approx(PATIENCE)
    assert (hangs.asked, well.asked) == (1, 2)


@virtual_time
async def test_a_part_that_knows_its_fault_is_asked_each_time() -> None:
    readiness = started()
    faults: list[str | None] = ["full", None]
    readiness.check("execution-log", lambda: faults.pop(0))

    assert await readiness.down() == {"execution-log": "full"}
    assert await readiness.down() == {}


@virtual_time
async def test_the_log_says_once_what_is_wrong_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    readiness, disk = started(), Disk()
    readiness.watch("session", disk.check)

    for disk.fault in ("full", "full", None, None):
        await readiness.down()
        await asyncio.sleep(FRESH)

    assert [record.getMessage() for record in caplog.records] == [
        "store session cannot be used: full",
        "store session can be used again",
    ]
