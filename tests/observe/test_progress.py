"""ProgressHistory: snapshots whose version only grows, for followers and for who comes late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.errors import NotFoundError
from yukta_rx.observe.progress import ProgressSnapshot
from yukta_rx.testing.clock import run_virtual, virtual_time


def snapshot(version: int, status: str = "RUNNING", **more: Any) -> ProgressSnapshot:
    return ProgressSnapshot.of(
        {"version": version, "execution": {"status": status}, "nodes": []} | more
    )


def versions(snapshots) -> list[int]:
    return [one.version for one in snapshots]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_23_a_snapshot_older_than_the_newest_is_dropped(new_scene) -> None:
    async with new_scene() as scene:
        history = scene.progress
        assert history.record("r1", snapshot(1))
        assert history.record("r1", snapshot(3))
        assert not history.record("r1", snapshot(2))
        assert not history.record("r1", snapshot(3))
        assert history.record("r1", snapshot(4, "SUCCESS"))
        # A delayed one of a run that has ended, whatever its version.
        assert not history.record("r1", snapshot(5, "RUNNING"))

        assert versions([one async for one in history.follow("r1")]) == [1, 3, 4]
        newest = history.newest("r1")
        assert newest is not None
        assert newest.as_dict()["execution"] == {"status": "SUCCESS"}


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_follower_goes_on_behind_the_version_it_has(new_scene, now) -> None:
    async with new_scene() as scene:
        for version in (1, 4, 6):
            scene.progress.record("r1", snapshot(version))

        with scene.progress.follow("r1", 4) as reader:
            assert [frame.id for frame in await now(reader)] == ["6"]
            scene.progress.record("r1", snapshot(9, "STOPPED"))
            frames = await now(reader)

        assert [(frame.id, frame.type) for frame in frames] == [("9", "execution.progress")]
        assert [one async for one in scene.progress.follow("r1", 9)] == []
        assert versions([one async for one in scene.progress.follow("r1", 5)]) == [6, 9]


@virtual_time
async def test_only_the_newest_snapshots_are_kept(new_scene) -> None:
    async with new_scene(streaming__status_history_max_per_run=3) as scene:
        scene.progress.record("r1", snapshot(1))
        reader = scene.progress.follow("r1")
        for version in range(2, 8):
            scene.progress.record("r1", snapshot(version))

        assert versions(scene.progress.history("r1")) == [5, 6, 7]
        # A follower needs the newest, not each of them, so there is no gap to tell.
        assert versions(await reader.take()) == [5, 6, 7]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_snapshots_of_an_ended_run_go_after_five_minutes(new_scene) -> None:
    async with new_scene() as scene:
        scene.progress.record("r1", snapshot(1, "SUCCESS"))
        scene.progress.record("r2", snapshot(1))
        await asyncio.sleep(299)
        assert scene.progress.newest("r1") is not None
        await asyncio.sleep(2)

        assert scene.progress.newest("r1") is None
        assert scene.progress.history("r1") == []
        with pytest.raises(NotFoundError, match="r1"):
            scene.progress.follow("r1")
        assert scene.progress.newest("r2") is not None


@virtual_time
async def test_beyond_so_many_runs_the_oldest_that_ended_goes(new_scene) -> None:
    async with new_scene(streaming__status_history_max_executions=2) as scene:
        for run in ("r1", "r2", "r3"):
            scene.progress.record(run, snapshot(1, "SUCCESS"))

        assert [scene.progress.newest(run) is not None for run in ("r1", "r2", "r3")] == [
            *(False, True, True)
        ]


@virtual_time
async def test_the_bytes_of_all_snapshots_are_bounded(new_scene) -> None:
    async with new_scene(streaming__status_history_max_bytes="50KiB") as scene:
        for version in range(1, 101):
            scene.progress.record("r1", snapshot(version, text="x" * 2000))

        assert scene.progress.budget.used <= 50 * 1024
        assert versions(scene.progress.history("r1"))[-1] == 100


@pytest.mark.feature("OBS-01")
@settings(deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3)), max_size=25),
    kept=st.integers(1, 5),
)
def test_case_23_versions_that_a_client_sees_never_go_back(new_scene, now, steps, kept) -> None:
    async def play() -> None:
        async with new_scene(streaming__status_history_max_per_run=kept) as scene:
            scene.progress.record("r1", snapshot(1))
            seen: list[int] = []
            reader = scene.progress.follow("r1")
            for version, what in steps:
                scene.progress.record("r1", snapshot(version))
                if what == 1:
                    seen += [int(frame.id) for frame in await now(reader)]
                elif what == 2 and seen:
                    reader.close()
                    reader = scene.progress.follow("r1", seen[-1])
            scene.progress.record("r1", snapshot(20, "SUCCESS"))
            seen += [one.version async for one in reader]

            assert seen == sorted(set(seen))
            assert seen[-1] == 20

    run_virtual(play())
