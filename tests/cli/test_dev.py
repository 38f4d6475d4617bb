"""`yukta dev`: files become workflows, and changes are applied again."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.app import Engine
from yukta_rx.cli.console import CliError, Console
from yukta_rx.cli.dev_session import DevSession, roots
from yukta_rx.cli.documents import with_folder
from yukta_rx.config.settings import Settings
from yukta_rx.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

pytestmark = pytest.mark.feature("DEF-01")

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = ("t", "SEQUENCE_TRIGGER", {"count": 1})
TWO = ("t", "SEQUENCE_TRIGGER", {"count": 2})
BAD = ("t", "SEQUENCE_TRIGGER", {"count": -1})
END = ("out", "COLLECT_TERMINAL")


class Dev:
    """An engine that follows files; each look returns what was said."""

    def __init__(self, engine: Engine, session: DevSession, capsys: Any) -> None:
        self.engine = engine
        self._session = session
        self._capsys = capsys

    async def look(self) -> list[str]:
        await self._session.look(self.engine)
        return self._capsys.readouterr().err.splitlines()

    async def run(self, workflow_id: str) -> list[Any]:
        run = await self.engine.start("dev", workflow_id)
        await run.wait(timeout=10)
        return [item.payload async for item in run.results() if item.type == "RESULT"]


@pytest.fixture
async def dev(capsys) -> AsyncIterator[Callable[..., Any]]:
    engines: list[Engine] = []

    async def follow(*paths: str) -> Dev:
        settings = Settings()
        for folder in await asyncio.to_thread(roots, paths):
            settings = with_folder(settings, folder)
        registry = PluginRegistry.load(settings)
        engine = Engine(settings, registry=registry)
        await engine.__aenter__()
        engines.append(engine)
        return Dev(engine, DevSession(Console(), paths, registry, settings), capsys)

    yield follow

    for engine in engines:
        await engine.close()


# --- the files -----------------------------------------------------------------------------------


async def test_what_did_not_change_is_not_applied_again(dev, workflow, tmp_path) -> None:
    workflow(ONE, END)
    now = await dev("flow.json")

    first, second = await now.look(), await now.look()
    (tmp_path / "flow.json").touch()
    touched = await now.look()

    assert first == ["yukta: session dev: created flow"]
    assert second == touched == []


async def test_a_change_is_applied_and_a_fault_leaves_the_last_valid_form(dev, workflow) -> None:
    path = workflow(ONE, END)
    now = await dev(path)
    await now.look()

    workflow(TWO, END)
    changed = await now.look()
    workflow(BAD, END)
    fault, again = await now.look(), await now.look()
    kept = await now.run("flow")
    workflow(ONE, END)
    mended = await now.look()

    assert changed == mended == ["yukta: session dev: changed flow"]
    assert len(fault) == 1
    assert fault[0].startswith(f"yukta: {path}:8: node `t`, option `count`")
    assert again == []
    assert kept == [{"n": 0}, {"n": 1}]


async def test_files_that_come_and_go_in_a_folder_are_followed(dev, workflow, tmp_path) -> None:
    (tmp_path / "flows" / "deep").mkdir(parents=True)
    workflow(ONE, END, name="flows/a.json", workflowId="a")
    now = await dev("flows")
    await now.look()

    workflow(ONE, END, name="flows/deep/b.json", workflowId="b")
    (tmp_path / "flows" / "payload.json").write_text('{"no": "workflow"}')
    came = await now.look()
    (tmp_path / "flows" / "a.json").unlink()
    went = await now.look()

    assert came == ["yukta: session dev: created b; unchanged a"]
    assert went == ["yukta: session dev: removed a; unchanged b"]


async def test_a_file_that_is_wrong_from_the_begin_is_taken_once_it_is_right(dev, workflow) -> None:
    workflow(BAD, END)
    now = await dev("flow.json")

    wrong = await now.look()
    workflow(ONE, END)
    right = await now.look()

    assert wrong[0].startswith("yukta: flow.json:8: node `t`, option `count`")
    assert wrong[1:] == ["yukta: session dev: no workflows"]
    assert right == ["yukta: session dev: created flow"]


async def test_a_workflow_is_taken_once_the_file_that_it_reads_is_there(
    dev, workflow, tmp_path
) -> None:
    workflow(("t", "FILE_TRIGGER", {"path": "in.jsonl"}), END)
    now = await dev("flow.json")

    missing = await now.look()
    (tmp_path / "in.jsonl").write_text("7\n")
    there = await now.look()

    assert "cannot be read" in missing[0]
    assert there == ["yukta: session dev: created flow"]
    assert await now.run("flow") == [7]


async def test_relative_paths_start_from_the_folder_of_each_file(dev, workflow, tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / "flows" / name).mkdir(parents=True)
        (tmp_path / "flows" / name / "in.jsonl").write_text(f'"{name}"\n')
        trigger = ("t", "FILE_TRIGGER", {"path": "in.jsonl"})
        workflow(trigger, END, name=f"flows/{name}/flow.json", workflowId=name)
    now = await dev("flows")
    await now.look()

    assert await now.run("a") == ["a"]
    assert await now.run("b") == ["b"]


async def test_a_file_that_moves_takes_its_paths_along(dev, workflow, tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / "flows" / name).mkdir(parents=True)
        (tmp_path / "flows" / name / "in.jsonl").write_text(f'"{name}"\n')
    workflow(("t", "FILE_TRIGGER", {"path": "in.jsonl"}), END, name="flows/a/flow.json")
    now = await dev("flows")
    await now.look()

    (tmp_path / "flows" / "a" / "flow.json").rename(tmp_path / "flows" / "b" / "flow.json")
    moved = await now.look()

    assert moved == ["yukta: session dev: changed flow"]
    assert await now.run("flow") == ["b"]


async def test_the_second_file_with_a_workflow_id_is_reported(dev, workflow, tmp_path) -> None:
    (tmp_path / "flows").mkdir()
    workflow(ONE, END, name="flows/a.json")
    workflow(ONE, END, name="flows/b.json")
    now = await dev("flows")

    both = await now.look()
    (tmp_path / "flows" / "a.json").unlink()
    one = await now.look()

    assert both == [
        "yukta: flows/b.json:2: /workflowId: workflow flow is also in flows/a.json",
        "yukta: session dev: created flow",
    ]
    assert one == []


async def test_a_workflow_with_live_runs_is_removed_once_they_have_ended(
    dev, workflow, tmp_path
) -> None:
    (tmp_path / "flows").mkdir()
    workflow(ONE, END, name="flows/keep.json", workflowId="keep")
    endless = ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 20})
    workflow(endless, END, name="flows/go.json", workflowId="go")
    now = await dev("flows")
    await now.look()
    run = await now.engine.start("dev", "go")

    (tmp_path / "flows" / "go.json").unlink()
    refused, again = await now.look(), await now.look()
    await run.stop()
    await run.wait(timeout=10)
    removed = await now.look()

    assert refused == ["yukta: workflow go has live runs: stop them first"]
    assert again == []
    assert removed == ["yukta: session dev: removed go; unchanged keep"]


async def test_settings_of_the_session_survive_a_change_of_its_files(dev, workflow) -> None:
    workflow(ONE, END)
    now = await dev("flow.json")
    await now.look()
    await now.engine.definitions.patch_session("dev", {"executionTimeoutMs": 5})

    workflow(TWO, END)
    await now.look()

    view = await now.engine.definitions.get_session("dev")
    assert view.as_dict()["executionTimeoutMs"] == 5


async def test_a_folder_without_workflows_is_refused_and_one_that_becomes_empty_is_not(
    dev, workflow, tmp_path
) -> None:
    with pytest.raises(CliError, match=r"no workflow file in \."):
        await (await dev(".")).look()

    workflow(ONE, END)
    now = await dev(".")
    await now.look()
    (tmp_path / "flow.json").unlink()

    assert await now.look() == ["yukta: session dev: removed flow"]


def test_a_path_that_is_not_there_is_refused(yukta) -> None:
    ended = yukta("dev", "--port", "0", "none.json")

    assert (ended.code, ended.err) == (2, "yukta: none.json: no such file or directory\n")


# --- the process ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_examples_run_in_the_session_dev(serve, spawn) -> None:
    server = serve(str(EXAMPLES), command="dev")

    payload = f"@{EXAMPLES}/orders/payload.json"
    orders = server.ask("start", "dev/orders", "--payload", payload, "--wait")
    airports = server.ask("start", "dev/airports").out.strip()
    follower = spawn("result", airports, "-f", env=server.environ)
    page = json.loads(follower.stdout.readline())

    # The first line of all: of no example is there anything to say before it.
    assert server.said[0] == "yukta: session dev: created airports, desk, orders, stormy\n"
    assert orders.code == 0
    results = server.ask("result", orders.out.strip()).results
    assert Counter(line["nodeId"] for line in results) == {"mail": 5, "ledger": 25, "unpriced": 1}
    assert page["payload"]["page"].startswith("00M to ")


@pytest.mark.slow
def test_changes_are_noticed_while_it_serves_and_with_json_plans_and_faults_are_objects(
    spawn, workflow, rest
) -> None:
    workflow(ONE, END)
    process = spawn("dev", "--port", "0", "--json", "flow.json")

    plan, serving = (json.loads(process.stderr.readline()) for _ in range(2))
    workflow(BAD, END)
    fault = json.loads(process.stderr.readline())
    workflow(TWO, END)
    change = json.loads(process.stderr.readline())
    process.send_signal(signal.SIGINT)
    rest(process)

    assert plan["type"] == change["type"] == "applied"
    assert (plan["created"], change["changed"]) == (["flow"], ["flow"])
    assert serving["type"] == "serving"
    assert fault["code"] == "validation"
    assert fault["errors"][0]["line"] == 8
    assert process.returncode == 0
