"""`yukta plugins` and `yukta version`."""

from __future__ import annotations

import pytest

from yukta_rx import __version__


@pytest.mark.feature("EXT-01")
def test_the_list_has_a_line_per_type_with_kind_and_summary(yukta) -> None:
    lines = yukta("plugins").out.splitlines()

    assert len(lines) >= 10
    assert any(line.startswith("SPLIT ") and "PROCESSOR" in line for line in lines)


@pytest.mark.feature("EXT-01")
def test_show_explains_options_defaults_and_example(yukta) -> None:
    ended = yukta("plugins", "show", "FILE_TRIGGER")

    assert ended.code == 0
    assert "option path (required): The file" in ended.out
    assert 'option format (default "jsonl")' in ended.out
    assert '"onBadLine": "SKIP"' in ended.out


@pytest.mark.feature("EXT-01")
def test_show_with_json_gives_the_schema(yukta) -> None:
    (entry,) = yukta("plugins", "show", "API_TRIGGER", "--json").results

    assert entry["type"] == "API_TRIGGER"
    assert entry["configSchema"]["properties"]["splitPath"]["x-yukta-fixed"] is True


@pytest.mark.feature("EXT-01")
def test_the_list_as_json_has_an_object_per_type(yukta) -> None:
    assert {"BATCH", "DELAY"} <= {entry["type"] for entry in yukta("plugins", "--json").results}


def test_version_is_the_packages(yukta) -> None:
    assert yukta("version").out.startswith(f"yukta_rx {__version__} ")
    assert yukta("version", "--json").results[0]["version"] == __version__
