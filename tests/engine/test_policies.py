"""The failure policy of a node, over every way to write a plugin."""

import asyncio

import pytest
import reactivex
from reactivex import Observable

from yukta_rx.config.load import load_settings
from yukta_rx.errors import BadInputError, RunAbortedError
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import Message, processor
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("ENG-04")

TEN = ("SEQUENCE_TRIGGER", {"count": 10})


class Flaky:
    """A plugin of any shape that gives two messages per input, and fails where it is told to.

    Attributes:
        plan: failures by payload number: how many of the first attempts fail.
        error: what is raised.
        calls: (number, attempt) of every call, in order.
    """

    def __init__(self, shape, plan, error=None, *, after=1):
        self.plan = plan
        self.error = error or LookupError("no luck")
        self.calls = []
        self.after = after
        self.plugin = getattr(self, shape)()

    def outputs(self, msg, ctx):
        n = msg.payload["n"]
        self.calls.append((n, msg.attempt))
        assert ctx.attempt == msg.attempt
        ctx.log(f"{n} attempt {ctx.attempt}")
        fails = msg.attempt <= self.plan.get(n, 0)
        for copy in range(2):
            if fails and copy == self.after:
                raise self.error
            yield {"n": n, "copy": copy, "attempt": msg.attempt}
        if fails:
            raise self.error

    def generator(self):
        @processor("FLAKY", blocking=False)
        def flaky(msg, cfg, ctx):
            """Fail as told."""
            yield from self.outputs(msg, ctx)

        return flaky

    def blocking_generator(self):
        @processor("FLAKY")
        def flaky(msg, cfg, ctx):
            """Fail as told."""
            yield from self.outputs(msg, ctx)

        return flaky

    def async_generator(self):
        @processor("FLAKY")
        async def flaky(msg, cfg, ctx):
            """Fail as told."""
            for output in self.outputs(msg, ctx):
                await asyncio.sleep(0.001)
                yield output

        return flaky

    def observable(self):
        @processor("FLAKY", blocking=False)
        def flaky(msg, cfg, ctx) -> Observable:
            """Fail as told."""
            made, failed = [], None
            try:
                made += self.outputs(msg, ctx)
            except Exception as error:
                failed = error
            given = reactivex.from_iterable(made)
            return given if failed is None else reactivex.concat(given, reactivex.throw(failed))

        return flaky

    def sync(self):
        @processor("FLAKY", blocking=False)
        def flaky(msg, cfg, ctx):
            """Fail as told."""
            first, _second = self.outputs(msg, ctx)
            return first

        return flaky

    def blocking(self):
        @processor("FLAKY")
        def flaky(msg, cfg, ctx):
            """Fail as told."""
            first, _second = self.outputs(msg, ctx)
            return first

        return flaky

    def coroutine(self):
        @processor("FLAKY")
        async def flaky(msg, cfg, ctx):
            """Fail as told."""
            await asyncio.sleep(0.001)
            first, _second = self.outputs(msg, ctx)
            return first

        return flaky


MANY = ("generator", "blocking_generator", "async_generator", "observable")
ONE = ("sync", "blocking", "coroutine")
every_shape = pytest.mark.parametrize("shape", [*ONE, *MANY])


def graph(trigger=TEN, *, edges="in > mid > out", **engine):
    """A line with a node under policy, and a terminal for its dead letters."""
    nodes = {"in": trigger, "mid": ("FLAKY", {"engine": engine}), "out": "COLLECT_TERMINAL"}
    if ".error" in edges:
        nodes["dead"] = "COLLECT_TERMINAL"
    return nodes, edges


def expected(shape, numbers, attempts=None):
    """What reaches the terminal for these inputs."""
    copies = 2 if shape in MANY else 1
    return [
        {"n": n, "copy": copy, "attempt": (attempts or {}).get(n, 1)}
        for n in numbers
        for copy in range(copies)
    ]


def events(world, kind):
    return [event for event in world.events if event.type == kind]


@every_shape
@virtual_time
async def test_case_14_only_the_output_of_the_attempt_that_went_well_is_seen(shape, world):
    flaky = Flaky(shape, {3: 1, 7: 2})
    nodes, edges = graph(retry={"maxAttempts": 3, "backoffMs": 100})

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads() == expected(shape, range(10), {3: 2, 7: 3})
    assert [call for call in flaky.calls if call[0] in (3, 7)] == [
        *((3, 1), (3, 2)),
        *((7, 1), (7, 2), (7, 3)),
    ]
    mid = outcome.nodes["mid"]
    assert (mid["in"], mid["retried"], mid["failed"], mid["dropped"]) == (10, 3, 0, 0)
    assert mid["out"] == len(world.payloads())


@every_shape
@virtual_time
async def test_case_15_what_an_attempt_said_carries_its_number_and_is_declared_discarded(
    shape, world
):
    flaky = Flaky(shape, {1: 1})
    nodes, edges = graph(("SEQUENCE_TRIGGER", {"count": 2}), retry={"maxAttempts": 2})

    await world.run(nodes, edges, flaky.plugin).execute()

    lines = [(e.data["line"], e.data["attempt"]) for e in world.events if e.type == "node.log"]
    assert lines == [("0 attempt 1", 1), ("1 attempt 1", 1), ("1 attempt 2", 2)]
    story = [
        e.type
        for e in world.events
        if e.type in ("node.log", "node.retry", "node.attempt_discarded")
    ]
    assert story == [
        *("node.log", "node.log"),
        *("node.attempt_discarded", "node.retry"),
        "node.log",
    ]
    [discarded], [retry] = events(world, "node.attempt_discarded"), events(world, "node.retry")
    held_back = 1 if shape in MANY else 0
    assert (discarded.data["attempt"], discarded.data["outputs"]) == (1, held_back)
    assert retry.data["messageId"] == discarded.data["messageId"]
    assert (retry.data["attempt"], retry.data["error"]["exception"]) == (2, "LookupError")
    assert 100 <= retry.data["delayMs"] <= 200


@every_shape
@virtual_time
async def test_the_last_attempt_that_fails_ends_the_node_and_emits_nothing(shape, world):
    flaky = Flaky(shape, {2: 9})
    nodes, edges = graph(retry={"maxAttempts": 3, "backoffMs": 10})

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.FAILURE
    assert world.payloads() == expected(shape, [0, 1])
    mid = outcome.nodes["mid"]
    assert (mid["status"], mid["failed"], mid["retried"]) == ("FAILURE", 1, 2)
    assert mid["error"]["attempts"] == 3
    [failed] = events(world, "node.message_failed")
    assert failed.data["messageId"] == mid["error"]["messageId"]
    assert (failed.data["attempts"], failed.data["action"]) == (3, "FAIL")


@every_shape
@virtual_time
async def test_continue_drops_what_failed_whole_and_goes_on(shape, world):
    flaky = Flaky(shape, {0: 9, 4: 9, 9: 9})
    nodes, edges = graph(onError="CONTINUE")

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads() == expected(shape, [1, 2, 3, 5, 6, 7, 8])
    mid = outcome.nodes["mid"]
    assert (mid["in"], mid["failed"], mid["deadLettered"], mid["dropped"]) == (10, 3, 0, 0)
    assert outcome.totals == {"in": 10, "out": len(world.payloads()), "failed": 3, "dropped": 0}


@every_shape
@virtual_time
async def test_route_sends_the_message_as_it_came_to_the_error_port_with_its_tags(shape, world):
    flaky = Flaky(shape, {4: 9}, KeyError("colour"))
    nodes, edges = graph(
        edges="in > mid > out, mid.error > dead",
        onError="ROUTE",
        retry={"maxAttempts": 2, "backoffMs": 0},
    )

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert world.payloads("out") == expected(shape, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    [letter] = [item for item in world.results if item.node_id == "dead" and item.message_id]
    assert letter.payload == {"n": 4}
    headers = dict(letter.headers)
    assert headers.pop("failure.time").startswith("2026-01-01T")
    assert headers == {
        "failure.attempts": 2,
        "failure.exception": "KeyError",
        "origDest": "mid",
        "failureReason": "'colour'",
    }
    mid = outcome.nodes["mid"]
    assert (mid["failed"], mid["deadLettered"]) == (1, 1)
    assert mid["out"] == len(world.payloads("out")), "dead letters are not among them"
    [told] = events(world, "node.dead_letter")
    [failed] = events(world, "node.message_failed")
    assert told.data == {"messageId": failed.data["messageId"], "exception": "KeyError"}
    assert letter.message_id != failed.data["messageId"], "two messages never share an id"


@every_shape
@virtual_time
async def test_no_edge_without_a_port_carries_a_dead_letter(shape, world):
    flaky = Flaky(shape, {4: 9})
    nodes, edges = graph(onError="ROUTE")

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert world.payloads() == expected(shape, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    mid = outcome.nodes["mid"]
    assert (mid["deadLettered"], mid["dropped"]) == (1, 1), "nobody took it, which is counted"


@every_shape
@virtual_time
async def test_one_failure_more_than_the_budget_fails_the_node(shape, world):
    flaky = Flaky(shape, dict.fromkeys((1, 3, 5), 9))
    nodes, edges = graph(onError="CONTINUE", failureBudget={"maxFailures": 2, "windowMs": 60_000})

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.FAILURE
    assert outcome.error["code"] == "failure_budget"
    assert outcome.nodes["mid"]["status"] == "FAILURE"
    assert outcome.nodes["mid"]["failed"] == 3
    assert world.payloads() == expected(shape, [0, 2, 4])
    assert [e.data["action"] for e in events(world, "node.message_failed")] == [
        *("CONTINUE", "CONTINUE"),
        "FAIL",
    ]


@virtual_time
async def test_failures_outside_the_window_are_forgiven(world):
    flaky = Flaky("sync", dict.fromkeys(range(10), 9))
    nodes, edges = graph(
        ("SEQUENCE_TRIGGER", {"count": 10, "intervalMs": 1000}),
        onError="CONTINUE",
        failureBudget={"maxFailures": 2, "windowMs": 1500},
    )

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.nodes["mid"]["failed"] == 10


@every_shape
@virtual_time
async def test_bad_input_is_given_up_at_once(shape, world):
    flaky = Flaky(shape, {1: 9}, BadInputError("no colour in it"))
    nodes, edges = graph(onError="CONTINUE", retry={"maxAttempts": 5})

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert outcome.nodes["mid"]["retried"] == 0
    assert outcome.nodes["mid"]["failed"] == 1


@every_shape
@virtual_time
async def test_an_abort_of_the_run_is_never_tried_again_dropped_or_routed(shape, world):
    flaky = Flaky(shape, {1: 9}, RunAbortedError("out of money"))
    nodes, edges = graph(
        edges="in > mid > out, mid.error > dead", onError="ROUTE", retry={"maxAttempts": 5}
    )

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert (outcome.status, outcome.error["code"]) == (TaskStatus.FAILURE, "run_aborted")
    assert outcome.nodes["mid"]["retried"] == 0
    assert world.payloads("dead") == []


@virtual_time
async def test_an_expression_without_a_value_is_bad_input_that_names_it(world):
    @processor("SET", blocking=False)
    async def unused(msg, cfg, ctx):
        """Never called."""

    nodes = {
        "in": TEN,
        "mid": (
            "TRANSFORM",
            {"set": {"a": "${payload.colour}"}, "engine": {"retry": {"maxAttempts": 3}}},
        ),
        "out": "COLLECT_TERMINAL",
    }

    outcome = await world.run(nodes, "in > mid > out").execute()

    assert outcome.nodes["mid"]["retried"] == 0
    assert "payload.colour" in outcome.error["detail"]


@pytest.mark.parametrize("shape", MANY)
@virtual_time
async def test_an_attempt_that_gives_more_than_may_be_held_back_fails_and_says_what_to_do(
    shape, world
):
    world.settings = load_settings(
        environ={}, overrides={"yukta.execution.held-output-bytes": "200"}
    )
    flaky = Flaky(shape, {})
    nodes, edges = graph(onError="CONTINUE", retry={"maxAttempts": 3})

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    assert (outcome.nodes["mid"]["failed"], outcome.nodes["mid"]["retried"]) == (10, 0)
    [first, *_] = events(world, "node.message_failed")
    assert first.data["error"]["code"] == "held_output"
    assert "yukta.execution.held-output-bytes" in first.data["error"]["detail"]


@virtual_time
async def test_a_plugin_that_changes_its_input_gets_it_anew_at_each_attempt(world):
    seen = []

    @processor("SPOIL", blocking=False)
    def spoil(msg, cfg, ctx):
        """Change the payload, then fail once."""
        seen.append(dict(msg.payload))
        msg.payload["spoilt"] = True
        if msg.attempt < 3:
            raise LookupError
        return {"seen": seen[-1]}

    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 1}),
        "mid": ("SPOIL", {"engine": {"retry": {"maxAttempts": 3, "backoffMs": 0}}}),
        "out": "COLLECT_TERMINAL",
    }

    await world.run(nodes, "in > mid > out", spoil).execute()

    assert seen == [{"n": 0}] * 3


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_an_element_timeout_fails_the_attempt_and_the_policy_goes_on(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        """Hang at the first attempt of every third message."""
        if msg.payload["n"] % 3 == 0 and msg.attempt == 1:
            await asyncio.sleep(3600)
        return msg

    policy = {"elementTimeoutMs": 500, "retry": {"maxAttempts": 2, "backoffMs": 0}}
    nodes = {"in": TEN, "mid": ("SLOW", {"engine": policy}), "out": "COLLECT_TERMINAL"}

    outcome = await world.run(nodes, "in > mid > out", slow).execute()

    assert outcome.status is TaskStatus.SUCCESS
    assert [payload["n"] for payload in world.payloads()] == list(range(10))
    assert outcome.nodes["mid"]["retried"] == 4
    assert outcome.seconds == pytest.approx(4 * 0.5, abs=0.01)
    assert {e.data["error"]["code"] for e in events(world, "node.retry")} == {"element_timeout"}


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_an_element_timeout_may_depend_on_the_message(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        """Take a second."""
        await asyncio.sleep(1)
        return msg

    nodes = {
        "in": TEN,
        "ms": ("TRANSFORM", {"set": {"ms": "${payload.n:int}"}}),
        "mid": (
            "SLOW",
            {"engine": {"elementTimeoutMs": "${payload.limit:int}", "onError": "CONTINUE"}},
        ),
        "out": "COLLECT_TERMINAL",
    }

    @processor("LIMIT", blocking=False, pure=True)
    def limit(msg, cfg, ctx):
        """Give every other message too little time."""
        return {"n": msg.payload["n"], "limit": 500 + 1000 * (msg.payload["n"] % 2)}

    nodes["ms"] = "LIMIT"

    outcome = await world.run(nodes, "in > ms > mid > out", slow, limit).execute()

    assert [payload["n"] for payload in world.payloads()] == [1, 3, 5, 7, 9]
    assert outcome.nodes["mid"]["failed"] == 5


@pytest.mark.feature("ENG-05")
@pytest.mark.parametrize("deadline", [2500, "${payload.ms:int}"], ids=["number", "expression"])
@virtual_time
async def test_a_node_deadline_counts_from_the_first_activity_whatever_goes_on(deadline, world):
    @processor("STAMP", blocking=False, pure=True)
    def stamp(msg, cfg, ctx):
        """Say the deadline in the message."""
        return {**msg.payload, "ms": 2500}

    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 10, "intervalMs": 1000}),
        "stamp": "STAMP",
        "mid": ("PASS", {"engine": {"deadlineMs": deadline}}),
        "out": "COLLECT_TERMINAL",
    }

    outcome = await world.run(nodes, "in > stamp > mid > out", stamp).execute()

    assert (outcome.status, outcome.error["code"]) == (TaskStatus.FAILURE, "deadline_exceeded")
    assert outcome.nodes["mid"]["status"] == "TIMED_OUT"
    assert [payload["n"] for payload in world.payloads()] == [0, 1, 2]


@pytest.mark.feature("ENG-05", "CTL-02")
@virtual_time
async def test_case_19_a_pause_stops_every_clock(world):
    @processor("SLOW")
    async def slow(msg, cfg, ctx):
        """Take 400 ms of unpaused time."""
        await ctx.clock.sleep(0.4)
        return msg

    policy = {"elementTimeoutMs": 500, "deadlineMs": 3000}
    nodes = {
        "in": ("SEQUENCE_TRIGGER", {"count": 5}),
        "mid": ("SLOW", {"engine": policy}, 1),
        "out": "COLLECT_TERMINAL",
    }
    run = world.run(nodes, "in > mid > out", slow, timeout=5)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.2)

    run.pause()
    await asyncio.sleep(10)
    assert run.snapshot()["execution"]["paused"] is True
    run.resume()
    outcome = await task

    assert outcome.status is TaskStatus.SUCCESS
    assert outcome.seconds == pytest.approx(10 + 5 * 0.4, abs=0.01)


@pytest.mark.feature("ENG-05")
@virtual_time
async def test_a_message_in_backoff_waits_out_a_pause(world):
    flaky = Flaky("sync", {0: 1})
    nodes, edges = graph(
        ("SEQUENCE_TRIGGER", {"count": 1}), retry={"maxAttempts": 2, "backoffMs": 1000}
    )
    run = world.run(nodes, edges, flaky.plugin)
    task = asyncio.ensure_future(run.execute())
    await asyncio.sleep(0.1)

    run.pause()
    await asyncio.sleep(60)
    before = list(flaky.calls)
    run.resume()
    await task

    assert before == [(0, 1)]
    assert flaky.calls == [(0, 1), (0, 2)]
    assert 60.5 <= asyncio.get_running_loop().time() <= 61.2


def test_a_dead_letter_keeps_the_message_as_its_cause():
    from yukta_rx.model.message import trigger_message

    msg = trigger_message("run", "in", 4, {"n": 4})

    letter = msg.derive("mid", -1, msg.payload, {})

    assert letter.cause == msg.id
    assert isinstance(letter, Message)


@pytest.mark.feature("ENG-01")
@pytest.mark.parametrize(
    ("shape", "concurrency"), [*((shape, 1) for shape in MANY), ("async_generator", 2)]
)
@virtual_time
async def test_outputs_go_on_while_another_port_has_less_credit_left(shape, concurrency, world):
    world.settings = load_settings(environ={}, overrides={"yukta.execution.prefetch": "3"})
    flaky = Flaky(shape, {0: 9, 1: 9})
    engine = {"onError": "ROUTE", "concurrency": {"max": concurrency}}
    nodes, edges = graph(edges="in > mid > out, mid.error > dead", **engine)
    run = world.run(nodes, edges, flaky.plugin)
    run.pause("dead")
    task = asyncio.ensure_future(run.execute())

    # Two dead letters wait, so the port `error` has credit for one message, and `out` for three.
    await asyncio.sleep(10)
    seen = list(world.payloads("out"))
    run.resume()
    await task

    assert seen == expected(shape, range(2, 10))


@virtual_time
async def test_a_message_that_fails_a_node_without_a_policy_is_told_like_any_other(world):
    flaky = Flaky("sync", {3: 1})
    nodes, edges = graph()

    outcome = await world.run(nodes, edges, flaky.plugin).execute()

    [failed] = events(world, "node.message_failed")
    assert failed.data["messageId"] == outcome.nodes["mid"]["error"]["messageId"]
    assert (failed.data["attempts"], failed.data["action"]) == (1, "FAIL")
    assert failed.data["error"] == {"exception": "LookupError", "detail": "no luck"}
    kinds = [event.type for event in world.events if event.node_id == "mid"]
    assert kinds[-2:] == ["node.message_failed", "node.status"]
