"""Supervisors and reviewers of installed packages, found by their entry points."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.config.settings import Settings
from yukta_rx.control.commands import PauseWorkflow
from yukta_rx.control.discovery import discover
from yukta_rx.errors import ConfigError, ControlRejectedError
from yukta_rx.testing.clock import run_virtual

pytestmark = pytest.mark.feature("CTL-06", "CTL-07")

CODE = """
from yukta_rx import Deny, ExecutionSupervisor, PauseWorkflow

class Pauses(ExecutionSupervisor):
    id = "pauses"
    async def supervise(self, events):
        async for event in events:
            if event.type == "node.log":
                yield PauseWorkflow(execution_id=event.execution_id)

instance = Pauses()

async def function(events):
    async for event in events:
        yield PauseWorkflow(execution_id=event.execution_id)

class NoStops:
    id = "no-stops"
    order = 5
    def review(self, request):
        return Deny("never") if request.command.name() == "StopWorkflow" else None

class Empty:
    pass
"""
_count = itertools.count()
DOCUMENT = {
    "workflowId": "w",
    "nodes": [
        {"nodeId": "in", "type": "SEQUENCE_TRIGGER", "config": {"count": 20, "intervalMs": 100}},
        {"nodeId": "out", "type": "CONSOLE_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "out"}],
}


@pytest.fixture
def installed(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Install a package with these entry points, as pip would."""

    def install(supervisors: Any = (), reviewers: Any = ()) -> str:
        module = f"found_{next(_count)}"
        folder = tmp_path / module
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(CODE)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        groups = {"yukta_rx.supervisors": supervisors, "yukta_rx.reviewers": reviewers}
        lines = []
        for group, entries in groups.items():
            lines += [f"[{group}]", *(f"{name} = {module}:{what}" for name, what in entries)]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(folder)
        return module

    return install


@pytest.mark.parametrize(
    ("id", "what"), [("pauses", "Pauses"), ("pauses", "instance"), ("function", "function")]
)
def test_classes_instances_and_functions_are_found(installed, id, what) -> None:
    installed([(id, what)])

    [found] = discover(Settings()).supervisors

    assert found.id == id


def test_without_any_nothing_is_found() -> None:
    found = discover(Settings())

    assert (found.supervisors, found.reviewers, found.broken) == ((), (), ())


def test_what_is_installed_steers_and_reviews(installed) -> None:
    async def story() -> tuple[bool, dict[str, int]]:
        async with Engine() as engine:
            run = await engine.start("s", DOCUMENT)
            await asyncio.sleep(1)
            paused = run.detail["paused"]
            with pytest.raises(ControlRejectedError, match="no-stops: never"):
                await run.stop()
            await run.resume()
            return paused, {one["id"]: one["order"] for one in engine.supervisors.list()}

    installed([("pauses", "Pauses")], [("no-stops", "NoStops")])

    paused, shown = run_virtual(story())

    assert paused is True
    assert shown == {"no-stops": 5, "pauses": 0}


def test_a_name_in_the_settings_leaves_one_out(installed) -> None:
    installed([("pauses", "Pauses")], [("no-stops", "NoStops")])

    found = discover(Settings(plugins={"disabled": ("pauses", "no-stops")}))

    assert (found.supervisors, found.reviewers) == ((), ())


def test_a_broken_supervisor_is_listed_and_stops_nothing(installed) -> None:
    async def listed() -> dict[str, dict[str, Any]]:
        async with Engine() as engine:
            return {one["id"]: one for one in engine.supervisors.list()}

    module = installed([("gone", "Nothing"), ("other", "Pauses"), ("empty", "Empty")])

    shown = run_virtual(listed())

    assert set(shown) == {"gone", "other", "empty"}
    assert {one["state"] for one in shown.values()} == {"FAILED"}
    assert shown["gone"]["lastError"].startswith(
        f"supervisor gone cannot be loaded from {module}:Nothing ({module} 1.0): module"
    )
    assert shown["other"]["lastError"].endswith("its id is pauses, not that of the entry point")
    assert "has no method `supervise" in shown["empty"]["lastError"]


def test_a_broken_supervisor_stops_a_strict_start(installed) -> None:
    installed([("gone", "Nothing")])

    with pytest.raises(ConfigError, match="supervisor gone cannot be loaded"):
        discover(Settings(plugins={"strict": True}))


@pytest.mark.parametrize(
    ("what", "words"), [("Nothing", "no attribute 'Nothing'"), ("Empty", "no method `review")]
)
def test_a_broken_reviewer_always_stops_the_start(installed, what, words) -> None:
    installed(reviewers=[("policy", what)])

    with pytest.raises(ConfigError, match=f"reviewer policy cannot be loaded.*{words}"):
        discover(Settings())


def test_two_of_one_name_are_refused_naming_both(installed) -> None:
    first, second = (installed([("pauses", "Pauses")]) for _ in range(2))

    with pytest.raises(ConfigError) as refused:
        discover(Settings())

    [problem] = refused.value.problems
    assert f"{first}:Pauses ({first} 1.0)" in problem
    assert f"{second}:Pauses ({second} 1.0)" in problem
    assert "yukta.plugins.disabled" in problem


def test_one_that_is_installed_and_passed_in_is_there_twice(installed) -> None:
    async def pauses(events):
        async for event in events:
            yield PauseWorkflow(execution_id=event.execution_id)

    async def start() -> None:
        async with Engine(supervisors=[pauses]):
            pass

    installed([("pauses", "Pauses")])

    with pytest.raises(ConfigError, match="two supervisors have the id pauses"):
        run_virtual(start())
