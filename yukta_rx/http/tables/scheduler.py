"""The scheduler: its limits, and what waits. Features: ADM-01, ADM-03."""

from __future__ import annotations

from typing import Final

from yukta_rx.http import scheduler_shapes
from yukta_rx.http.route import Reach, Route
from yukta_rx.http.routes import scheduler

ROUTES: Final[tuple[Route, ...]] = (
    Route(
        method="GET",
        path="/api/scheduler/limits",
        aliases=("/scheduler/limits",),
        handler=scheduler.limits,
        summary="How many runs may go at once, and how many do",
        tag="runs",
        responses={200: scheduler_shapes.SchedulerLimits},
    ),
    Route(
        method="GET",
        path="/api/scheduler/queue",
        handler=scheduler.queue,
        summary="The starts that wait for a slot, in their order",
        tag="runs",
        responses={200: scheduler_shapes.QueuePage},
        reach=Reach.OWN,
    ),
)
