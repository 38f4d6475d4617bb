"""Whether a contract suite notices a store that breaks one guarantee."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable


def broken_guarantees(contract: type[Any], make: Callable[[], Any]) -> set[str]:
    """The numbers (`L1`) of the guarantees of which a test of the suite fails for a store.

    Runs every `test_<number>_...` method of `contract` that takes nothing but the store.
    """
    found = set()
    for name, test in inspect.getmembers(contract, inspect.isfunction):
        if name.startswith("test_") and list(inspect.signature(test).parameters) == [
            "self",
            "store",
        ]:
            try:
                run_virtual(inspect.unwrap(test)(contract(), make()))
            except (Exception, pytest.fail.Exception):
                found.add(name.split("_")[1])
    return found
