"""What importing does: every module alone, nothing heavy, the public names and no others."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import yukta_rx

ROOT = Path(__file__).parents[2]
HEAVY = ["sqlalchemy", "asyncpg", "alembic", "aiohttp.web", "mcp", "rich", "opentelemetry"]

PUBLIC = [
    "Allow",
    "BadInputError",
    "ClearBreakpoint",
    "Command",
    "ControlRequest",
    "ControlReviewer",
    "Deny",
    "Engine",
    "ExecutionEvent",
    "ExecutionSupervisor",
    "Hold",
    "Message",
    "Modify",
    "NodeContext",
    "PauseNode",
    "PauseWorkflow",
    "PluginConfig",
    "ProcessorPlugin",
    "Proposal",
    "ResumeNode",
    "ResumeWorkflow",
    "RunAbortedError",
    "SetBreakpoint",
    "SetStepMode",
    "Settings",
    "SkipNode",
    "StepNode",
    "StepWorkflow",
    "StopNode",
    "StopWorkflow",
    "TaskStatus",
    "UnskipNode",
    "WorkflowDefinition",
    "__version__",
    "create_app",
    "errors",
    "load_settings",
    "processor",
    "terminal",
    "to_port",
    "trigger",
]

# Forks one child per module from a process that has loaded the libraries but nothing of ours, so
# each module is the first of yukta_rx to be imported; as many at a time as there are processors.
IMPORT_EACH_ALONE = """
import importlib, json, os, sys
for library in (
    "pydantic", "msgspec", "orjson", "reactivex", "reactivex.operators", "click",
    "prometheus_client", "aiohttp", "aiohttp.web", "aiohttp_sse", "cachetools", "asyncio", "pytest",
):
    importlib.import_module(library)
room = os.cpu_count() or 1
for name in json.load(sys.stdin):
    if room:
        room -= 1
    else:
        os.wait()
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(f"{name}: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""


def modules() -> list[str]:
    found = []
    for path in sorted((ROOT / "yukta_rx").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] != "__main__":
            found.append(".".join(parts).removesuffix(".__init__"))
    return found


def loaded_by(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint('=====')\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.rpartition("=====")[2].split())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_module_can_be_imported_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_ALONE],
        cwd=ROOT,
        input=json.dumps(modules()),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == ""


def test_importing_the_package_loads_no_library_at_all() -> None:
    roots = {name.partition(".")[0] for name in loaded_by("import yukta_rx")}

    assert {"pydantic", "reactivex", "msgspec", "orjson", "aiohttp", "click"} & roots == set()
    assert set(HEAVY) & roots == set()


@pytest.mark.slow
def test_the_help_of_the_command_loads_nothing_heavy() -> None:
    loaded = loaded_by(
        "from yukta_rx.cli.main import main\n"
        "sys.argv = ['yukta', '--help']\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert end.code in (0, None)"
    )

    assert "yukta_rx.cli.main" in loaded
    assert set(HEAVY) & loaded == set()


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(yukta_rx.__all__) == sorted(PUBLIC)
    assert set(PUBLIC) <= set(dir(yukta_rx))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(yukta_rx, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        importlib.import_module("yukta_rx").nothing  # noqa: B018
