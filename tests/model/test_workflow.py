"""The workflow document and the hash of its content."""

import copy
import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.codec import decode
from yukta_rx.model.policy import NO_POLICY, OnError
from yukta_rx.model.session import SessionConfig
from yukta_rx.model.workflow import OnTerminalFailure, WorkflowDefinition, content_hash

DOCUMENT = {
    "workflowId": "orders",
    "description": "sorts orders",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {
            "nodeId": "sort",
            "type": "TRANSFORM",
            "config": {
                "set": {"total": 1.0, "deep": [{"copy": None}]},
                "model_config": "an option like any other",
                "engine": {"onError": "ROUTE", "retry": {"maxAttempts": 2, "retryOn": ["OSError"]}},
            },
            "timeoutSeconds": 30,
        },
        {"nodeId": "out", "type": "COLLECT_TERMINAL", "timeoutSeconds": "${payload.s:int}"},
    ],
    "edges": [
        {"source": "in", "target": "sort"},
        {"source": "sort", "target": "out", "sourcePort": "error", "required": False},
    ],
    "options": {"onTerminalFailure": "FINISH_OTHERS"},
}


def read(document):
    return WorkflowDefinition.model_validate(document, by_alias=True, by_name=False)


def changed(path, value):
    document = copy.deepcopy(DOCUMENT)
    owner = document
    for part in path[:-1]:
        owner = owner[part]
    owner[path[-1]] = value
    return read(document)


@pytest.mark.feature("DEF-02")
class TestDocument:
    """What is read from the document."""

    def test_the_engine_object_is_the_policy_and_never_reaches_the_plugin(self):
        node = read(DOCUMENT).nodes[1]

        assert node.policy.on_error is OnError.ROUTE
        assert node.plugin_config == {
            "set": {"total": 1.0, "deep": [{"copy": None}]},
            "model_config": "an option like any other",
        }

    def test_config_and_its_parts_may_be_left_out(self):
        node = read(DOCUMENT).nodes[0]

        assert node.plugin_config == {}
        assert node.policy == NO_POLICY
        assert node.timeout_seconds is None

    def test_edges_and_options_have_their_defaults(self):
        definition = read(
            {"workflowId": "w", "nodes": [], "edges": [{"source": "a", "target": "b"}]}
        )

        assert (definition.edges[0].source_port, definition.edges[0].required) == (None, True)
        assert definition.options.on_terminal_failure is OnTerminalFailure.FAIL_FAST
        assert definition.options.lossless is False

    def test_a_read_document_is_written_as_it_was(self):
        assert read(DOCUMENT).as_document() == DOCUMENT
        assert decode(read(DOCUMENT).text) == DOCUMENT

    @pytest.mark.parametrize("value", [0, 0.5, 3600, "${payload.secs:int}", "${env.X:number=3}"])
    def test_an_idle_timeout_is_a_number_from_zero_on_or_an_expression(self, value):
        assert changed(("nodes", 0, "timeoutSeconds"), value).nodes[0].timeout_seconds == value

    @pytest.mark.parametrize(
        "value", [-1, True, "30", "5s", [], float("inf"), float("nan"), 10**400]
    )
    def test_any_other_idle_timeout_is_refused(self, value):
        with pytest.raises(ValidationError, match="timeoutSeconds"):
            changed(("nodes", 0, "timeoutSeconds"), value)

    @pytest.mark.parametrize("bad", ["a/b", "x:y@z", "é", "%2F", "x" * 300, "", "a\n", None, 3])
    @pytest.mark.parametrize(
        "path",
        [
            ("workflowId",),
            ("nodes", 0, "nodeId"),
            ("nodes", 0, "type"),
            ("edges", 0, "source"),
            ("edges", 0, "target"),
        ],
    )
    def test_case_37_an_id_of_another_shape_is_refused_wherever_it_stands(self, path, bad):
        with pytest.raises(ValidationError) as refusal:
            changed(path, bad)

        assert [item["loc"] for item in refusal.value.errors()] == [path]
        assert refusal.value.errors()[0]["type"] == "invalid_id"

    def test_a_definition_cannot_be_changed(self):
        with pytest.raises(ValidationError):
            read(DOCUMENT).workflow_id = "other"


@pytest.mark.feature("DEF-01")
class TestContentHash:
    """`definitionVersion`."""

    def test_it_is_the_sha_256_of_the_document_with_sorted_members(self):
        text = json.dumps(DOCUMENT, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

        assert read(DOCUMENT).version == sha256(text.encode()).hexdigest()

    def test_the_order_of_members_does_not_matter(self):
        turned = {key: DOCUMENT[key] for key in reversed(DOCUMENT)}

        assert read(turned).version == read(DOCUMENT).version == content_hash(read(DOCUMENT))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("description",), "sorts"),
            (("nodes", 1, "config", "set", "total"), 1),
            (("nodes", 1, "config", "set", "total"), True),
            (("nodes", 1, "config", "engine", "onError"), "CONTINUE"),
            (("nodes", 1, "timeoutSeconds"), 30.0),
            (("edges", 1, "sourcePort"), None),
            (("workflowId",), "other"),
        ],
    )
    def test_any_change_of_content_changes_it(self, path, value):
        assert changed(path, value).version != read(DOCUMENT).version

    def test_the_order_of_nodes_and_edges_is_content(self):
        turned = {**DOCUMENT, "edges": DOCUMENT["edges"][::-1]}

        assert read(turned).version != read(DOCUMENT).version

    @given(st.permutations(list(DOCUMENT)), st.permutations(list(DOCUMENT["nodes"][1])))
    def test_every_order_of_members_gives_the_same(self, top, node):
        document = {key: DOCUMENT[key] for key in top}
        document["nodes"] = list(document["nodes"])
        document["nodes"][1] = {key: document["nodes"][1][key] for key in node}

        assert read(document).version == read(DOCUMENT).version

    def test_a_config_nested_to_the_limit_of_input_has_one(self):
        deep: list = []
        for _ in range(190):
            deep = [deep]

        assert len(changed(("nodes", 1, "config", "set"), {"deep": deep}).version) == 64

    def test_a_config_made_in_python_that_json_cannot_say_has_none(self):
        definition = changed(("nodes", 1, "config", "set"), {"x": object()})

        with pytest.raises(UnserialisablePayloadError, match="/nodes/1/config/set/x"):
            content_hash(definition)


@pytest.mark.feature("DUR-05")
class TestSession:
    """The configuration of a session."""

    def test_a_run_may_take_an_hour_unless_the_session_says_otherwise(self):
        assert SessionConfig(session_id="s").execution_timeout == 3600
        assert SessionConfig(session_id="s", execution_timeout_ms=1500).execution_timeout == 1.5

    def test_it_is_read_with_its_workflows(self):
        session = SessionConfig.model_validate(
            {"sessionId": "s", "tags": {"team": "a"}, "workflows": [DOCUMENT]}
        )

        assert session.workflows[0].workflow_id == "orders"
        assert session.tags == {"team": "a"}

    @pytest.mark.parametrize("bad", ["../x", "a/b", "", None])
    def test_case_37_its_id_has_the_shape_of_ids(self, bad):
        with pytest.raises(ValidationError, match="sessionId"):
            SessionConfig.model_validate({"sessionId": bad})
