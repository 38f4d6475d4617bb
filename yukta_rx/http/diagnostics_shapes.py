"""The shapes of the durability matrix and of diagnostics. Features: DUR-05, OBS-04."""

from __future__ import annotations

from typing import Any, Literal

from yukta_rx.http.shapes import Count, Shape, Time


class DurabilityRow(Shape):
    """One kind of state: which store holds it here, and what it outlives.

    `settings` decide that, the one to change first, and `because` is what that one is set to;
    `folder` is where its files are. A state without `process_crash` in `survives` is lost when the
    server ends, however it ends.
    """

    item: str
    what: str
    store: Literal["memory", "file", "postgres"]
    settings: list[str]
    because: str
    folder: str | None
    survives: list[Literal["process_crash", "power_loss", "machine_loss"]]
    note: str


class Durability(Shape):
    """The durability matrix of this deployment; `summary` says it in words, line by line."""

    profile: Literal["memory", "file", "postgres"]
    items: list[DurabilityRow]
    next_cursor: None = None
    summary: list[str]


class ProcessFacts(Shape):
    """What the process uses; null for what the system does not tell."""

    pid: Count
    instance_id: str
    started_at: Time
    threads: Count
    open_files: Count | None
    open_files_limit: Count | None
    max_rss_bytes: Count | None
    cpu_seconds: float


class TaskCount(Shape):
    """Tasks of one name that wait at one line."""

    name: str
    at: str | None
    count: Count


class LoopFacts(Shape):
    """How late the event loop is, and what it has to do."""

    lag_seconds: float
    tasks: list[TaskCount]


class SetAside(Shape):
    """Something that a store holds and cannot read: where it is, and what is wrong with it."""

    place: str
    reason: str


class StoreFacts(Shape):
    """The type of each store that has a switch, and why those that are down cannot be used.

    `quarantined` lists the first of what stores could not read; everything else is in use.
    """

    types: dict[str, str]
    down: dict[str, str]
    quarantined_count: Count
    quarantined: list[SetAside]


class Diagnostics(Shape):
    """What belongs into a report about a server; nothing secret."""

    versions: dict[str, Any]
    process: ProcessFacts
    loop: LoopFacts
    queues: dict[str, float]
    stores: StoreFacts
    warnings: list[str]
