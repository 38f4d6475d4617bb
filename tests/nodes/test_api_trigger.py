"""API_TRIGGER: the start payload as messages."""

from __future__ import annotations

from typing import Any

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.nodes.api_trigger import ApiTriggerConfig, api_trigger
from yukta_rx.plugins.contract import check_config, spec_of

pytestmark = pytest.mark.feature("ENG-01")


def emitted(bench: Any, payload: Any, **options: Any) -> list[Any]:
    cfg = ApiTriggerConfig.model_validate(options)
    return [msg.payload for msg in api_trigger(cfg, bench(payload=payload).ctx)]


@pytest.mark.parametrize("payload", [{}, {"a": 1}, None, [1, 2], "text", 0])
def test_the_payload_is_one_message_whatever_it_is(bench, payload) -> None:
    assert emitted(bench, payload) == [payload]


def test_an_array_in_it_gives_one_message_per_element(bench) -> None:
    payload = {"order": {"items": [{"sku": 1}, None, [3]]}}

    assert emitted(bench, payload, splitPath="order.items") == [{"sku": 1}, None, [3]]


def test_an_empty_path_splits_the_payload_itself(bench) -> None:
    assert emitted(bench, [1, 2], splitPath="") == [1, 2]


def test_an_empty_array_gives_no_message(bench) -> None:
    assert emitted(bench, {"items": []}, splitPath="items") == []


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"item": []}, "no `items` in the payload: the payload is an object without `items`"),
        ({"items": {"a": 1}}, "`items` in the payload is an object, not an array"),
        ({"items": None}, "`items` in the payload is null, not an array"),
        ("text", "the payload is text without `items`"),
    ],
)
def test_without_an_array_there_it_is_bad_input_that_says_what_is_there(
    bench, payload, complaint
) -> None:
    with pytest.raises(BadInputError, match=complaint):
        emitted(bench, payload, splitPath="items")


def test_the_path_is_fixed_and_well_formed() -> None:
    spec = spec_of(api_trigger)

    (fault,) = check_config(spec, {"splitPath": "${env.HOME}"})
    assert fault.code == "fixed_option"
    (fault,) = check_config(spec, {"splitPath": "a..b"})
    assert fault.detail == "the path `a..b` has an empty part"
