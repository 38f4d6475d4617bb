"""How an operator treats demand: a fact about each, readable by tests and documents.

Feature: ENG-01.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from yukta_rx.streams.flow import Flow

Operator = Callable[["Flow[Any]"], "Flow[Any]"]
F = TypeVar("F", bound=Callable[..., Any])


class BackPressureKind(StrEnum):
    """What an operator does with the demand of its children."""

    PASS_THROUGH = "PASS_THROUGH"
    """Adds no edge of its own; demand passes as it is."""
    FULL = "FULL"
    """Paces its parents to the demand of its children."""
    UNBOUNDED_IN = "UNBOUNDED_IN"
    """Takes everything from its source at once."""
    DROPS = "DROPS"
    """Drops what its children have not asked for."""


def back_pressure(kind: BackPressureKind) -> Callable[[F], F]:
    """Declare the kind of an operator; it is readable as the function's `kind`."""

    def mark(function: F) -> F:
        function.kind = kind  # type: ignore[attr-defined]
        return function

    return mark
