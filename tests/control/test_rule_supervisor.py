"""Rules: conditions, counts within a time, templates; every fault of a file by its place."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import PauseNode, PauseWorkflow, RetryNode, StopWorkflow
from yukta_rx.control.rule_supervisor import RuleSupervisor, Template
from yukta_rx.errors import ConfigError
from yukta_rx.model.events import ExecutionEvent
from yukta_rx.testing.clock import virtual_time

pytestmark = pytest.mark.feature("CTL-07")

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = "event.type == 'node.message_failed'"
EXAMPLE = Path(__file__).parents[2] / "examples" / "supervisors" / "rules.json"


def event(
    at: float = 0,
    kind: str = "node.message_failed",
    *,
    run: str = "r",
    session: str = "s",
    node: str | None = "n",
    **data: Any,
) -> ExecutionEvent:
    return ExecutionEvent(
        type=kind,
        time=BEGIN + timedelta(seconds=at),
        session_id=session,
        workflow_id="w",
        execution_id=run,
        node_id=node,
        data=data,
    )


def rule(**members: Any) -> dict[str, Any]:
    return {"name": "storm", "when": FAILED, "command": {"type": "PauseWorkflow"}, **members}


def answers(rules: list[dict[str, Any]], *events: ExecutionEvent) -> list[Any]:
    """What rules answer to events, with the place of the event."""

    async def collect() -> list[Any]:
        place = -1

        async def feed():
            nonlocal place
            for one in events:
                place += 1
                yield one

        return [(place, answer) async for answer in RuleSupervisor(rules).supervise(feed())]

    return asyncio.run(collect())


def at(rules: list[dict[str, Any]], *events: ExecutionEvent) -> list[int]:
    return [place for place, _ in answers(rules, *events)]


# --- counting ------------------------------------------------------------------------------------


def test_a_condition_that_holds_gives_the_command_about_the_run_of_the_event() -> None:
    [(place, proposal)] = answers([rule()], event(kind="node.retry"), event(run="other"))

    assert place == 1
    assert proposal.command == PauseWorkflow(execution_id="other")
    assert proposal.reason == "rule storm"


def test_it_has_to_hold_so_many_times_within_the_time() -> None:
    rules = [rule(count=3, withinMs=10_000)]

    assert at(rules, *[event(second) for second in (0, 5, 10, 14, 14.5)]) == [3]


def test_without_a_time_it_counts_for_ever() -> None:
    assert at([rule(count=2)], event(0), event(10**6), event(10**6), event(2 * 10**6)) == [1, 3]


@pytest.mark.parametrize(
    ("per", "expected"), [("execution", [2, 4]), ("node", [4, 5]), ("session", [1, 3, 5])]
)
def test_it_counts_runs_nodes_or_sessions_apart(per, expected) -> None:
    events = [
        event(0, run="a", node="x"),
        event(1, run="b", node="x"),
        event(2, run="a", node="y"),
        event(3, run="c", node="x", session="s"),
        event(4, run="b", node="x"),
        event(5, run="a", node="y"),
    ]

    assert at([rule(count=2, per=per)], *events) == expected


def test_it_counts_for_a_bounded_number_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yukta_rx.control.rule_supervisor.MAX_KEYS", 2)
    events = [event(n, run=run) for n, run in enumerate("abcacb")]

    # The one that was quiet longest is forgotten: `a` when `c` comes, `b` when `a` comes again.
    assert at([rule(count=2)], *events) == [4]


def test_a_field_that_only_an_event_can_fill_is_checked_when_it_comes() -> None:
    rules = [
        rule(name="mode", command={"type": "StopWorkflow", "mode": "${event.data.mode}"}),
        rule(name="n", command={"type": "StepWorkflow", "n": "${event.data.n}"}),
        rule(name="flag", command={"type": "SetStepMode", "enabled": "${event.data.on}"}),
    ]

    good = [answer for _, answer in answers(rules, event(mode="KILL", n=2, on=False))]
    bad = [answer for _, answer in answers(rules, event(mode="SOFT", n="x", on=3))]

    assert [one.command.arguments() for one in good] == [
        {"mode": "KILL"},
        {"n": 2},
        {"enabled": False},
    ]
    assert [one.detail.partition(":")[0] for one in bad] == ["rule mode", "rule n", "rule flag"]


def test_after_a_command_it_is_quiet_for_the_cooldown() -> None:
    rules = [rule(cooldownMs=10_000)]

    assert at(rules, *[event(second) for second in (0, 1, 9.9, 10, 19, 21)]) == [0, 3, 5]


def test_the_end_of_a_run_forgets_what_was_counted_for_it() -> None:
    end = event(1, "execution.finished", node=None)

    assert at([rule(count=2)], event(0), end, event(2)) == []


@given(
    st.lists(st.floats(0, 100), max_size=40).map(sorted),
    st.integers(1, 5),
    st.integers(1, 50_000),
)
def test_counting_agrees_with_looking_back_from_each_event(times, count, within) -> None:
    members = {} if count == 1 else {"withinMs": within}
    expected, open_times = [], list[float]()
    for place, now in enumerate(times):
        seen = (BEGIN + timedelta(seconds=now)).timestamp()
        open_times.append(seen)
        if count > 1:
            open_times = [one for one in open_times if one > seen - within / 1000]
        if len(open_times) >= count:
            expected.append(place)
            open_times = []

    assert at([rule(count=count, **members)], *[event(now) for now in times]) == expected


# --- commands ------------------------------------------------------------------------------------


def test_fields_take_values_of_the_event_with_their_type() -> None:
    command = {
        "type": "StopWorkflow",
        "executionId": "${event.data.parent}",
        "mode": "${'KILL' if event.data.attempts > 3 else 'DRAIN'}",
        "reason": "after ${event.data.attempts} attempts of ${event.nodeId}",
    }

    [(_, proposal)] = answers([rule(command=command)], event(parent="p", attempts=4))

    assert proposal.command == StopWorkflow.parse({"executionId": "p", "mode": "KILL"})
    assert proposal.reason == "rule storm: after 4 attempts of n"


def test_a_command_to_a_node_is_about_the_node_of_the_event_unless_it_names_one() -> None:
    rules = [
        rule(name="own", command={"type": "PauseNode"}),
        rule(name="named", command={"type": "PauseNode", "nodeId": "gate"}),
    ]

    own, named = [proposal.command for _, proposal in answers(rules, event())]

    assert own == PauseNode(execution_id="r", node_id="n")
    assert named == PauseNode(execution_id="r", node_id="gate")


def test_where_a_rule_has_no_value_it_is_told_and_the_others_go_on() -> None:
    rules = [
        rule(name="wrong", when="event.data.missing > 3"),
        rule(name="no-node", command={"type": "PauseNode"}),
        rule(name="good"),
    ]

    found = [answer for _, answer in answers(rules, event(node=None))]

    assert [type(answer).__name__ for answer in found] == [
        "BadInputError",
        "BadInputError",
        "Proposal",
    ]
    assert found[0].detail.startswith("rule wrong: condition `event.data.missing > 3`")
    assert found[1].detail.startswith("rule no-node: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${event.data.n}", 3),
        ("n=${event.data.n}!", "n=3!"),
        ("${event.data.tags}", ["a"]),
        (["${event.type}", {"k": "${event.nodeId}"}], ["node.retry", {"k": "n"}]),
        ("no placeholder $ {}", "no placeholder $ {}"),
        (7, 7),
        (None, None),
    ],
)
def test_templates(value, expected) -> None:
    form = event(kind="node.retry", n=3, tags=["a"]).as_dict()

    assert Template(value).fill(form) == expected


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({}, ": document: Input should be a valid list"),
        ([3], ": /0: Input should be"),
        ([rule(nam="x")], ": /0/nam: Extra inputs are not permitted"),
        ([{"name": "x"}], ": /0/when: Field required"),
        ([rule(count=0)], ": /0/count: Input should be greater than or equal to 1"),
        ([rule(count="3")], ": /0/count: Input should be a valid integer"),
        ([rule(withinMs=5)], ": /0: Value error, withinMs says nothing without a count above 1"),
        ([rule(per="planet")], ": /0/per: Input should be 'execution', 'node' or 'session'"),
        ([rule(), rule()], ": /1/name: rule 0 has the same name"),
        ([rule(when="event.type ==")], ": /0/when: `event.type ==` is no condition"),
        ([rule(when="payload.n > 3")], ": /0/when: `payload.n > 3` is no condition"),
        ([rule(command={"type": "Explode"})], ": /0/command/type: must be one of PauseWorkflow"),
        ([rule(command={})], ": /0/command/type: must be one of"),
        (
            [rule(command={"type": "StopWorkflow", "mode": "SOFTLY"})],
            ": /0/command/mode: must be one of DRAIN",
        ),
        (
            [rule(command={"type": "PauseWorkflow", "n": 3})],
            ": /0/command/n: PauseWorkflow has no field n",
        ),
        (
            [rule(command={"type": "PauseWorkflow", "n": "${event.data.n}"})],
            ": /0/command/n: PauseWorkflow has no field n",
        ),
        (
            [rule(command={"type": "PauseWorkflow", "reason": "${event.}"})],
            ": /0/command/reason: `event.` is no condition",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(rules, words) -> None:
    with pytest.raises(ConfigError) as refused:
        RuleSupervisor(rules, "rules.json")

    assert refused.value.problems[0].startswith("yukta.supervisor.rules.file: rules.json: /0") or (
        "document" in words or "/1" in words
    )
    assert words in refused.value.detail


def test_all_faults_are_named_at_once() -> None:
    wrong = rule(when="(", command={"type": "StopWorkflow", "mode": "x", "extra": 1})

    with pytest.raises(ConfigError) as refused:
        RuleSupervisor([rule(), {**wrong, "name": "b"}, {**wrong, "name": "c"}])

    places = [problem.split(": ")[2] for problem in refused.value.problems]
    assert places == [
        *("/1/when", "/1/command/extra", "/1/command/mode"),
        *("/2/when", "/2/command/extra", "/2/command/mode"),
    ]


def test_a_file_that_is_not_there_or_no_json_is_named(tmp_path) -> None:
    (tmp_path / "bad.json").write_text("[}")

    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        RuleSupervisor.read(tmp_path / "none.json")
    with pytest.raises(ConfigError, match=r"bad\.json is not JSON"):
        RuleSupervisor.read(tmp_path / "bad.json")


def test_the_rules_of_the_example_are_right() -> None:
    assert len(RuleSupervisor.read(EXAMPLE).rules) == 1


@virtual_time
async def test_the_setting_turns_the_rule_supervisor_on(tmp_path) -> None:
    file = tmp_path / "rules.json"
    rules = [
        rule(
            when="event.type == 'node.log' and event.data.line.endswith('3}')",
            command={"type": "PauseWorkflow", "reason": "${event.data.line}"},
        ),
        rule(name="broken", when="event.type == 'node.log' and event.data.none > 1"),
    ]
    await asyncio.to_thread(file.write_text, json.dumps(rules))
    document = {
        "workflowId": "w",
        "nodes": [
            {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 0, "intervalMs": 100}},
            {"nodeId": "out", "type": "CONSOLE_TERMINAL"},
        ],
        "edges": [{"source": "in", "target": "out"}],
    }
    async with Engine(Settings(supervisor={"rules": {"file": file}})) as engine:
        run = await engine.start("s", document)
        await asyncio.sleep(10)
        [row] = engine.gateway.audit(run.execution_id)
        shown = engine.supervisors.get("rules")
        assert run.detail["paused"] is True
        await run.stop("KILL")

    assert (row["actor"], row["reason"]) == ("rules", 'rule storm: {"n":3}')
    assert shown["counts"] == {"APPLIED": 1, "invalid": 4}
    assert shown["lastError"].startswith("rule broken: ")


@virtual_time
async def test_a_fault_in_the_file_stops_the_start_and_leaves_nothing_behind(tmp_path) -> None:
    file = tmp_path / "rules.json"
    await asyncio.to_thread(file.write_text, "{}")

    with pytest.raises(ConfigError, match=r"rules\.json"):
        async with Engine(Settings(supervisor={"rules": {"file": file}})):
            pass


def test_a_command_about_a_node_of_a_run_that_ended_is_about_the_node_of_the_event() -> None:
    retry = rule(when="event.type == 'node.status'", command={"type": "RetryNode"})

    [(_, answer)] = answers([retry], event(kind="node.status", node="price"))

    assert answer.command == RetryNode("r", "price")
