"""Reviewers: the first refusal in order wins, a change takes its place, a hold wants a second."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.commands import (
    PauseNode,
    PauseWorkflow,
    ResumeWorkflow,
    Role,
    StepWorkflow,
    StopWorkflow,
)
from yukta_rx.control.reviewers import Allow, Deny, Hold, Modify
from yukta_rx.errors import ConflictError, ControlRejectedError, NotFoundError, RoleError
from yukta_rx.streams import StopMode
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-06")

DOCUMENT = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 1000}},
        {"nodeId": "out", "type": "NULL_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}


class Says:
    """A reviewer that gives one answer to every command of one kind, and allows the others."""

    def __init__(self, answer, *, kind=PauseWorkflow, order=0, id="says"):
        self.answer = answer
        self.kind = kind
        self.order = order
        self.id = id
        self.asked = []

    async def review(self, request):
        self.asked.append(request)
        if not isinstance(request.command, self.kind):
            return None
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Never:
    """A reviewer that does not answer, and does not heed its cancellation either."""

    order = 0

    def __init__(self):
        self.let_go = asyncio.Event()

    async def review(self, request):
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue


@asynccontextmanager
async def live_run(*reviewers, settings=None):
    """An engine with reviewers and a run that goes on, and a function that gives it commands."""
    async with Engine(settings, reviewers=reviewers) as engine:
        run = await engine.start("s", DOCUMENT)
        await asyncio.sleep(1.5)

        async def give(kind=PauseWorkflow, *, actor="ann", dry_run=False, **fields):
            command = kind(execution_id=run.execution_id, **fields)
            return await engine.gateway.command(command, actor=actor, via="REST", dry_run=dry_run)

        yield engine, run, give
        if (left := engine._starter.live.get(run.execution_id)) is not None:
            left.stop(StopMode.KILL)


def outcomes(engine, run):
    return [row["outcome"] for row in engine.gateway.audit(run.execution_id)]


@virtual_time
async def test_the_first_refusal_in_order_wins():
    late, early = Says(Deny("late"), order=2, id="b"), Says(Deny("early"), order=1, id="a")
    async with live_run(late, early) as (engine, run, give):
        with pytest.raises(ControlRejectedError) as caught:
            await give()

        assert (caught.value.reviewer, caught.value.reason) == ("a", "early")
        assert late.asked == []
        assert run.detail["paused"] is False
        row = engine.gateway.audit(run.execution_id)[-1]
        assert (row["outcome"], row["actor"]) == ("REJECTED", "ann")
        assert "early" in row["reason"]


@virtual_time
async def test_an_allowed_command_is_applied_and_a_reviewer_sees_who_asks():
    reviewer = Says(Allow())
    async with live_run(reviewer) as (_engine, _run, give):
        result = await give()

        assert result.outcome == "APPLIED"
        [request] = reviewer.asked
        assert (request.actor, request.via, request.session_id, request.workflow_id) == (
            "ann",
            "REST",
            "s",
            "w",
        )


@pytest.mark.parametrize(
    ("answer", "word"), [(RuntimeError("broken"), "RuntimeError"), ("yes", "str")]
)
@virtual_time
async def test_a_reviewer_that_fails_or_answers_nonsense_refuses(answer, word):
    async with live_run(Says(answer)) as (_engine, run, give):
        with pytest.raises(ControlRejectedError) as caught:
            await give()

        assert word in caught.value.reason
        assert "broken" not in caught.value.reason
        assert run.detail["paused"] is False


@virtual_time
async def test_a_reviewer_that_hangs_refuses_in_time_and_the_line_goes_on():
    never = Never()
    settings = load_settings(None, {}, overrides={"yukta.control.review-timeout": "2s"})
    async with live_run(never, settings=settings) as (_engine, _run, give):
        loop = asyncio.get_running_loop()
        began = loop.time()
        first, second = await asyncio.gather(give(), give(ResumeWorkflow), return_exceptions=True)

        assert loop.time() - began == pytest.approx(4)
        assert "did not answer within 2 s" in first.reason
        assert isinstance(second, ControlRejectedError)
        never.let_go.set()


@virtual_time
async def test_a_changed_command_takes_the_place_of_the_first_and_is_what_the_audit_shows():
    async with Engine(reviewers=[reviewer := Says(None, kind=StepWorkflow)]) as engine:
        run = await engine.start("s", DOCUMENT)
        smaller = StepWorkflow(execution_id=run.execution_id, n=2)
        reviewer.answer = Modify(smaller, "at most two")
        big = replace(smaller, n=500)
        result = await engine.gateway.command(big, actor="ann", via="REST")

        row = engine.gateway.audit(run.execution_id)[-1]
        assert row["args"] == {"n": 2}
        assert "at most two" in row["reason"]
        assert "at most two" in result.reason
        await run.stop(StopMode.KILL)


@virtual_time
async def test_a_dry_run_examines_what_a_reviewer_puts_in_place():
    async with Engine(reviewers=[reviewer := Says(None)]) as engine:
        run = await engine.start("s", DOCUMENT)
        reviewer.answer = Modify(PauseNode(run.execution_id, "nowhere"), "only one node")
        with pytest.raises(NotFoundError) as caught:
            await engine.gateway.command(
                PauseWorkflow(run.execution_id), actor="ann", via="REST", dry_run=True
            )

        assert caught.value.code == "node_not_found"
        await run.stop(StopMode.KILL)


@virtual_time
async def test_a_reviewer_that_fails_when_its_time_is_over_is_in_the_log(caplog):
    class Late:
        async def review(self, request):
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise RuntimeError("too late") from None

    with caplog.at_level("WARNING"):
        async with live_run(Late()) as (_engine, _run, give):
            with pytest.raises(ControlRejectedError):
                await give()
            await asyncio.sleep(0)

    assert "reviewer Late failed after its time" in caplog.text


@virtual_time
async def test_a_change_to_another_run_refuses():
    other = PauseWorkflow(execution_id="another")
    async with live_run(Says(Modify(other, "why not"))) as (engine, run, give):
        with pytest.raises(ControlRejectedError):
            await give()

        assert outcomes(engine, run) == ["REJECTED"]


@virtual_time
async def test_a_dry_run_asks_the_reviewers_and_changes_nothing():
    async with live_run(Says(Deny("no"))) as (_engine, run, give):
        with pytest.raises(ControlRejectedError):
            await give(dry_run=True)
        allowed = await give(StepWorkflow, dry_run=True, n=3)

        assert allowed.outcome == "DRY_RUN"
        assert run.detail["paused"] is False


@virtual_time
async def test_an_impossible_command_is_refused_before_anybody_is_asked():
    reviewer = Says(Allow(), kind=PauseNode)
    async with live_run(reviewer) as (_engine, _run, give):
        with pytest.raises(NotFoundError):
            await give(PauseNode, node_id="nowhere")

        assert reviewer.asked == []


@virtual_time
async def test_a_held_command_is_applied_when_a_second_actor_approves():
    async with live_run(Says(Hold("needs two"))) as (engine, run, give):
        held = await give()
        [waiting] = engine.gateway.held()
        before = run.detail["paused"]
        who = {"role": Role.OPERATOR, "approve": True}
        with pytest.raises(RoleError):
            await engine.gateway.decide(held.command_id, actor="ann", **who)
        result = await engine.gateway.decide(held.command_id, actor="bob", reason="fine", **who)

        assert (held.outcome, before) == ("HELD", False)
        assert (waiting["commandId"], waiting["reviewer"]) == (held.command_id, "says")
        assert (result.outcome, result.actor) == ("APPLIED", "ann")
        assert "approved by bob: fine" in result.reason
        assert run.detail["paused"] is True
        assert engine.gateway.held() == []
        assert outcomes(engine, run) == ["HELD", "APPLIED"]


@virtual_time
async def test_a_held_command_is_rejected_by_a_second_actor_or_by_time():
    settings = load_settings(None, {}, overrides={"yukta.control.hold-timeout": "60s"})
    async with live_run(Says(Hold("needs two")), settings=settings) as (engine, run, give):
        first, second = await give(), await give()
        result = await engine.gateway.decide(
            first.command_id, approve=False, actor="bob", role=Role.OPERATOR, reason="not now"
        )
        await asyncio.sleep(61)

        assert result.outcome == "REJECTED"
        assert engine.gateway.held() == []
        assert run.detail["paused"] is False
        rows = {row["commandId"]: row["reason"] for row in engine.gateway.audit(run.execution_id)}
        assert "rejected by bob: not now" in rows[first.command_id]
        assert "nobody decided in time" in rows[second.command_id]
        with pytest.raises(NotFoundError):
            await engine.gateway.decide(
                second.command_id, approve=True, actor="bob", role=Role.OPERATOR
            )


@virtual_time
async def test_a_refusal_is_stronger_than_a_hold_and_two_holds_want_two_decisions():
    first, second = Says(Hold("one"), id="h1"), Says(Hold("two"), id="h2", order=1)
    async with live_run(first, second) as (engine, _run, give):
        held = await give()
        who = {"approve": True, "role": Role.OPERATOR}
        again = await engine.gateway.decide(held.command_id, actor="bob", **who)
        done = await engine.gateway.decide(held.command_id, actor="cleo", **who)
        second.answer = Deny("never")
        with pytest.raises(ControlRejectedError) as caught:
            await give()

    assert [held.outcome, again.outcome, done.outcome] == ["HELD", "HELD", "APPLIED"]
    assert caught.value.reviewer == "h2"


@virtual_time
async def test_a_run_that_ended_while_its_command_was_held_refuses_it():
    async with live_run(Says(Hold("needs two"))) as (engine, run, give):
        held = await give()
        await run.stop(StopMode.KILL)
        await run.wait()
        with pytest.raises(ConflictError) as caught:
            await engine.gateway.decide(
                held.command_id, approve=True, actor="bob", role=Role.OPERATOR
            )

        assert caught.value.code == "execution_not_running"
        assert outcomes(engine, run)[-1] == "REJECTED"


@given(
    st.lists(
        st.tuples(st.integers(-2, 2), st.sampled_from(["allow", "deny", "hold", "raise"])),
        max_size=5,
    )
)
def test_whatever_reviewers_say_the_outcome_follows_their_order(said):
    answers = {"allow": Allow(), "hold": Hold("h"), "raise": ValueError("x")}

    @virtual_time
    async def check():
        reviewers = [
            Says(Deny(str(place)) if word == "deny" else answers[word], order=order, id=str(place))
            for place, (order, word) in enumerate(said)
        ]
        ordered = sorted(enumerate(said), key=lambda item: item[1][0])
        refusing = [place for place, (_, word) in ordered if word in ("deny", "raise")]
        async with live_run(*reviewers) as (_engine, run, give):
            try:
                result = (await give()).outcome
            except ControlRejectedError as error:
                result = error.reviewer
            paused = run.detail["paused"]
        return refusing, result, paused

    refusing, result, paused = check()
    if refusing:
        assert result == str(refusing[0])
    elif any(word == "hold" for _, word in said):
        assert result == "HELD"
    else:
        assert result == "APPLIED"
    assert paused is (result == "APPLIED")


@virtual_time
async def test_commands_to_one_run_keep_their_order_though_reviewers_take_their_time():
    delays = itertools.cycle((3.0, 0.1, 1.0))

    class Slow:
        async def review(self, request):
            await asyncio.sleep(next(delays))

    async with live_run(Slow()) as (engine, run, give):
        counts = range(1, 7)
        await asyncio.gather(*(give(StepWorkflow, n=n) for n in counts))
        stopped = StopWorkflow(execution_id=run.execution_id, mode=StopMode.KILL)
        rows = engine.gateway.audit(run.execution_id)

        assert [row["args"]["n"] for row in rows] == list(counts)
        assert [row["seq"] for row in rows] == list(counts)
        await engine.gateway.command(stopped, actor="ann", via="REST")
