"""From a JSON document to a definition, with every fault in our own words.

Feature: DEF-02.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from yukta_rx.errors import BadInputError, DefinitionError, Fault, json_pointer
from yukta_rx.model.ids import id_fault
from yukta_rx.model.message import copy_payload
from yukta_rx.model.policy import (
    Concurrency,
    EdgeBuffer,
    FailureBudget,
    NodePolicy,
    NOfM,
    Placement,
    RetryPolicy,
)
from yukta_rx.model.workflow import Edge, Node, RunOptions, WorkflowDefinition
from yukta_rx.security.placeholders import describe

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Loc = Sequence[str | int]

_MODELS: Mapping[str, type[BaseModel]] = {
    "nodes": Node,
    "edges": Edge,
    "options": RunOptions,
    "engine": NodePolicy,
    "retry": RetryPolicy,
    "failureBudget": FailureBudget,
    "edgeBuffer": EdgeBuffer,
    "concurrency": Concurrency,
    "placement": Placement,
    "trigger": NOfM,
}


def parse_definition(document: Any) -> WorkflowDefinition:
    """Return the definition that a document describes; the document is copied.

    Whether the graph makes sense is for `validate`, which also takes the document itself and then
    reports the faults of both at once.

    Raises:
        DefinitionError: it has not the shape of a workflow document; lists every fault.
    """
    definition, faults = read_definition(document)
    if definition is None:
        raise DefinitionError(faults)
    return definition


def read_definition(document: Any) -> tuple[WorkflowDefinition | None, list[Fault]]:
    """Return the definition, or None and every fault of the document's shape."""
    try:
        copied = copy_payload(document)
    except BadInputError as error:
        return None, [Fault("", "invalid_option", error.detail)]
    try:
        return WorkflowDefinition.model_validate(copied, by_alias=True, by_name=False), []
    except PydanticError as error:
        items = error.errors(include_url=False)
        return None, [fault_of(document, item) for item in items]


def fault_at(document: Any, loc: Loc, code: str, detail: str) -> Fault:
    """Return a fault at a place of a document, with node and option worked out from the place."""
    return Fault(json_pointer(loc), code, detail, _node_at(document, loc), _option_at(loc))


def fault_of(document: Any, error: ErrorDetails) -> Fault:
    """Return one of pydantic's errors as a fault."""
    loc = list(error["loc"])
    kind, context = error["type"], error.get("ctx") or {}
    if "place" in context:
        return fault_at(document, [*loc, *context["place"]], kind, str(context["detail"]))
    if kind == "missing":
        return fault_at(document, loc, "missing_option", "is required")
    if kind == "extra_forbidden":
        return fault_at(document, loc, "unknown_option", _unknown_key(loc))
    detail = _WORDS[kind](error, context) if kind in _WORDS else _plain(error["msg"])
    return fault_at(document, loc, "invalid_option", detail)


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return `; did you mean X?`, or `; there is ...`, to go on a sentence about a wrong word."""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(word[:100].casefold(), folded, n=1)
    if close:
        return f"; did you mean `{folded[close[0]]}`?"
    return f"; there is {', '.join(known)}" if known else ""


def _unknown_key(loc: Loc) -> str:
    owner = next((part for part in reversed(loc[:-1]) if isinstance(part, str)), None)
    model = _MODELS.get(str(owner), WorkflowDefinition)
    known = [field.alias or name for name, field in model.model_fields.items()]
    return f"is not known here{suggestion(str(loc[-1]), known)}"


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:]


def _must_be(noun: str) -> Callable[[ErrorDetails, Mapping[str, Any]], str]:
    return lambda error, context: f"must be {noun}, not {describe(error['input'])}"


def _bound(limit: str, words: str) -> Callable[[ErrorDetails, Mapping[str, Any]], str]:
    return lambda error, context: (
        f"must be {words} {context[limit]}, not {describe(error['input'])}"
    )


def _one_of(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    allowed = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    given = error["input"]
    detail = f"must be one of {', '.join(allowed)}, not {describe(given)}"
    close = get_close_matches(given[:100].upper(), allowed, n=1) if isinstance(given, str) else []
    return f"{detail}; did you mean {close[0]}?" if close else detail


def _wrong_name(error: ErrorDetails, context: Mapping[str, Any]) -> str:
    noun = "pool" if error["loc"][-1] == "pool" else "exception class"
    return f"{describe(error['input'])} is not the name of a {noun}".replace("a exc", "an exc")


_WORDS: Mapping[str, Callable[[ErrorDetails, Mapping[str, Any]], str]] = {
    "int_type": _must_be("a whole number"),
    "string_type": _must_be("text"),
    "bool_type": _must_be("true or false"),
    "model_type": _must_be("an object"),
    "dict_type": _must_be("an object"),
    "tuple_type": _must_be("an array"),
    "greater_than_equal": _bound("ge", "at least"),
    "less_than_equal": _bound("le", "at most"),
    "enum": _one_of,
    "literal_error": _one_of,
    "string_pattern_mismatch": _wrong_name,
}


def _node_at(document: Any, loc: Loc) -> str | None:
    if len(loc) < 2 or loc[0] != "nodes" or not isinstance(loc[1], int):
        return None
    try:
        name = document["nodes"][loc[1]]["nodeId"]
    except (LookupError, TypeError):
        return None
    # An id that is no id is told by its own fault; elsewhere it would only mislead.
    return name if id_fault("nodeId", name) is None else None


def _option_at(loc: Loc) -> str | None:
    below = list(loc[2:] if len(loc) > 1 and loc[0] in ("nodes", "edges") else loc)
    if below[:1] == ["config"] and len(below) > 1:
        below = below[1:]
    return ".".join(map(str, below)) or None


# --- what can still be examined of a document with faults ----------------------------------------


def readable_nodes(document: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield index and object of the nodes that are objects."""
    yield from _objects(document.get("nodes"))


def readable_edges(document: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield index and object of the edges that are objects."""
    yield from _objects(document.get("edges"))


def _objects(items: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(items, (list, tuple)):
        for index, item in enumerate(items):
            if isinstance(item, Mapping):
                yield index, item
