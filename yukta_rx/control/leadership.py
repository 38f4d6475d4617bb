"""Leadership: whether this server leads, and which one does if not: the switch of a standby.

A single server always leads. Whoever shares the lead between servers calls `stand_by` and `lead`.

Feature: SCL-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from yukta_rx.errors import NotLeaderError

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_AFTER: Final = 5.0
"""Seconds after which a standby may lead, or know who does."""


class Leader(msgspec.Struct, frozen=True):
    """The server that leads.

    Attributes:
        instance_id: its `yukta.ha.instance-id`.
        url: where it can be reached; None if that is not known.
    """

    instance_id: str
    url: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The form in which clients are told."""
        return {"instanceId": self.instance_id, "url": self.url}


class Leadership:
    """Whether this server leads. Belongs to the loop of its engine.

    Attributes:
        leads: whether it does.
        leader: the server that does if this one does not; None if that is not known.
    """

    __slots__ = ("_listeners", "leader", "leads")

    def __init__(self) -> None:
        self.leads = True
        self.leader: Leader | None = None
        self._listeners: list[Callable[[], None]] = []

    def stand_by(self, leader: Leader | None = None) -> None:
        """This server does not lead, or no longer; also called when another one leads by now."""
        changed = self.leads or self.leader != leader
        self.leads, self.leader = False, leader
        if changed:
            self._tell()

    def lead(self) -> None:
        """This server leads from now on."""
        changed = not self.leads
        self.leads, self.leader = True, None
        if changed:
            self._tell()

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have `changed` called at every change; returns what ends that."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    def refusal(self) -> NotLeaderError:
        """Return what a request is refused with that only the leader may answer."""
        leader = None if self.leader is None else self.leader.as_dict()
        told = "this server is a standby"
        if self.leader is not None:
            told += f"; {self.leader.url or self.leader.instance_id} leads"
        return NotLeaderError(told, retry_after=RETRY_AFTER, leader=leader)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
