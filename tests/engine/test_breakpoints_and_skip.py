"""Holding a node before certain messages, and sending messages round its plugin."""

import asyncio

import pytest

from yukta_rx.engine.breakpoints import Breakpoint
from yukta_rx.errors import ConflictError, ValidationError
from yukta_rx.model.message import Message
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-02")

FAST = ("SEQUENCE_TRIGGER", {"count": 10_000})
PACED = ("SEQUENCE_TRIGGER", {"count": 10, "intervalMs": 1000})


async def settle():
    """Let everything happen that needs no time to pass."""
    await asyncio.sleep(1e-6)


def numbers(world):
    """What reached the terminals, by its number."""
    return [payload["n"] for payload in world.payloads()]


def held_at(run, node_id):
    """The message that a node holds, as its state shows it."""
    return run.node(node_id).state().get("held")


@pytest.mark.parametrize("node_id", ["mid", "out"])
@virtual_time
async def test_resume_lets_the_held_message_through_once_and_the_next_match_is_held(node_id, world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 30}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )
    point = Breakpoint("payload.n", "10")
    other = Breakpoint("payload.n", "20")
    run.node(node_id).set_breakpoint(point)
    run.node(node_id).set_breakpoint(other)
    task = asyncio.ensure_future(run.execute())
    await settle()

    first = numbers(world), held_at(run, node_id), run.node(node_id).paused
    run.resume(node_id)
    await settle()
    second = numbers(world), held_at(run, node_id)
    run.resume()
    outcome = await task

    assert first[0] == list(range(10))
    assert first[1]["reason"] == "breakpoint"
    assert first[2] is True
    assert second[0] == list(range(20))
    assert second[1]["messageId"] != first[1]["messageId"]
    assert numbers(world) == list(range(30))
    assert (point.hits, other.hits) == (1, 1)
    hits = [event.data for event in world.events if event.type == "node.breakpoint_hit"]
    assert hits == [{"messageId": held["messageId"]} for held in (first[1], second[1])]
    assert outcome.status is TaskStatus.SUCCESS


@virtual_time
async def test_a_step_lets_the_held_message_through_and_stays(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 30}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )
    run.node("mid").set_breakpoint(Breakpoint("payload.n", "10"))
    task = asyncio.ensure_future(run.execute())
    await settle()

    run.step(1, "mid")
    await settle()
    seen, held = numbers(world), held_at(run, "mid")
    run.resume()
    await task

    assert seen == list(range(11))
    assert held is None


@virtual_time
async def test_case_17_resuming_a_run_resumes_what_is_paused_and_what_is_at_a_breakpoint(world):
    run = world.run(
        {"in": FAST, "a": "PASS", "b": "PASS", "out": "COLLECT_TERMINAL"},
        "in > a > out, in > b > out",
    )
    run.node("b").set_breakpoint(Breakpoint("payload.n", "3"))
    task = asyncio.ensure_future(run.execute())
    await settle()
    run.pause("a")
    await settle()

    run.resume()
    outcome = await task

    assert outcome.status is TaskStatus.SUCCESS
    assert sorted(numbers(world)) == sorted([*range(10_000), *range(10_000)])


@virtual_time
async def test_a_breakpoint_without_a_part_holds_every_message(world):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 3}), "mid": "PASS", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )
    run.node("mid").set_breakpoint(Breakpoint())
    task = asyncio.ensure_future(run.execute())
    seen = []

    for _ in range(3):
        await settle()
        seen.append(len(numbers(world)))
        run.resume()
    await task

    assert seen == [0, 1, 2]


@virtual_time
async def test_clearing_breakpoints_lets_everything_through_once_resumed(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")
    run.node("mid").set_breakpoint(Breakpoint())
    task = asyncio.ensure_future(run.execute())
    await settle()

    cleared = run.node("mid").clear_breakpoints(), run.node("mid").clear_breakpoints()
    await settle()
    still = numbers(world), held_at(run, "mid") is not None
    run.resume()
    await task

    assert cleared == (True, False)
    assert still == ([], True)
    assert len(numbers(world)) == 10_000


@pytest.mark.parametrize(
    ("expression", "equals", "pointer"),
    [
        ("payload.n", None, "/equals"),
        (None, "3", "/expression"),
        ("env.HOME", "x", "/expression"),
        ("payload..n", "x", "/expression"),
        ("payload} ${payload", "x", "/expression"),
    ],
)
def test_a_breakpoint_that_cannot_be_read_says_where(expression, equals, pointer):
    with pytest.raises(ValidationError) as refused:
        Breakpoint(expression, equals)

    assert refused.value.errors[0].pointer == pointer


@pytest.mark.parametrize(
    ("expression", "equals"),
    [
        ("payload", '{"n":3,"tags":["a"],"on":true}'),
        ("payload.n", "3"),
        ("payload.on", "true"),
        ("payload.tags", '["a"]'),
        ("metadata.who", "me"),
    ],
)
def test_a_part_is_compared_by_its_text(expression, equals):
    msg = Message.of({"n": 3, "tags": ["a"], "on": True}, {"who": "me"})

    assert Breakpoint(expression, equals)(msg)
    assert not Breakpoint(expression, equals + " ")(msg)
    assert not Breakpoint(expression, equals)(Message.of({"m": 3}))


@virtual_time
async def test_a_trigger_takes_no_breakpoint_and_only_processors_are_skipped(world):
    run = world.run({"in": FAST, "mid": "PASS", "out": "COLLECT_TERMINAL"}, "in > mid > out")

    with pytest.raises(ConflictError, match="trigger") as no_messages:
        run.node("in").set_breakpoint(Breakpoint())
    with pytest.raises(ConflictError, match="only a processor") as terminal_skipped:
        run.node("out").skip(True)
    with pytest.raises(ConflictError, match="only a processor"):
        run.node("in").skip(True)

    assert no_messages.value.code == "node_takes_no_messages"
    assert terminal_skipped.value.code == "node_kind_not_skippable"


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_a_node_skipped_from_first_to_last_ends_skipped_and_passes_messages_as_they_are(
    world,
):
    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 100}), "mid": "BOOM", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
    )
    run.node("mid").skip(True)

    outcome = await run.execute()

    assert outcome.status is TaskStatus.SUCCESS
    mid = outcome.nodes["mid"]
    assert (mid["status"], mid["skipped"], mid["in"], mid["out"]) == ("SKIPPED", 100, 100, 100)
    assert numbers(world) == list(range(100))
    direct = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 100}), "out": "COLLECT_TERMINAL"},
        "in > out",
        lineage=run.execution_id,
    )
    ids = [item.message_id for item in world.results if item.type == "RESULT"]
    world.results.clear()
    await direct.execute()
    assert ids == [item.message_id for item in world.results if item.type == "RESULT"]


@pytest.mark.feature("ENG-06")
@virtual_time
async def test_a_node_skipped_from_the_start_can_be_unskipped(world):
    calls = []

    @processor("NOTE", blocking=False, pure=True)
    def note(msg, cfg, ctx):
        """Note what comes."""
        calls.append(msg.payload["n"])
        return msg

    run = world.run({"in": PACED, "mid": "NOTE", "out": "COLLECT_TERMINAL"}, "in > mid > out", note)
    changed = [run.node("mid").skip(True), run.node("mid").skip(True)]
    task = asyncio.ensure_future(run.execute())

    await asyncio.sleep(4.5)
    changed.append(run.node("mid").skip(False))
    outcome = await task

    assert changed == [True, False, True]
    assert calls == [5, 6, 7, 8, 9]
    assert numbers(world) == list(range(10))
    assert (outcome.nodes["mid"]["status"], outcome.nodes["mid"]["skipped"]) == ("SUCCESS", 5)


@virtual_time
async def test_a_message_inside_a_node_that_is_skipped_finishes(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        """Take a second and say so."""
        await asyncio.sleep(1)
        return {**msg.payload, "slow": True}

    run = world.run(
        {"in": ("SEQUENCE_TRIGGER", {"count": 5}), "mid": "SLOW", "out": "COLLECT_TERMINAL"},
        "in > mid > out",
        slow,
    )
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(1.5)

    run.node("mid").skip(True)
    await task

    assert [payload.get("slow", False) for payload in world.payloads()] == [
        *(True, True),
        *(False, False, False),
    ]


@virtual_time
async def test_what_goes_round_a_plugin_is_never_changed_by_one_behind_it(world):
    @processor("SPOIL", blocking=False)
    def spoil(msg, cfg, ctx):
        """Change the payload."""
        msg.payload["spoilt"] = True
        return msg

    run = world.run(
        {
            "in": ("SEQUENCE_TRIGGER", {"count": 5}),
            "mid": "SPOIL",
            "spoil": "SPOIL",
            "witness": "COLLECT_TERMINAL",
            "out": "COLLECT_TERMINAL",
        },
        "in > mid > spoil > out, in > witness",
        spoil,
    )
    run.node("mid").skip(True)

    await run.execute()

    assert world.payloads("witness") == [{"n": n} for n in range(5)]
    assert all(payload["spoilt"] for payload in world.payloads("out"))
