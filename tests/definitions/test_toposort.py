"""Order of nodes and cycles, for any graph and without recursion."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yukta_rx.definitions.toposort import find_cycles, topological_order

pytestmark = pytest.mark.feature("DEF-02")

nodes = [f"n{index}" for index in range(8)]
graphs = st.lists(st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)), max_size=16)


def reachable(edges):
    """Pairs joined by a path of one edge or more, by brute force."""
    pairs = set(edges)
    while True:
        more = pairs | {(a, d) for a, b in pairs for c, d in pairs if b == c}
        if more == pairs:
            return pairs
        pairs = more


@given(graphs)
def test_a_graph_has_an_order_exactly_when_no_node_reaches_itself(edges):
    cyclic = any(a == b for a, b in reachable(edges))

    if cyclic:
        with pytest.raises(ValueError, match="cycle"):
            topological_order(nodes, edges)
    else:
        order = topological_order(nodes, edges)
        assert sorted(order) == nodes
        assert all(order.index(a) < order.index(b) for a, b in edges)
    assert bool(find_cycles(nodes, edges)) == cyclic


@given(graphs)
def test_each_cycle_found_is_one_and_shares_no_node_with_another(edges):
    cycles = find_cycles(nodes, edges)

    for cycle in cycles:
        assert all(pair in edges for pair in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        assert min(cycle) == cycle[0]
    every = [node for cycle in cycles for node in cycle]
    assert len(every) == len(set(every))


@given(graphs)
def test_without_the_nodes_of_the_cycles_found_there_is_no_cycle(edges):
    taken = {node for cycle in find_cycles(nodes, edges) for node in cycle}

    left = [pair for pair in edges if taken.isdisjoint(pair)]

    assert not any(a == b for a, b in reachable(left))


def test_nodes_that_no_edge_orders_keep_their_order():
    assert topological_order(["c", "a", "b"], []) == ("c", "a", "b")


def test_a_line_of_20000_nodes_is_ordered_without_recursion():
    many = [str(index) for index in range(20_000)]

    assert topological_order(many, pairwise(many)) == tuple(many)


def test_a_cycle_of_20000_nodes_is_found_without_recursion():
    many = [str(index) for index in range(20_000)]

    (cycle,) = find_cycles(many, zip(many, [*many[1:], "0"], strict=True))

    assert cycle == tuple(many)
