"""Outlets: where a new run says what happens. Features: ADM-01, OBS-01."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.control.suspended import Suspended
    from yukta_rx.engine.run import Run
    from yukta_rx.errors import YuktaError
    from yukta_rx.model.events import ExecutionEvent
    from yukta_rx.model.results import ResultEvent
    from yukta_rx.model.status import TaskStatus


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a new run says what happens: made by the one who keeps track of runs.

    Attributes:
        announce: told of a run that has to wait for its slot: the ids of run, session and
            workflow, and what is shown with it.
        track: told of a run before it starts.
        emit: gets its events.
        publish: gives the function that gets its results.
        dismiss: ends a run that will not say so itself: its id, how, and why.
        count: told what plugins counted: node type, outcome, how many.
        swap: told of what goes on as a run that it was told of before.
    """

    announce: Callable[[str, str, str, Mapping[str, Any]], None]
    track: Callable[[Run], None]
    emit: Callable[[ExecutionEvent], None]
    publish: Callable[[Run | Suspended], Callable[[ResultEvent], None]]
    dismiss: Callable[[str, TaskStatus, YuktaError], None]
    count: Callable[[str, str, int], None]
    swap: Callable[[Run | Suspended], None]
