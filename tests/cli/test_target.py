"""Which server is meant: options, variables, defaults."""

from __future__ import annotations

import pytest

from yukta_rx.cli.console import CliError
from yukta_rx.cli.target import Target


def test_without_anything_it_is_the_server_of_this_machine() -> None:
    assert Target.read((), None) == Target(("http://127.0.0.1:8080",), None)


def test_the_variables_stand_in_for_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YUKTA_URL", "http://a:1, https://b/base/")
    monkeypatch.setenv("YUKTA_KEY", "k")

    assert Target.read((), None) == Target(("http://a:1", "https://b/base"), "k")
    assert Target.read(("c:3",), "own") == Target(("http://c:3",), "own")


def test_addresses_may_be_a_list_or_repeated_and_each_counts_once() -> None:
    assert Target.read(("a:1,b:2", "a:1"), None).urls == ("http://a:1", "http://b:2")


def test_a_key_does_not_show_in_a_representation() -> None:
    assert "s3cret" not in repr(Target.read((), "s3cret"))


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a:b", "http://a?x=1", "http://u:p@a", "a:0", "http://[a"]
)
def test_what_is_no_address_is_refused(url) -> None:
    with pytest.raises(CliError, match="expected an address such as") as caught:
        Target.read((url,), None)

    assert caught.value.exit_code == 2


def test_a_key_that_no_header_can_carry_is_refused() -> None:
    with pytest.raises(CliError, match="visible ASCII") as caught:
        Target.read((), "a\nb")

    assert caught.value.exit_code == 2
