"""Every family of benchmarks, in the order of the report."""

from bench import (
    chains,
    control,
    durable,
    edges,
    observed,
    policies,
    postgres,
    postgres_runs,
    recovery,
    runs,
    shapes,
    stalls,
)

FAMILIES = (
    chains.FAMILY,
    shapes.FAMILY,
    policies.FAMILY,
    runs.FAMILY,
    control.FAMILY,
    stalls.FAMILY,
    edges.FAMILY,
    observed.SCRAPE,
    observed.TRACE,
    durable.ENDS,
    durable.MESSAGES,
    durable.OPEN,
    recovery.START,
    recovery.WAIT,
    recovery.LOG,
    postgres.MESSAGES,
    postgres.FENCE,
    postgres_runs.RUNS,
    postgres_runs.AGAIN,
)
