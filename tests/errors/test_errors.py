"""The error vocabulary: stable codes, faults and what people read."""

from __future__ import annotations

import copy
import pickle

import pytest

from yukta_rx import errors
from yukta_rx.errors import (
    ERRORS,
    BadInputError,
    BadRequestError,
    ConfigError,
    ControlRejectedError,
    DefinitionError,
    ElementTimeoutError,
    Fault,
    NotFoundError,
    RejectedError,
    StaleLeaderError,
    UnavailableError,
    UpstreamFailedError,
    ValidationError,
    YuktaError,
    json_pointer,
)

PUBLIC = sorted(
    (cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, YuktaError)),
    key=lambda cls: cls.__name__,
)


def built(cls: type[YuktaError], code: str) -> YuktaError:
    if issubclass(cls, ValidationError):
        return cls([Fault("/nodes/0", "unknown_type", "no such type", "a", "type")])
    if issubclass(cls, ConfigError):
        return cls(["yukta.toml: wrong"])
    if issubclass(cls, ControlRejectedError):
        return cls("night-shift", "not now")
    if issubclass(cls, UpstreamFailedError):
        return cls("source", KeyError("x"))
    return cls("what is wrong", code=code, limitBytes=5)


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_code_is_carried_by_the_class_that_the_registry_names(code: str) -> None:
    error = built(ERRORS[code], code)

    assert error.code == code


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_all_that_it_carries(cls: type[YuktaError]) -> None:
    error = built(cls, cls.codes[0])

    again = pickle.loads(pickle.dumps(error))

    assert type(again) is cls
    assert str(again) == str(error)
    assert (again.code, again.members) == (error.code, error.members)


@pytest.mark.parametrize(
    "cls",
    [cls for cls in PUBLIC if not cls.__name__.startswith("_")],
    ids=lambda cls: cls.__name__,
)
def test_every_public_error_class_ends_in_error_and_says_what_it_means(
    cls: type[YuktaError],
) -> None:
    assert cls.__name__.endswith("Error")
    assert cls.__doc__


def test_a_copied_error_keeps_its_cause() -> None:
    cause = KeyError("x")

    again = copy.copy(UpstreamFailedError("source", cause))

    assert again.__cause__ is cause


def test_a_family_of_codes_asks_which_one_is_meant() -> None:
    with pytest.raises(TypeError, match="NotFoundError needs code= one of session_not_found"):
        NotFoundError("no such thing")


def test_a_code_of_another_family_is_refused() -> None:
    with pytest.raises(TypeError, match="BadRequestError needs code="):
        BadRequestError("no such thing", code="limit")


def test_a_class_with_one_code_needs_none() -> None:
    assert BadInputError("not a number").code == "bad_input"
    assert BadInputError.code == "bad_input"


def test_the_text_of_an_error_is_its_detail() -> None:
    assert str(ElementTimeoutError("took 3 s")) == "took 3 s"


def test_further_facts_are_members() -> None:
    error = NotFoundError("no node `x`", code="node_not_found", nodeId="x")

    assert error.members == {"nodeId": "x"}


def test_a_refused_start_says_when_to_come_back() -> None:
    assert RejectedError("queue is full", code="queue_full", retry_after=2.0).retry_after == 2.0


def test_bad_input_is_a_value_error() -> None:
    assert issubclass(BadInputError, ValueError)


def test_an_element_timeout_is_a_timeout_error() -> None:
    assert issubclass(ElementTimeoutError, TimeoutError)


def test_a_stale_leader_is_unavailable() -> None:
    assert issubclass(StaleLeaderError, UnavailableError)


def test_an_upstream_failure_names_the_parent_and_keeps_its_error() -> None:
    cause = KeyError("x")

    error = UpstreamFailedError("reader", cause)

    assert error.parent == "reader"
    assert error.__cause__ is cause
    assert "`reader`" in str(error)


def test_a_reviewers_refusal_names_reviewer_and_reason() -> None:
    error = ControlRejectedError("night-shift", "not after ten")

    assert error.members == {"reviewer": "night-shift", "reason": "not after ten"}


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (
            Fault(
                "/nodes/3/config/engine/retry", "range", "must be 1..100", "load", "engine.retry"
            ),
            "node `load`, option `engine.retry` (/nodes/3/config/engine/retry): must be 1..100",
        ),
        (
            Fault("/nodes/3", "duplicate", "is used twice", "load"),
            "node `load` (/nodes/3): is used twice",
        ),
        (Fault("/edges/2", "unknown_node", "no node `x`"), "/edges/2: no node `x`"),
        (Fault("", "no_trigger", "has no trigger"), "document: has no trigger"),
        (Fault("", "no_trigger", "has no trigger", "load"), "node `load`: has no trigger"),
    ],
)
def test_a_fault_reads_as_place_and_reason(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_a_fault_as_json_leaves_out_what_does_not_apply() -> None:
    assert Fault("/edges/2", "unknown_node", "no node `x`").as_dict() == {
        "pointer": "/edges/2",
        "code": "unknown_node",
        "detail": "no node `x`",
    }
    assert Fault("/nodes/0", "c", "d", "n", "type").as_dict()["nodeId"] == "n"


def test_a_refused_definition_lists_every_fault_in_order() -> None:
    faults = [Fault("/edges/0", "a", "first"), Fault("/edges/1", "b", "second")]

    error = DefinitionError(faults)

    assert str(error).splitlines() == ["/edges/0: first", "/edges/1: second"]
    assert [fault["code"] for fault in error.members["errors"]] == ["a", "b"]


def test_a_refused_configuration_lists_every_problem() -> None:
    assert ConfigError(["one", "two"]).problems == ("one", "two")


def test_a_pointer_escapes_its_separators() -> None:
    assert json_pointer(("nodes", 3, "a/b~c")) == "/nodes/3/a~1b~0c"
    assert json_pointer(()) == ""
