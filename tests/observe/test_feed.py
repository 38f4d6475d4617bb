"""EventFeed: facts in order, each once, or told; samples newest first and merged."""

from __future__ import annotations

import asyncio

import pytest

from yukta_rx.errors import BadRequestError, CursorExpiredError, TooManyStreamsError
from yukta_rx.observe.event_ids import base36, parse_id
from yukta_rx.observe.filters import EventFilter
from yukta_rx.testing.clock import virtual_time


def types(frames) -> list[str]:
    return [frame.type for frame in frames]


# -- hello and live


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_the_first_frame_is_hello(new_scene, data) -> None:
    async with new_scene() as scene:
        scene.publish(1, 2)

        with scene.feed.subscribe(EventFilter.parse(type=["node.*"]), coalesce_ms=200) as stream:
            [hello] = await stream.frames()

        assert hello.type == "stream.hello"
        assert (hello.id, hello.retry) == ("e:2", 2000)
        assert data(hello) == {
            "epoch": "e",
            "headSeq": 2,
            "oldestSeq": 1,
            "leader": True,
            "filters": {"type": ["node.*"]},
            "retryMs": 2000,
            "coalesceMs": 200,
        }


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_fact_comes_as_one_object_with_its_id(new_scene, data, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.publish(7)
            _, fact = await now(stream)

        assert fact.id == "e:1"
        assert data(fact) == {
            "id": "e:1",
            "type": "node.status",
            "time": "2026-01-01T00:00:00.000Z",
            "sessionId": "s",
            "workflowId": "w",
            "executionId": "r1",
            "nodeId": "n",
            "data": {"n": 7},
        }


@virtual_time
async def test_numbers_grow_by_one_per_event_before_any_filter(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(EventFilter.parse(execution_id=["r2"])) as stream:
            scene.publish(1, run="r1")
            scene.publish(2, run="r2")
            scene.publish(3, run="r1")
            scene.publish(4, run="r2")

            assert [frame.id for frame in await now(stream)] == ["e:0", "e:2", "e:4"]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_an_event_is_encoded_once_for_all(new_scene, now) -> None:
    async with new_scene() as scene:
        streams = [scene.feed.subscribe() for _ in range(3)]
        scene.publish(1)
        frames = [(await now(stream))[1] for stream in streams]

        assert frames[0] is frames[1] is frames[2]
        assert frames[0].sse() is frames[1].sse()


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_26_every_subscriber_gets_every_event(new_scene, now, numbers) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as one, scene.feed.subscribe() as two:
            scene.publish(1, 2)
            first = await now(one)
            scene.publish(3)

            assert numbers(first + await now(one)) == [1, 2, 3]
            assert numbers(await now(two)) == [1, 2, 3]


@virtual_time
async def test_iterating_gives_frame_by_frame(new_scene) -> None:
    async with new_scene() as scene:
        scene.publish(1)
        with scene.feed.subscribe(after="e:0") as stream:
            scene.feed.close("bye")

            assert [frame.type async for frame in stream] == [
                "stream.hello",
                "node.status",
                "stream.closing",
            ]


@virtual_time
async def test_a_read_that_is_cancelled_loses_nothing(new_scene, now, numbers) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            await now(stream)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await stream.frames()
            scene.publish(1)

            assert numbers(await now(stream)) == [1]


@virtual_time
async def test_a_subscription_has_one_consumer(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            await now(stream)
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(stream.frames())
                await asyncio.sleep(0)
                with pytest.raises(RuntimeError, match="one consumer"):
                    await stream.frames()
                stream.close()

            assert waiting.result() == []


# -- resume


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_27_resuming_goes_on_behind_the_last_id_while_events_flow(
    new_scene, now, numbers
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as first:
            scene.publish(*range(1, 6))
            last = (await now(first))[-1]
        assert last.id == "e:5"
        scene.publish(6, 7)

        with scene.feed.subscribe(after=last.id) as again:
            scene.publish(8)
            hello, *rest = await now(again)
            scene.publish(9)
            rest += await now(again)

        assert hello.id == "e:5"
        assert numbers(rest) == [6, 7, 8, 9]
        assert [frame.id for frame in rest] == ["e:6", "e:7", "e:8", "e:9"]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_the_id_of_hello_is_a_place_to_resume(new_scene, now, numbers) -> None:
    async with new_scene() as scene:
        scene.publish(1)
        with scene.feed.subscribe() as first:
            [hello] = await now(first)
        scene.publish(2)

        with scene.feed.subscribe(after=hello.id) as again:
            assert numbers(await now(again)) == [2]


@pytest.mark.feature("OBS-01")
@pytest.mark.parametrize("after", ["old:3", "e:99", "", "nonsense", "e:", "e:-1", "e:1x", "e:१"])
@virtual_time
async def test_case_27_an_id_of_another_life_gives_one_reset_then_live(
    new_scene, now, data, numbers, after
) -> None:
    async with new_scene() as scene:
        scene.publish(1, 2)
        with scene.feed.subscribe(after=after) as stream:
            scene.publish(3)
            frames = await now(stream)

        assert types(frames) == ["stream.hello", "stream.reset", "node.status"]
        assert data(frames[1]) == {"reason": "epoch", "oldestSeq": 1}
        assert frames[1].id == "e:2"
        assert numbers(frames) == [3]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_an_id_that_left_the_ring_gives_one_reset(new_scene, now, data, numbers) -> None:
    async with new_scene(streaming__replay_events=3) as scene:
        scene.publish(*range(1, 6))

        with (
            scene.feed.subscribe(after="e:1") as evicted,
            scene.feed.subscribe(after="e:2") as kept,
        ):
            scene.publish(6)
            frames = await now(evicted)

            assert types(frames) == ["stream.hello", "stream.reset", "node.status"]
            assert data(frames[1]) == {"reason": "evicted", "oldestSeq": 3}
            # Meanwhile 3 has left the ring, which counts as not read in time.
            gap, *rest = (await now(kept))[1:]
            assert data(gap) == {"from": 3, "to": 3, "dropped": 1, "reason": "slow-consumer"}
            assert numbers(rest) == [4, 5, 6]


@virtual_time
async def test_what_is_replayed_may_be_more_than_the_queue_holds(new_scene, now, numbers) -> None:
    async with new_scene() as scene:
        scene.publish(*range(1, 1001))

        with scene.feed.subscribe(after="e:0", capacity=10) as stream:
            scene.publish(*range(1001, 1011))

            assert numbers(await now(stream)) == list(range(1, 1011))


# -- slow subscribers


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_a_slow_subscriber_loses_the_oldest_and_is_told(
    new_scene, now, data, numbers
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(capacity=4) as stream:
            scene.publish(*range(1, 11))
            hello, gap, *rest = await now(stream)

            assert (hello.type, gap.type, gap.id) == ("stream.hello", "stream.gap", "e:6")
            assert data(gap) == {"from": 1, "to": 6, "dropped": 6, "reason": "slow-consumer"}
            assert numbers(rest) == [7, 8, 9, 10]
            assert stream.dropped == 6
            assert scene.count("yukta.tracker.dropped", type="event", kind="sse") == 6


@virtual_time
async def test_a_gap_counts_only_what_was_wanted(new_scene, now, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(EventFilter.parse(execution_id=["r2"]), capacity=1) as stream:
            for number in range(1, 5):
                scene.publish(number, run="r1")
                scene.publish(number, run="r2")

            gap = (await now(stream))[1]
            assert data(gap) == {"from": 2, "to": 6, "dropped": 3, "reason": "slow-consumer"}


@virtual_time
async def test_who_catches_up_has_the_usual_room_again(new_scene, now, numbers, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(capacity=2) as stream:
            scene.publish(1, 2, 3)
            await now(stream)
            scene.publish(4, 5)
            assert numbers(await now(stream)) == [4, 5]
            scene.publish(6, 7, 8)

            gap, *rest = await now(stream)
            assert data(gap)["dropped"] == 1
            assert numbers(rest) == [7, 8]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_29_who_never_reads_costs_no_more_than_the_ring(new_scene, now, numbers) -> None:
    async with new_scene(
        streaming__replay_events=500, streaming__replay_max_bytes="100KiB"
    ) as scene:
        stalled = [scene.feed.subscribe() for _ in range(50)]
        seen: list[int] = []
        with scene.feed.subscribe() as healthy:
            for number in range(1, 10_001):
                scene.feed.publish(scene.event("node.status", "n", n=number, line="x" * 1000))
                if number % 50 == 0:
                    seen += numbers(await now(healthy))

        # The others are not affected, the memory is that of the ring, and each loss is counted.
        assert seen == list(range(1, 10_001))
        assert scene.feed._ring.weight <= 100 * 1024
        assert all(len(stream._pending) <= 256 for stream in stalled)
        assert scene.count("yukta.tracker.dropped", type="event", kind="sse") == 50 * (10_000 - 256)


@virtual_time
async def test_case_29_large_events_leave_the_ring_early_and_are_told(
    new_scene, now, data, numbers
) -> None:
    async with new_scene(streaming__replay_max_bytes="64KiB") as scene:
        with scene.feed.subscribe() as stream:
            for number in range(1, 11):
                scene.feed.publish(scene.event("node.status", "n", n=number, line="x" * 20_000))
            _, gap, *rest = await now(stream)

        assert data(gap) == {"from": 1, "to": 7, "dropped": 7, "reason": "slow-consumer"}
        assert numbers(rest) == [8, 9, 10]


@virtual_time
async def test_an_event_larger_than_the_ring_is_still_delivered(new_scene, now, numbers) -> None:
    async with new_scene(streaming__replay_max_bytes="1KiB") as scene:
        with scene.feed.subscribe() as stream:
            scene.feed.publish(scene.event("node.status", "n", n=1, line="x" * 20_000))

            assert numbers(await now(stream)) == [1]


# -- samples


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_samples_are_merged_newest_wins_and_come_once_per_interval(
    new_scene, now, data
) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(coalesce_ms=500) as stream:
            scene.feed.publish(scene.event("node.stats", "a", n=0))
            first = [frame for frame in await now(stream) if frame.type == "node.stats"]
            for n in range(1, 100):
                scene.feed.publish(scene.event("node.stats", "a", n=n))
                scene.feed.publish(scene.event("node.stats", "b", n=n))
            assert await now(stream) == []
            await asyncio.sleep(0.5)
            second = await now(stream)

        assert [data(frame)["data"]["n"] for frame in first] == [0]
        assert [(data(f)["nodeId"], data(f)["data"]["n"]) for f in second] == [("a", 99), ("b", 99)]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_samples_have_no_number_and_take_none(new_scene, now, data) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            scene.feed.publish(scene.event("node.stats", "a", n=0))
            scene.publish(1)
            frames = await now(stream)

        assert scene.feed.head_seq == 1
        assert [(frame.type, frame.id) for frame in frames[1:]] == [
            ("node.status", "e:1"),
            ("node.stats", None),
        ]
        assert "id" not in data(frames[2])


@virtual_time
async def test_edges_with_several_ports_are_samples_of_their_own(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            for port in ("x", "y"):
                edge = {"source": "a", "target": "b", "sourcePort": port}
                scene.feed.publish(scene.event("edge.stats", None, **edge))
                scene.feed.publish(scene.event("edge.stats", None, **edge))

            assert types(await now(stream)) == ["stream.hello", "edge.stats", "edge.stats"]


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_23_the_last_samples_of_a_run_come_before_its_end(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(coalesce_ms=10_000) as stream:
            scene.feed.publish(scene.event("node.stats", "a", n=0))
            await now(stream)
            scene.feed.publish(scene.event("node.stats", "a", n=1))
            scene.feed.publish(scene.event("node.stats", "a", "r2", n=1))
            scene.feed.publish(scene.event("execution.finished", status="SUCCESS"))
            frames = await now(stream)
            await asyncio.sleep(10)
            later = await now(stream)

        assert types(frames) == ["node.stats", "execution.finished"]
        assert [(frame.type, b'"r2"' in frame.data) for frame in later] == [("node.stats", True)]


@virtual_time
async def test_a_newcomer_gets_the_samples_that_others_have(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as old:
            scene.feed.publish(scene.event("node.stats", "a", n=1))
            await now(old)
            with scene.feed.subscribe() as new:
                assert types(await now(new)) == ["stream.hello", "node.stats"]


@virtual_time
async def test_old_samples_are_not_kept_when_nobody_takes_new_ones(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe():
            scene.feed.publish(scene.event("node.stats", "a", n=1))

        with scene.feed.subscribe() as new:
            assert types(await now(new)) == ["stream.hello"]


@virtual_time
async def test_samples_that_nobody_reads_are_bounded(new_scene, monkeypatch) -> None:
    monkeypatch.setattr("yukta_rx.observe.subscription.MAX_SAMPLES", 10)
    async with new_scene() as scene:
        with scene.feed.subscribe() as stream:
            for n in range(25):
                scene.feed.publish(scene.event("node.stats", f"n{n}"))

            assert len(stream._samples) == 10
            assert scene.count("yukta.tracker.dropped", type="sample", kind="sse") == 15


@pytest.mark.parametrize("ms", [99, 10_001, 0, -5])
@virtual_time
async def test_an_interval_out_of_range_is_refused(new_scene, ms) -> None:
    async with new_scene() as scene:
        with pytest.raises(BadRequestError, match="coalesceMs"):
            scene.feed.subscribe(coalesce_ms=ms)
        assert scene.feed.cap.open == 0


# -- the end, heartbeats, the cap


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_closing_gives_what_waits_then_closing_then_the_end(
    new_scene, now, data, numbers
) -> None:
    async with new_scene() as scene:
        stream = scene.feed.subscribe()
        scene.publish(1, 2)
        scene.feed.publish(scene.event("node.stats", "a", n=1))
        scene.feed.close("shutdown")
        scene.publish(3)
        frames = await now(stream)

        assert types(frames)[1:] == ["node.status", "node.status", "node.stats", "stream.closing"]
        assert data(frames[-1]) == {"reason": "shutdown"}
        assert frames[-1].retry == 1000
        assert await stream.frames() == []
        assert stream.closed
        assert scene.feed.cap.open == 0


@virtual_time
async def test_who_comes_after_closing_is_told_and_ends(new_scene, now) -> None:
    async with new_scene() as scene:
        scene.feed.close("shutdown")
        stream = scene.feed.subscribe()

        assert types(await now(stream)) == ["stream.hello", "stream.closing"]
        assert stream.closed


@virtual_time
async def test_a_heartbeat_says_how_far_the_feed_is_and_moves_the_place(
    new_scene, now, data
) -> None:
    async with new_scene() as scene:
        wanted = EventFilter.parse(execution_id=["r2"])
        with scene.feed.subscribe(wanted, heartbeat=True) as stream:
            scene.publish(1, 2, 3)
            await now(stream)
            await asyncio.sleep(5)
            [beat] = await now(stream)

            assert (beat.type, beat.id, data(beat)) == ("stream.heartbeat", "e:3", {"headSeq": 3})


@virtual_time
async def test_heartbeats_are_not_sent_unasked_and_do_not_pile_up(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe() as quiet, scene.feed.subscribe(heartbeat=True) as beating:
            await asyncio.sleep(60)

            assert types(await now(quiet)) == ["stream.hello"]
            assert types(await now(beating)) == ["stream.hello", "stream.heartbeat"]


class Wire:
    """Takes what is written for a stream that has everything, unless it is stuck."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.stuck = False
        self.pack = joined

    def take(self, data: bytes) -> bool:
        if not self.stuck:
            self.got.append(data)
        return not self.stuck


def joined(frames) -> bytes:
    return b"".join([frame.sse() for frame in frames])


@virtual_time
async def test_streams_that_wait_get_a_heartbeat_in_one_piece_and_keep_waiting(
    new_scene, now, settled
) -> None:
    async with new_scene() as scene, asyncio.TaskGroup() as group:
        wires = [Wire(), Wire(), Wire(), Wire()]
        streams = [scene.feed.subscribe(heartbeat=wire is not wires[0]) for wire in wires]
        waiting = []
        for stream, wire in zip(streams, wires, strict=True):
            stream.connect(wire)
            assert types(await stream.frames()) == ["stream.hello"]
            waiting.append(group.create_task(stream.frames()))
        await settled()
        scene.publish(1)
        await asyncio.sleep(1)
        wires[3].stuck = True
        await asyncio.sleep(9)

        beat = b'id: e:1\nevent: stream.heartbeat\ndata: {"headSeq":1}\n\n'
        assert [len(wire.got) for wire in wires] == [1, 3, 3, 1]
        assert wires[1].got[1:] == [beat, beat]
        assert all(a is b for a, b in zip(wires[1].got, wires[2].got, strict=True))
        # One that takes nothing gets it by its own task.
        assert [types(task.result()) for task in waiting if task.done()] == [["stream.heartbeat"]]
        for stream in streams:
            stream.close()
        assert not scene.feed.heart.beating


@virtual_time
async def test_the_position_is_where_to_resume(new_scene, now) -> None:
    async with new_scene() as scene:
        with scene.feed.subscribe(EventFilter.parse(execution_id=["r2"]), capacity=2) as stream:
            scene.publish(1, run="r1")
            assert stream.position == "e:1"
            scene.publish(2, run="r2")
            assert stream.position == "e:1"
            scene.publish(3, 4, run="r2")
            assert stream.position == "e:1"
            await now(stream)
            assert stream.position == "e:4"


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_beyond_the_cap_no_stream_is_opened(new_scene) -> None:
    async with new_scene(streaming__max_streams=2) as scene:
        one = scene.feed.subscribe()
        with scene.feed.cap:
            with pytest.raises(TooManyStreamsError) as caught:
                scene.feed.subscribe()
            assert scene.count("yukta.streams.open") == 2
        one.close()
        one.close()

        assert caught.value.retry_after is not None
        assert scene.feed.cap.open == 0
        assert scene.count("yukta.streams.open") == 0


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_30_a_closed_subscription_leaves_nothing_behind(new_scene, now) -> None:
    async with new_scene() as scene:
        before = len(asyncio.all_tasks())
        with scene.feed.subscribe(heartbeat=True) as stream:
            scene.feed.publish(scene.event("node.stats", "a", n=1))
            await now(stream)
            scene.feed.publish(scene.event("node.stats", "a", n=2))

        assert not scene.feed.listening
        assert not scene.feed.sampling
        assert len(asyncio.all_tasks()) == before
        assert not scene.feed.heart.beating
        assert stream._flush_timer is None
        assert await stream.frames() == []


# -- reading without waiting


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_pages_follow_one_another_without_gap_or_repeat(new_scene) -> None:
    async with new_scene() as scene:
        for number in range(1, 8):
            scene.publish(number, run=f"r{number % 2}")
        wanted = EventFilter.parse(execution_id=["r1"])

        first = scene.feed.read(wanted, None, 3)
        second = scene.feed.read(wanted, first.next_cursor, 3)
        third = scene.feed.read(wanted, second.next_cursor, 3)

        assert [item["data"]["n"] for item in first.items + second.items] == [1, 3, 5, 7]
        assert (third.items, third.next_cursor) == ([], "e:7")
        assert first.gap is None


@virtual_time
async def test_a_first_page_says_what_is_no_longer_kept(new_scene) -> None:
    async with new_scene(streaming__replay_events=2) as scene:
        scene.publish(1, 2, 3)

        page = scene.feed.read(EventFilter(), None, 10)

        assert page.gap is not None
        assert page.gap.as_dict() == {"from": 1, "to": 1, "dropped": 1, "reason": "retention"}
        assert [item["id"] for item in page.items] == ["e:2", "e:3"]


@pytest.mark.parametrize("after", ["e:1", "old:7", "e:9"])
@virtual_time
async def test_a_cursor_that_is_not_known_any_more_has_expired(new_scene, after) -> None:
    async with new_scene(streaming__replay_events=2) as scene:
        scene.publish(1, 2, 3, 4)

        with pytest.raises(CursorExpiredError) as caught:
            scene.feed.read(EventFilter(), after, 10)

        oldest = caught.value.members["oldest"]
        assert [item["id"] for item in scene.feed.read(EventFilter(), oldest, 10).items] == [
            "e:3",
            "e:4",
        ]


@virtual_time
async def test_what_is_no_cursor_is_refused(new_scene) -> None:
    async with new_scene() as scene:
        with pytest.raises(BadRequestError) as caught:
            scene.feed.read(EventFilter(), "x\ny", 10)

        assert caught.value.code == "invalid_cursor"


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (35, "z"), (36, "10"), (1767225600000, "mjuohs00")]
)
def test_an_epoch_is_the_time_in_base_36(number: int, text: str) -> None:
    assert base36(number) == text
    assert int(text, 36) == number


def test_an_id_has_an_epoch_and_a_number() -> None:
    assert parse_id("e:12") == ("e", 12)
    assert parse_id("a:b:12") == ("a:b", 12)
    assert parse_id("12") is None
    assert parse_id("e:" + "9" * 30) is None


@pytest.mark.feature("OBS-01")
@virtual_time
async def test_case_27_who_leaves_between_hello_and_reset_is_told_of_the_reset_when_it_is_back(
    new_scene,
):
    async with new_scene(streaming__replay_events=1) as scene:
        feed = scene.feed
        for seq in (1, 2, 3):
            feed.publish(scene.event("node.status", "n", "r0", seq=seq))
        first = feed.subscribe(after=feed.id_of(0))
        [hello] = await first.frames(1)
        first.close()

        again = feed.subscribe(after=hello.id or feed.id_of(0))
        kinds = [frame.type for frame in await again.frames(5)]
        again.close()

    assert hello.id is None
    assert kinds == ["stream.hello", "stream.reset"]
