"""LiveRuns: the runs that have not ended, and those of them of which little is left.

Whoever looks a suspended run up by its id wants to do something with it, so it is taken up again
and there; whoever only wants to know asks with `peek`, and whoever goes through the runs sees
those that are there. Features: ADM-01, CTL-05.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, ValuesView

    from yukta_rx.control.suspended import Suspended
    from yukta_rx.engine.run import Run


class LiveRuns(MutableMapping[str, "Run"]):
    """Runs by execution id.

    Attributes:
        suspended: what is left of those that are put aside.
        take_up: makes a run again of one of these; None if that went wrong, and it has ended.
    """

    __slots__ = ("_runs", "suspended", "take_up")

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self.suspended: dict[str, Suspended] = {}
        self.take_up: Callable[[str], Run | None] = lambda _execution_id: None

    def __getitem__(self, execution_id: str) -> Run:
        run = self._runs.get(execution_id)
        if run is None and execution_id in self.suspended:
            run = self.take_up(execution_id)
        if run is None:
            raise KeyError(execution_id)
        return run

    def __setitem__(self, execution_id: str, run: Run) -> None:
        self._runs[execution_id] = run

    def __delitem__(self, execution_id: str) -> None:
        del self._runs[execution_id]

    def __contains__(self, execution_id: object) -> bool:
        return execution_id in self._runs or execution_id in self.suspended

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    def values(self) -> ValuesView[Run]:
        """Those that are there."""
        return self._runs.values()

    def peek(self, execution_id: str) -> Run | Suspended | None:
        """A run, or what is left of it, as it is; None if there is none."""
        return self._runs.get(execution_id) or self.suspended.get(execution_id)

    def every(self) -> list[Run | Suspended]:
        """All of them, as they are."""
        return [*self._runs.values(), *self.suspended.values()]
