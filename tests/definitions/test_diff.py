"""WorkflowDiff: patches that turn one form of a workflow into the other, and nothing beside."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.definitions.diff import diff_definitions, patch
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.model.codec import canonical

pytestmark = pytest.mark.feature("DEF-01")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0, "a", "~/"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~", ""]), inner, max_size=4)
    ),
    max_leaves=12,
)


def applied(value, operations):
    """Apply a patch as RFC 6902 says."""
    whole = {"": copy.deepcopy(value)}
    for operation in operations:
        *above, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")
        ]
        owner = whole
        for part in above:
            owner = owner[int(part) if isinstance(owner, list) else part]
        if isinstance(owner, list):
            at = int(last)
            assert at <= len(owner)
            if operation["op"] == "add":
                owner.insert(at, operation["value"])
            elif operation["op"] == "remove":
                del owner[at]
            else:
                owner[at] = operation["value"]
            continue
        assert (last in owner) is (operation["op"] != "add")
        if operation["op"] == "remove":
            del owner[last]
        else:
            owner[last] = operation["value"]
    return whole[""]


@given(JSON, JSON)
def test_a_patch_turns_the_one_value_into_the_other(old, new):
    operations = patch(old, new)

    assert canonical(applied(old, operations)) == canonical(new)
    assert (operations == []) is (canonical(old) == canonical(new))


@pytest.mark.parametrize(
    ("old", "new", "operations"),
    [
        ({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a/b": 1}, {"~": 1}, [
            {"op": "remove", "path": "/a~1b"},
            {"op": "add", "path": "/~0", "value": 1},
        ]),
        ([1, 2, 3], [1], [{"op": "remove", "path": "/2"}, {"op": "remove", "path": "/1"}]),
        ({"a": [1]}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, []),
    ],
)  # fmt: skip
def test_patches_are_small_and_strict(old, new, operations):
    assert patch(old, new) == operations


@pytest.fixture
def compare(doc):
    def run(old, new):
        return diff_definitions(parse_definition(old), parse_definition(new), 1, 2).as_dict()

    return run


def test_a_diff_names_everything_that_changed(compare, doc):
    old = doc.workflow(
        [doc.node("in", "API_TRIGGER"), doc.node("a", config={"x": 1}), doc.node("gone")],
        [doc.edge("in", "a"), doc.edge("in", "gone")],
        description="before",
    )
    new = doc.workflow(
        [doc.node("in", "API_TRIGGER"), doc.node("a", config={"x": 2}), doc.node("new")],
        [doc.edge("in", "a", required=False), doc.edge("in", "new", "late")],
        description="after",
        options={"onTerminalFailure": "FINISH_OTHERS"},
    )

    assert compare(old, new) == {
        "from": 1,
        "to": 2,
        "description": {"from": "before", "to": "after"},
        "nodesAdded": ["new"],
        "nodesRemoved": ["gone"],
        "nodesChanged": [
            {"nodeId": "a", "changes": [{"op": "replace", "path": "/config/x", "value": 2}]}
        ],
        "edgesAdded": [
            {"source": "in", "target": "a", "required": False},
            {"source": "in", "target": "new", "sourcePort": "late"},
        ],
        "edgesRemoved": [
            {"source": "in", "target": "a"},
            {"source": "in", "target": "gone"},
        ],
        "reordered": False,
        "options": [
            {"op": "add", "path": "/options", "value": {"onTerminalFailure": "FINISH_OTHERS"}}
        ],
    }


def test_another_order_of_nodes_makes_a_version_and_shows_in_the_diff(compare, doc):
    old = doc.line(doc.node("a"))
    new = {**old, "nodes": old["nodes"][::-1]}

    shown = compare(old, new)

    assert shown["reordered"] is True
    assert shown["nodesChanged"] == shown["nodesAdded"] == []


NODES = st.lists(st.sampled_from("abcd"), unique=True)
CONFIG = st.fixed_dictionaries({}, optional={"x": st.sampled_from([1, 1.0, "1", [1]])})


@st.composite
def documents(draw):
    ids = draw(NODES)
    nodes = [{"nodeId": name, "type": "T", "config": draw(CONFIG)} for name in ids]
    pairs = st.tuples(st.sampled_from(ids or ["a"]), st.sampled_from(ids or ["a"]))
    edges = draw(st.lists(pairs, unique=True, max_size=4)) if ids else []
    made = {
        "workflowId": "w",
        "nodes": nodes,
        "edges": [{"source": source, "target": target} for source, target in edges],
    }
    return made | draw(
        st.fixed_dictionaries({}, optional={"description": st.sampled_from([None, "", "x"])})
    )


@given(documents(), documents())
def test_a_diff_is_empty_exactly_if_the_content_hash_is_the_same(old, new):
    before, after = parse_definition(old), parse_definition(new)

    assert diff_definitions(before, after).empty is (before.version == after.version)
