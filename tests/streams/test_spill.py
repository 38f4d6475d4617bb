"""A queue of chunks on disk: order, files that come and go, and what cannot be written."""

from __future__ import annotations

import os
import pickle
import resource
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yukta_rx.streams import spill as spill_module
from yukta_rx.streams.spill import SEGMENT, Spill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.feature("ENG-01")


@pytest.fixture
def spill(tmp_path: Path) -> Iterator[Spill]:
    made = Spill(tmp_path)
    yield made
    made.close()


def test_chunks_come_back_in_order(spill: Spill) -> None:
    chunks = [[n, str(n), {"n": [n]}] for n in range(100)]
    for chunk in chunks:
        spill.write(chunk)

    assert [spill.read() for _ in chunks] == chunks
    assert spill.read() == []


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.sampled_from("wwr"), max_size=80), segment=st.integers(1, 300))
def test_writes_and_reads_in_any_order_are_a_queue(steps: list[str], segment: int) -> None:
    queue: list[list[int]] = []
    made = Spill()
    before, spill_module.SEGMENT = SEGMENT, segment  # type: ignore[misc]
    try:
        for number, step in enumerate(steps):
            if step == "w":
                queue.append([number] * (number % 7))
                made.write(queue[-1])
            else:
                assert made.read() == (queue.pop(0) if queue else [])
            assert made.used == bool(queue)
    finally:
        spill_module.SEGMENT = before  # type: ignore[misc]
        made.close()


def chunk_of(size: int) -> list[bytes]:
    """A chunk that takes `size` bytes on disk."""
    overhead = len(pickle.dumps([bytes(size)], pickle.HIGHEST_PROTOCOL)) - size
    return [bytes(size - overhead)]


@pytest.mark.parametrize(("first", "same"), [(-1, True), (0, False), (1, False)])
def test_a_file_that_is_full_is_followed_by_another(spill: Spill, first: int, same: bool) -> None:
    full = chunk_of(SEGMENT + first)
    spill.write(full)
    written = spill._segments[0].written
    spill.write(["second"])
    files = [segment.file for segment in spill._segments]
    back = [spill.read()]
    closed = [file.closed for file in files]
    back.append(spill.read())

    assert written == SEGMENT + first
    assert closed == ([False] if same else [True, False])
    assert back == [full, ["second"]]
    assert all(file.closed for file in files)


def test_the_files_have_no_name(spill: Spill, tmp_path: Path) -> None:
    spill.write([1])

    assert list(tmp_path.iterdir()) == []
    assert os.fstat(spill._segments[0].file.fileno()).st_nlink == 0


def test_what_cannot_be_pickled_leaves_the_queue_as_it_was(spill: Spill) -> None:
    spill.write([1])
    with pytest.raises(TypeError):
        spill.write([2, threading.Lock()])
    spill.write([3])

    assert [spill.read(), spill.read(), spill.read()] == [[1], [3], []]


def test_a_closed_spill_takes_and_gives_nothing(tmp_path: Path) -> None:
    made = Spill(tmp_path)
    made.write([1])
    [segment] = made._segments
    made.close()
    made.write([2])
    made.close()

    assert segment.file.closed
    assert made.read() == []
    assert not made.used


def test_a_folder_that_is_none_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Spill(tmp_path / "missing").write([1])


def test_a_full_disk_is_an_os_error_and_all_files_are_closed(tmp_path: Path) -> None:
    """A limit of the process on the size of files is as good as a full disk."""
    made = Spill(tmp_path)
    made.write([1])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            made.write([bytes(200_000)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    made.write([2])
    files = [segment.file for segment in made._segments]
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        made.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert all(file.closed for file in files)


def test_one_thread_writes_while_another_reads(spill: Spill) -> None:
    count = 300
    got: list[int] = []
    errors: list[BaseException] = []

    def guarded(work: Any) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def write() -> None:
        for n in range(count):
            spill.write([n])

    def read() -> None:
        while len(got) < count and not errors:
            got.extend(spill.read())

    for thread in (guarded(write), guarded(read)):
        thread.join(30)

    assert errors == []
    assert got == list(range(count))
