"""What a restart loses, as the settings say it."""

from __future__ import annotations

import pytest

from yukta_rx.cli.losses import said
from yukta_rx.config.load import load_settings

pytestmark = pytest.mark.feature("HA-01")


def test_by_default_everything_is_lost() -> None:
    lines = list(said(load_settings("/dev/null", {}), None))

    assert lines[0] == "a restart loses:"
    assert len(lines) == 7
    assert not any("applied again" in line for line in lines)


def test_each_kind_of_state_moves_to_a_store_by_itself() -> None:
    environ = {"YUKTA_PROFILE": "file", "YUKTA_RESTART_STORE_TYPE": "memory"}

    lines = list(said(load_settings("/dev/null", environ), "flows"))

    assert lines == [
        "a restart loses:",
        "  - what nodes emitted, so no run can be resumed (yukta.restart.store-type = memory)",
        "  - runs under way, results, log lines, the event feed",
        "it keeps: sessions and workflows (file); the history of runs, the audit, idempotency keys"
        " (file); what KV_STORE holds (file); what SESSION_MEMORY holds (file)",
    ]
