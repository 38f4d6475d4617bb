"""What an operator calls where its user gave nothing to call. Feature: ENG-02."""

from __future__ import annotations

from typing import Any


def ignore(*_facts: Any) -> None:
    """Take note of nothing."""


def same(item: Any, *_facts: Any) -> Any:
    """Return the element as it is."""
    return item
