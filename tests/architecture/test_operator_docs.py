"""Every operator says the same things about itself, in the same order."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx import operators as ops
from yukta_rx.operators import BackPressureKind

if TYPE_CHECKING:
    from collections.abc import Callable

HEADINGS = [
    "Emits when",
    "Back-pressures when",
    "Completes when",
    "Fails when",
    "Cancels when",
    "Discards",
]
# Classes are what operators are given; the page of `merge` is that of `merge_parents`.
OPERATORS = [
    name
    for name in sorted(set(ops.__all__) - {"merge", "Operator"})
    if not inspect.isclass(getattr(ops, name))
]


def faults(operator: Callable[..., Any]) -> list[str]:
    """What is missing in an operator's documentation."""
    doc = inspect.getdoc(operator) or ""
    found = []
    first = doc.partition("\n")[0]
    if not re.fullmatch(r"[A-Z].*\.", first):
        found.append("the first line is no sentence")
    marble = re.search(r"^Marble.*::\n\n((?:    .*\n)+)", doc, re.MULTILINE)
    if marble is None or len(marble[1].splitlines()) < 2:
        found.append("no marble diagram")
    places = []
    for heading in HEADINGS:
        texts = re.findall(rf"^{heading}: (\S.*)", doc, re.MULTILINE)
        if len(texts) != 1:
            found.append(f"{len(texts)} times `{heading}:`")
        else:
            places.append(doc.index(f"\n{heading}: "))
    if places != sorted(places):
        found.append("the headings are out of order")
    arguments = [name for name in inspect.signature(operator).parameters if name != "self"]
    described = doc.partition("\nArgs:\n")[2].partition("\nRaises:")[0]
    found += [
        f"argument `{name}` is not described"
        for name in arguments
        if not re.search(rf"^    {name}: \S", described, re.MULTILINE)
    ]
    if not isinstance(getattr(operator, "kind", None), BackPressureKind):
        found.append("no back-pressure kind")
    return found


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_documents_its_signals_and_demand(name: str) -> None:
    assert faults(getattr(ops, name)) == []


def test_an_undocumented_operator_is_noticed() -> None:
    def bare(size: int) -> None:
        """does things"""  # noqa: D403, D415

    assert faults(bare) == [
        "the first line is no sentence",
        "no marble diagram",
        *(f"0 times `{heading}:`" for heading in HEADINGS),
        "argument `size` is not described",
        "no back-pressure kind",
    ]


def test_headings_out_of_order_are_noticed() -> None:
    def odd() -> None:
        """Do things.

        Marble::

            source: --1--|
            result: --1--|

        Back-pressures when: never.
        Emits when: the source does.
        Completes when: the source does.
        Fails when: the source does.
        Cancels when: the child does.
        Discards: nothing.
        """

    odd.kind = BackPressureKind.FULL  # type: ignore[attr-defined]

    assert faults(odd) == ["the headings are out of order"]


@pytest.mark.parametrize("name", OPERATORS)
def test_the_kind_agrees_with_what_the_document_says(name: str) -> None:
    operator = getattr(ops, name)
    doc = inspect.getdoc(operator) or ""
    never = "Back-pressures when: never" in doc

    unpaced = operator.kind in (BackPressureKind.UNBOUNDED_IN, BackPressureKind.DROPS)

    assert never == unpaced
