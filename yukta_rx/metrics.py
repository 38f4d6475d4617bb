"""Every meter, declared once, and the collector that shows them to Prometheus.

Nothing is sent anywhere while a run works: a counter is a plain number in a slot, a gauge is a
callable, and both are read when someone scrapes. Each engine has its own `Meters`, so two engines
in one process never add up. All of it belongs to the thread of the event loop; another thread
hands its counts over there. Feature: OBS-04.
"""

# Long because it is one table: every meter in one place.

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OTHER = "_other"
"""The label value that takes the place of those beyond `MAX_SERIES`."""

MAX_SERIES = 1000
"""Label combinations that one meter keeps apart; a plugin cannot make a page without end."""

MAX_LABEL = 200
"""Characters of a label value; what is longer is cut."""

_HISTOGRAM = "histogram"
BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Upper bounds of the buckets of every timer, in seconds."""

_LABELS = (*map(str, BOUNDS), "+Inf")


class Kind(StrEnum):
    """What a meter measures."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Meter:
    """The declaration of one meter.

    Attributes:
        name: the documented name, with dots.
        kind: counter, gauge or timer (in seconds).
        help: one sentence.
        features: the feature cards that it belongs to.
        labels: its labels; never anything that grows with the number of runs or messages.
        values: the values that a label can have, where they are known.
    """

    name: str
    kind: Kind
    help: str
    features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def family(self) -> str:
        """The Prometheus name without the suffix of a sample."""
        name = self.name.replace(".", "_")
        return f"{name}_seconds" if self.kind is Kind.TIMER else name

    @property
    def prometheus_name(self) -> str:
        """The name that one looks for in Prometheus."""
        return f"{self.family}_total" if self.kind is Kind.COUNTER else self.family


_REJECTED = (
    "shutdown",
    "limit",
    "queue_full",
    "workflow_queue_full",
    "queue_timeout",
    "not_leader",
)


def _meter(
    name: str,
    kind: Kind,
    help: str,
    *features: str,
    labels: tuple[str, ...] = (),
    **values: tuple[str, ...],
) -> Meter:
    return Meter(name, kind, help, features, labels, MappingProxyType(values))


METERS: Mapping[str, Meter] = MappingProxyType(
    {
        meter.name: meter
        for meter in (
            _meter(
                "yukta.node.executions",
                Kind.COUNTER,
                "Nodes that reached a terminal status.",
                "OBS-04",
                labels=("module", "status"),
            ),
            _meter(
                "yukta.node.duration",
                Kind.TIMER,
                "Time from a node's first activity to its end.",
                "OBS-04",
                labels=("module",),
            ),
            _meter(
                "yukta.node.retries",
                Kind.COUNTER,
                "Attempts after a message's first.",
                "ENG-04",
                labels=("module",),
            ),
            _meter(
                "yukta.execution.duration",
                Kind.TIMER,
                "Time from a run's start to its end.",
                "OBS-04",
                labels=("status",),
            ),
            _meter(
                "yukta.execution.queue.wait",
                Kind.TIMER,
                "Time that a start waited for a slot.",
                "ADM-01",
            ),
            _meter("yukta.executions.running", Kind.GAUGE, "Runs that hold a slot.", "ADM-01"),
            _meter("yukta.executions.queued", Kind.GAUGE, "Starts that wait for one.", "ADM-01"),
            _meter(
                "yukta.executions.suspended",
                Kind.GAUGE,
                "Of those that hold a slot, runs that are put aside while they only wait.",
                "CTL-05",
            ),
            _meter(
                "yukta.executions.rejected",
                Kind.COUNTER,
                "Starts that were refused.",
                "ADM-01",
                labels=("reason",),
                reason=_REJECTED,
            ),
            _meter(
                "yukta.tracker.queue.depth",
                Kind.GAUGE,
                "State events that wait to be applied; alert on growth.",
                "OBS-01",
            ),
            _meter(
                "yukta.tracker.queue.age",
                Kind.GAUGE,
                "Seconds that the oldest of these has waited.",
                "OBS-01",
            ),
            _meter(
                "yukta.tracker.queue.bytes",
                Kind.GAUGE,
                "Bytes of the events that wait, roughly.",
                "OBS-01",
            ),
            _meter(
                "yukta.tracker.held",
                Kind.GAUGE,
                "Runs that are held back because too much of what runs say waits.",
                "OBS-01",
            ),
            _meter(
                "yukta.tracker.holds",
                Kind.COUNTER,
                "Times that a run was held back for that.",
                "OBS-01",
            ),
            _meter(
                "yukta.tracker.dropped",
                Kind.COUNTER,
                "Events and log lines that were dropped.",
                "OBS-01",
                "OBS-02",
                "CTL-07",
                labels=("type", "kind"),
            ),
            _meter("yukta.streams.open", Kind.GAUGE, "Event streams that are open.", "OBS-01"),
            _meter(
                "yukta.tracker.log.append.failed",
                Kind.COUNTER,
                "Writes to the execution log that failed.",
                "OBS-02",
                labels=("type",),
                type=("node", "run"),
            ),
            _meter(
                "yukta.control.unrecorded",
                Kind.COUNTER,
                "Commands that were in force before the execution log could be written.",
                "DUR-01",
            ),
            _meter(
                "yukta.store.children.dropped",
                Kind.COUNTER,
                "Runs below others that went before those, since so many more were kept of them.",
                "DUR-01",
                "OBS-01",
                "OBS-03",
                labels=("store",),
                store=("execution-log", "results", "tracker"),
            ),
            _meter(
                "yukta.store.quarantined",
                Kind.COUNTER,
                "Rows that a store could not read and has set aside.",
                "DUR-05",
                labels=("store",),
            ),
            _meter(
                "yukta.postgres.connections",
                Kind.GAUGE,
                "Connections of the pool to the database.",
                "DUR-04",
            ),
            _meter(
                "yukta.postgres.connections.idle",
                Kind.GAUGE,
                "Connections of the pool that nobody uses.",
                "DUR-04",
            ),
            _meter(
                "yukta.postgres.connections.wanted",
                Kind.GAUGE,
                "Statements that wait for a connection of the pool.",
                "DUR-04",
            ),
            _meter(
                "yukta.postgres.rows.waiting",
                Kind.GAUGE,
                "Rows that are not committed yet, by the store that writes them.",
                "DUR-04",
                labels=("store",),
            ),
            _meter(
                "yukta.store.stale.refused",
                Kind.COUNTER,
                "Rows that were not written because another server leads by now.",
                "DUR-04",
                "SCL-02",
            ),
            _meter(
                "yukta.store.write.failed",
                Kind.COUNTER,
                "Writes of results and events that failed and are tried again.",
                "OBS-01",
                "OBS-03",
                labels=("type",),
                type=("results", "events"),
            ),
            _meter(
                "yukta.store.results.waiting",
                Kind.GAUGE,
                "Results that are not written to their durable store yet.",
                "OBS-03",
            ),
            _meter(
                "yukta.store.events.waiting",
                Kind.GAUGE,
                "Events that are not written to their durable store yet.",
                "OBS-01",
            ),
            _meter(
                "yukta.edge.dropped",
                Kind.COUNTER,
                "Messages lost, by the rule of a buffer or the reason in the loss ledger.",
                "ENG-01",
                labels=("type",),
            ),
            _meter(
                "yukta.checkpoint.bytes",
                Kind.GAUGE,
                "Bytes of node output that the checkpoint store holds.",
                "DUR-02",
            ),
            _meter(
                "yukta.checkpoint.errors",
                Kind.COUNTER,
                "End markers that could not be written.",
                "DUR-02",
            ),
            _meter(
                "yukta.plugin.events",
                Kind.COUNTER,
                "What plugins count themselves.",
                "EXT-01",
                labels=("plugin", "outcome"),
            ),
            _meter(
                "yukta.definitions.preparations",
                Kind.COUNTER,
                "Workflows that were made ready to run; grows on where not all of them fit.",
                "DEF-03",
            ),
            _meter(
                "yukta.definitions.prepared",
                Kind.GAUGE,
                "Workflows that are kept ready to run.",
                "DEF-03",
            ),
            _meter(
                "yukta.effects.kept",
                Kind.GAUGE,
                "Things done once whose results are remembered.",
                "DUR-02",
            ),
            _meter(
                "yukta.effects.dropped",
                Kind.COUNTER,
                "Things done once that were forgotten for want of room; a repeat does them again.",
                "DUR-02",
            ),
            _meter("yukta.kv.entries", Kind.GAUGE, "Keys of all sessions.", "DUR-04"),
            _meter(
                "yukta.histories",
                Kind.GAUGE,
                "Conversations of all sessions.",
                "DUR-04",
            ),
            _meter(
                "yukta.histories.unsaved",
                Kind.GAUGE,
                "Turns of conversations that could not be saved yet; they are tried again.",
                "DUR-04",
            ),
            _meter(
                "yukta.loop.lag",
                Kind.GAUGE,
                "The longest, in seconds, that the event loop was late in the last half minute or"
                " more.",
                "EXT-01",
            ),
            _meter(
                "yukta.loop.blocked",
                Kind.COUNTER,
                "Times that the event loop was held for longer than allowed.",
                "EXT-01",
                labels=("module",),
            ),
            _meter(
                "yukta.supervisor.commands",
                Kind.COUNTER,
                "Commands that supervisors sent.",
                "CTL-07",
                labels=("id", "outcome"),
            ),
            _meter("yukta.workers", Kind.GAUGE, "Workers that are connected.", "SCL-01"),
            _meter("yukta.worker.slots", Kind.GAUGE, "Free slots of all workers.", "SCL-01"),
            _meter("yukta.leader", Kind.GAUGE, "1 on the server that leads, else 0.", "SCL-02"),
            _meter(
                "llm.tokens",
                Kind.COUNTER,
                "Tokens sent to and received from models.",
                "EXT-03",
                labels=("provider", "direction"),
                direction=("input", "output"),
            ),
            _meter(
                "llm.cost",
                Kind.COUNTER,
                "Cost of model calls, in the currency of the prices given.",
                "EXT-03",
                labels=("provider",),
            ),
            _meter("llm.budget.exceeded", Kind.COUNTER, "Calls that a budget refused.", "EXT-03"),
        )
    }
)
"""All meters by their documented name."""


class Count:
    """A number that only grows; adding to it is one attribute access."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, n: float = 1) -> None:
        """Add `n`, which is zero or more."""
        self.value += n


class Timing:
    """How long something took, as a histogram over fixed bounds."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.total: float = 0

    def observe(self, seconds: float) -> None:
        """Record one duration in seconds."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Watch:
    """A number that someone else keeps; it is read at each scrape until `close`."""

    __slots__ = ("_owner", "_read")

    def __init__(self, owner: _Series, read: Callable[[], float]) -> None:
        self._owner = owner
        self._read = read

    def read(self) -> float:
        """Return the number as it is now."""
        return self._read()

    def close(self) -> None:
        """Stop reading; a counter keeps what was counted so far. Closing twice is no error."""
        self._owner.drop(self)


class _Series:
    """One meter with one combination of label values."""

    __slots__ = ("count", "keeps", "timing", "watches")

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps
        self.count = Count()
        self.timing = Timing()
        self.watches: list[Watch] = []

    def drop(self, watch: Watch) -> None:
        if watch in self.watches:
            self.watches.remove(watch)
            if self.keeps:
                self.count.add(watch.read())

    def value(self) -> float:
        return self.count.value + sum(watch.read() for watch in self.watches)


class Meters(Collector):
    """The meters of one engine.

    Args:
        registry: where to register; None makes a registry of its own. The global one of the
            library is never used.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._series: dict[str, dict[tuple[str, ...], _Series]] = {name: {} for name in METERS}
        self.before_scrape: list[Callable[[], None]] = []
        """Called before each scrape, for what is counted where a meter cannot be reached."""
        self.registry.register(self)

    def counter(self, name: str, **labels: str) -> Count:
        """Return the number to add to; keep it, rather than asking for it each time.

        Raises:
            ValueError: no such counter, or its labels are others.
        """
        return self._find(name, Kind.COUNTER, labels).count

    def timer(self, name: str, **labels: str) -> Timing:
        """Return the histogram to record in; keep it, rather than asking for it each time.

        Raises:
            ValueError: no such timer, or its labels are others.
        """
        return self._find(name, Kind.TIMER, labels).timing

    def watch(self, name: str, read: Callable[[], float], **labels: str) -> Watch:
        """Read a number that is kept elsewhere at each scrape; several of one series add up.

        Args:
            name: a gauge, or a counter whose growing total `read` returns.
            read: called on the loop's thread; must be quick and must not raise.
            labels: the values of the meter's labels.

        Raises:
            ValueError: no such gauge or counter, or its labels are others.
        """
        kind = Kind.COUNTER if name in METERS and METERS[name].kind is Kind.COUNTER else Kind.GAUGE
        series = self._find(name, kind, labels)
        watch = Watch(series, read)
        series.watches.append(watch)
        return watch

    def gauges(self) -> dict[str, float]:
        """Return every gauge that has a value, summed over its labels."""
        for refresh in self.before_scrape:
            refresh()
        return {
            name: sum(one.value() for one in series.values())
            for name, series in self._series.items()
            if series and METERS[name].kind is Kind.GAUGE
        }

    def collect(self) -> Iterator[Metric]:
        """Yield every meter that has a value, as Prometheus wants it."""
        for refresh in self.before_scrape:
            refresh()
        for name, series in self._series.items():
            if series:
                yield MeterFamily(METERS[name], series)

    def describe(self) -> Iterator[Metric]:
        """Yield the declarations, so that registering reads no value."""
        for meter in METERS.values():
            yield MeterFamily(meter, {})

    def _find(self, name: str, kind: Kind, labels: Mapping[str, str]) -> _Series:
        meter = METERS.get(name)
        if meter is None or meter.kind is not kind:
            raise ValueError(f"no {kind.value} {name} is declared")
        if set(labels) != set(meter.labels):
            raise ValueError(f"{name} has the labels {meter.labels}, not {tuple(labels)}")
        values = tuple([_fit(labels[label]) for label in meter.labels])
        known = self._series[name]
        series = known.get(values)
        if series is None:
            if len(known) >= MAX_SERIES:
                values = (OTHER,) * len(values)
            series = known.setdefault(values, _Series(keeps=kind is Kind.COUNTER))
        return series


def _fit(value: str) -> str:
    """A label value that fits the page: not too long, and without halves of surrogate pairs."""
    text = str(value)[:MAX_LABEL]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class MeterFamily(Metric):
    """One meter as Prometheus wants it; its samples are made when they are read.

    So a page of many thousand samples can be made a few at a time; see `parts`.
    """

    def __init__(self, meter: Meter, series: Mapping[tuple[str, ...], _Series]) -> None:
        super().__init__(
            meter.family, meter.help, _HISTOGRAM if meter.kind is Kind.TIMER else meter.kind.value
        )
        self._meter = meter
        self._series = series

    def parts(self) -> Iterator[list[Sample]]:
        """Yield the samples of one combination of label values after the other.

        Each part is read in one go, so its numbers belong together. What is added meanwhile is
        left out.
        """
        meter, make = self._meter, self._timed if self._meter.kind is Kind.TIMER else self._single
        for values, one in list(self._series.items()):
            yield make(one, dict(zip(meter.labels, values, strict=True)))

    @property
    def samples(self) -> list[Sample]:
        """All samples as they stand now."""
        return [sample for part in self.parts() for sample in part]

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        # The base class begins with none, and so does this one.
        pass

    def _single(self, series: _Series, labels: dict[str, str]) -> list[Sample]:
        return [Sample(self._meter.prometheus_name, labels, series.value())]

    def _timed(self, series: _Series, labels: dict[str, str]) -> list[Sample]:
        name, passed, made = f"{self.name}_bucket", 0, []
        for bound, count in zip(_LABELS, series.timing.buckets, strict=True):
            passed += count
            made.append(Sample(name, {**labels, "le": bound}, passed))
        made.append(Sample(f"{self.name}_count", labels, passed))
        made.append(Sample(f"{self.name}_sum", labels, series.timing.total))
        return made


def reference_page() -> str:
    """Return `docs/reference/metrics.md`."""
    lines = [_PAGE_HEAD, "| meter | in Prometheus | kind | labels | meaning | feature |"]
    lines.append("| - | - | - | - | - | - |")
    for meter in METERS.values():
        labels = ", ".join(_label(meter, label) for label in meter.labels) or "-"
        features = ", ".join(meter.features)
        lines.append(
            f"| `{meter.name}` | `{meter.prometheus_name}` | {meter.kind.value} | {labels}"
            f" | {meter.help} | {features} |"
        )
    return "\n".join(lines) + "\n"


def _label(meter: Meter, label: str) -> str:
    values = meter.values.get(label)
    return f"`{label}` ({', '.join(values)})" if values else f"`{label}`"


_PAGE_HEAD = """\
# Meters

Made from the declarations in `yukta_rx/metrics.py`; change it there and run `make docs`.

Dots become underscores in Prometheus; a counter ends in `_total`, a timer is a histogram in
seconds. No label holds an execution id, a message id or anything else that grows without end;
beyond 1000 combinations of labels the rest of a meter is counted under `_other`. A meter appears
once something has been counted by the feature in its last column; while that feature is planned,
see [features](features.md), it stays away.
"""
