"""Order of a graph's nodes, and its cycles. Iterative, so size costs no stack.

Feature: DEF-02.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def topological_order(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the nodes so that each stands behind its parents, otherwise in the given order.

    Args:
        nodes: ids, each once.
        edges: (source, target) pairs of these ids.

    Raises:
        ValueError: the graph has a cycle.
    """
    place = {node: index for index, node in enumerate(nodes)}
    sorter = _sorter(nodes, edges)
    sorter.prepare()
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    return tuple(order)


def find_cycles(nodes: Sequence[str], edges: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return cycles that share no node, at least one if there is any.

    Each lists its nodes in the direction of the edges, begins with the one that comes first in
    `nodes`, and does not repeat it at the end.
    """
    place = {node: index for index, node in enumerate(nodes)}
    left = list(dict.fromkeys(edges))
    cycles: list[tuple[str, ...]] = [(source,) for source, target in left if source == target]
    while True:
        taken = {node for cycle in cycles for node in cycle}
        left = [edge for edge in left if edge[0] not in taken and edge[1] not in taken]
        try:
            _sorter([node for node in nodes if node not in taken], left).prepare()
        except CycleError as error:
            cycles.append(_rotated(error.args[1][:-1], place))
        else:
            return sorted(cycles, key=lambda cycle: place[cycle[0]])


def _sorter(nodes: Iterable[str], edges: Iterable[tuple[str, str]]) -> TopologicalSorter[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(nodes, ()))
    for source, target in edges:
        sorter.add(target, source)
    return sorter


def _rotated(cycle: list[str], place: dict[str, int]) -> tuple[str, ...]:
    first = min(range(len(cycle)), key=lambda index: place[cycle[index]])
    return (*cycle[first:], *cycle[:first])
