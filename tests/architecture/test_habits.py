"""Habits that a machine can watch: owned tasks, short files, tests that assert."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "yukta_rx").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
TASKS_ARE_MADE_IN = ROOT / "yukta_rx/streams/tasks.py"
MAX_FILE, MAX_FUNCTION = 500, 60
REASON = "# Long because "

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# --- tasks (case 59: a task that nobody holds can be collected while it runs) --------------------


def loose_tasks(text: str, *, may_keep: bool = False) -> list[int]:
    """Lines that start a task outside a task group; with `may_keep`, only those dropped at once."""
    tree = ast.parse(text)
    groups = set(task_groups(tree))
    dropped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in {"create_task", "ensure_future"}:
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        grouped = isinstance(owner, ast.Name) and owner.id in groups
        if not grouped and (not may_keep or id(node) in dropped):
            lines.append(node.lineno)
    return lines


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def task_groups(tree: ast.AST) -> Iterator[str]:
    """Names bound by `async with asyncio.TaskGroup() as name`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                call, name = item.context_expr, item.optional_vars
                is_group = isinstance(call, ast.Call) and called(call) == "TaskGroup"
                if is_group and isinstance(name, ast.Name):
                    yield name.id


@pytest.mark.feature("ENG-02")
@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_case_59_every_task_is_made_where_someone_owns_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert loose_tasks(text, may_keep=path == TASKS_ARE_MADE_IN) == []


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(f())",
        "task = asyncio.create_task(f())",
        "loop.create_task(f())",
        "asyncio.get_running_loop().create_task(f())",
        "create_task(f())",
        "asyncio.ensure_future(f())",
    ],
)
def test_case_59_a_loose_task_is_noticed(line: str) -> None:
    assert loose_tasks(line) == [1]


def test_case_59_a_task_of_a_group_is_owned() -> None:
    text = (
        "async def f():\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(g())\n"
    )

    assert loose_tasks(text) == []


def test_case_59_even_the_owner_of_tasks_may_not_drop_one() -> None:
    assert loose_tasks("task = loop.create_task(f())", may_keep=True) == []
    assert loose_tasks("loop.create_task(f())", may_keep=True) == [1]


# --- counting (`self.n += await f()` reads `self.n` before it waits) -----------------------------


def stale_sums(text: str) -> list[int]:
    """Lines that add to what others change, too, and wait for the summand in between."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.AugAssign)
        and not isinstance(node.target, ast.Name)
        and any(isinstance(part, ast.Await) for part in ast.walk(node.value))
    ]


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_nothing_is_added_to_what_was_read_before_a_wait(path: Path) -> None:
    assert stale_sums(path.read_text(encoding="utf-8")) == []


def test_a_sum_of_before_a_wait_is_noticed() -> None:
    text = (
        "async def f(self):\n"
        "    self.n += await g()\n"
        "    self.n[0] -= 1 + len(await g())\n"
        "    n += await g()\n"
        "    self.n += n\n"
    )

    assert stale_sums(text) == [2, 3]


# --- size ----------------------------------------------------------------------------------------


def too_long(text: str) -> list[str]:
    lines = text.splitlines()
    if len(lines) > MAX_FILE and not any(line.startswith(REASON) for line in lines[:30]):
        return [f"{len(lines)} lines"]
    return []


def long_functions(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, FUNCTIONS):
            first = node.body[0]
            documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            doc = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            length = (node.end_lineno or 0) - node.lineno + 1 - doc
            if length > MAX_FUNCTION:
                found.append(f"{node.name}: {length} lines")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_file_is_too_long_without_saying_why(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_function_is_too_long(path: Path) -> None:
    assert long_functions(path.read_text(encoding="utf-8")) == []


def test_a_long_file_or_function_is_noticed() -> None:
    function = "def f():\n" + "    x = 1\n" * MAX_FUNCTION

    assert too_long("x = 1\n" * (MAX_FILE + 1)) == [f"{MAX_FILE + 1} lines"]
    assert too_long(f"{REASON}it is a table.\n" + "x = 1\n" * MAX_FILE) == []
    assert long_functions(function) == [f"f: {MAX_FUNCTION + 1} lines"]


# --- documents in the code -----------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_every_module_says_in_a_sentence_what_it_is(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""

    assert doc.strip()


# --- tests ---------------------------------------------------------------------------------------


def unasserted(text: str) -> list[str]:
    """Tests that can only fail by an exception, neither asserting nor expecting one."""
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    asserting = {node.name for node in functions if asserts(node, set())}
    while True:
        more = {node.name for node in functions if asserts(node, asserting)}
        if more == asserting:
            break
        asserting = more
    return [
        node.name
        for node in functions
        if node.name.startswith("test_") and node.name not in asserting
    ]


def asserts(function: ast.AST, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = called(node)
            # `check` is the one of yukta_rx.testing; a rule that no test can show is a skip.
            if name in {"raises", "warns", "fail", "check", "skip"} or name in helpers:
                return True
            if name.startswith(("assert_", "check_", "expect_", "verify_")):
                return True
    return False


@pytest.mark.parametrize("path", TESTS, ids=named)
def test_every_test_asserts_something(path: Path) -> None:
    assert unasserted(path.read_text(encoding="utf-8")) == []


def test_a_test_without_assertion_is_noticed() -> None:
    text = (
        "def test_a():\n    f()\n"
        "def test_b():\n    helper()\n"
        "def helper():\n    assert True\n"
        "def test_c():\n    with pytest.raises(ValueError):\n        f()\n"
    )

    assert unasserted(text) == ["test_a"]
