"""The registry: built-in plugins, installed ones, and what happens to bad ones."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.errors import ConfigError, NotFoundError
from yukta_rx.plugins.contract import processor
from yukta_rx.plugins.registry import PluginRegistry

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("EXT-01")

BUILT_IN = {
    "API_TRIGGER",
    "BATCH",
    "COLLECT_TERMINAL",
    "CONSOLE_TERMINAL",
    "DELAY",
    "FILE_TRIGGER",
    "NULL_TERMINAL",
    "SEQUENCE_TRIGGER",
    "SPLIT",
    "TRANSFORM",
}

PLUGIN = '''
from yukta_rx.plugins.contract import processor

@processor("{type}")
def plugin(msg, cfg, ctx):
    """Shout."""
    return msg.payload.upper()
'''


def options(**names: Any) -> Any:
    return SimpleNamespace(plugins=SimpleNamespace(**{"disabled": (), "strict": False} | names))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lay an installed distribution out on disk, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def lay_out(name: str, source: str, entries: dict[str, str], version: str = "1.2") -> None:
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        points = "".join(f"{type} = {target}\n" for type, target in entries.items())
        (info / "entry_points.txt").write_text(f"[yukta_rx.plugins]\n{points}")

    yield lay_out

    for module in ("shouting", "whispering"):
        sys.modules.pop(module, None)


def test_every_built_in_type_is_found_and_named_after_its_module() -> None:
    registry = PluginRegistry.load()

    assert set(registry.types()) >= BUILT_IN
    assert {spec.type for spec in registry.specs()} == set(registry.types())
    assert registry.broken() == {}


def test_a_plugin_of_an_installed_package_is_found_and_imported_only_when_asked_for(
    install,
) -> None:
    install("shouting", PLUGIN.format(type="SHOUT"), {"SHOUT": "shouting:plugin"})
    registry = PluginRegistry.load()

    assert "SHOUT" in registry
    assert "shouting" not in sys.modules

    spec = registry.get("SHOUT")

    assert spec.source == "shouting:plugin"
    assert spec.summary == "Shout."


def test_one_type_from_two_packages_stops_the_start_and_names_both(install) -> None:
    install("shouting", PLUGIN.format(type="SHOUT"), {"SHOUT": "shouting:plugin"})
    install("whispering", PLUGIN.format(type="SHOUT"), {"SHOUT": "whispering:plugin"}, "0.3")

    with pytest.raises(ConfigError) as refused:
        PluginRegistry.load()

    text = str(refused.value)
    assert "SHOUT" in text
    assert "shouting:plugin (shouting 1.2)" in text
    assert "whispering:plugin (whispering 0.3)" in text


def test_a_package_cannot_take_the_name_of_a_built_in_type(install) -> None:
    install("shouting", PLUGIN.format(type="SPLIT"), {"SPLIT": "shouting:plugin"})

    with pytest.raises(ConfigError, match=r"yukta_rx\.nodes\.split.*shouting:plugin"):
        PluginRegistry.load()


def test_a_type_named_as_disabled_is_gone_and_so_is_its_conflict(install) -> None:
    install("shouting", PLUGIN.format(type="SPLIT"), {"SPLIT": "shouting:plugin"})

    registry = PluginRegistry.load(options(disabled=("SPLIT",)))

    assert "SPLIT" not in registry.types()
    with pytest.raises(NotFoundError, match=r"switched off by yukta\.plugins\.disabled"):
        registry.get("SPLIT")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("raise SystemExit('leaving')", "leaving"),
        ("plugin = 7", "is not a plugin"),
        (PLUGIN.format(type="OTHER"), "declares the type OTHER"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_refused_when_asked_for_and_harms_nobody(
    install, source, reason
) -> None:
    install("shouting", source, {"SHOUT": "shouting:plugin"})
    registry = PluginRegistry.load()

    assert registry.get("SPLIT").type == "SPLIT"
    with pytest.raises(NotFoundError, match=reason) as refused:
        registry.get("SHOUT")

    assert refused.value.code == "plugin_not_found"
    assert "shouting:plugin (shouting 1.2)" in str(refused.value)
    assert set(registry.broken()) == {"SHOUT"}


def test_strict_stops_the_start_for_a_broken_plugin(install) -> None:
    install("shouting", "plugin = 7", {"SHOUT": "shouting:plugin"})

    with pytest.raises(ConfigError, match="SHOUT"):
        PluginRegistry.load(options(strict=True))


def test_an_unknown_type_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(NotFoundError, match="did you mean TRANSFORM") as refused:
        PluginRegistry.load().get("transfrom")

    assert refused.value.code == "plugin_not_found"


def test_a_type_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(NotFoundError, match=r"there are API_TRIGGER, BATCH, .*TRANSFORM"):
        PluginRegistry.load().get("zzz")


def test_plugins_can_be_passed_in() -> None:
    @processor("MINE")
    def mine(msg: Any, cfg: Any, ctx: Any) -> Any:
        return msg

    registry = PluginRegistry.load(extra=[mine])

    assert registry.get("MINE").fn is mine
