"""A broken definition is refused before any plugin runs, with every fault at once."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.config.settings import Settings
from yukta_rx.definitions.parse import parse_definition
from yukta_rx.definitions.validate import UNSUPPORTED_POLICY_KEYS, check, validate
from yukta_rx.errors import DefinitionError

pytestmark = pytest.mark.feature("DEF-02")


class TestGraph:
    """Nodes, edges and ports."""

    def test_a_sound_workflow_has_no_fault_and_no_warning(self, examine, doc):
        validation = examine(
            doc.line(doc.node("a", "TRANSFORM", config={"set": {"x": "${payload.y}"}}))
        )

        assert validation.valid
        assert (validation.faults, validation.warnings) == ((), ())
        assert validation.definition is not None
        assert list(validation.specs) == ["in", "a", "out"]

    def test_a_definition_that_was_parsed_before_gives_the_same_faults(self, faults, doc):
        document = doc.workflow([doc.node("a", "NOPE")], [doc.edge("a", "a")])

        assert faults(parse_definition(document)) == faults(document)

    def test_case_05_a_loop_is_refused_naming_the_cycle_in_order(self, examine, doc):
        document = doc.workflow(
            [doc.node("in", "API_TRIGGER"), doc.node("a"), doc.node("b"), doc.node("c")],
            [doc.edge("in", "a"), *(doc.edge(*pair) for pair in ("ab", "bc", "ca"))],
        )

        (fault,) = examine(document).faults

        assert fault.code == "cycle"
        assert fault.detail.endswith("a -> b -> c -> a")
        assert (fault.pointer, fault.node_id) == ("/edges/3", "a")

    def test_case_05_a_loop_of_two_nodes_and_nothing_else_is_refused(self, examine, doc):
        document = doc.workflow(
            [doc.node("a"), doc.node("b")], [doc.edge("a", "b"), doc.edge("b", "a")]
        )

        found = {fault.code: fault for fault in examine(document).faults}

        assert "a -> b -> a" in found["cycle"].detail

    def test_case_05_a_loop_by_way_of_the_error_port_is_refused(self, faults, doc):
        document = doc.line(doc.engine("a", onError="ROUTE"), doc.node("b"))
        document["edges"].append(doc.edge("b", "a"))
        document["edges"][1]["sourcePort"] = "error"

        assert ("cycle", "/edges/3") in faults(document)

    def test_case_05_loops_apart_from_each_other_are_all_told(self, faults, doc):
        document = doc.line(*(doc.node(name) for name in "abcd"))
        document["edges"] += [doc.edge("b", "a"), doc.edge("d", "c")]

        assert faults(document) == [("cycle", "/edges/5"), ("cycle", "/edges/6")]

    def test_case_06_a_node_that_leads_to_itself_is_refused_naming_it(self, examine, doc):
        validation = examine(doc.workflow([doc.node("a")], [doc.edge("a", "a")]))

        cycle = next(fault for fault in validation.faults if fault.code == "cycle")
        assert "a -> a" in cycle.detail
        assert (cycle.node_id, cycle.pointer) == ("a", "/edges/0")

    def test_case_06_two_equal_edges_are_refused_naming_the_edge(self, examine, doc):
        document = doc.line(doc.node("a"))
        document["edges"].append(doc.edge("in", "a"))

        (fault,) = examine(document).faults

        assert (fault.code, fault.pointer) == ("duplicate_edge", "/edges/2")
        assert "in -> a" in fault.detail

    def test_two_edges_between_the_same_nodes_by_different_ports_are_fine(self, examine, doc):
        document = doc.line(doc.node("a", "WAIT"))
        document["edges"].append(doc.edge("a", "out", "late"))

        assert examine(document).valid

    def test_case_07_two_nodes_of_one_name_are_refused_naming_it(self, examine, doc):
        document = doc.line(doc.node("n"))
        document["nodes"].append(doc.node("n"))

        (fault,) = examine(document).faults

        assert (fault.code, fault.pointer, fault.node_id) == (
            *("duplicate_node", "/nodes/3/nodeId", "n"),
        )
        assert "`n`" in fault.detail

    @pytest.mark.parametrize("bad", ["a/b", "x:y@z", "é", "%2F", "x" * 300, "a'b", "a\n"])
    def test_case_37_an_id_that_no_route_could_carry_is_refused(self, faults, doc, bad):
        document = doc.line(doc.node(bad), workflowId=bad)

        assert faults(document) == [
            ("invalid_id", "/workflowId"),
            ("invalid_id", "/nodes/1/nodeId"),
            ("invalid_id", "/edges/0/target"),
            ("invalid_id", "/edges/1/source"),
        ]

    def test_no_node_is_refused(self, faults, doc):
        assert faults(doc.workflow([], [])) == [("no_nodes", "/nodes")]

    def test_no_trigger_is_refused(self, faults, doc):
        document = doc.workflow(
            [doc.node("a"), doc.node("b", "NULL_TERMINAL")], [doc.edge("a", "b")]
        )

        assert ("no_trigger", "/nodes") in faults(document)

    def test_an_unknown_type_is_refused_with_a_suggestion(self, examine, doc):
        (fault,) = examine(doc.line(doc.node("a", "TRANSFROM"))).faults

        assert (fault.code, fault.pointer, fault.option) == (
            "unknown_type",
            "/nodes/1/type",
            "type",
        )
        assert "did you mean TRANSFORM?" in fault.detail

    def test_an_edge_end_that_names_no_node_is_refused(self, examine, doc):
        document = doc.line(doc.node("alpha"))
        document["edges"].append(doc.edge("alpa", "out"))

        (fault,) = examine(document).faults

        assert (fault.code, fault.pointer, fault.option) == ("unknown_node", "/edges/2", "source")
        assert "did you mean `alpha`?" in fault.detail

    def test_an_edge_into_a_trigger_is_refused(self, faults, doc):
        document = doc.line(doc.node("a"), doc.node("b"))
        document["edges"].append(doc.edge("a", "in"))

        assert faults(document) == [("edge_into_trigger", "/edges/3"), ("cycle", "/edges/3")]

    def test_an_edge_out_of_a_terminal_is_refused(self, faults, doc):
        document = doc.line(doc.node("a"))
        document["nodes"].append(doc.node("b", "NULL_TERMINAL"))
        document["edges"].append(doc.edge("out", "b"))

        assert faults(document) == [("edge_out_of_terminal", "/edges/2")]

    @pytest.mark.parametrize("kind", ["PASS", "NULL_TERMINAL"])
    def test_a_processor_or_terminal_without_a_parent_is_refused(self, faults, doc, kind):
        document = doc.line(doc.node("a"))
        document["nodes"].append(doc.node("alone", kind))

        assert faults(document) == [("no_parent", "/nodes/3")]

    def test_a_processor_or_trigger_without_a_child_is_only_warned_of(self, examine, doc):
        document = doc.line()
        document["nodes"] += [doc.node("t", "API_TRIGGER"), doc.node("a")]
        document["edges"].append(doc.edge("in", "a"))

        validation = examine(document)

        assert validation.valid
        assert [(w.code, w.node_id) for w in validation.warnings] == [
            ("no_child", "t"),
            ("no_child", "a"),
        ]

    @pytest.mark.parametrize(
        ("port", "policy", "said"),
        [
            ("lat", {}, "did you mean `late`?"),
            ("error", {}, "needs engine.onError ROUTE"),
            ("error", {"onError": "CONTINUE"}, "needs engine.onError ROUTE"),
            ("dropped", {}, "needs an engine.edgeBuffer that drops"),
            ("dropped", {"edgeBuffer": {"size": 1, "overflow": "BLOCK"}}, "that drops"),
        ],
    )
    def test_a_port_that_the_source_has_not_is_refused(self, examine, doc, port, policy, said):
        document = doc.line(doc.engine("a", "WAIT", **policy))
        document["edges"].append(doc.edge("a", "out", port))

        (fault,) = examine(document).faults

        assert (fault.code, fault.pointer, fault.node_id) == ("unknown_port", "/edges/2", "a")
        assert said in fault.detail

    @pytest.mark.parametrize(
        ("port", "policy"),
        [
            ("late", {}),
            ("error", {"onError": "ROUTE"}),
            ("dropped", {"edgeBuffer": {"size": 1}}),
        ],
    )
    def test_a_port_that_plugin_or_policy_provides_is_fine(self, examine, doc, port, policy):
        document = doc.line(doc.engine("a", "WAIT", **policy))
        document["edges"].append(doc.edge("a", "out", port))

        assert examine(document).valid

    def test_dead_letters_that_no_edge_takes_are_warned_of(self, examine, doc):
        validation = examine(doc.line(doc.engine("a", onError="ROUTE")))

        assert [w.pointer for w in validation.warnings] == ["/nodes/1/config/engine/onError"]


class TestPolicies:
    """What `engine` says, seen with the node's kind, plugin and parents."""

    @pytest.mark.parametrize(
        ("where", "policy"),
        [
            (0, {"retry": {"maxAttempts": 2}}),
            (0, {"trigger": "ALL_DONE"}),
            (0, {"edgeBuffer": {"size": 1}}),
            (0, {"elementTimeoutMs": 1}),
            (2, {"retry": {"maxAttempts": 2}}),
            (2, {"onError": "CONTINUE"}),
            (2, {"elementTimeoutMs": 1}),
            (2, {"placement": {"pool": "p"}}),
        ],
    )
    def test_a_key_that_the_kind_of_node_cannot_have_is_refused(self, faults, doc, where, policy):
        document = doc.line(doc.node("a"))
        document["nodes"][where]["config"] = {"engine": policy}

        pointer = f"/nodes/{where}/config/engine/{next(iter(policy))}"
        assert faults(document) == [("option_not_allowed", pointer)]

    def test_a_deadline_is_for_every_kind_of_node(self, examine, doc):
        document = doc.line(doc.node("a"))
        for item in document["nodes"]:
            item["config"] = {"engine": {"deadlineMs": 1000}}

        assert examine(document).valid

    @pytest.mark.parametrize(
        ("timeout", "refused"),
        [
            (6, False),
            (5, True),
            (4.9, True),
            (0, False),
            ("${payload.s:int}", False),
            (None, False),
        ],
    )
    def test_the_longest_backoff_must_be_below_the_idle_timeout(
        self, examine, doc, timeout, refused
    ):
        node = doc.engine("a", retry={"maxAttempts": 2, "maxBackoffMs": 5000})
        node["timeoutSeconds"] = timeout

        found = examine(doc.line(node)).faults

        assert [fault.pointer for fault in found] == (
            ["/nodes/1/config/engine/retry/maxBackoffMs"] if refused else []
        )

    def test_the_plugins_own_idle_timeout_counts_when_the_node_gives_none(self, examine, doc):
        node = doc.engine("a", "WAIT", retry={"maxAttempts": 2})
        node["config"]["seconds"] = 3

        (fault,) = examine(doc.line(node)).faults

        assert "5000 (the default) must be below the node's idle timeout of 3 s" in fault.detail

    @pytest.mark.parametrize("key", ["elementTimeoutMs", "deadlineMs"])
    def test_a_limit_written_as_an_expression_must_be_typed(self, faults, doc, key):
        typed, untyped = {key: "${payload.ms:int}"}, {key: "${payload.ms}"}

        assert faults(doc.line(doc.engine("a", **typed))) == []
        assert faults(doc.line(doc.engine("a", **untyped))) == [
            ("invalid_expression", f"/nodes/1/config/engine/{key}")
        ]

    def test_a_trigger_cannot_read_a_message_for_its_limits(self, faults, doc):
        document = doc.line()
        document["nodes"][0]["timeoutSeconds"] = "${payload.s:int}"

        assert faults(document) == [("invalid_expression", "/nodes/0/timeoutSeconds")]

    @pytest.mark.parametrize(
        ("n", "optional", "refused"), [(2, False, False), (3, False, True), (2, True, True)]
    )
    def test_n_of_m_counts_the_parents_that_are_required(self, faults, doc, n, optional, refused):
        document = doc.line(
            doc.node("a"), doc.node("b"), doc.engine("j", trigger={"rule": "N_OF_M", "n": n})
        )
        document["edges"].append(doc.edge("a", "j", required=not optional))

        expected = [("invalid_option", "/nodes/3/config/engine/trigger/n")] if refused else []
        assert faults(document) == expected

    def test_only_an_async_plugin_takes_several_messages_at_once(self, faults, doc):
        policy = {"concurrency": {"max": 2}}

        assert faults(doc.line(doc.engine("a", "WAIT", **policy))) == []
        assert faults(doc.line(doc.engine("a", **policy))) == [
            ("option_not_allowed", "/nodes/1/config/engine/concurrency/max")
        ]


class TestNotExecuted:
    """What this version parses but does not execute is refused, so nothing is half applied."""

    @pytest.mark.feature("ENG-04")
    @pytest.mark.parametrize(
        ("policy", "code"),
        [
            ({"placement": {"pool": "p"}}, "no_workers"),
        ],
    )
    def test_a_policy_key_that_says_something_is_refused(
        self, registry, settings, doc, policy, code
    ):
        document = doc.line(doc.engine("a", "WAIT", **policy))

        (fault,) = validate(document, registry, settings=settings).faults

        key = next(iter(policy))
        assert key in UNSUPPORTED_POLICY_KEYS
        assert (fault.code, fault.pointer) == (code, f"/nodes/1/config/engine/{key}")
        assert fault.node_id == "a"

    def test_a_key_that_says_what_holds_anyway_is_fine(self, registry, settings, doc):
        policy = {"onError": "FAIL", "trigger": "ALL_SUCCESS", "concurrency": {"max": 1}}
        options = {"onTerminalFailure": "FAIL_FAST", "lossless": False}
        document = doc.line(doc.engine("a", **policy), options=options)
        document["edges"][0]["required"] = True

        assert validate(document, registry, settings=settings).valid

    def test_options_are_looked_at_too(self, faults, doc):
        options = {"onTerminalFailure": "FINISH_OTHERS", "lossless": True}
        buffers = [{"size": 1}, {"size": 1, "overflow": "DROP_NEWEST"}]

        for buffer in buffers:
            document = doc.line(doc.engine("a", edgeBuffer=buffer), options=options)
            assert faults(document) == [("invalid_option", "/nodes/1/config/engine/edgeBuffer")]
        for overflow in ("SPILL", "BLOCK"):
            buffer = {"size": 1, "overflow": overflow}
            assert faults(doc.line(doc.engine("a", edgeBuffer=buffer), options=options)) == []
        assert faults(doc.line(options=options)) == []

    def test_a_lossless_workflow_is_told_which_node_and_option_loses(self, examine, doc):
        document = doc.line(doc.engine("a", edgeBuffer={"size": 1}), options={"lossless": True})

        (fault,) = examine(document).faults

        assert fault.detail == (
            "edgeBuffer.overflow DROP_OLDEST (the default) of node `a` drops messages, and "
            "options.lossless asks that none is lost: use SPILL or BLOCK, or take lossless out"
        )
        assert fault.node_id == "a"

    def test_a_build_that_executes_a_key_takes_it(self, examine, doc):
        document = doc.line(doc.engine("a", placement={"pool": "p"}))

        assert examine(document, unsupported=UNSUPPORTED_POLICY_KEYS - {"placement"}).valid


class TestOptions:
    """The plugin's own options."""

    def test_an_unknown_option_is_refused_with_a_suggestion(self, examine, doc):
        (fault,) = examine(doc.line(doc.node("a", "TRANSFORM", config={"sett": {}}))).faults

        assert fault.as_dict() == {
            "pointer": "/nodes/1/config/sett",
            "code": "unknown_option",
            "detail": "is not an option; did you mean `set`?",
            "nodeId": "a",
            "option": "sett",
        }

    def test_a_malformed_expression_is_refused(self, faults, doc):
        node = doc.node("a", "TRANSFORM", config={"set": {"x": "${paylod.y}"}})

        assert faults(doc.line(node)) == [("invalid_expression", "/nodes/1/config/set/x")]

    def test_a_file_outside_the_allowed_folders_is_refused(self, faults, doc, tmp_path):
        document = doc.line()
        document["nodes"][0] = doc.node(
            "in", "FILE_TRIGGER", config={"path": "../secret.jsonl", "format": "jsonl"}
        )

        assert [at for _, at in faults(document, base_dir=tmp_path)] == ["/nodes/0/config/path"]


class TestSize:
    """Caps, and graphs at them."""

    @pytest.mark.parametrize(("setting", "name"), [("max_nodes", "nodes"), ("max_edges", "edges")])
    def test_a_graph_above_a_cap_is_refused_naming_the_setting(self, examine, doc, setting, name):
        tight = Settings(definitions={setting: 1})

        (fault,) = examine(doc.line(doc.node("a")), settings=tight).faults

        assert (fault.code, fault.pointer) == (f"too_many_{name}", f"/{name}")
        assert f"yukta.definitions.max-{name} = 1" in fault.detail

    def test_501_nodes_are_refused_beside_the_other_faults(self, faults, doc):
        document = doc.line(*(doc.node(f"n{i}") for i in range(499)))
        document["edges"].append(doc.edge("n1", "nowhere"))

        assert faults(document) == [("too_many_nodes", "/nodes"), ("unknown_node", "/edges/500")]

    def test_a_graph_far_above_a_cap_is_refused_without_a_look_at_the_rest(self, faults, doc):
        document = doc.workflow([{"nonsense": 1}] * 100_000, [])

        assert faults(document) == [("too_many_nodes", "/nodes")]

    def test_case_10_a_line_of_500_nodes_is_validated_at_once(self, examine, doc):
        document = doc.line(*(doc.node(f"n{i}") for i in range(498)))

        started = time.perf_counter()
        assert examine(document).valid
        assert time.perf_counter() - started < 1

    def test_500_nodes_with_2000_edges_are_validated_at_once(self, examine, doc):
        names = [f"n{i}" for i in range(498)]
        document = doc.line(*map(doc.node, names))
        jumps = [(names[i], names[i + step]) for step in (2, 3, 4, 5) for i in range(490)]
        document["edges"] += [doc.edge(*pair) for pair in jumps[: 2000 - len(document["edges"])]]

        started = time.perf_counter()
        assert examine(document).valid
        assert len(document["edges"]) == 2000
        assert time.perf_counter() - started < 1

    def test_a_graph_of_nothing_but_cycles_is_refused_at_once(self, faults, doc):
        names = [f"n{i}" for i in range(499)]
        document = doc.workflow(
            [doc.node("in", "API_TRIGGER"), *map(doc.node, names)],
            [edge for a, b in pairwise(names) for edge in (doc.edge(a, b), doc.edge(b, a))],
        )

        started = time.perf_counter()
        found = faults(document)
        assert ("cycle", "/edges/1") in found
        assert time.perf_counter() - started < 1


names = [f"n{index}" for index in range(6)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["in", *names]), st.sampled_from([*names, "out"])),
        unique=True,
        max_size=14,
    )
)
def test_a_random_graph_is_valid_exactly_when_it_is_acyclic_and_every_node_has_a_parent(
    registry, settings, doc, edges
):
    document = doc.line(*map(doc.node, names))
    document["edges"] = [doc.edge(*pair) for pair in edges]

    found = {fault.code for fault in validate(document, registry, settings=settings).faults}

    targets = {target for _, target in edges}
    assert ("no_parent" in found) == (not targets >= {*names, "out"})
    assert ("cycle" in found) == _cyclic(edges)
    assert found <= {"no_parent", "cycle"}


def _cyclic(edges):
    left = set(edges)
    while True:
        inner = {source for source, _ in left} & {target for _, target in left}
        kept = {(a, b) for a, b in left if a in inner and b in inner}
        if kept == left:
            return bool(left)
        left = kept


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
nodes = st.fixed_dictionaries(
    {},
    optional={
        "nodeId": st.sampled_from(["a", "b", "a/b"]) | anything,
        "type": st.sampled_from(["TRANSFORM", "PASS", "API_TRIGGER", "NULL_TERMINAL", "NOPE"])
        | anything,
        "config": st.fixed_dictionaries({}, optional={"engine": anything, "set": anything})
        | anything,
        "timeoutSeconds": anything,
    },
)
edges_of_any_kind = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(["a", "b", "c"]) | anything,
        "target": st.sampled_from(["a", "b", "c"]) | anything,
        "sourcePort": anything,
        "required": anything,
    },
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "workflowId": st.just("w") | anything,
            "nodes": st.lists(nodes, max_size=4) | anything,
            "edges": st.lists(edges_of_any_kind, max_size=4) | anything,
            "options": anything,
        },
    )
    | anything
)
def test_any_document_gets_an_answer_and_each_fault_a_place_that_exists(
    registry, settings, document
):
    validation = validate(document, registry, settings=settings)

    assert validation.valid == (validation.definition is not None and not validation.faults)
    for fault in validation.faults:
        assert fault.detail
        assert _exists(document, fault)


def _exists(document, fault):
    *owners, last = fault.pointer.split("/")[1:] or [None]
    value = document
    for part in owners:
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    if last is None or fault.code == "missing_option" or fault.option == "config":
        return True
    key = last.replace("~1", "/").replace("~0", "~")
    return int(key) < len(value) if isinstance(value, list) else key in value


def test_check_raises_with_every_fault(registry, settings, doc):
    document = doc.workflow([doc.node("a", "NOPE"), doc.node("a")], [doc.edge("a", "b")])

    with pytest.raises(DefinitionError) as refusal:
        check(document, registry, settings=settings)

    assert [fault.code for fault in refusal.value.errors] == [
        *("unknown_type", "duplicate_node", "unknown_node"),
    ]


def test_check_returns_the_warnings_of_a_definition_that_passes(registry, settings, doc):
    document = doc.workflow([doc.node("in", "API_TRIGGER")], [])

    assert [w.code for w in check(document, registry, settings=settings).warnings] == ["no_child"]


@pytest.mark.parametrize("name", ["²", "9" * 5000], ids=["superscript", "long"])
def test_a_member_whose_name_looks_like_a_number_is_refused_as_any_other(faults, doc, name):
    assert faults(doc.line(options={name: 1})) == [("unknown_option", f"/options/{name}")]
