"""What stands in the files of workflows and sessions: written for people, read back exactly.

Features: DEF-01, DUR-05.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.durability.stores.definition_texts import (
    FORMAT,
    Unreadable,
    converted,
    parsed,
    read_definition,
    read_session,
    read_version,
    session_members,
    version_members,
)
from yukta_rx.model.codec import decode, dumps_plain, encode, loads_external

if TYPE_CHECKING:
    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionRecord
    from yukta_rx.model.workflow import WorkflowDefinition

__all__ = ["Removed", "Unreadable", "current_text", "read_current", "read_removed", "read_session"]
__all__ += ["read_version", "removed_text", "session_text", "version_text"]

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """The last numbers of workflows that were removed, so that numbers only grow.

    Attributes:
        floor: the highest number of those that are not remembered any more.
        last: session, workflow and number, the one removed longest ago first.
    """

    floor: int = 0
    last: tuple[tuple[str, str, int], ...] = ()


# --- workflows -----------------------------------------------------------------------------------


def current_text(definition: WorkflowDefinition) -> bytes:
    """Return the document of a workflow, as a person would write it."""
    document = definition.as_document()
    try:
        return _for_people(document)
    except (TypeError, ValueError):
        # Made in Python, of values that JSON has no word for; the file of the version is exact.
        return _for_people(json.loads(dumps_plain(document)))


def read_current(data: bytes, workflow_id: str) -> WorkflowDefinition:
    """Return the workflow of a document.

    Raises:
        Unreadable: it is none, or one of another id.
    """
    document = parsed(loads_external, data.removeprefix(_BYTE_ORDER_MARK))
    return read_definition(document, workflow_id)


def version_text(record: WorkflowRecord) -> bytes:
    """Return the file of one version."""
    return _exact(version_members(record))


# --- sessions, and what was removed --------------------------------------------------------------


def session_text(record: SessionRecord) -> bytes:
    """Return the file of a session."""
    return _exact(session_members(record))


def removed_text(removed: Removed) -> bytes:
    """Return the file of numbers of what was removed."""
    last = [list(entry) for entry in removed.last]
    return _exact({"format": FORMAT, "floor": removed.floor, "last": last})


def read_removed(data: bytes) -> Removed:
    """Return the numbers of what was removed.

    Raises:
        Unreadable: the file is not that of such numbers.
    """
    return converted(parsed(decode, data), Removed)


# --- JSON ----------------------------------------------------------------------------------------


def _for_people(value: Any) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _exact(members: dict[str, Any]) -> bytes:
    """Return what `decode` gives back to the digit, laid out for people."""
    return _for_people(json.loads(encode(members)))
