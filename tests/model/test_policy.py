"""The `engine` object of a node: its members, their ranges, and which kinds may have them."""

import pytest
from pydantic import ValidationError

from yukta_rx.model.policy import (
    ALLOWED_KEYS,
    Concurrency,
    EdgeBuffer,
    FailureBudget,
    JoinRule,
    NodePolicy,
    NOfM,
    OnError,
    Overflow,
    Placement,
    RetryPolicy,
)

pytestmark = pytest.mark.feature("ENG-04")


def read(**engine):
    return NodePolicy.model_validate(engine, by_alias=True, by_name=False)


def faults(**engine):
    with pytest.raises(ValidationError) as refusal:
        read(**engine)
    return [
        (".".join(map(str, (*item["loc"], *item.get("ctx", {}).get("place", ())))), item["msg"])
        for item in refusal.value.errors()
    ]


def test_a_node_without_engine_fails_at_the_first_error_and_waits_for_all_parents():
    policy = read()

    assert policy.on_error is OnError.FAIL
    assert policy.join_rule is JoinRule.ALL_SUCCESS
    assert policy.concurrency == Concurrency(max=1, ordered=True)
    assert policy.retry is policy.edge_buffer is policy.placement is policy.failure_budget is None


def test_every_member_is_read():
    policy = read(
        retry={"maxAttempts": 3, "backoffMs": 0, "maxBackoffMs": 9, "retryOn": ["a.B"]},
        onError="ROUTE",
        failureBudget={"maxFailures": 0, "windowMs": 1},
        trigger={"rule": "N_OF_M", "n": 2},
        elementTimeoutMs=1,
        deadlineMs="${payload.ms:int}",
        edgeBuffer={"size": 1_000_000, "overflow": "SPILL"},
        concurrency={"max": 1000, "ordered": False},
        placement={"pool": "gpu"},
    )

    assert policy == NodePolicy(
        retry=RetryPolicy(max_attempts=3, backoff_ms=0, max_backoff_ms=9, retry_on=("a.B",)),
        on_error=OnError.ROUTE,
        failure_budget=FailureBudget(max_failures=0, window_ms=1),
        trigger=NOfM(rule="N_OF_M", n=2),
        element_timeout_ms=1,
        deadline_ms="${payload.ms:int}",
        edge_buffer=EdgeBuffer(size=1_000_000, overflow=Overflow.SPILL),
        concurrency=Concurrency(max=1000, ordered=False),
        placement=Placement(pool="gpu"),
    )
    assert policy.join_rule is JoinRule.N_OF_M


def test_the_documented_defaults_hold():
    policy = read(retry={"maxAttempts": 2}, edgeBuffer={"size": 5})

    assert policy.retry == RetryPolicy(max_attempts=2, backoff_ms=200, max_backoff_ms=5000)
    assert policy.edge_buffer == EdgeBuffer(size=5, overflow=Overflow.DROP_OLDEST)


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        ({"retry": {}}, "retry.maxAttempts"),
        ({"retry": {"maxAttempts": 0}}, "retry.maxAttempts"),
        ({"retry": {"maxAttempts": 101}}, "retry.maxAttempts"),
        ({"retry": {"maxAttempts": "3"}}, "retry.maxAttempts"),
        ({"retry": {"maxAttempts": 3.0}}, "retry.maxAttempts"),
        ({"retry": {"maxAttempts": True}}, "retry.maxAttempts"),
        ({"retry": {"max_attempts": 3, "maxAttempts": 3}}, "retry.max_attempts"),
        ({"retry": {"maxAttempts": 1, "backoffMs": -1}}, "retry.backoffMs"),
        ({"retry": {"maxAttempts": 1, "backoffMs": 3_600_001}}, "retry.backoffMs"),
        ({"retry": {"maxAttempts": 1, "backoffMs": 6000}}, "retry.maxBackoffMs"),
        ({"retry": {"maxAttempts": 1, "retryOn": ["not a class"]}}, "retry.retryOn.0"),
        ({"retry": {"maxAttempts": 1, "retryOn": "ValueError"}}, "retry.retryOn"),
        ({"retry": None}, "retry"),
        ({"onError": "IGNORE"}, "onError"),
        ({"onError": "fail"}, "onError"),
        ({"failureBudget": {"maxFailures": 1, "windowMs": 1}}, "failureBudget"),
        ({"onError": "ROUTE", "failureBudget": {"windowMs": 1}}, "failureBudget.maxFailures"),
        (
            {"onError": "ROUTE", "failureBudget": {"maxFailures": 0, "windowMs": 0}},
            "failureBudget.windowMs",
        ),
        ({"trigger": "ANY"}, "trigger"),
        ({"trigger": "N_OF_M"}, "trigger"),
        ({"trigger": {"rule": "N_OF_M"}}, "trigger.n"),
        ({"trigger": {"rule": "N_OF_M", "n": 0}}, "trigger.n"),
        ({"trigger": {"rule": "ALL_DONE", "n": 1}}, "trigger.rule"),
        ({"trigger": 3}, "trigger"),
        ({"elementTimeoutMs": 0}, "elementTimeoutMs"),
        ({"elementTimeoutMs": 1.5}, "elementTimeoutMs"),
        ({"elementTimeoutMs": True}, "elementTimeoutMs"),
        ({"deadlineMs": "5s"}, "deadlineMs"),
        ({"deadlineMs": 10, "elementTimeoutMs": 10}, "deadlineMs"),
        ({"edgeBuffer": {"size": 0}}, "edgeBuffer.size"),
        ({"edgeBuffer": {"size": 1_000_001}}, "edgeBuffer.size"),
        ({"edgeBuffer": {"size": 1, "overflow": "DROP"}}, "edgeBuffer.overflow"),
        ({"concurrency": {"max": 1001}}, "concurrency.max"),
        ({"concurrency": {"ordered": "no"}}, "concurrency.ordered"),
        ({"placement": {}}, "placement.pool"),
        ({"placement": {"pool": "a/b"}}, "placement.pool"),
        ({"onErrors": "FAIL"}, "onErrors"),
        ({"on_error": "ROUTE"}, "on_error"),
    ],
)
def test_a_member_out_of_range_or_unknown_is_refused_at_its_place(engine, place):
    assert [at for at, _ in faults(**engine)] == [place]


def test_all_faults_are_found_at_once():
    found = faults(retry={"maxAttempts": 0}, onError="X", edgeBuffer={"size": -1}, nonsense=1)

    assert [at for at, _ in found] == [
        "retry.maxAttempts",
        "onError",
        "edgeBuffer.size",
        "nonsense",
    ]


@pytest.mark.parametrize(
    ("some", "others"),
    [(["ValueError"], ["ValueError"]), (["builtins.OSError"], ["OSError"]), (["E"], ["a.b.E"])],
)
def test_a_class_cannot_be_retried_and_not_retried(some, others):
    found = faults(retry={"maxAttempts": 2, "retryOn": some, "noRetryOn": others})

    assert found[0][0] == "retry.noRetryOn"
    assert some[0] in found[0][1]


def test_classes_of_one_name_from_different_modules_may_differ():
    retry = read(retry={"maxAttempts": 2, "retryOn": ["a.E"], "noRetryOn": ["b.E"]}).retry

    assert retry is not None
    assert (retry.retry_on, retry.no_retry_on) == (("a.E",), ("b.E",))


def test_a_policy_cannot_be_changed():
    with pytest.raises(ValidationError):
        read().on_error = OnError.ROUTE


def test_only_a_processor_may_have_every_key():
    keys = {field.alias for field in NodePolicy.model_fields.values()}

    assert ALLOWED_KEYS["PROCESSOR"] == keys
    assert ALLOWED_KEYS["TERMINAL"] == {"trigger", "deadlineMs", "edgeBuffer", "concurrency"}
    assert ALLOWED_KEYS["TRIGGER"] == {"deadlineMs"}
