"""The chain in csp; a module of its own because csp reads the annotations as objects."""

import time
from datetime import datetime, timedelta

import csp
from csp import ts

from bench.workflows import FUNCTIONS

EPOCH = datetime(2000, 1, 1)


@csp.node
def step(x: ts[int], call: object) -> ts[int]:
    """Call a function for each tick."""
    if csp.ticked(x):
        return call(x)


@csp.graph
def line(count: int):
    """A tick each microsecond of simulated time, through the 20 functions."""
    x = csp.curve(int, [(timedelta(microseconds=i), i) for i in range(count)])
    for call in FUNCTIONS:
        x = step(x, call)
    csp.add_graph_output("last", x, tick_count=1)


def seconds(count: int) -> float:
    """Seconds that csp takes, building the graph included."""
    start = time.perf_counter()
    found = csp.run(line, count, starttime=EPOCH, endtime=timedelta(microseconds=count))
    taken = time.perf_counter() - start
    assert found["last"][0][1] == count - 1 + len(FUNCTIONS), found
    return taken
