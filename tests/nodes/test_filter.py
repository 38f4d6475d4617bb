"""FILTER: passes what a condition holds for."""

from __future__ import annotations

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.filter import FilterConfig, filter_
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-02")


def test_a_message_passes_as_it_is_or_not_at_all(bench) -> None:
    b = bench()
    cfg = FilterConfig(when="payload.n > 1")
    msg = Message.of({"n": 2})

    assert filter_(msg, cfg, b.ctx) is msg
    assert filter_(Message.of({"n": 1}), cfg, b.ctx) is None


def test_it_can_look_at_headers_id_and_attempt(bench) -> None:
    b = bench()
    b.ctx.attempt = 3
    cfg = FilterConfig(when="headers.get('kind') == 'a' and id == 'm-1' and attempt == 3")

    assert filter_(Message.of(1, {"kind": "a"}, id="m-1"), cfg, b.ctx) is not None
    assert filter_(Message.of(1, {}, id="m-1"), cfg, b.ctx) is None


def test_a_message_that_the_condition_does_not_fit_is_bad_input(bench) -> None:
    cfg = FilterConfig(when="payload.n > 1")

    with pytest.raises(BadInputError, match="`>` does not go with the text 'x' and the number 1"):
        filter_(Message.of({"n": "x"}), cfg, bench().ctx)


@pytest.mark.parametrize("config", [{}, {"when": ""}, {"when": "n >"}, {"when": 1}])
def test_a_condition_is_needed_and_has_to_be_one(config) -> None:
    (fault,) = check_config(spec_of(filter_), config)

    assert fault.option == "when"
