"""Every family of benchmarks, in the order of the report."""

from bench import (
    chains,
    control,
    durable,
    edges,
    observed,
    policies,
    postgres,
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
    postgres.MESSAGES,
    postgres.FENCE,
)
