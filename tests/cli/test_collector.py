"""A server leaves the collector as it found it, and calm while it runs."""

from __future__ import annotations

import gc

import pytest

from yukta_rx.cli.collector import THRESHOLDS, calm_collector


def test_what_is_there_is_not_looked_at_while_it_lasts() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    with calm_collector():
        assert gc.get_threshold() == THRESHOLDS
        assert gc.get_freeze_count() > before[1]
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before[0], 0)


def test_it_is_as_before_after_a_failure() -> None:
    before = gc.get_threshold()
    with pytest.raises(RuntimeError, match="stop"), calm_collector():
        raise RuntimeError("stop")
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
