"""What the definition service answers with. Features: DEF-01, DUR-05."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.durability.stores.definitions import DAMAGED
from yukta_rx.errors import Fault, StaleDefinitionError
from yukta_rx.model.codec import canonical
from yukta_rx.model.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from yukta_rx.durability.stores.definitions import WorkflowRecord
    from yukta_rx.durability.stores.sessions import SessionRecord
    from yukta_rx.errors import StoreUnavailableError

ANY: Final = "*"
"""`if_match="*"`: whatever is there, but something must be."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What saving a workflow, or going back to a version of it, did."""

    record: WorkflowRecord
    created: bool
    unchanged: bool
    warnings: Sequence[Fault]

    def as_dict(self) -> dict[str, Any]:
        """The answer to a save: camelCase."""
        return {
            "workflowId": self.record.workflow_id,
            "version": self.record.version,
            "definitionVersion": self.record.definition_version,
            "created": self.created,
            "unchanged": self.unchanged,
            "warnings": [warning.as_dict() for warning in self.warnings],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """One session that is to become what a document says.

    Attributes:
        document: a whole session document.
        if_match: the `etag` that the change is based on; `*` for any.
        if_none_match: create only.
        must_match: a session that is there changes only with `if_match`.
        prune: remove the workflows that the document does not have.
        keep_settings: a document that says nothing but its workflows leaves the settings alone.
        base_dirs: by workflow id, where relative paths start; else at the server's folder.
        place: pointer to the session, for its faults.
        places: pointers to its workflows in their order, if they are not below `place`.
    """

    document: Mapping[str, Any]
    if_match: str | None = None
    if_none_match: bool = False
    must_match: bool = False
    prune: bool = True
    keep_settings: bool = False
    base_dirs: Mapping[str, Path] = field(default_factory=dict)
    place: str = ""
    places: Sequence[str] | None = None

    def place_of(self, index: int) -> str:
        """Pointer to a workflow of it."""
        return f"{self.place}/workflows/{index}" if self.places is None else self.places[index]


@dataclass(frozen=True, slots=True)
class SessionApplied:
    """What applying a session did, or with a dry run would do; lists of workflow ids."""

    session: SessionView
    existed: bool
    created: Sequence[str]
    changed: Sequence[str]
    unchanged: Sequence[str]
    removed: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        """The plan, as it is answered."""
        return {
            "sessionId": self.session.session_id,
            "created": list(self.created),
            "changed": list(self.changed),
            "unchanged": list(self.unchanged),
            "removed": list(self.removed),
        }


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session with the workflows that it has now."""

    record: SessionRecord
    workflows: Sequence[WorkflowRecord]

    @property
    def session_id(self) -> str:
        """Unique on the server."""
        return self.record.session_id

    @property
    def etag(self) -> str:
        """Changes with the configuration and with every workflow."""
        state: list[Any] = [self.record.config.model_dump(mode="json", by_alias=True)]
        state += [[item.workflow_id, item.definition_version] for item in self.workflows]
        return sha256(canonical(state)).hexdigest()

    def settings(self) -> dict[str, Any]:
        """The session's own settings, as they would be written in a document."""
        own = self.record.config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        own.pop("workflows", None)
        return own

    def as_dict(self, include_workflows: bool = False) -> dict[str, Any]:
        """The session as API.md's `Session`."""
        shown: dict[str, Any] = self.record.config.model_dump(mode="json", by_alias=True)
        shown.pop("workflows", None)
        shown = {key: value for key, value in shown.items() if value is not None}
        if include_workflows:
            shown["workflows"] = [item.document for item in self.workflows]
        shown["workflowIds"] = [item.workflow_id for item in self.workflows]
        shown["createdAt"] = rfc3339(self.record.created_at)
        shown["updatedAt"] = rfc3339(self.record.updated_at)
        shown["etag"] = self.etag
        return shown


def mendable(error: StoreUnavailableError, if_match: str | None, if_none_match: bool) -> bool:
    """Whether a change goes over what is there but cannot be read: it is based on nothing."""
    return DAMAGED in error.members and if_match in (None, ANY) and not if_none_match


def check_match(current: str | None, if_match: str | None, if_none_match: bool, what: str) -> None:
    """Refuse a change that is not based on what is there.

    Args:
        current: the tag of what is there, None for nothing.
        if_match: the tag that must be there, `*` for any; None asks for nothing.
        if_none_match: nothing may be there.
        what: what the change is about.

    Raises:
        StaleDefinitionError: it is not; holds both tags.
    """
    if if_none_match and current is not None:
        raise StaleDefinitionError(f"{what} exists already", expected=None, current=current)
    if if_match is None or (if_match == ANY and current is not None) or if_match == current:
        return
    raise StaleDefinitionError(
        f"{what} was changed meanwhile: read it again and repeat the change",
        expected=if_match,
        current=current,
    )
