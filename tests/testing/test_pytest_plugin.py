"""The pytest plugin from outside: its fixtures in every mode, and what loading it costs."""

from __future__ import annotations

import json
from typing import Any

import pytest

# A process of its own takes seconds where the machine is busy.
pytestmark = [pytest.mark.feature("EXT-01"), pytest.mark.slow, pytest.mark.timeout(200)]

FIXTURES = """
import pytest
from yukta_rx import TaskStatus

pytestmark = pytest.mark.{mark}
WORKFLOW = {{
    "workflowId": "w",
    "nodes": [
        {{"nodeId": "numbers", "type": "SEQUENCE_TRIGGER", "config": {{"count": 3}}}},
        {{"nodeId": "out", "type": "COLLECT_TERMINAL"}},
    ],
    "edges": [{{"source": "numbers", "target": "out"}}],
}}


async def test_engine(yukta_engine):
    run = await yukta_engine.start("s", WORKFLOW)
    assert await run.wait(10) is TaskStatus.SUCCESS


async def test_server_and_client(yukta_engine, yukta_server, yukta_client):
    assert yukta_server.url.startswith("http://127.0.0.1:")
    run = await yukta_engine.start("s", WORKFLOW)
    await run.wait(10)
    async with yukta_client.get(f"/api/executions/{{run.execution_id}}") as answer:
        assert answer.status == 200
        assert (await answer.json())["status"] == "SUCCESS"


@pytest.fixture
def anyio_backend():
    return "asyncio"
"""

OWN = """
import pytest
from yukta_rx import Settings, TaskStatus, processor
from yukta_rx.config.load import load_settings


@processor("SHOUT")
async def shout(msg, cfg, ctx):
    return msg.payload["text"].upper()


@pytest.fixture
def yukta_plugins():
    return [shout]


@pytest.fixture
def yukta_settings():
    return load_settings(environ={}, overrides={"yukta.execution.prefetch": 7})


@pytest.mark.asyncio
async def test_own(yukta_engine):
    assert yukta_engine.settings.execution.prefetch == 7
    assert "SHOUT" in yukta_engine.registry
"""

LOADED = """
import json, sys
HEAVY = ("yukta_rx", "reactivex", "aiohttp", "pydantic", "msgspec", "orjson")
AT_START = [name for name in sys.modules if name.startswith(HEAVY)]

def test_loaded():
    print("AT START", json.dumps(sorted(AT_START)))
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_fixtures_work_with_pytest_asyncio_in_either_mode(outside: Any, mode: str) -> None:
    outside.write({"test_it.py": FIXTURES.format(mark="asyncio")})

    counts = outside.pytest("-o", f"asyncio_mode={mode}", "-W", "error")

    assert counts == {"passed": 2}, outside.output


def test_the_fixtures_work_with_anyio_alone(outside: Any) -> None:
    pytest.importorskip("anyio")
    outside.write({"test_it.py": FIXTURES.format(mark="anyio"), "pytest.ini": "[pytest]\n"})

    counts = outside.pytest("-p", "no:asyncio", "-W", "error")

    assert counts == {"passed": 2}, outside.output


def test_settings_and_plugins_of_the_engine_are_the_tests_own(outside: Any) -> None:
    outside.write({"test_it.py": OWN})

    counts = outside.pytest("-W", "error")

    assert counts == {"passed": 1}, outside.output


def test_a_test_that_is_no_coroutine_is_told_to_be_one(outside: Any) -> None:
    fixtures = ("yukta_engine", "yukta_server", "yukta_client")
    tests = [f"def test_{name}({name}):\n    pass\n" for name in fixtures]
    outside.write({"test_it.py": "\n".join(tests)})

    counts = outside.pytest("-rN")

    assert counts == {"errors": 3}, outside.output
    assert outside.output.count("make the test `async def`") == 3


def test_loading_the_plugin_loads_nothing_else(outside: Any) -> None:
    outside.write({"conftest.py": "", "test_it.py": LOADED})

    outside.pytest("-s")

    shown = outside.output.partition("AT START ")[2].partition("\n")[0]
    assert json.loads(shown) == ["yukta_rx", "yukta_rx.testing", "yukta_rx.testing.pytest_plugin"]


def test_the_plugin_can_be_left_out(outside: Any) -> None:
    text = "def test_sync():\n    pass\n\ndef test_fixture(yukta_settings):\n    pass\n"
    outside.write({"test_it.py": text})

    counts = outside.pytest("-p", "no:yukta")

    assert counts == {"passed": 1, "error": 1}, outside.output
    assert "fixture 'yukta_settings' not found" in outside.output


def test_a_bare_import_of_the_kit_loads_no_library(outside: Any) -> None:
    program = "import sys, yukta_rx.testing; print(*sorted(sys.modules))"

    loaded = outside.python("-c", program).stdout.split()

    heavy = {"reactivex", "aiohttp", "pydantic", "msgspec", "pytest", "asyncio"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()


def test_every_name_of_the_kit_can_be_had() -> None:
    from yukta_rx import testing

    assert set(testing.__all__) <= set(dir(testing))
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        testing.nothing  # noqa: B018
