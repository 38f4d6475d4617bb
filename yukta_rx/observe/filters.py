"""EventFilter: which events of the feed a reader wants.

Feature: OBS-01.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from yukta_rx.errors import BadRequestError
from yukta_rx.model.events import EVENT_TYPES, SAMPLE_TYPES
from yukta_rx.model.ids import check_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yukta_rx.model.events import ExecutionEvent

ANY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What has to fit for an event to be wanted; an empty member fits everything.

    Attributes:
        execution_ids: its run.
        types: its type, exact or a whole family, `node.*`.
        session_ids: its session.
        workflow_ids: its workflow.
        node_ids: its node; an event of a run as a whole fits none.
    """

    execution_ids: frozenset[str] = ANY
    types: frozenset[str] = ANY
    session_ids: frozenset[str] = ANY
    workflow_ids: frozenset[str] = ANY
    node_ids: frozenset[str] = ANY
    _exact: frozenset[str] = field(init=False, repr=False, compare=False, default=ANY)

    def __post_init__(self) -> None:
        exact = frozenset(name for word in self.types for name in matching_types(word))
        object.__setattr__(self, "_exact", exact or ANY)

    @classmethod
    def parse(
        cls,
        *,
        execution_id: Iterable[str] = (),
        type: Iterable[str] = (),
        session_id: Iterable[str] = (),
        workflow_id: Iterable[str] = (),
        node_id: Iterable[str] = (),
    ) -> Self:
        """Read a filter as it stands in a query: each member repeatable, or a comma list.

        Raises:
            BadRequestError: code `invalid_parameter`; `parameter` names the member.
        """
        words = _words(type)
        for word in words:
            if not matching_types(word):
                detail = f"no event type {word!a}: use one of the feed's, or a family like node.*"
                raise BadRequestError(detail, code="invalid_parameter", parameter="type")
        return cls(
            execution_ids=_ids("executionId", execution_id),
            types=words,
            session_ids=_ids("sessionId", session_id),
            workflow_ids=_ids("workflowId", workflow_id),
            node_ids=_ids("nodeId", node_id),
        )

    @property
    def everything(self) -> bool:
        """Whether all events are wanted."""
        return not (
            self.execution_ids
            or self.types
            or self.session_ids
            or self.workflow_ids
            or self.node_ids
        )

    @property
    def takes_samples(self) -> bool:
        """Whether samples can be among the events wanted."""
        return not self.types or not self._exact.isdisjoint(SAMPLE_TYPES)

    def matches(self, event: ExecutionEvent) -> bool:
        """Whether an event is wanted."""
        return (
            (not self.execution_ids or event.execution_id in self.execution_ids)
            and (not self.types or event.type in self._exact)
            and (not self.session_ids or event.session_id in self.session_ids)
            and (not self.workflow_ids or event.workflow_id in self.workflow_ids)
            and (not self.node_ids or event.node_id in self.node_ids)
        )

    def matches_run(self, execution_id: str, session_id: str, workflow_id: str) -> bool:
        """Whether events of a run can be wanted."""
        return (
            (not self.execution_ids or execution_id in self.execution_ids)
            and (not self.session_ids or session_id in self.session_ids)
            and (not self.workflow_ids or workflow_id in self.workflow_ids)
        )

    def as_dict(self) -> dict[str, list[str]]:
        """Return the JSON form, without members that fit everything."""
        members = {
            "executionId": self.execution_ids,
            "type": self.types,
            "sessionId": self.session_ids,
            "workflowId": self.workflow_ids,
            "nodeId": self.node_ids,
        }
        return {name: sorted(values) for name, values in members.items() if values}


def matching_types(word: str) -> frozenset[str]:
    """Return the event types that a word stands for: one, or those of the family `node.*`."""
    if word in EVENT_TYPES:
        return frozenset((word,))
    family, star, rest = word.partition(".*")
    if not star or rest:
        return ANY
    return frozenset(name for name in EVENT_TYPES if name.startswith(f"{family}."))


def _words(texts: Iterable[str]) -> frozenset[str]:
    parts = (part.strip() for text in texts for part in text.split(","))
    # `or ANY`: an empty set of its own would cost every stream some hundred bytes.
    return frozenset(part for part in parts if part) or ANY


def _ids(kind: str, texts: Iterable[str]) -> frozenset[str]:
    return frozenset(check_id(kind, word) for word in _words(texts)) or ANY
