"""What outlives what, as the settings say it."""

from __future__ import annotations

from pathlib import Path

import pytest

from yukta_rx.config.load import load_settings
from yukta_rx.config.settings import StoreType
from yukta_rx.durability import matrix
from yukta_rx.durability.matrix import MatrixRow, Outlives, durability_matrix, summary

pytestmark = pytest.mark.feature("HA-01", "DUR-05")

ITEMS = (
    *("definitions", "session-config", "history", "runs", "idempotency-keys", "node-outputs"),
    *("resume", "effects", "queued-starts", "approvals", "limits", "results", "events"),
    *("session-memory", "key-values", "live-view"),
)


def rows(**environ: str) -> dict[str, MatrixRow]:
    settings = load_settings("/dev/null", {f"YUKTA_{name}": one for name, one in environ.items()})
    return {row.item: row for row in durability_matrix(settings)}


def test_every_kind_of_state_has_a_row_whatever_the_settings() -> None:
    assert tuple(rows()) == tuple(rows(PROFILE="file")) == ITEMS


def test_by_default_nothing_survives_anything() -> None:
    found = rows().values()

    assert all(row.lost and row.survives == () and row.folder is None for row in found)
    assert {row.store for row in found} == {StoreType.MEMORY}


def test_with_files_all_but_the_live_view_survives_all_but_the_machine() -> None:
    found = rows(PROFILE="file", DATA_DIR="/d")

    view = found.pop("live-view")
    assert view.lost
    assert not any(row.lost for row in found.values())
    assert not any(Outlives.MACHINE in row.survives for row in found.values())
    assert found["results"].folder == "/d/restart"
    assert found["results"].settings == ("yukta.restart.store-type",)


def test_a_database_also_survives_the_machine() -> None:
    found = rows(PROFILE="postgres", POSTGRES_URL="postgresql://y@db/y")

    assert found.pop("live-view").lost
    assert {row.survives for row in found.values()} == {tuple(Outlives)}
    assert {row.folder for row in found.values()} == {None}
    # What is said of files only is not said of it.
    assert "power loss" not in found["history"].note
    assert "power loss" in rows(PROFILE="file")["history"].note


@pytest.mark.parametrize(
    ("item", "lost"),
    [
        *(("resume", lost) for lost in ("restart", "execution-log", "session")),
        *(("queued-starts", lost) for lost in ("execution-log", "session")),
    ],
)
def test_what_needs_several_stores_is_as_weak_as_the_weakest_and_names_that_first(
    item: str, lost: str
) -> None:
    variable = f"{lost.upper().replace('-', '_')}_STORE_TYPE"
    found = rows(PROFILE="file", **{variable: "memory"})[item]

    assert found.lost
    assert found.because == f"yukta.{lost}.store-type = memory"
    assert "stores durable" in found.note


@pytest.mark.parametrize(
    ("count", "items"),
    [
        ("restart.retained-executions", {"node-outputs", "resume"}),
        ("results.stored-runs", {"results"}),
    ],
)
def test_a_durable_store_that_keeps_none_loses_them(count: str, items: set[str]) -> None:
    variable = count.upper().replace(".", "_").replace("-", "_")
    found = rows(PROFILE="file", **{variable: "0"})

    lost = {item for item, row in found.items() if row.lost} - {"live-view"}
    assert lost == items
    assert {found[item].because for item in items} == {f"yukta.{count} = 0"}


def test_the_page_for_operators_has_every_row_with_its_switches() -> None:
    page = (Path(matrix.__file__).parents[2] / "docs" / "durability.md").read_text()
    found = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ")]
    shown = {what.removeprefix("| "): switches for what, switches in found}

    for row in rows().values():
        switches = [
            name.removeprefix("yukta.").removesuffix(".store-type") for name in row.settings
        ]
        assert shown[row.what] == (", ".join(switches) or "none")


def test_in_words_it_is_a_line_for_each_setting_that_would_change_it() -> None:
    environ = {"YUKTA_PROFILE": "file", "YUKTA_SESSION_STORE_TYPE": "memory"}

    lines = list(summary(load_settings("/dev/null", environ), "flows"))

    assert lines == [
        "a restart keeps:",
        "  - history and audit, runs under way, idempotency keys, changed limits, events"
        " (file: yukta-data/execution-log)",
        "  - node outputs, effects of ctx.once, open approvals, results (file: yukta-data/restart)",
        "  - SESSION_MEMORY histories (file: yukta-data/session-memory)",
        "  - KV_STORE entries (file: yukta-data/kv)",
        "a restart loses:",
        "  - workflows with their versions, sessions, resume and restart of runs, queued starts"
        " (yukta.session.store-type = memory); the workflows in flows are applied again",
        "  - log lines, progress snapshots, meters, browser logins",
    ]


def test_what_is_lost_anyway_is_not_said_to_come_back() -> None:
    lines = list(summary(load_settings("/dev/null", {}), None))

    assert lines[0] == "a restart loses:"
    assert not any("applied again" in line for line in lines)


def test_every_row_tells_something_and_is_json() -> None:
    for found in (rows(), rows(PROFILE="file")):
        for row in found.values():
            assert row.what
            assert row.note.endswith(".")
            assert row.as_dict()["survives"] == [str(one) for one in row.survives]
