"""The join rule of a node with a stage of its own in front. Feature: ENG-03."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yukta_rx.streams.plan import Join


class FrontJoin:
    """The join rule, in front; remembers which error it gave after all elements."""

    def __init__(self, join: Join | None) -> None:
        self._join = join
        self.late: BaseException | None = None

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Give up at once if the rule says so."""
        return None if self._join is None else self._join.parent_failed(parent, error)

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """Give up behind what the parent sent if the rule says so."""
        self.late = error if self._join is None else self._join.parent_ended(parent, error)
        return self.late


class BehindJoin:
    """The failure in front is the node's: at once, unless what waits was to come before it."""

    def __init__(self, front: FrontJoin) -> None:
        self._front = front

    def parent_failed(self, parent: str, error: BaseException) -> BaseException | None:
        """Give up at once, unless the rule waited for what the parents sent."""
        return None if error is self._front.late else error

    def parent_ended(self, parent: str, error: BaseException | None) -> BaseException | None:
        """Give up behind what was sent."""
        return error
