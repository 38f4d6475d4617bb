"""Faults of a document's shape, told in our own words with pointer, node and option."""

import pytest

from yukta_rx.definitions.parse import parse_definition, suggestion
from yukta_rx.errors import DefinitionError

pytestmark = pytest.mark.feature("DEF-02")


def fault(document):
    with pytest.raises(DefinitionError) as refusal:
        parse_definition(document)
    (only,) = refusal.value.errors
    return only


def test_a_sound_document_is_read_and_does_not_change_with_its_source(doc):
    document = doc.line(doc.node("a", config={"set": {"x": [1]}}))

    definition = parse_definition(document)
    document["nodes"][1]["config"]["set"]["x"].append(2)

    assert definition.nodes[1].plugin_config == {"set": {"x": [1]}}


def test_a_fault_names_pointer_node_and_option(doc):
    found = fault(doc.line(doc.engine("a", retry={"maxAttempts": 0})))

    assert found.as_dict() == {
        "pointer": "/nodes/1/config/engine/retry/maxAttempts",
        "code": "invalid_option",
        "detail": "must be at least 1, not the number 0",
        "nodeId": "a",
        "option": "engine.retry.maxAttempts",
    }


@pytest.mark.parametrize(
    ("policy", "pointer", "code", "detail"),
    [
        ({"retry": {}}, "/retry/maxAttempts", "missing_option", "is required"),
        (
            {"retry": {"maxAttempts": "3"}},
            "/retry/maxAttempts",
            None,
            "must be a whole number, not",
        ),
        ({"retry": {"maxAttempts": 101}}, "/retry/maxAttempts", None, "must be at most 100"),
        ({"retry": {"maxAttempts": 10**4000}}, "/retry/maxAttempts", None, "a very large number"),
        ({"onError": 10**4000}, "/onError", None, "must be one of FAIL, CONTINUE, ROUTE, not"),
        ({"deadlineMs": 10**400}, "/deadlineMs", None, "must be a whole number from 1 on"),
        ({"retry": 3}, "/retry", None, "must be an object, not the number 3"),
        ({"retry": None}, "/retry", None, "leave the key out"),
        ({"retry": {"maxAttempts": 2, "retryOn": "E"}}, "/retry/retryOn", None, "must be an array"),
        (
            {"retry": {"maxAttempts": 2, "retryOn": ["a b"]}},
            "/retry/retryOn/0",
            None,
            "the text 'a b' is not the name of an exception class",
        ),
        (
            {"retry": {"maxAttempts": 2, "backoffMs": 9000}},
            "/retry/maxBackoffMs",
            None,
            "5000, the default, is below backoffMs 9000",
        ),
        (
            {"retry": {"maxAttempts": 2, "retryOn": ["E"], "noRetryOn": ["E"]}},
            "/retry/noRetryOn",
            None,
            "E stands in retryOn and in noRetryOn",
        ),
        ({"onError": "ROUT"}, "/onError", None, "did you mean ROUTE?"),
        ({"onError": "continue"}, "/onError", None, "did you mean CONTINUE?"),
        ({"onEror": "FAIL"}, "/onEror", "unknown_option", "did you mean `onError`?"),
        (
            {"retry": {"maxAttempts": 2, "backoff": 1}},
            "/retry/backoff",
            "unknown_option",
            "backoffMs",
        ),
        ({"zzz": 1}, "/zzz", "unknown_option", "there is retry, onError, failureBudget"),
        (
            {"failureBudget": {"maxFailures": 1, "windowMs": 9}},
            "/failureBudget",
            None,
            "needs onError CONTINUE or ROUTE",
        ),
        (
            {"elementTimeoutMs": 20, "deadlineMs": 20},
            "/deadlineMs",
            None,
            "20 must be above elementTimeoutMs 20",
        ),
        ({"trigger": "N_OF_M"}, "/trigger", None, '{"rule": "N_OF_M", "n": 2}'),
        ({"trigger": {"rule": "N_OF_M"}}, "/trigger/n", "missing_option", "is required"),
        ({"placement": {"pool": "a b"}}, "/placement/pool", None, "not the name of a pool"),
        ({"concurrency": {"ordered": 1}}, "/concurrency/ordered", None, "must be true or false"),
    ],
)
def test_a_malformed_policy_is_told_in_plain_words(doc, policy, pointer, code, detail):
    found = fault(doc.line(doc.engine("a", **policy)))

    assert found.pointer == "/nodes/1/config/engine" + pointer
    assert found.code == (code or "invalid_option")
    assert detail in found.detail
    assert found.node_id == "a"


@pytest.mark.parametrize(
    ("change", "pointer", "detail"),
    [
        ({"workflowId": 3}, "/workflowId", "must be a string, not int"),
        ({"nodes": None}, "/nodes", "must be an array, not null"),
        ({"nodes": {}}, "/nodes", "must be an array, not an object"),
        ({"nodes": ["a"]}, "/nodes/0", "must be an object, not the text 'a'"),
        ({"nodes": [{"type": "T"}]}, "/nodes/0/nodeId", "is required"),
        ({"nodes": [{"nodeId": "a", "type": "T", "config": 1}]}, "/nodes/0/config", "an object"),
        ({"nodes": [{"nodeId": "a", "type": "T", "name": 1}]}, "/nodes/0/name", "not known here"),
        ({"nodes": [{"nodeId": "a", "node_id": "a", "type": "T"}]}, "/nodes/0/node_id", "nodeId"),
        ({"edges": [{"source": "a"}]}, "/edges/0/target", "is required"),
        (
            {"edges": [{"source": "a", "target": "b", "sourceport": "x"}]},
            "/edges/0/sourceport",
            "did you mean `sourcePort`?",
        ),
        (
            {"edges": [{"source": "a", "target": "b", "required": "no"}]},
            "/edges/0/required",
            "must be true or false",
        ),
        ({"description": 3}, "/description", "must be text"),
        ({"options": {"lossles": True}}, "/options/lossles", "did you mean `lossless`?"),
        ({"version": 1}, "/version", "not known here"),
    ],
)
def test_a_malformed_document_is_told_in_plain_words(change, pointer, detail):
    found = fault({"workflowId": "w", "nodes": [], "edges": [], **change})

    assert found.pointer == pointer
    assert detail in found.detail


@pytest.mark.parametrize("document", [None, 3, "text", [], [{}]])
def test_what_is_no_object_is_no_document(document):
    found = fault(document)

    assert (found.pointer, found.node_id, found.option) == ("", None, None)
    assert "must be an object" in found.detail


def test_all_faults_are_told_at_once_and_one_line_each():
    with pytest.raises(DefinitionError) as refusal:
        parse_definition({"workflowId": "a/b", "nodes": [{"nodeId": "n"}], "edges": 3})

    assert [found.pointer for found in refusal.value.errors] == [
        *("/workflowId", "/nodes/0/type", "/edges"),
    ]
    assert len(str(refusal.value).splitlines()) == 3


@pytest.mark.parametrize("text", ["x\ny", "x\ry", "x\x1b[31m", "x" * 5000, "\ud800"])
def test_hostile_text_in_a_document_cannot_break_the_line_of_its_fault(text):
    found = fault({"workflowId": text, "nodes": [], "edges": []})

    assert str(found).isprintable()
    assert len(str(found)) < 400


def test_a_document_that_is_too_deep_to_be_copied_is_refused():
    document: list = []
    for _ in range(100_000):
        document = [document]

    assert "nested too deep" in fault(document).detail


def test_a_long_list_of_known_names_is_offered_only_when_none_is_close():
    assert suggestion("nodez", ["nodes", "edges"]) == "; did you mean `nodes`?"
    assert suggestion("q", ["nodes", "edges"]) == "; there is nodes, edges"
    assert suggestion("q", []) == ""
