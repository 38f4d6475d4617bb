"""Messages: immutable, with ids that are worked out when asked for and repeat with the run."""

import copy
import pickle
import re
import threading
from collections import OrderedDict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.errors import BadInputError, UnserialisablePayloadError
from yukta_rx.model.codec import decode
from yukta_rx.model.message import (
    Message,
    Routed,
    copy_payload,
    derive_from_many,
    to_port,
    trigger_message,
)

pytestmark = pytest.mark.feature("ENG-01")

HEX_ID = re.compile(r"[0-9a-f]{32}")


def line(length, lineage="run"):
    message = trigger_message(lineage, "source", 0, 0)
    for index in range(length):
        message = message.derive(f"n{index}", 0, index)
    return message


def test_an_id_is_32_hex_digits_and_does_not_change():
    message = trigger_message("run", "source", 0, {"a": 1})

    assert HEX_ID.fullmatch(message.id)
    assert message.id == message.id


def test_ids_are_the_same_in_every_version_of_yukta_rx():
    first = trigger_message("run", "source", 7, None)
    second = first.derive("n", 1, None)
    both = derive_from_many([first, second], "join", 0, None)

    assert [first.id, second.id, both.id] == [
        "f7f806de53a6eb0f80bc484ab824aef3",
        "46202d56561fb42fd20ecae38c25e362",
        "d05d7ff5b7a427ea0f7507903089cc71",
    ]


def test_a_repeated_run_of_the_same_lineage_makes_the_same_ids():
    assert line(20).id == line(20).id


def test_another_lineage_makes_other_ids():
    assert line(3, "one").id != line(3, "two").id


def test_an_id_is_the_same_whether_or_not_the_ids_before_it_were_read():
    read, unread = trigger_message("run", "source", 0, 0), line(10)
    for index in range(10):
        assert HEX_ID.fullmatch(read.id)
        read = read.derive(f"n{index}", 0, index)

    assert read.id == unread.id


def test_case_10_an_id_after_500_nodes_is_worked_out_without_recursion():
    last = line(20_000)

    assert HEX_ID.fullmatch(last.id)


def test_an_id_after_many_diamonds_is_worked_out_in_reasonable_time():
    message = trigger_message("run", "source", 0, 0)
    for level in range(60):
        left, right = message.derive(f"l{level}", 0, 0), message.derive(f"r{level}", 0, 0)
        message = derive_from_many([left, right], f"j{level}", 0, 0)

    assert HEX_ID.fullmatch(message.id)


names = st.text(st.characters(codec="utf-8"), max_size=6)
places = st.tuples(names, names, st.integers(0, 30), st.integers(0, 3), st.integers(0, 3))


@given(places, places)
def test_different_places_give_different_ids(one, other):
    def made(lineage, node, seq, index, again):
        message = trigger_message(lineage, node, seq, None)
        return message.derive(node, index, None).derive(lineage, again, None).id

    assert (made(*one) == made(*other)) == (one == other)


@given(st.lists(names, min_size=1, max_size=4, unique=True))
def test_a_message_made_from_several_depends_on_all_of_them_in_order(nodes):
    causes = [trigger_message("run", node, 0, None) for node in nodes]

    joined = derive_from_many(causes, "join", 0, None)
    reversed_join = derive_from_many(causes[::-1], "join", 0, None)

    assert (joined.id == reversed_join.id) == (len(nodes) == 1)
    assert joined.causes == tuple(cause.id for cause in causes)


def test_one_message_made_from_one_by_a_join_differs_from_one_derived_from_it():
    cause = trigger_message("run", "source", 0, None)

    assert derive_from_many([cause], "n", 0, None).id != cause.derive("n", 0, None).id


def test_a_derived_message_names_its_cause():
    cause = trigger_message("run", "source", 3, None)

    derived = cause.derive("n", 1, "new")

    assert derived.cause == cause.id
    assert derived.causes == (cause.id,)
    assert derived.payload == "new"


def test_a_message_of_a_trigger_has_no_cause():
    message = trigger_message("run", "source", 0, None)

    assert (message.cause, message.causes) == (None, ())


def test_a_message_of_several_has_no_single_cause():
    causes = [trigger_message("run", "source", seq, None) for seq in range(2)]

    assert derive_from_many(causes, "n", 0, None).cause is None


def test_a_derived_message_keeps_the_headers_unless_it_gets_others():
    cause = trigger_message("run", "source", 0, None, {"a": 1})

    assert cause.derive("n", 0, None).headers == {"a": 1}
    assert cause.derive("n", 0, None, {"b": 2}).headers == {"b": 2}


def test_a_message_made_by_a_plugin_gets_a_random_id_when_it_is_read_too_early():
    one, other = Message.of(1), Message.of(1)

    assert HEX_ID.fullmatch(one.id)
    assert one.id == one.id != other.id


@pytest.mark.parametrize("own", ["x", "order-1", "!" * 64, '"\\'])
def test_a_plugin_may_choose_an_id_of_its_own(own):
    message = Message.of(1, id=own)

    assert message.id == message.own_id == own


@pytest.mark.parametrize("own", ["", " ", "a b", "a\n", "é", "\x7f", "x" * 65, 7, b"x", ["x"]])
def test_any_other_id_is_bad_input(own):
    with pytest.raises(BadInputError, match="message id"):
        Message.of(1, id=own)


@pytest.mark.parametrize("name", ["", 3, None, b"a"])
def test_a_header_name_that_is_no_text_is_bad_input(name):
    with pytest.raises(BadInputError, match="header name"):
        Message.of(1, {name: 1})


def test_headers_given_by_a_plugin_are_copied_and_cannot_be_changed():
    given_headers = {"a": 1}
    message = Message.of(1, given_headers)
    given_headers["a"] = 2

    assert message.headers == {"a": 1}
    with pytest.raises(TypeError):
        message.headers["a"] = 3


def test_a_message_cannot_be_changed():
    with pytest.raises(AttributeError):
        Message.of(1).payload = 2


class TestAdoption:
    """What the engine makes of a message that a plugin returned."""

    def test_without_an_id_it_gets_the_one_derived_from_the_input(self):
        cause = trigger_message("run", "source", 0, None)

        adopted = Message.of("new", {"h": 1}).adopt("n", 2, cause)

        assert adopted.id == cause.derive("n", 2, None).id
        assert (adopted.payload, adopted.headers) == ("new", {"h": 1})

    def test_an_id_that_was_only_read_is_not_taken_for_one_of_its_own(self):
        cause = trigger_message("run", "source", 0, None)
        made = Message.of("new")
        read = made.id

        assert made.own_id is None
        assert made.adopt("n", 0, cause).id == cause.derive("n", 0, None).id != read

    def test_an_id_of_its_own_stays_and_the_cause_is_known(self):
        cause = trigger_message("run", "source", 0, None)

        adopted = Message.of("new", id="mine").adopt("n", 0, cause)

        assert adopted.id == "mine"
        assert adopted.cause == cause.id
        assert adopted.own_id is None

    def test_the_causes_that_a_plugin_named_count_instead_of_the_input(self):
        causes = [trigger_message("run", "source", seq, None) for seq in range(3)]

        adopted = Message.of("all", causes=causes).adopt("n", 0, causes[2])

        assert adopted.id == derive_from_many(causes, "n", 0, None).id

    def test_causes_and_an_id_of_its_own_go_together(self):
        causes = [trigger_message("run", "source", seq, None) for seq in range(2)]
        made = Message.of("all", id="mine", causes=causes)

        adopted = made.adopt("n", 0, causes[0])

        assert made.own_id == "mine"
        assert adopted.id == "mine"
        assert adopted.causes == tuple(cause.id for cause in causes)

    def test_the_input_itself_gets_a_new_id_so_that_branches_never_share_one(self):
        passed_on = trigger_message("run", "source", 0, None)

        assert passed_on.adopt("n", 0, passed_on).id != passed_on.id

    def test_an_input_with_an_id_of_its_own_changed_by_a_plugin_gets_a_derived_one(self):
        cause = trigger_message("run", "source", 0, None)
        chosen = Message.of("x", id="mine").adopt("n", 0, cause)

        changed = chosen.replace(payload="y").adopt("m", 0, chosen)

        assert changed.id == chosen.derive("m", 0, None).id != "mine"


def test_replace_changes_payload_or_headers_and_leaves_the_original():
    message = Message.of(1, {"a": 1})

    assert message.replace(payload=None).payload is None
    assert message.replace(payload=2).headers == {"a": 1}
    assert message.replace(headers={"b": 2}).payload == 1
    assert message.payload == 1


def test_a_message_as_json_holds_everything_that_is_needed_to_read_it_back():
    cause = trigger_message("run", "source", 0, None)
    message = cause.derive("n", 0, {"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"h": (1, 2)})

    assert decode(message.json()) == {
        "id": message.id,
        "causes": [cause.id],
        "attempt": 1,
        "headers": {"h": (1, 2)},
        "payload": {"at": datetime(2026, 1, 1, tzinfo=UTC)},
    }


def test_a_payload_that_cannot_be_written_is_refused_naming_the_place():
    with pytest.raises(UnserialisablePayloadError) as refusal:
        Message.of({"a": [1, object()]}).json()

    assert refusal.value.members == {"pointer": "/payload/a/1"}


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_message_can_be_copied_and_pickled(again):
    message = trigger_message("run", "source", 0, {"a": [1]}, {"h": 1}).derive("n", 0, {"b": 2})

    twin = again(message)

    assert (twin.id, twin.payload, twin.headers) == (message.id, {"b": 2}, {"h": 1})


def test_a_value_is_sent_to_a_port_by_name():
    assert to_port("big", 3) == Routed("big", 3)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=15,
)


def containers(value):
    yield id(value)
    for child in value.values() if isinstance(value, dict) else value:
        if isinstance(child, (dict, list, set)):
            yield from containers(child)


@given(plain)
def test_a_copied_payload_is_equal_and_shares_nothing_that_can_change(payload):
    copied = copy_payload([payload])

    assert copied == [payload]
    assert not set(containers(copied)) & set(containers([payload]))


def test_immutable_values_are_not_copied():
    value = Decimal("1.5")

    assert copy_payload(value) is value


def test_objects_of_other_types_are_copied_deeply():
    payload = OrderedDict(a=[1])

    copied = copy_payload(payload)
    copied["a"].append(2)

    assert payload == {"a": [1]}
    assert type(copied) is OrderedDict


def test_a_payload_that_holds_itself_is_copied():
    payload: list = [1]
    payload.append(payload)

    copied = copy_payload(payload)

    assert copied[1] is copied is not payload


def test_a_payload_that_is_too_deep_is_bad_input():
    payload: list = []
    for _ in range(100_000):
        payload = [payload]

    with pytest.raises(BadInputError, match="nested too deep"):
        copy_payload(payload)


def test_an_object_that_cannot_be_copied_says_so_itself():
    with pytest.raises(TypeError):
        copy_payload({"lock": threading.Lock()})


def by_hand(message: Message, node_id: str, index: int = 0) -> Message:
    """The output of a node, with an origin of its own instead of a trail."""
    return Message(message.payload, message.headers, (message.id, node_id, index))


@pytest.mark.feature("ENG-01")
@pytest.mark.parametrize("hops", [1, 2, 20, 500])
def test_a_trail_gives_the_id_and_the_cause_that_hop_by_hop_derivation_gives(hops: int) -> None:
    along, start = (trigger_message("run", "in", 7, {"n": 7}) for _ in range(2))
    apart = by_hand(start, "n0")
    for hop in range(hops):
        before = along
        along = along.derive(f"n{hop}", 0, {"n": hop})
        if hop:
            apart = by_hand(apart, f"n{hop}")

    assert along.trail is not None
    assert along.id == apart.id
    assert along.cause == before.id
    assert along.own_id is None


@pytest.mark.feature("ENG-01")
def test_what_a_message_becomes_does_not_depend_on_whether_its_id_was_read() -> None:
    read, unread = (trigger_message("run", "in", 1, 1).derive("a", 0, 1) for _ in range(2))
    assert read.id

    made = [message.derive("b", index, 2).id for message in (read, unread) for index in (0, 1)]

    assert made[:2] == made[2:]
    assert len(set(made)) == 2


@pytest.mark.feature("ENG-01")
@pytest.mark.parametrize(
    "other",
    [
        lambda message: pickle.loads(pickle.dumps(message)),
        Message.copied,
        Message.flattened,
        lambda message: message.numbered(3),
        lambda message: pickle.loads(pickle.dumps(message.flattened())),
    ],
    ids=["pickled", "copied", "flattened", "numbered", "flattened and pickled"],
)
def test_a_message_with_a_trail_stays_itself_in_every_form(other: Any) -> None:
    message = trigger_message("run", "in", 1, {"n": 1}).derive("a", 0, {"n": 2}).derive("b", 0, {})

    same = other(message)

    assert (same.id, same.causes) == (message.id, message.causes)
    assert same.derive("c", 0, 1).id == message.derive("c", 0, 1).id
    assert derive_from_many([same, same], "j", 0, 1).id == (
        derive_from_many([message, message], "j", 0, 1).id
    )
