"""docs/plugins.md does what it says: its package is made, installed and tested as it stands."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import Message, NodeContext, processor
from yukta_rx.testing import PluginHarness, check_processor
from yukta_rx.testing.plugins import PLUGIN_CHECKS

if TYPE_CHECKING:
    from collections.abc import Iterator

# A process of its own takes seconds where the machine is busy.
pytestmark = [pytest.mark.feature("EXT-01"), pytest.mark.slow, pytest.mark.timeout(200)]

PAGE = (Path(__file__).parents[2] / "docs/plugins.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """The Python blocks by the file that their first line names."""
    found: dict[str, str] = defaultdict(str)
    for language, text in BLOCKS:
        if language == "python":
            named = re.match(r"# (\S+\.py)\n", text)
            assert named, f"a block does not name its file: {text[:60]}"
            found[named[1]] += text
    return found


def test_everything_on_the_page_works_as_it_is_shown(outside: Any) -> None:
    project = tomllib.loads("".join(text for language, text in BLOCKS if language == "toml"))
    outside.install("my_package", project["project"]["entry-points"])
    outside.write(files())

    counts = outside.pytest("-o", "asyncio_mode=auto", "-W", "error", "tests")

    tests = re.findall(r"^(?:async )?def test_", "\n".join(files().values()), re.MULTILINE)
    inherited = len(PLUGIN_CHECKS) * PAGE.count("(PluginContract):")
    assert counts == {"passed": len(tests) + inherited}, outside.output


# What each plugin of the page is tried with.
CASES: dict[str, dict[str, Any]] = {
    "greet": {"payloads": [{"name": "Ada"}]},
    "lookup": {},
    "words": {"payloads": ["to be", "or not"]},
    "countdown": {"payloads": [3, 1]},
    "squares": {"payloads": [3, 9]},
    "Pairs": {"payloads": [1, 2, 3, 4]},
    "poll": {"endless": True},
    "keep": {},
    "sort": {"payloads": [1, 2, 3]},
    "limit": {"payloads": [{"price": 1}, {"price": 200}]},
    "ledger": {},
    "pay": {"payloads": [{"amount": 1}, {"amount": 20}]},
    "ask": {"payloads": [{"price": 1}, {"price": 20}]},
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The package of the page, to be imported; gives its files."""
    shown = {path: text for path, text in files().items() if path.startswith("my_package/")}
    for path, text in shown.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield shown
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


@pytest.mark.parametrize("name", CASES)
def test_every_plugin_that_the_page_shows_keeps_the_contract(
    package: dict[str, str], name: str
) -> None:
    [home] = [path for path, text in package.items() if re.search(rf"(def|class) {name}\b", text)]
    module = import_module(home.removesuffix(".py").replace("/", "."))

    check_processor(getattr(module, name), **CASES[name])


def test_no_plugin_of_the_page_is_left_out(package: dict[str, str]) -> None:
    shown = re.findall(r"^@(?:processor|trigger|terminal)\(", "\n".join(package.values()), re.M)

    assert len(shown) == len(CASES)


def test_the_policy_on_the_page_does_what_the_page_says() -> None:
    [policy] = [json.loads(text) for language, text in BLOCKS if language == "json"]

    @processor("FAILS", blocking=False)
    def fails(msg: Message, cfg: Any, ctx: NodeContext) -> Any:
        raise LookupError("no")

    with PluginHarness(fails, policy) as h:
        sent = h.send({"n": 1})

        assert sent.to("error").payloads == [{"n": 1}]
        assert h.errors[0].attempts == 3
