"""A chain that says nothing, now and as it was in an earlier revision: `--before REVISION`.

Each is measured in a process of its own: this tree, and that revision in a temporary folder.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from io import BytesIO
from pathlib import Path

from bench.harness import Family, Form, Found, table

ROOT = Path(__file__).parents[1]
KINDS = ("sync", "async")


def family(revision: str) -> Family:
    """The two trees, next to each other.

    Raises:
        ValueError: git knows no such revision.
    """
    archived = subprocess.run(
        ["git", "archive", revision, "yukta_rx"], cwd=ROOT, check=False, capture_output=True
    )
    if archived.returncode:
        raise ValueError(f"git archive {revision}: {archived.stderr.decode().strip()}")
    folder = tempfile.TemporaryDirectory(prefix="yukta-bench-")
    atexit.register(folder.cleanup)
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as archive:
        archive.extractall(folder.name, filter="data")
    forms = tuple(
        Form(f"{name}, {kind}", partial(measured_in, tree=tree, kind=kind))
        for name, tree in (("now", ROOT), ("then", Path(folder.name)))
        for kind in KINDS
    )
    title = f"Policies that are off: a chain that says nothing, now and at {revision}"
    return Family("before", title, (100_000,), forms, tables)


def measured_in(count: int, tree: Path, kind: str) -> float:
    """Nanoseconds per node message with the yukta_rx of `tree`, in a process of its own."""
    # `-m` puts the current folder first, so yukta_rx is that of the tree; bench is this one.
    done = subprocess.run(
        [sys.executable, "-m", "bench.before", kind, str(count)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        stdout=subprocess.PIPE,
    )
    return float(done.stdout)


def tables(found: Found) -> list[str]:
    """One row per kind."""
    rows = []
    for kind in KINDS:
        now, then = found.spread(f"now, {kind}"), found.spread(f"then, {kind}")
        more = found.ratio(f"now, {kind}", f"then, {kind}")
        rows.append((kind, now.show(0), now.range(0), then.show(0), then.range(0), more.show()))
    head = ("chain", "now, ns per node message", "range", "then", "range", "now / then")
    return table(head, rows)


async def _run(kind: str, count: int) -> float:
    from bench.workflows import NODES, chain, make_run, timed_run

    run = make_run(chain(kind.upper(), count))
    return await timed_run(run, count) / (count * NODES) * 1e9


if __name__ == "__main__":
    print(asyncio.run(_run(sys.argv[1], int(sys.argv[2]))))
