"""The payloads that are open in the runs of a process: shared for a moment, and bounded."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.engine.claims import KEPT, SECONDS, RunClaims
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.claim import Claim
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from yukta_rx.model.codec import Blob

pytestmark = pytest.mark.feature("DUR-02")

PART = KEPT // 8


class Payload:
    """What a blob stands for here."""


class Source:
    """Payloads by their names, however large they say they are."""

    claim_bytes = 1000

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.alive: weakref.WeakSet[Payload] = weakref.WeakSet()
        self.gone: set[str] = set()

    async def payload(self, blob: Blob) -> Any:
        self.reads[blob.sha256] += 1
        await asyncio.sleep(0.001)
        if blob.sha256 in self.gone:
            raise StoreUnavailableError(f"blob {blob.sha256} is missing", sha256=blob.sha256)
        payload = Payload()
        self.alive.add(payload)
        return payload

    def claim(self, name: str, size: int = PART) -> Claim:
        return Claim(name, size, reader=self.payload)


@virtual_time
async def test_who_wants_a_payload_within_a_moment_shares_it() -> None:
    source = Source()
    run = RunClaims(source)
    first, second = await asyncio.gather(run.open(source.claim("a")), run.open(source.claim("a")))
    await asyncio.sleep(SECONDS * 0.7)
    third = await run.open(source.claim("a"))
    await asyncio.sleep(SECONDS * 0.7)
    assert first is second is third is await run.open(source.claim("a"))
    del first, second, third
    await asyncio.sleep(SECONDS * 1.1)

    assert source.reads == {"a": 1}
    assert len(source.alive) == 0


@virtual_time
async def test_runs_share_nothing_but_the_bound() -> None:
    source = Source()
    runs = [RunClaims(source) for _ in range(40)]
    for run in runs:
        await run.open(source.claim("a"))
    assert source.reads == {"a": 40}
    assert len(source.alive) == KEPT // PART

    # The last ones are still open, the first is not.
    for run in (runs[-1], runs[0]):
        await run.open(source.claim("a"))
    assert source.reads == {"a": 41}
    await asyncio.sleep(SECONDS * 1.1)
    assert len(source.alive) == 0


@virtual_time
async def test_one_that_is_larger_than_the_bound_is_open_all_the_same() -> None:
    source = Source()
    run, other = RunClaims(source), RunClaims(source)
    await run.open(source.claim("a"))
    await other.open(source.claim("large", 2 * KEPT))
    await other.open(source.claim("large", 2 * KEPT))
    assert source.reads == {"a": 1, "large": 1}
    assert len(source.alive) == 1
    await run.open(source.claim("a"))
    assert source.reads == {"a": 2, "large": 1}
    assert len(source.alive) == 1


@virtual_time
async def test_one_that_cannot_be_read_is_asked_for_again() -> None:
    source = Source()
    run = RunClaims(source)
    source.gone.add("a")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="blob a is missing"):
            await run.open(source.claim("a"))
    source.gone.clear()
    assert isinstance(await run.open(source.claim("a")), Payload)
    assert source.reads == {"a": 3}


@virtual_time
async def test_who_is_cancelled_cancels_it_for_nobody_else() -> None:
    source = Source()
    run = RunClaims(source)
    first = asyncio.ensure_future(run.open(source.claim("a")))
    second = asyncio.ensure_future(run.open(source.claim("a")))
    await asyncio.sleep(0)
    first.cancel()
    assert isinstance(await second, Payload)
    assert first.cancelled()
    assert source.reads == {"a": 1}


def test_what_is_open_keeps_no_loop_alive() -> None:
    source = Source()

    async def one() -> None:
        await RunClaims(source).open(source.claim("a"))

    loop = asyncio.new_event_loop()
    loop.run_until_complete(one())
    loop.close()
    known = weakref.ref(loop)
    del loop
    gc.collect()

    assert known() is None
    assert len(source.alive) == 0
