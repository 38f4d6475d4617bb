"""The benchmarks still run: every form with a hundred messages or runs; no figure is judged."""

from __future__ import annotations

from math import inf

import pytest

from bench import before
from bench.families import FAMILIES
from bench.harness import Found, figure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_form_of_a_family_gives_a_figure_that_is_shown(family):
    found = Found()

    for size in family.sizes:
        for form in family.forms:
            found.add(form.name, size, figure(form, 100))

    assert all(0 <= found.spread(form.name).median < inf for form in family.forms)
    assert any(line.startswith("| ") for line in family.tables(found))
    assert all(bar.measured for bar in family.bars(found))


def test_a_chain_can_be_measured_in_a_process_of_its_own():
    nanoseconds = before.measured_in(100, before.ROOT, "sync")

    assert nanoseconds > 0
