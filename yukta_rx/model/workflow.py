"""The workflow document: nodes and edges, stored once and run many times.

Features: DEF-01, DEF-02.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from yukta_rx.model.codec import canonical, encode
from yukta_rx.model.ids import id_fault
from yukta_rx.model.policy import NO_POLICY, AsArray, DocumentModel, NodePolicy, fault


def id_of_kind(kind: str) -> Any:
    """Return the validator of an id field."""

    def check(value: Any) -> str:
        wrong = id_fault(kind, value)
        if wrong is not None:
            raise fault("invalid_id", wrong)
        return str(value)

    return BeforeValidator(check)


# Some 30,000 years; what is longer could not be reckoned with as a float.
_LONGEST_SECONDS = 10**12


class OnTerminalFailure(StrEnum):
    """Whether the first failing terminal ends the run at once."""

    FAIL_FAST = "FAIL_FAST"
    FINISH_OTHERS = "FINISH_OTHERS"


class RunOptions(DocumentModel):
    """How the workflow is run as a whole.

    Attributes:
        on_terminal_failure: what a failing terminal means for the other branches.
        lossless: whether a run that lost a message ends FAILURE; buffers that drop are refused.
    """

    on_terminal_failure: OnTerminalFailure = OnTerminalFailure.FAIL_FAST
    lossless: Annotated[bool, Field(strict=True)] = False


class NodeConfig(DocumentModel):
    """`config` of a node: the engine's part apart, all other members the plugin's."""

    model_config = ConfigDict(extra="allow")

    engine: NodePolicy = NO_POLICY


class Node(DocumentModel):
    """One step of a workflow.

    Attributes:
        node_id: unique in the workflow.
        type: the plugin type.
        config: the plugin's options, and the policy under `engine`.
        timeout_seconds: the idle timeout in seconds, 0 for none, or the expression of it; None
            leaves it to the plugin.
    """

    node_id: Annotated[str, id_of_kind("nodeId")]
    type: Annotated[str, id_of_kind("type")]
    config: NodeConfig = NodeConfig()
    timeout_seconds: float | int | str | None = None

    @field_validator("timeout_seconds", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        if value is None or (isinstance(value, str) and "${" in value):
            return value
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # Comparing from below refuses NaN as well.
        if not number or not 0 <= value <= _LONGEST_SECONDS:
            detail = "must be seconds from 0 (none) on, or a typed expression (${payload.secs:int})"
            raise fault("invalid_option", detail)
        return value

    @property
    def policy(self) -> NodePolicy:
        """What the engine does for this node."""
        return self.config.engine

    @property
    def plugin_config(self) -> dict[str, Any]:
        """The plugin's options as they stand in the document; do not change them."""
        return dict(self.config.model_extra or {})


class Edge(DocumentModel):
    """A one-way connection.

    Attributes:
        source: id of the node that messages come from.
        target: id of the node that they go to.
        source_port: the named output; None for the default one.
        required: whether the target counts this parent in its join rule.
    """

    source: Annotated[str, id_of_kind("source")]
    target: Annotated[str, id_of_kind("target")]
    source_port: Annotated[str, id_of_kind("sourcePort")] | None = None
    required: Annotated[bool, Field(strict=True)] = True


class WorkflowDefinition(DocumentModel):
    """A whole workflow document.

    Attributes:
        workflow_id: unique in its session.
        description: for people.
        nodes: the nodes, in the order of the document.
        edges: the edges, in the order of the document.
        options: how it is run as a whole.
    """

    workflow_id: Annotated[str, id_of_kind("workflowId")]
    description: Annotated[str, Field(strict=True)] | None = None
    nodes: Annotated[tuple[Node, ...], AsArray]
    edges: Annotated[tuple[Edge, ...], AsArray]
    options: RunOptions = RunOptions()

    def as_document(self) -> dict[str, Any]:
        """Return the document: camelCase, and only the members that were written."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    @cached_property
    def text(self) -> bytes:
        """The document as JSON that `codec.decode` reads back.

        Raises:
            UnserialisablePayloadError: as for `content_hash`.
        """
        return encode(self.as_document())

    @cached_property
    def version(self) -> str:
        """The content hash, which names this content for good (`definitionVersion`)."""
        return content_hash(self)


def content_hash(definition: WorkflowDefinition) -> str:
    """Return SHA-256 over the document's canonical JSON, as hex.

    The order of members does not matter, the order of nodes and edges does, and 1 is not 1.0.

    Raises:
        UnserialisablePayloadError: a node's configuration holds what JSON cannot say; only one
            that was made in Python can.
    """
    return sha256(canonical(definition.as_document())).hexdigest()
