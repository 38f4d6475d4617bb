"""Give a signal to a node, or answer one approval. Feature: CTL-05."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from yukta_rx.control.commands.base import Effect, OfNode
from yukta_rx.engine.asking import place_of
from yukta_rx.errors import ValidationError
from yukta_rx.model.codec import dumps_plain
from yukta_rx.model.ids import id_fault
from yukta_rx.model.message import copy_payload
from yukta_rx.plugins.signals import APPROVE, not_open, not_registered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from yukta_rx.control.desk import Desk

MAX_DATA: Final = 256 * 1024
"""What the data of a signal may take as JSON, in bytes; nodes keep a hundred that come early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalNode(OfNode):
    """A signal goes to the message of the node that has waited longest for it, or is kept.

    `decision` is `reject`, in any case, or any other word for a yes; without one it is `approve`.
    With `approvalId` it answers that request and no other. The answer is ACCEPTED if a message
    waited, else QUEUED: it is kept ten minutes for the message that asks.
    """

    # The field is `name` outside; here that is the name of the command.
    route: ClassVar = ("POST", "/signal")
    tool: ClassVar = "signal_node"
    summary: ClassVar = "Give a signal to a node that waits for one, or will"
    errors: ClassVar = (
        *("signal_not_registered", "already_answered", "signal_buffer_full"),
        "unserialisable_payload",
    )

    signal: str
    decision: str | None = None
    data: Any = None
    approval_id: str | None = None
    comment: str | None = None

    def __post_init__(self) -> None:
        """Refuse a name that no wait has, and data that is too large to keep, or cannot be."""
        if fault := id_fault("name", self.signal):
            raise ValueError(fault)
        if len(dumps_plain(self.data)) > MAX_DATA:
            raise ValueError(f"data takes more than {MAX_DATA // 1024} KiB as JSON")

    @classmethod
    @cache
    def own_fields(cls) -> dict[str, tuple[type, Any]]:
        """Fields beside the ids; see `Command.own_fields`."""
        # `super()` alone would mean the class before it got its slots.
        fields = super(SignalNode, cls).own_fields()
        return {_outside(name): kind for name, kind in fields.items()}

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Make one from a request; see `Command.parse`."""
        inside = {_inside(name): value for name, value in values.items()}
        try:
            return super(SignalNode, cls).parse(inside)
        except ValidationError as error:
            raise ValidationError(
                [
                    replace(
                        fault,
                        pointer="/" + _inside(fault.pointer[1:]) if fault.pointer else "",
                        detail=fault.detail.replace("needs signal", "needs name").replace(
                            "no field name", "no field signal"
                        ),
                    )
                    for fault in error.errors
                ]
            ) from error

    def arguments(self) -> dict[str, Any]:
        """The fields beside the ids, as the audit shows them."""
        shown = {"name": self.signal, "decision": self.decision, "data": self.data}
        if self.approval_id is not None:
            shown["approvalId"] = self.approval_id
        if self.comment is not None:
            shown["comment"] = self.comment
        return shown

    def examine(self, desk: Desk) -> None:
        """The run must be live, its node wait for signals, and a named request be open."""
        self._check_node(desk)
        if self.approval_id is not None:
            self._check_open(desk, self.approval_id)

    def _check_open(self, desk: Desk, approval_id: str) -> None:
        request = desk.approvals.signals.get(approval_id)
        place = self.execution_id, self.node_id, self.signal
        if request is None or place != (request.execution_id, request.node_id, request.signal):
            raise not_open(approval_id)

    def _check_node(self, desk: Desk) -> None:
        run = desk.run(self.execution_id)
        node = run.node(self.node_id)
        waits = node.prepared.spec.signals
        if waits and not node.status.terminal:
            return
        why = f"ended {node.status}" if waits else f"is a {node.prepared.spec.type}"
        raise not_registered(place_of(run, node), why)

    async def perform(self, desk: Desk) -> Effect:
        """Answer the message that has waited longest, or the one that is named, or keep it."""
        self.examine(desk)
        run = desk.run(self.execution_id)
        place = place_of(run, run.node(self.node_id))
        async with desk.approvals.signals.coming(place, self.signal, self.approval_id):
            # A run that was taken up for this signal may have ended meanwhile, or its node.
            if self.approval_id is None:
                self._check_node(desk)
            else:
                self._check_open(desk, self.approval_id)
            answered = await desk.approvals.send(
                place,
                self.signal,
                decision=self.decision or APPROVE,
                data=copy_payload(self.data),
                comment=self.comment,
                actor=desk.actor,
                approval_id=self.approval_id,
            )
        return Effect(answer="ACCEPTED" if answered else "QUEUED")


def _outside(name: str) -> str:
    return "name" if name == "signal" else name


def _inside(name: str) -> str:
    return {"name": "signal", "signal": "name"}.get(name, name)
