"""DEDUPLICATE: a window of keys, compared as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import Message
from yukta_rx.nodes.deduplicate import deduplicate
from yukta_rx.plugins.contract import bind_config, check_config, spec_of
from yukta_rx.security.variables import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.feature("ENG-02")

SPEC = spec_of(deduplicate)


@pytest.fixture
def passed(bench) -> Callable[..., tuple[list[Any], Any]]:
    """Send payloads through one node; returns what passed and the bench."""

    def run(payloads: list[Any], **config: Any) -> tuple[list[Any], Any]:
        b = bench()
        SPEC.open(None, b.ctx)
        bound = bind_config(SPEC, config)
        sent = [p if isinstance(p, Message) else Message.of(p) for p in payloads]
        out = [deduplicate(msg, bound.resolve(Scope(msg)), b.ctx) for msg in sent]
        assert all(msg is None or msg is given for msg, given in zip(out, sent, strict=True))
        return [msg.payload for msg in out if msg is not None], b

    return run


def test_a_key_that_was_seen_is_dropped_and_counted(passed) -> None:
    payloads, b = passed(["a", "b", "a", "c", "b", "a"], key="${payload}")

    assert payloads == ["a", "b", "c"]
    assert b.counts == [("duplicate", 1)] * 3


def test_without_a_key_the_id_of_the_message_counts(passed) -> None:
    twice = Message.of({"n": 1}, id="order-1")

    payloads, _ = passed([twice, Message.of({"n": 2}, id="order-1"), {"n": 3}, {"n": 3}, twice])

    assert payloads == [{"n": 1}, {"n": 3}, {"n": 3}]


def test_values_that_json_tells_apart_are_different_keys(passed) -> None:
    values = [1, 1.0, True, "1", None, "null", "true", 0, False, "", [], {}, [1], ["1"], 2**70]

    payloads, _ = passed([*values, *values], key="${payload:json}")

    assert list(map(repr, payloads)) == list(map(repr, values))


def test_a_key_may_be_made_of_parts_in_any_order(passed) -> None:
    messages = [{"k": {"a": 1, "b": [2]}}, {"k": {"b": [2], "a": 1}}, {"k": {"a": 1, "b": [3]}}]

    payloads, _ = passed(messages, key={"whole": "${payload.k:json}"})

    assert payloads == [messages[0], messages[2]]


def test_long_keys_are_told_apart_from_each_other_and_from_their_own_text(passed) -> None:
    long = "x" * 100_000
    values = [long, long + "y", [long], f'["{long}"]', f'"{long}"']

    payloads, _ = passed([*values, *values], key="${payload:json}")

    assert payloads == values


def test_the_window_holds_the_keys_seen_last_and_a_repeat_renews_its_place(passed) -> None:
    payloads, _ = passed(["a", "b", "a", "c", "a", "b"], key="${payload}", window=2)

    # "a" was renewed, so "c" pushed "b" out.
    assert payloads == ["a", "b", "c", "b"]


def test_no_more_keys_are_kept_than_the_window_says(passed) -> None:
    _, b = passed(list(range(1000)), key="${payload:json}", window=10)

    assert len(b.ctx.state.keys) == 10


def gone_on(bench, finished: list[tuple[str, str, bool]], window: int = 10) -> Callable[..., bool]:
    """A node that goes on behind messages, each `(id, key, let through)`; says what passes now."""
    b = bench()
    SPEC.open(None, b.ctx)
    bound = bind_config(SPEC, {"key": "${payload}", "window": window})

    def tell(name: str, key: str, emitted: bool) -> None:
        msg = Message.of(key, id=name)
        SPEC.recall(msg, bound.resolve(Scope(msg)), b.ctx, emitted)

    def passes(name: str, key: str) -> bool:
        msg = Message.of(key, id=name)
        return deduplicate(msg, bound.resolve(Scope(msg)), b.ctx) is msg

    for name, key, through in finished:
        if through:
            tell(name, key, True)
    passes.again = lambda name, key: tell(name, key, False)
    passes.apart = lambda name: SPEC.recall(Message.of(None, id=name), None, b.ctx, False)
    passes.state = b.ctx.state
    return passes


def test_a_run_that_goes_on_keeps_to_what_it_let_through_whatever_comes_first(bench) -> None:
    passes = gone_on(bench, [("m1", "a", True), ("m2", "b", True), ("m3", "a", False)])

    assert [passes("n1", "a"), passes("n2", "c"), passes("n3", "b")] == [False, True, False]
    for name, key in (("m3", "a"), ("m1", "a"), ("m2", "b")):
        passes.again(name, key)
    assert not passes.state.taken
    assert [passes("n4", "a"), passes("n5", "c"), passes("n6", "d")] == [False, False, True]


def test_the_window_of_a_run_that_goes_on_is_what_it_was(bench) -> None:
    finished = [("m1", "a", True), ("m2", "b", True), ("m3", "a", False), ("m4", "c", True)]
    passes = gone_on(bench, finished, window=2)
    for name, key, _ in finished:
        passes.again(name, key)

    # b was not seen for the longest time.
    assert list(passes.state.keys) == ["a", "c"]
    assert [passes("n1", "a"), passes("n2", "b"), passes("n3", "c")] == [False, True, True]


def test_one_that_was_let_through_is_known_without_its_payload_and_by_its_own_key(bench) -> None:
    passes = gone_on(bench, [("same", "a", True), ("same", "b", True), ("m3", "c", True)])

    passes.again("same", "b")
    assert sorted(passes.state.taken) == ["a", "c"]
    passes.apart("m3")
    passes.apart("unknown")
    assert sorted(passes.state.taken) == ["a"]
    assert [passes("n1", "b"), passes("n2", "c"), passes("n3", "a")] == [False, False, False]


def test_a_further_attempt_at_a_message_is_no_repeat_of_itself(passed, bench) -> None:
    b = bench()
    SPEC.open(None, b.ctx)
    first, other = Message.of("a", id="m1"), Message.of("a", id="m2")
    cfg = bind_config(SPEC, {"key": "k"}).constant
    deduplicate(first, cfg, b.ctx)

    b.ctx.attempt = 2
    again, repeat = deduplicate(first, cfg, b.ctx), deduplicate(other, cfg, b.ctx)

    assert again is first
    assert repeat is None


@pytest.mark.parametrize("value", ["\ud800" * 100, ["\ud800"], object(), {1: 2}])
def test_a_key_that_json_cannot_say_is_bad_input(passed, value) -> None:
    with pytest.raises(BadInputError, match=r"^option `key`: "):
        passed([value], key="${payload:json}")


def test_a_key_that_is_missing_is_bad_input_and_names_the_option(passed) -> None:
    with pytest.raises(BadInputError, match=r"option `key`: .*no `orderId`"):
        passed([{"n": 1}], key="${payload.orderId}")


@pytest.mark.parametrize("window", [0, -1, True, "5", 1.5, None])
def test_wrong_windows_are_refused(window) -> None:
    (fault,) = check_config(SPEC, {"window": window})

    assert fault.option == "window"
