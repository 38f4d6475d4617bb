"""The meters: declared once, read at scrape, one set per engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from yukta_rx.metrics import (
    BOUNDS,
    MAX_LABEL,
    MAX_SERIES,
    METERS,
    OTHER,
    Kind,
    Meters,
    reference_page,
)

ROOT = Path(__file__).parents[2]
UNBOUNDED = re.compile(r"execution|session|message|node|cursor|key|time|version", re.IGNORECASE)

pytestmark = pytest.mark.feature("OBS-04")


def sample(meters: Meters, name: str, **labels: str) -> float | None:
    return meters.registry.get_sample_value(name, labels)


@pytest.mark.parametrize("name", sorted(METERS))
def test_no_label_can_take_values_without_bound(name: str) -> None:
    assert not [label for label in METERS[name].labels if UNBOUNDED.search(label)]


@pytest.mark.parametrize("name", sorted(METERS))
def test_every_meter_says_what_it_means_and_whose_it_is(name: str) -> None:
    meter = METERS[name]

    assert meter.help.endswith(".")
    assert meter.features
    assert set(meter.values) <= set(meter.labels)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("yukta.node.executions", "yukta_node_executions_total"),
        ("yukta.node.duration", "yukta_node_duration_seconds"),
        ("yukta.executions.running", "yukta_executions_running"),
        ("llm.tokens", "llm_tokens_total"),
    ],
)
def test_the_prometheus_name_follows_from_name_and_kind(name: str, shown: str) -> None:
    assert METERS[name].prometheus_name == shown


def test_a_counter_is_shown_as_it_stands_at_the_scrape() -> None:
    meters = Meters()
    count = meters.counter("yukta.node.executions", module="SPLIT", status="SUCCESS")

    count.add()
    count.add(2)

    name = "yukta_node_executions_total"
    assert sample(meters, name, module="SPLIT", status="SUCCESS") == 3


def test_a_counter_asked_for_twice_is_the_same() -> None:
    meters = Meters()

    first = meters.counter("yukta.checkpoint.errors")

    assert meters.counter("yukta.checkpoint.errors") is first


def test_a_timer_is_a_histogram_in_seconds() -> None:
    meters = Meters()
    timer = meters.timer("yukta.execution.duration", status="SUCCESS")

    for seconds in (0.002, 0.2, 7200):
        timer.observe(seconds)

    name = "yukta_execution_duration_seconds"
    assert sample(meters, f"{name}_bucket", status="SUCCESS", le="0.005") == 1
    assert sample(meters, f"{name}_bucket", status="SUCCESS", le="3600.0") == 2
    assert sample(meters, f"{name}_bucket", status="SUCCESS", le="+Inf") == 3
    assert sample(meters, f"{name}_count", status="SUCCESS") == 3
    assert sample(meters, f"{name}_sum", status="SUCCESS") == pytest.approx(7200.202)


def test_a_duration_on_a_bound_counts_below_it() -> None:
    meters = Meters()

    meters.timer("yukta.execution.queue.wait").observe(0.5)

    assert sample(meters, "yukta_execution_queue_wait_seconds_bucket", le="0.5") == 1
    assert sample(meters, "yukta_execution_queue_wait_seconds_bucket", le="0.1") == 0


def test_a_gauge_is_read_when_it_is_scraped() -> None:
    meters, running = Meters(), [1]
    meters.watch("yukta.executions.running", lambda: running[0])

    running[0] = 7

    assert sample(meters, "yukta_executions_running") == 7


def test_several_watches_of_one_series_add_up() -> None:
    meters = Meters()
    meters.watch("yukta.executions.running", lambda: 2)
    meters.watch("yukta.executions.running", lambda: 3)

    assert sample(meters, "yukta_executions_running") == 5


def test_a_closed_gauge_is_gone() -> None:
    meters = Meters()
    watch = meters.watch("yukta.executions.running", lambda: 2)

    watch.close()
    watch.close()

    assert sample(meters, "yukta_executions_running") == 0


def test_a_closed_counter_keeps_what_it_counted() -> None:
    meters = Meters()
    dropped = [4]
    watch = meters.watch("yukta.edge.dropped", lambda: dropped[0], type="DROP_OLDEST")

    watch.close()
    dropped[0] = 100
    watch.close()

    assert sample(meters, "yukta_edge_dropped_total", type="DROP_OLDEST") == 4


def test_two_engines_do_not_share_their_numbers() -> None:
    one, other = Meters(), Meters()

    one.counter("yukta.checkpoint.errors").add()

    assert sample(other, "yukta_checkpoint_errors_total") is None


def test_the_global_registry_of_the_library_is_left_alone() -> None:
    Meters().counter("yukta.checkpoint.errors").add()

    assert REGISTRY.get_sample_value("yukta_checkpoint_errors_total") is None


def test_a_registry_of_the_callers_can_be_used() -> None:
    registry = CollectorRegistry()

    meters = Meters(registry)

    assert meters.registry is registry
    with pytest.raises(ValueError, match="Duplicated"):
        Meters(registry)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("yukta.nothing", {}),
        ("yukta.executions.running", {}),
        ("yukta.node.executions", {"module": "X"}),
        ("yukta.checkpoint.errors", {"module": "X"}),
    ],
)
def test_a_counter_that_is_not_declared_so_is_refused(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        Meters().counter(name, **labels)


def test_a_timer_cannot_be_watched() -> None:
    with pytest.raises(ValueError, match="no gauge"):
        Meters().watch("yukta.node.duration", lambda: 1, module="X")


def test_label_values_without_end_are_counted_together() -> None:
    meters = Meters()

    for number in range(MAX_SERIES + 5):
        meters.counter("yukta.plugin.events", plugin="X", outcome=str(number)).add()

    name = "yukta_plugin_events_total"
    assert sample(meters, name, plugin="X", outcome=str(MAX_SERIES - 1)) == 1
    assert sample(meters, name, plugin="X", outcome=str(MAX_SERIES)) is None
    assert sample(meters, name, plugin=OTHER, outcome=OTHER) == 5


def use(meters: Meters, name: str, **labels: str) -> None:
    """Make a meter have a value, whatever its kind."""
    match METERS[name].kind:
        case Kind.COUNTER:
            meters.counter(name, **labels).add()
        case Kind.TIMER:
            meters.timer(name, **labels).observe(1)
        case Kind.GAUGE:
            meters.watch(name, lambda: 1, **labels)


@pytest.mark.parametrize("name", sorted(name for name in METERS if METERS[name].labels))
def test_no_meter_ever_has_more_series_than_its_bound(name: str) -> None:
    meters = Meters()
    labels = METERS[name].labels

    for number in range(MAX_SERIES + 50):
        use(meters, name, **dict.fromkeys(labels, str(number)))

    [family] = meters.collect()
    shown = {tuple(sorted(s.labels.items())) for s in family.samples if "le" not in s.labels}
    assert len(shown) == MAX_SERIES + 1
    assert tuple(sorted(dict.fromkeys(labels, OTHER).items())) in shown


def test_a_label_value_is_cut_and_can_always_be_written() -> None:
    meters = Meters()

    meters.counter("yukta.plugin.events", plugin="X", outcome="\ud800" + "x" * 10_000).add()

    page = generate_latest(meters.registry).decode()
    assert f'outcome="?{"x" * (MAX_LABEL - 1)}"' in page


def test_the_samples_are_those_of_the_families_of_the_library() -> None:
    meters = Meters()
    meters.counter("yukta.node.executions", module="A", status="SUCCESS").add(3)
    meters.watch("yukta.streams.open", lambda: 2)
    for seconds in (0.002, 7200):
        meters.timer("yukta.node.duration", module="A").observe(seconds)

    counter = CounterMetricFamily(
        "yukta_node_executions",
        METERS["yukta.node.executions"].help,
        labels=("module", "status"),
    )
    counter.add_metric(("A", "SUCCESS"), 3)
    gauge = GaugeMetricFamily("yukta_streams_open", METERS["yukta.streams.open"].help, labels=())
    gauge.add_metric((), 2)
    timer = HistogramMetricFamily(
        "yukta_node_duration_seconds", METERS["yukta.node.duration"].help, labels=("module",)
    )
    buckets = [("0.001", 0), *((str(bound), 1) for bound in BOUNDS[1:]), ("+Inf", 2)]
    timer.add_metric(("A",), buckets, 7200.002)

    shown = {family.name: family for family in meters.collect()}
    assert shown == {family.name: family for family in (counter, timer, gauge)}


def test_the_page_that_prometheus_reads_holds_help_and_type() -> None:
    meters = Meters()
    meters.counter("yukta.checkpoint.errors").add()

    page = generate_latest(meters.registry).decode()

    assert "# TYPE yukta_checkpoint_errors_total counter" in page
    assert METERS["yukta.checkpoint.errors"].help in page


def test_every_meter_can_be_used_and_shown() -> None:
    meters = Meters()
    for meter in METERS.values():
        use(meters, meter.name, **dict.fromkeys(meter.labels, "x"))

    shown = {family.name for family in meters.collect()}

    assert shown == {meter.family for meter in METERS.values()}


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")

    assert page == reference_page(), "run `make docs`"
