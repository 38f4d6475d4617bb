"""The `engine` object of a node: what the engine does about failures, time and pace.

Parsed here, each member with its range; what depends on the rest of the graph is checked by
`definitions.validate`. Plugins never see it.

Feature: ENG-04.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    WrapSerializer,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


class DocumentModel(BaseModel):
    """Base of everything in a workflow document: frozen, camelCase, unknown members refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        allow_inf_nan=False,
    )


def fault(code: str, detail: str, *place: str) -> PydanticCustomError:
    """Return an error for a validator to raise.

    Args:
        code: the stable word.
        detail: the sentence; it is not a template.
        place: where below the validated object, if not at it.
    """
    return PydanticCustomError(code, "{detail}", {"detail": detail, "place": place})


class OnError(StrEnum):
    """What becomes of a message whose last attempt failed."""

    FAIL = "FAIL"
    CONTINUE = "CONTINUE"
    ROUTE = "ROUTE"


class JoinRule(StrEnum):
    """What a node makes of parents that fail."""

    ALL_SUCCESS = "ALL_SUCCESS"
    ALL_DONE = "ALL_DONE"
    ONE_SUCCESS = "ONE_SUCCESS"
    N_OF_M = "N_OF_M"


class Overflow(StrEnum):
    """What a full edge buffer does with the next message."""

    DROP_OLDEST = "DROP_OLDEST"
    DROP_NEWEST = "DROP_NEWEST"
    SPILL = "SPILL"
    BLOCK = "BLOCK"

    @property
    def drops(self) -> bool:
        """Whether messages can be lost."""
        return self in (Overflow.DROP_OLDEST, Overflow.DROP_NEWEST)


def _whole(low: int, high: int | None = None) -> Any:
    return Field(ge=low, le=high, strict=True)


# Documents hold arrays, so that is what a tuple is written as.
AsArray: Final = WrapSerializer(lambda value, write: list(write(value)), return_type=list)
_ClassName = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*\z")]
_ClassNames = Annotated[tuple[_ClassName, ...], AsArray]


class RetryPolicy(DocumentModel):
    """`retry`: attempts at one message; the wait doubles from attempt to attempt.

    Attributes:
        max_attempts: attempts in all, the first included.
        backoff_ms: wait before the second attempt, in milliseconds.
        max_backoff_ms: the longest wait, in milliseconds.
        retry_on: exception class names worth another attempt; empty means all.
        no_retry_on: exception class names never worth one; stronger than `retry_on`.
    """

    max_attempts: Annotated[int, _whole(1, 100)]
    backoff_ms: Annotated[int, _whole(0, 3_600_000)] = 200
    max_backoff_ms: Annotated[int, _whole(0)] = 5000
    retry_on: _ClassNames = ()
    no_retry_on: _ClassNames = ()

    @model_validator(mode="after")
    def _consistent(self) -> RetryPolicy:
        if self.max_backoff_ms < self.backoff_ms:
            written = "" if "max_backoff_ms" in self.model_fields_set else ", the default,"
            raise fault(
                "invalid_option",
                f"{self.max_backoff_ms}{written} is below backoffMs {self.backoff_ms}",
                "maxBackoffMs",
            )
        if shared := _shared(self.retry_on, self.no_retry_on):
            raise fault(
                "invalid_option",
                f"{', '.join(shared)} stands in retryOn and in noRetryOn; name it in one of them",
                "noRetryOn",
            )
        return self


def _shared(some: tuple[str, ...], others: tuple[str, ...]) -> list[str]:
    """Return names of classes that both name, one perhaps with its module and one without."""
    return sorted(
        {name for name in some for other in others if _may_be_same(name, other)},
    )


def _may_be_same(one: str, other: str) -> bool:
    return one == other or one.endswith("." + other) or other.endswith("." + one)


class FailureBudget(DocumentModel):
    """`failureBudget`: more failures than this within the window fail the node.

    Attributes:
        max_failures: messages that may fail within the window.
        window_ms: length of the window in milliseconds.
    """

    max_failures: Annotated[int, _whole(0)]
    window_ms: Annotated[int, _whole(1)]


class NOfM(DocumentModel):
    """`trigger` written as an object: carry on once `n` parents succeeded."""

    rule: Literal["N_OF_M"]
    n: Annotated[int, _whole(1)]


class EdgeBuffer(DocumentModel):
    """`edgeBuffer`: messages kept in front of the node when it is slower than its parents.

    Attributes:
        size: how many.
        overflow: what happens to the next one.
    """

    size: Annotated[int, _whole(1, 1_000_000)]
    overflow: Overflow = Overflow.DROP_OLDEST


class Concurrency(DocumentModel):
    """`concurrency`: how many messages an async plugin works on at once.

    Attributes:
        max: how many.
        ordered: whether outputs keep the order of their inputs.
    """

    max: Annotated[int, _whole(1, 1000)] = 1
    ordered: Annotated[bool, Field(strict=True)] = True


class Placement(DocumentModel):
    """`placement`: the pool of workers that the plugin runs on."""

    pool: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\z")
    ]


# Some 30,000 years; what is longer could not be reckoned with as a float.
_LONGEST_MS = 10**15


def whole_or_expression(value: Any) -> Any:
    """Let text with `${` through as it is; anything else must be a whole number from 1 on."""
    if isinstance(value, str) and "${" in value:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LONGEST_MS:
        detail = "must be a whole number from 1 on, or a typed expression such as ${payload.ms:int}"
        raise fault("invalid_option", detail)
    return value


Milliseconds: TypeAlias = int | str


class NodePolicy(DocumentModel):
    """All of `engine`; a member that is None or at its default costs nothing at run time.

    Attributes:
        retry: further attempts; none by default.
        on_error: what becomes of a message that failed for good.
        failure_budget: how many may.
        trigger: the join rule.
        element_timeout_ms: limit of one attempt in milliseconds, or the expression of it.
        deadline_ms: limit of the node from its first activity on, likewise.
        edge_buffer: buffer in front of the node.
        concurrency: messages worked on at once.
        placement: where the plugin runs.
    """

    retry: RetryPolicy | None = None
    on_error: OnError = OnError.FAIL
    failure_budget: FailureBudget | None = None
    trigger: JoinRule | NOfM = JoinRule.ALL_SUCCESS
    element_timeout_ms: Milliseconds | None = None
    deadline_ms: Milliseconds | None = None
    edge_buffer: EdgeBuffer | None = None
    concurrency: Concurrency = Concurrency()
    placement: Placement | None = None

    @field_validator("element_timeout_ms", "deadline_ms", mode="before")
    @classmethod
    def _milliseconds(cls, value: Any) -> Any:
        return whole_or_expression(value)

    @field_validator("trigger", mode="before")
    @classmethod
    def _trigger(cls, value: Any) -> Any:
        if isinstance(value, NOfM):
            return value
        if isinstance(value, dict):
            return NOfM.model_validate(value, by_alias=True, by_name=False)
        if value == JoinRule.N_OF_M:
            raise fault("invalid_option", 'N_OF_M needs its n: {"rule": "N_OF_M", "n": 2}')
        if value not in tuple(JoinRule):
            raise fault("invalid_option", f"must be one of {', '.join(JoinRule)}")
        return JoinRule(value)

    @field_validator("retry", "failure_budget", "edge_buffer", "placement", mode="before")
    @classmethod
    def _not_null(cls, value: Any) -> Any:
        if value is None:
            raise fault("invalid_option", "must be an object; leave the key out to do without")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> NodePolicy:
        if self.failure_budget is not None and self.on_error is OnError.FAIL:
            detail = "needs onError CONTINUE or ROUTE; with FAIL the first failure ends the node"
            raise fault("invalid_option", detail, "failureBudget")
        deadline, element = self.deadline_ms, self.element_timeout_ms
        if isinstance(deadline, int) and isinstance(element, int) and deadline <= element:
            detail = f"{deadline} must be above elementTimeoutMs {element}"
            raise fault("invalid_option", detail, "deadlineMs")
        return self

    @property
    def join_rule(self) -> JoinRule:
        """The join rule without its number."""
        return JoinRule.N_OF_M if isinstance(self.trigger, NOfM) else self.trigger


NO_POLICY: Final = NodePolicy()
"""The policy of a node without `engine`."""

_ANY = frozenset({"deadlineMs"})
_WITH_PARENTS = _ANY | {"trigger", "edgeBuffer", "concurrency"}
ALLOWED_KEYS: Final[dict[str, frozenset[str]]] = {
    "TRIGGER": _ANY,
    "PROCESSOR": _WITH_PARENTS
    | {"retry", "onError", "failureBudget", "elementTimeoutMs", "placement"},
    "TERMINAL": _WITH_PARENTS,
}
"""The `engine` keys that a node of each kind may have."""
