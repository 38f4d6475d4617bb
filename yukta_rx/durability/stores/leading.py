"""Leading: whether the stores of this server are still its own, told by the one who knows.

In memory and in files they always are. In a database another server may have taken them over, and
while the connection is gone that tells, nobody knows.

Features: DUR-04, SCL-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Leading:
    """What is known of who leads. Belongs to the loop.

    Attributes:
        fault: why it is not known for the moment whether this server leads; None if it is.
        over: whether another server leads by now, which is for good.
        leader: the name of that server, None if it is not known.
    """

    __slots__ = ("_listeners", "fault", "leader", "over")

    def __init__(self) -> None:
        self.fault: str | None = None
        self.over = False
        self.leader: str | None = None
        self._listeners: list[Callable[[], None]] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called now and at every change."""
        self._listeners.append(changed)
        changed()

    def doubt(self, fault: str) -> None:
        """Nobody knows for the moment; `fault` says why."""
        self.fault = fault
        self._tell()

    def sure(self) -> None:
        """This server leads, and did all the time."""
        self.fault = None
        self._tell()

    def passed(self, leader: str | None) -> None:
        """Another server leads."""
        self.fault, self.over, self.leader = None, True, leader
        self._tell()

    def why_not(self) -> str | None:
        """What keeps the stores from being this server's own, None if nothing does."""
        return self.fault

    def _tell(self) -> None:
        for changed in tuple(self._listeners):
            changed()
