"""Definitions and sessions in files: reopened, killed at every step, full disks, damaged files."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.contract.definitions import document, number_of, record
from tests.contract.sessions import Stores, change, session
from yukta_rx.durability.file import _catalog as catalog_module
from yukta_rx.durability.file._commit import ASIDE, INTENT
from yukta_rx.durability.file._folder import Folder
from yukta_rx.durability.file.definitions import FileWorkflowDefinitionStore
from yukta_rx.durability.file.sessions import FileSessionConfigStore
from yukta_rx.durability.stores.sessions import SessionChange
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.metrics import Meters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.feature("DEF-01"), pytest.mark.feature("DUR-05")]

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def opened(path: Path, keep: int = 20, meters: Meters | None = None) -> AsyncIterator[Any]:
    """Both stores on a folder, as a server that starts would have them."""
    async with Folder(path) as folder:
        definitions = FileWorkflowDefinitionStore(folder, keep, meters)
        await definitions.open()
        yield Stores(FileSessionConfigStore(definitions), definitions)
        await definitions.close()


async def everything(path: Path) -> dict[str, Any]:
    """Sessions, workflows and versions, as a new server finds them."""
    async with opened(path) as stores:
        sessions = await stores.sessions.list()
        found: dict[str, Any] = {item.session_id: item for item in sessions}
        for name in (*found, "only-workflows"):
            for item in await stores.definitions.list(name):
                versions = await stores.definitions.versions(name, item.workflow_id)
                found[f"{name}/{item.workflow_id}"] = tuple(versions)
        return found


def files(path: Path) -> list[str]:
    return sorted(item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file())


def faults(stores: Any) -> list[str]:
    return [str(fault) for fault in stores.definitions.quarantined]


# --- what is there again -------------------------------------------------------------------------


async def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    placed = replace(record("w", 2), base_dir=Path("/srv/a b"))
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w"), change("unused", "x")])
        await stores.definitions.write("s", [placed])
        await stores.definitions.annotate("s", "w", 1, "first \u2028 grüße")
        await stores.definitions.write("only-workflows", [record("y", 1.0)])
        before = {
            "s": await stores.sessions.get("s"),
            "s/w": tuple(await stores.definitions.versions("s", "w")),
            "unused": await stores.sessions.get("unused"),
            "unused/x": tuple(await stores.definitions.versions("unused", "x")),
            "only-workflows/y": tuple(await stores.definitions.versions("only-workflows", "y")),
        }

    assert await everything(tmp_path) == before
    assert before["s/w"][0].base_dir == Path("/srv/a b")
    assert before["s/w"][1].note == "first \u2028 grüße"


async def test_the_layout_is_that_of_the_seeds_and_for_people(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w", "Pay")])
        await stores.definitions.write("s", [record("w", "grüße")])

        assert [name for name in files(tmp_path) if name != ".lock"] == [
            "sessions/s.json",
            "workflows/s/%50ay/current.json",
            "workflows/s/%50ay/history/1.json",
            "workflows/s/w/current.json",
            "workflows/s/w/history/1.json",
            "workflows/s/w/history/2.json",
        ]
    text = (tmp_path / "workflows/s/w/current.json").read_text()
    assert json.loads(text) == document("w", {"n": "grüße"})
    assert '\n  "nodes": [\n' in text
    assert "grüße" in text
    assert (tmp_path / "workflows/s/w/current.json").stat().st_mode & 0o077 == 0


async def test_content_comes_back_to_the_digit_after_a_restart(tmp_path: Path) -> None:
    values = [1, 1.0, 2**64 + 1, -0.0, 0, "\u2028 \u0000", {"$yukta": "tuple", "v": [1]}, 1e300]
    hashes = []
    async with opened(tmp_path) as stores:
        for value in values:
            [made] = await stores.definitions.write("s", [record("w", value)])
            hashes.append(made.definition_version)

    async with opened(tmp_path) as stores:
        found = list(reversed(await stores.definitions.versions("s", "w")))
        assert [item.definition_version for item in found] == hashes
        assert [number_of(item) for item in found] == values


async def test_values_that_only_python_makes_come_back_and_make_no_new_version(
    tmp_path: Path,
) -> None:
    made = record("w", (1, b"x", datetime(2026, 1, 1, tzinfo=UTC)))
    async with opened(tmp_path) as stores:
        [before] = await stores.definitions.write("s", [made])

    async with opened(tmp_path) as stores:
        assert list(await stores.definitions.versions("s", "w")) == [before]
        assert number_of(await stores.definitions.get("s", "w")) == number_of(made)


async def test_numbers_grow_over_a_removal_and_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        for number in range(3):
            await stores.definitions.write("s", [record("w", number)])
        await stores.definitions.write("s", [], ["w"])
        assert [name for name in files(tmp_path) if name != ".lock"] == ["removed.json"]

    async with opened(tmp_path) as stores:
        assert await stores.definitions.get("s", "w") is None
        [again] = await stores.definitions.write("s", [record("w", 0)])
        assert again.version == 4


async def test_numbers_grow_also_when_many_removed_workflows_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_module, "REMEMBERED", 2)
    async with opened(tmp_path) as stores:
        for number in range(5):
            await stores.definitions.write("s", [record("first", number)])
        for name in ("first", "b", "c", "d"):
            await stores.definitions.write("s", [record(name, 9)])
            await stores.definitions.write("s", [], [name])

    async with opened(tmp_path) as stores:
        [again] = await stores.definitions.write("s", [record("first", 1)])
        assert again.version > 6


async def test_versions_beyond_those_kept_are_gone_from_the_disk_but_for_noted_ones(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, keep=2) as stores:
        await stores.definitions.write("s", [record("w", number) for number in range(3)])
        await stores.definitions.annotate("s", "w", 2, "good")

    async with opened(tmp_path, keep=2) as stores:
        await stores.definitions.write("s", [record("w", number) for number in range(10, 14)])
        kept = [item.version for item in await stores.definitions.versions("s", "w")]
    assert kept == [7, 6, 2]
    history = tmp_path / "workflows/s/w/history"
    assert sorted(path.name for path in history.iterdir()) == ["2.json", "6.json", "7.json"]


async def test_fewer_versions_are_kept_from_the_next_save_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", number) for number in range(5)])
        await stores.definitions.annotate("s", "w", 1, "the first")

    async with opened(tmp_path, keep=1) as stores:
        assert len(await stores.definitions.versions("s", "w")) == 5
        await stores.definitions.write("s", [record("w", 9)])
        assert [item.version for item in await stores.definitions.versions("s", "w")] == [6, 1]


async def test_writes_at_the_same_time_and_a_caller_that_leaves_lose_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as stores:
        tasks = [
            asyncio.ensure_future(stores.sessions.commit([change(f"s{number}", "w", "v")]))
            for number in range(6)
        ]
        await asyncio.sleep(0)
        tasks[2].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    found = await everything(tmp_path)
    assert sum(isinstance(item, asyncio.CancelledError) for item in outcomes) == 1
    for number in range(6):
        parts = [name in found for name in (f"s{number}", f"s{number}/w", f"s{number}/v")]
        assert all(parts) or (number == 2 and not any(parts))


# --- killed --------------------------------------------------------------------------------------


async def _template(path: Path) -> None:
    async with opened(path) as stores:
        await stores.sessions.commit(
            [change("Old", "changes", "goes", "broken"), change("gone", "w")]
        )
    (path / "workflows/%4Fld/broken/current.json").write_text("{")


def _killed(kind: str, template: Path, below: Path) -> int:
    """Kill the work at each step; how many steps there were."""
    below.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.durability.kill_steps", kind, template, below],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


async def _state(path: Path, *, goes_on: bool = False) -> str:
    """Which of the two states a folder is in; fails for anything between."""
    async with opened(path) as stores:
        sessions = {item.session_id: item.config.name for item in await stores.sessions.list()}
        ids = {
            f"{name}/{item.workflow_id}={number_of(item)}"
            for name in ("new", "Old", "gone")
            for item in await stores.definitions.list(name)
        }
        versions = len(await stores.definitions.versions("Old", "changes"))
        before = (
            {"Old": None, "gone": None},
            {"Old/changes=1", "Old/goes=1", "gone/w=1"},
            1,
        )
        after = ({"new": "2", "Old": "2"}, {"new/a=2", "Old/changes=2"}, 2)
        assert (sessions, ids, versions) in (before, after)
        assert list((path / ASIDE).iterdir()) == []
        if goes_on:
            await stores.sessions.commit([change("next", "w")])
            assert number_of(await stores.definitions.get("next", "w")) == 1
        return "before" if (sessions, ids, versions) == before else "after"


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders in which a commit was killed at its first step, at its second and so on."""
    below = tmp_path_factory.mktemp("killed")
    asyncio.run(_template(below / "template"))
    steps = _killed("commit", below / "template", below / "commits")
    return [below / f"commits/{step}" for step in range(1, steps + 1)]


def _decided(folder: Path) -> bool:
    return (folder / ASIDE / INTENT).exists()


@pytest.mark.slow
async def test_a_commit_that_is_killed_at_any_step_is_there_whole_or_not_at_all(
    tmp_path: Path, commits: list[Path]
) -> None:
    decided = [_decided(folder) for folder in commits]
    states = []
    for number, folder in enumerate(commits):
        shutil.copytree(folder, tmp_path / str(number))
        states.append(await _state(tmp_path / str(number), goes_on=not number % 5))

    turn = states.index("after")
    assert states == ["before"] * turn + ["after"] * (len(commits) - turn)
    assert turn > 5
    assert sum(decided) > 5
    assert not decided[0]
    assert not decided[-1]


@pytest.mark.slow
async def test_a_start_that_is_killed_while_it_completes_a_commit_is_completed_by_the_next(
    tmp_path: Path, commits: list[Path]
) -> None:
    halves = [folder for folder in commits if _decided(folder)]

    steps = await asyncio.to_thread(_killed, "open", halves[len(halves) // 3], tmp_path / "starts")

    assert steps > 5
    for step in range(1, steps + 1):
        assert await _state(tmp_path / f"starts/{step}") == "after"


# --- a disk that does not take it ----------------------------------------------------------------


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from tests.contract.definitions import record
from tests.contract.sessions import change, session
from tests.durability.test_file_definitions import opened
from yukta_rx.durability.stores.sessions import SessionChange
from yukta_rx.errors import StoreUnavailableError

async def main(path):
    async with opened(path) as stores:
        await stores.sessions.commit([change("s", "w")])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        large = SessionChange(
            session_id="t", record=session("t"), put=(record("small", 1), record("w", "x" * 30_000))
        )
        try:
            await stores.sessions.commit([change("u", "w"), large])
        except StoreUnavailableError as error:
            print(error)
        else:
            raise SystemExit("it was written")
        assert await stores.sessions.get("u") is None
        assert await stores.definitions.get("t", "small") is None
        await stores.sessions.commit([change("v", "w")])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await stores.sessions.commit([large])

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.slow
async def test_a_full_disk_is_told_and_changes_nothing(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FULL, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/{ASIDE}/")
    assert "cannot be written: File too large" in done.stdout
    found = await everything(tmp_path)
    assert sorted(found) == ["s", "s/w", "t", "t/small", "t/w", "v", "v/w"]


async def test_a_folder_that_cannot_be_written_is_told_and_tried_again(tmp_path: Path) -> None:
    # Permissions do not stop root, so a file stands where the folder should be.
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w")])
        shutil.rmtree(tmp_path / ASIDE)
        (tmp_path / ASIDE).write_text("in the way")
        for attempt in (
            lambda: stores.sessions.commit([change("t", "w")]),
            lambda: stores.definitions.write("s", [record("w", 2)]),
            lambda: stores.definitions.annotate("s", "w", 1, "x"),
        ):
            with pytest.raises(StoreUnavailableError, match=ASIDE):
                await attempt()
        assert await stores.sessions.get("t") is None
        assert number_of(await stores.definitions.get("s", "w")) == 1
        (tmp_path / ASIDE).unlink()

        await stores.sessions.commit([change("t", "w")])

    assert sorted(await everything(tmp_path)) == ["s", "s/w", "t", "t/w"]


async def test_a_folder_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreUnavailableError, match="file/session"):
        async with opened(tmp_path / "file/session"):
            pass


async def test_files_that_cannot_be_put_in_place_yet_are_by_the_next_change_or_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w")])
        current = tmp_path / "workflows/s/w/current.json"
        current.unlink()
        (current / "in-the-way").mkdir(parents=True)

        [made] = await stores.definitions.write("s", [record("w", 2)])

        assert "not all of its files are in place" in caplog.text
        assert await stores.definitions.get("s", "w") == made
        with pytest.raises(StoreUnavailableError, match=r"w/current\.json"):
            await stores.definitions.write("s", [record("w", 3)])
        assert (tmp_path / ASIDE / INTENT).exists()
    with pytest.raises(StoreUnavailableError, match=r"w/current\.json"):
        async with opened(tmp_path):
            pass
    shutil.rmtree(current)

    async with opened(tmp_path) as stores:
        assert await stores.definitions.get("s", "w") == made
        assert json.loads(current.read_text()) == made.document


async def test_a_damaged_intent_stops_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w")])
    (tmp_path / ASIDE / INTENT).write_text('{"put": 1')

    with pytest.raises(StoreUnavailableError) as refused:
        async with opened(tmp_path):
            pass

    assert str(tmp_path / ASIDE / INTENT) in refused.value.detail
    assert "restore" in refused.value.detail


# --- what people do ------------------------------------------------------------------------------


async def test_a_document_changed_by_hand_is_a_new_version(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w", "v")])
        await stores.definitions.annotate("s", "w", 1, "kept")
    current = tmp_path / "workflows/s/w/current.json"
    current.write_bytes(b"\xef\xbb\xbf" + json.dumps(document("w", {"n": 7})).encode())
    other = tmp_path / "workflows/s/v/current.json"
    other.write_text(json.dumps(json.loads(other.read_text())))

    for _ in range(2):
        async with opened(tmp_path) as stores:
            versions = await stores.definitions.versions("s", "w")
            assert [(item.version, item.actor, number_of(item)) for item in versions] == [
                (2, "file", 7),
                (1, "ada 1", 1),
            ]
            assert versions[1].note == "kept"
            assert versions[0].created_at == versions[1].created_at
            assert len(await stores.definitions.versions("s", "v")) == 1
            assert not faults(stores)


async def test_a_workflow_put_there_by_hand_is_taken_with_its_session(tmp_path: Path) -> None:
    folder = tmp_path / "workflows/Sales/Pay.In"
    folder.mkdir(parents=True)
    (folder / "current.json").write_text(json.dumps(document("Pay.In", {"n": 1})))

    for _ in range(2):
        async with opened(tmp_path) as stores:
            found = await stores.definitions.get("Sales", "Pay.In")
            assert found is not None
            assert (found.version, found.actor) == (1, "file")
            assert [item.session_id for item in await stores.sessions.list()] == ["Sales"]
    assert (tmp_path / "workflows/%53ales/%50ay.%49n/history/1.json").exists()
    assert not folder.exists()


async def test_a_document_taken_away_by_hand_comes_back_from_its_newest_version(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", 1), record("w", 2)])
    before = (tmp_path / "workflows/s/w/current.json").read_bytes()
    (tmp_path / "workflows/s/w/current.json").unlink()

    async with opened(tmp_path) as stores:
        assert number_of(await stores.definitions.get("s", "w")) == 2
    assert (tmp_path / "workflows/s/w/current.json").read_bytes() == before


BROKEN = {
    "cut": (b'{"workflowId": "w",\n "nodes": [', "line 2, column 12"),
    "empty": (b"", "line 1, column 1"),
    "no-text": (b"\xff\xfe\x00", "not JSON"),
    "wrong-shape": (
        b'{"workflowId": "w", "nodes": [{"type": "X"}], "edges": []}',
        "/nodes/0/nodeId",
    ),
    "typing-slip": (b'{"workflowId": "w", "nods": [], "nodes": [], "edges": []}', "/nods"),
    "no-object": (b"[1]", "the document"),
    "of-another": (json.dumps(document("other")).encode(), "is other, but the folder is that of w"),
    "not-a-number": (b'{"workflowId": NaN}', "/workflowId"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_document_is_told_with_its_place_and_the_others_are_in_use(
    tmp_path: Path, name: str
) -> None:
    data, place = BROKEN[name]
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w", "fine")])
    (tmp_path / "workflows/s/w/current.json").write_bytes(data)

    meters = Meters()
    async with opened(tmp_path, meters=meters) as stores:
        [fault] = faults(stores)
        assert fault.startswith(str(tmp_path / "workflows/s/w/current.json"))
        assert place in fault
        assert meters.counter("yukta.store.quarantined", store="session").value == 1
        assert [item.workflow_id for item in await stores.definitions.list("s")] == ["fine"]
        for ask in (
            lambda: stores.definitions.get("s", "w"),
            lambda: stores.definitions.versions("s", "w"),
            lambda: stores.definitions.version("s", "w", 1),
            lambda: stores.definitions.annotate("s", "w", 1, "x"),
        ):
            with pytest.raises(StoreUnavailableError) as refused:
                await ask()
            assert fault in refused.value.detail
    assert (tmp_path / "workflows/s/w/current.json").read_bytes() == data


async def test_saving_a_broken_workflow_anew_mends_it_and_loses_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", 1), record("w", 2)])
    (tmp_path / "workflows/s/w/current.json").write_text("my work, unfinished {")

    async with opened(tmp_path) as stores:
        [made] = await stores.definitions.write("s", [record("w", 3)])
        assert made.version == 3
        [fault] = faults(stores)
        assert "was set aside" in fault

    aside = tmp_path / "quarantine/workflows/s/w/current.json.1"
    assert aside.read_text() == "my work, unfinished {"
    async with opened(tmp_path) as stores:
        assert [item.version for item in await stores.definitions.versions("s", "w")] == [3, 2, 1]
        assert [str(aside) in fault for fault in faults(stores)] == [True]
    aside.unlink()
    async with opened(tmp_path) as stores:
        assert not faults(stores)


async def test_a_broken_workflow_can_be_removed_alone_and_with_its_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w"), change("t", "w")])
    for name in ("s", "t"):
        (tmp_path / f"workflows/{name}/w/current.json").write_text(f"{name} {{")

    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [], ["w"])
        await stores.sessions.commit([SessionChange(session_id="t", gone=True)])
        assert await stores.definitions.get("s", "w") is None
        assert await stores.definitions.get("t", "w") is None
        assert not (tmp_path / "workflows").exists()
        [again] = await stores.definitions.write("s", [record("w", 1)])
        assert again.version == 2
    kept = (tmp_path / f"quarantine/workflows/{name}/w/current.json.1" for name in ("s", "t"))
    assert [path.read_text() for path in kept] == ["s {", "t {"]


async def test_a_broken_version_is_told_when_it_is_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", number) for number in range(3)])
    old = tmp_path / "workflows/s/w/history/2.json"
    old.write_text(old.read_text().replace('"version": 2', '"version": 1'))

    meters = Meters()
    async with opened(tmp_path, meters=meters) as stores:
        assert number_of(await stores.definitions.get("s", "w")) == 2
        with pytest.raises(StoreUnavailableError, match=r"history/2\.json: /version: is 1"):
            await stores.definitions.version("s", "w", 2)
        assert [item.version for item in await stores.definitions.versions("s", "w")] == [3, 1]
        assert len(faults(stores)) == 1
        assert meters.counter("yukta.store.quarantined", store="session").value == 1


async def test_a_broken_version_is_not_thrown_away_as_too_old(tmp_path: Path) -> None:
    async with opened(tmp_path, keep=1) as stores:
        await stores.definitions.write("s", [record("w", 1)])
        old = tmp_path / "workflows/s/w/history/1.json"
        old.write_text("{")
        await stores.definitions.write("s", [record("w", 2)])
        assert old.read_text() == "{"
        assert len(faults(stores)) == 1


async def test_where_the_newest_version_is_broken_the_document_counts(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", 1), record("w", 2)])
    (tmp_path / "workflows/s/w/history/2.json").write_text("{")

    for _ in range(2):
        async with opened(tmp_path) as stores:
            versions = await stores.definitions.versions("s", "w")
            assert [(item.version, number_of(item)) for item in versions] == [(3, 2), (1, 1)]
            [fault] = faults(stores)
            assert "quarantine/workflows/s/w/history/2.json.1" in fault


async def test_a_broken_session_is_told_and_mended_by_the_next_form(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s", "w"), change("t", "w")])
    file = tmp_path / "sessions/s.json"
    file.write_text(file.read_text().replace('"sessionId": "s"', '"sessionId": 7'))

    async with opened(tmp_path) as stores:
        assert [item.session_id for item in await stores.sessions.list()] == ["t"]
        with pytest.raises(StoreUnavailableError, match=r"sessions/s\.json: /config/sessionId"):
            await stores.sessions.get("s")
        assert len(await stores.definitions.list("s")) == 1
        await stores.sessions.commit([SessionChange(session_id="s", record=session("s"))])
        assert await stores.sessions.get("s") == session("s")
    assert (tmp_path / "quarantine/sessions/s.json.1").exists()


async def test_numbers_of_what_was_removed_that_cannot_be_read_are_not_guessed_too_low(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("s", [record("w", number) for number in range(3)])
        await stores.definitions.write("s", [record("x", 1)])
        await stores.definitions.write("s", [], ["x"])
    (tmp_path / "removed.json").write_text("?")

    async with opened(tmp_path) as stores:
        [again] = await stores.definitions.write("s", [record("x", 2)])
        assert again.version == 4
        await stores.definitions.write("s", [], ["x"])
        [fault] = faults(stores)
        assert "quarantine/removed.json.1" in fault
    assert (tmp_path / "quarantine/removed.json.1").read_text() == "?"


async def test_members_of_a_session_that_are_not_known_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s")])
    file = tmp_path / "sessions/s.json"
    read = json.loads(file.read_text())
    read["later"] = 1
    read["config"]["afterThis"] = 2
    file.write_text(json.dumps(read))

    async with opened(tmp_path) as stores:
        assert await stores.sessions.get("s") == session("s")
    assert "session s: unknown members are passed over: ['afterThis']" in caplog.text


async def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.sessions.commit([change("s")])
    file = tmp_path / "sessions/s.json"
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))

    async with opened(tmp_path) as stores:
        [fault] = faults(stores)
        assert "/format: is 2; this version of yukta reads 1" in fault
    assert '"format": 2' in file.read_text()


async def test_what_does_not_belong_there_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as stores:
        await stores.definitions.write("S", [record("w", 1)])
    (tmp_path / "workflows/a b").mkdir()
    (tmp_path / "workflows/readme.txt").write_text("")
    (tmp_path / "workflows/S").mkdir()
    (tmp_path / "workflows/%53/w/history/v1.json").write_text("")
    (tmp_path / "workflows/%53/.hidden").write_text("")
    (tmp_path / "workflows/%53/empty/history").mkdir(parents=True)
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions/s.yaml").write_text("")
    (tmp_path / "removed.json").write_text("?")

    async with opened(tmp_path) as stores:
        told = "\n".join(faults(stores))
        names = ("workflows/a b: ", "readme.txt: ", "v1.json: ", "s.yaml: ", "removed.json: ")
        assert all(name in told for name in names)
        assert "workflows/S: is for the same id as %53" in told
        assert len(faults(stores)) == 6
        assert [item.workflow_id for item in await stores.definitions.list("S")] == ["w"]
