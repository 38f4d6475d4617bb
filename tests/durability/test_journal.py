"""The journal: in order, together or not at all, and no harm from what a crash or a disk does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.durability.file._journal import Journal
from yukta_rx.durability.file._journal_lines import CHUNK
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.testing.clock import run_virtual

pytestmark = pytest.mark.feature("DUR-05")


async def content(path: Path) -> list[bytes]:
    """What a new server finds."""
    journal = Journal(path)
    try:
        return await journal.open()
    finally:
        await journal.close()


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


async def test_what_was_appended_is_found_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "below" / "j")
    assert await journal.open() == []
    await journal.append([b"1", b"2"])
    waiting = [journal.append([b"%d" % number]) for number in range(3, 100)]
    await asyncio.gather(*waiting)
    assert journal.lines == 99
    assert journal.size == (tmp_path / "below" / "j").stat().st_size
    await journal.close()
    await journal.close()

    assert await content(tmp_path / "below" / "j") == [b"%d" % number for number in range(1, 100)]


async def test_close_writes_what_waits(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", sync=False)
    await journal.open()
    waiting = [journal.append([b"%d" % number]) for number in range(100)]
    await journal.close()

    assert all(one.done() for one in waiting)
    assert len(await content(tmp_path / "j")) == 100


async def test_all_that_waits_shares_one_write(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    thread = await journal.call(threading.get_native_id)

    def writes() -> int:
        said = Path(f"/proc/self/task/{thread}/io").read_text()
        return int(said.split("syscw: ")[1].split()[0])

    held, before = threading.Event(), await journal.call(writes)
    holding = journal.call(held.wait)
    waiting = [asyncio.ensure_future(holding)]
    await asyncio.sleep(0)
    waiting += [journal.append([b"%d" % number]) for number in range(100)]
    held.set()
    await asyncio.gather(*waiting)

    assert await journal.call(writes) - before == 1
    await journal.append([b"x"])
    assert await journal.call(writes) - before == 2
    await journal.close()


async def test_one_that_waits_no_more_stops_nothing_and_is_told_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    told: list[Any] = []
    waiting = [
        journal.append([b"%d" % number], lambda error, number=number: told.append((number, error)))
        for number in range(10)
    ]
    waiting[3].cancel()
    await waiting[-1]

    assert told == [(number, None) for number in range(10)]
    assert len(await content(tmp_path / "j")) == 10
    await journal.close()


async def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "mine")
    await journal.open()
    assert [one.name for one in threading.enumerate()].count("yukta-journal mine") == 1
    thread = next(one for one in threading.enumerate() if one.name == "yukta-journal mine")
    await journal.close()
    await asyncio.get_running_loop().run_in_executor(None, thread.join)

    assert not thread.is_alive()


@pytest.mark.parametrize("line", [b"a\nb", b"a ", b"\n"])
async def test_a_line_that_could_not_be_told_from_two_is_refused(
    tmp_path: Path, line: bytes
) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    with pytest.raises(ValueError, match="newline byte"):
        journal.append([b"x", line])
    await journal.append([])
    await journal.close()

    assert await content(tmp_path / "j") == []


# --- a crash -------------------------------------------------------------------------------------


async def test_a_write_that_a_crash_cut_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path)
    await journal.open()
    await journal.append([b"first"])
    before = path.stat().st_size
    await journal.append([b"second", b"", b"third"])
    await journal.close()
    whole = path.read_bytes()

    for end in range(before, len(whole) + 1):
        path.write_bytes(whole[:end])
        again = Journal(path)
        found = await again.open()
        assert found == [b"first", *([b"second", b"", b"third"] if end == len(whole) else [])]
        assert again.torn == int(before < end < len(whole))
        await again.append([b"after"])
        await again.close()
        assert await content(path) == [*found, b"after"]


async def test_what_was_cut_off_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "j").write_bytes(b"a\nbcd")

    assert await content(tmp_path / "j") == [b"a"]
    assert f"{tmp_path / 'j'}: the last 3 bytes are an unfinished write" in caplog.text


LENGTHS = st.sampled_from([0, 1, 100, CHUNK // 2, CHUNK - 1, CHUNK, CHUNK + 1])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(LENGTHS, min_size=1, max_size=3), max_size=4))
def test_long_lines_are_found_again(
    tmp_path_factory: pytest.TempPathFactory, appends: list[list[int]]
) -> None:
    path = tmp_path_factory.mktemp("long") / "j"

    async def main() -> list[bytes]:
        journal = Journal(path, sync=False)
        await journal.open()
        for lengths in appends:
            await journal.append([b"x" * length for length in lengths])
        await journal.close()
        return await content(path)

    assert [len(line) for line in run_virtual(main())] == [n for one in appends for n in one]


# --- rewriting -----------------------------------------------------------------------------------


async def test_a_rewrite_has_its_place_among_the_appends(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    before = journal.append([b"before"])
    rewriting = journal.rewrite(iter([b"new", b"lines"]))
    await asyncio.gather(before, rewriting)
    await journal.append([b"after"])
    assert (journal.lines, journal.size) == (3, (tmp_path / "j").stat().st_size)
    await journal.close()

    assert await content(tmp_path / "j") == [b"new", b"lines", b"after"]
    assert names(tmp_path) == ["j"]


async def test_what_came_after_the_place_that_new_lines_stand_for_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    await journal.append([b"a", b"b"])
    # Nothing takes no room.
    await journal.append([])
    since = journal.size
    late = journal.append([b"c", b"d"])
    await journal.rewrite([b"ab"], since)
    last = journal.append([b"e"])
    await asyncio.gather(late, last)
    assert (journal.lines, journal.size) == (4, (tmp_path / "j").stat().st_size)
    await journal.rewrite([b"all"], journal.size)
    with pytest.raises(ValueError, match="rewritten meanwhile"):
        await asyncio.gather(journal.rewrite([b"x"], 0), journal.rewrite([b"y"], 0))
    await journal.close()

    assert await content(tmp_path / "j") == [b"x", b"all"]


async def test_a_rewrite_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    await journal.append([b"old"])

    def broken() -> Any:
        yield b"new"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        await journal.rewrite(broken())
    (tmp_path / "j.tmp").mkdir()
    with pytest.raises(StoreUnavailableError, match="j: cannot be written"):
        await journal.rewrite([b"new"])
    (tmp_path / "j.tmp").rmdir()
    await journal.append([b"more"])
    await journal.close()

    assert await content(tmp_path / "j") == [b"old", b"more"]


async def test_what_a_crash_left_of_a_rewrite_is_removed(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"old\n")
    (tmp_path / "j.tmp").write_bytes(b"half of the n")

    assert await content(tmp_path / "j") == [b"old"]
    assert names(tmp_path) == ["j"]


# --- what a disk does ----------------------------------------------------------------------------


async def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()

    for path, reason in [
        (tmp_path / "file" / "j", "Not a directory"),
        (tmp_path / "folder", "Is a directory"),
    ]:
        journal = Journal(path)
        with pytest.raises(StoreUnavailableError) as refused:
            await journal.open()
        assert str(path) in refused.value.detail
        assert reason in refused.value.detail
        with pytest.raises(StoreUnavailableError, match="is not open"):
            await journal.append([b"x"])


async def test_a_file_that_is_gone_is_no_place_to_write_to(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    await journal.open()
    (tmp_path / "j").unlink()

    with pytest.raises(StoreUnavailableError, match="was removed"):
        await journal.append([b"x"])
    assert (journal.size, journal.lines) == (0, 0)
    await journal.close()
    with pytest.raises(StoreUnavailableError, match="is not open"):
        await journal.rewrite([])


def test_a_full_disk_refuses_a_write_whole_and_takes_the_next_one(tmp_path: Path) -> None:
    # In a process of its own: the limit is for all its files.
    program = """
        import asyncio, resource, signal, sys
        from pathlib import Path
        from yukta_rx.durability.file._journal import Journal
        from yukta_rx.errors import StoreUnavailableError

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        async def main():
            journal = Journal(Path(sys.argv[1]))
            await journal.open()
            await journal.append([b"a" * 100])
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
            for refused in (
                lambda: journal.append([b"b", b"b" * 300]),
                lambda: journal.rewrite([b"c" * 301]),
            ):
                try:
                    await refused()
                except StoreUnavailableError as error:
                    print(error.detail.removeprefix(sys.argv[1]))
            print(Path(sys.argv[1]).stat().st_size)
            await journal.append([b"d"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            await journal.append([b"e" * 300])
            await journal.close()

        asyncio.run(main())
    """
    path = tmp_path / "j"

    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert said.stdout.splitlines() == [
        ": cannot be written: File too large",
        ": cannot be written: File too large",
        "101",
    ]
    assert path.read_bytes().split(b"\n") == [b"a" * 100, b"d", b"e" * 300, b""]
    assert names(tmp_path) == ["j"]


def test_time_does_not_pass_while_a_disk_is_waited_for(tmp_path: Path) -> None:
    async def main() -> float:
        journal = Journal(tmp_path / "j")
        await journal.open()
        async with asyncio.timeout(1):
            for number in range(20):
                await journal.append([b"%d" % number])
            await journal.rewrite([b"x"])
        await journal.close()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 0
