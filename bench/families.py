"""Every family of benchmarks, in the order of the report."""

from bench import chains, edges, policies, runs, shapes, stalls

FAMILIES = (
    chains.FAMILY,
    shapes.FAMILY,
    policies.FAMILY,
    runs.FAMILY,
    stalls.FAMILY,
    edges.FAMILY,
)
