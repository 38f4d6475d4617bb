"""The folder of the file stores: one owner, found out by trying, and writes that are whole."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from subprocess import PIPE
from typing import TYPE_CHECKING

import pytest

from yukta_rx.durability.file._folder import LOCK, PROBE, Folder, atomic_write
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-05")


def names(path: Path) -> list[str]:
    return sorted(one.name for one in path.iterdir())


async def test_it_is_made_tried_out_and_says_who_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"

    async with Folder(path, instance="blue") as folder:
        assert folder.path == path
        assert f"pid {os.getpid()} on " in (path / LOCK).read_text()
        assert "instance blue" in (path / LOCK).read_text()
        assert not (path / PROBE).exists()


async def test_a_folder_that_is_made_is_for_the_owner_alone_and_another_stays(
    tmp_path: Path,
) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o750)
    for path, rights in ((tmp_path / "made", 0o700), (given, 0o750)):
        async with Folder(path):
            assert stat.S_IMODE(path.stat().st_mode) == rights


async def test_a_second_server_is_told_the_folder_and_who_has_it(tmp_path: Path) -> None:
    async with Folder(tmp_path, instance="blue"):
        with pytest.raises(StoreUnavailableError) as refused:
            await Folder(tmp_path, instance="green").__aenter__()

    assert str(tmp_path) in refused.value.detail
    assert f"pid {os.getpid()}" in refused.value.detail
    assert "instance blue" in refused.value.detail


async def test_once_it_is_left_another_may_have_it(tmp_path: Path) -> None:
    async with Folder(tmp_path):
        pass
    async with Folder(tmp_path, instance="green"):
        assert "instance green" in (tmp_path / LOCK).read_text()


async def test_the_lock_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from yukta_rx.durability.file._folder import Folder\n"
        "async def main():\n"
        "    await Folder(Path(sys.argv[1]), instance='first').__aenter__()\n"
        "    print('taken', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"taken\n"
    with pytest.raises(StoreUnavailableError, match=f"pid {other.pid} .*instance first"):
        await Folder(tmp_path).__aenter__()
    other.kill()
    await other.wait()

    async with Folder(tmp_path):
        assert f"pid {os.getpid()}" in (tmp_path / LOCK).read_text()


async def test_a_folder_that_cannot_be_is_refused_with_its_name(tmp_path: Path) -> None:
    # Stands for a folder without permission, too: that does not stop root, this does.
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreUnavailableError) as refused:
        await Folder(tmp_path / "file" / "data").__aenter__()

    assert str(tmp_path / "file" / "data") in refused.value.detail
    assert "Not a directory" in refused.value.detail


async def test_a_folder_that_keeps_nothing_is_refused_and_let_go(tmp_path: Path) -> None:
    # The probe cannot take the place of a folder that is not empty.
    (tmp_path / PROBE / "x").mkdir(parents=True)

    with pytest.raises(StoreUnavailableError, match="cannot be written"):
        await Folder(tmp_path).__aenter__()

    (tmp_path / PROBE / "x").rmdir()
    (tmp_path / PROBE).rmdir()
    async with Folder(tmp_path):
        pass


async def test_a_file_is_put_in_place_whole_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    async with Folder(tmp_path) as folder:
        await folder.atomic_write(path, b"old")
        await folder.atomic_write(path, b"new")
        await folder.fsync_dir()

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names(tmp_path) == [LOCK, "f"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "f" / "below").mkdir(parents=True)

    with pytest.raises(StoreUnavailableError) as refused:
        atomic_write(tmp_path / "f", b"new")

    assert f"{tmp_path / 'f'}: cannot be written" in refused.value.detail
    assert [one.name for one in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f" / "below").is_dir()


async def test_what_is_not_open_does_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="is not open"):
        await Folder(tmp_path).atomic_write(tmp_path / "f", b"x")
