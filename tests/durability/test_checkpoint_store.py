"""The checkpoint store of each backend against the contract, and the contract against bad ones."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.catching import broken_guarantees
from tests.contract.checkpoints import (
    CheckpointContract,
    mark,
    number,
    numbers_of,
    rows_of,
    state_of,
)
from tests.contract.logged import LoggedCheckpointStore
from yukta_rx.config.store_settings import RestartGroup
from yukta_rx.durability.memory import checkpoints as module
from yukta_rx.durability.memory.checkpoints import CHUNK, PREFIX, MemoryNodeCheckpointStore
from yukta_rx.durability.stores.checkpoints import (
    OVER_CAP,
    UNSERIALISABLE,
    WRITE_FAILED,
    CheckpointRow,
    counting_rows,
    decode_row,
    encode_row,
)
from yukta_rx.errors import StoreUnavailableError
from yukta_rx.model.message import Message
from yukta_rx.streams.pool import BlockingPool
from yukta_rx.testing.clock import virtual_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02")


POOL = BlockingPool(2)


def made(**settings: Any) -> MemoryNodeCheckpointStore:
    return MemoryNodeCheckpointStore(RestartGroup(**settings), POOL.call)


async def names_in(folder: Path) -> list[str]:
    """Names of the files in a folder."""
    return await POOL.call(lambda: sorted(path.name for path in folder.iterdir()))


class Lost(dict[Any, Any]):
    """Memory that gives no answer."""

    def get(self, *args: Any) -> Any:
        raise OSError("no answer")


class TestMemory(CheckpointContract):
    """In memory."""

    @pytest.fixture
    def store(self) -> MemoryNodeCheckpointStore:
        return made()

    def lose(self, store: Any) -> None:
        store._runs = Lost()

    def refuse(self, store: Any) -> None:
        store._most_messages = 0


class TestSpilled(CheckpointContract):
    """Everything over the cap, so in files."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[MemoryNodeCheckpointStore]:
        store = made(messages_per_node=0, spill_dir=tmp_path / "spill")
        await store.start()
        yield store
        await store.close()

    def lose(self, store: Any) -> None:
        store._runs = Lost()

    def refuse(self, store: Any) -> None:
        store._write = lambda output, _file, _rows: store._give_up(output, OVER_CAP) or False


class TestLogged(CheckpointContract):
    """The model of a durable store."""

    delay: float | None = None

    @pytest.fixture
    def store(self) -> LoggedCheckpointStore:
        return LoggedCheckpointStore(delay=self.delay)

    def lose(self, store: Any) -> None:
        store.known = store.rows = Lost()

    def refuse(self, store: Any) -> None:
        store.append = lambda run, node, _row: store.mark_incomplete(run, node, OVER_CAP) or False

    async def restarted(self, store: Any) -> Any:
        return type(store)(store.log)

    async def crashed(self, store: Any) -> list[Any]:
        return [type(store)(store.log[:place]) for place in range(len(store.log) + 1)]


# --- caps ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_node_over_its_messages_is_not_kept_and_takes_no_memory() -> None:
    store = made(messages_per_node=3)
    taken = [store.append("run", "a", number(n)) for n in range(5)]
    await mark(store, "run", "a")
    await mark(store, "run", "b", number(1))

    assert taken == [True, True, True, False, False]
    assert (await state_of(store, "run", "a")).reason == OVER_CAP
    assert (await state_of(store, "run", "b")).complete
    await store.clear("run")
    assert store.bytes == 0


@virtual_time
async def test_a_node_over_its_bytes_is_not_kept_and_takes_no_memory() -> None:
    store = made(bytes_per_node=3000)
    small = store.append("run", "a", number(1))
    large = store.append("run", "a", CheckpointRow.of(((None, Message.of("x" * 3000)),)))

    assert (small, large, store.bytes) == (True, False, 0)
    assert (await state_of(store, "run", "a")).reason == OVER_CAP


@virtual_time
async def test_what_is_held_is_counted_and_clearing_gives_it_back() -> None:
    store = made()
    for run in ("a", "b"):
        await mark(store, run, "n", number(1))
    both = store.bytes
    await store.clear("a")

    assert store.bytes * 2 == both > 0


# --- files ---------------------------------------------------------------------------------------


@virtual_time
async def test_the_whole_output_moves_to_a_file_once_it_is_over_the_cap(tmp_path: Path) -> None:
    store = made(messages_per_node=2, spill_dir=tmp_path)
    await store.start()
    taken = [store.append("run", "a", number(n)) for n in range(5)]
    await mark(store, "run", "a", number(5))

    [name] = await names_in(tmp_path)
    lines = await POOL.call((tmp_path / name).read_bytes)
    rows = [decode_row(line, "a") for line in lines.splitlines()]
    assert taken == [True] * 5
    assert [msg.payload["n"] for row in rows for _, msg in row.messages] == list(range(6))
    assert await numbers_of(store, "run", "a") == list(range(6))
    assert store._runs["run"]["a"].rows == []


@virtual_time
async def test_files_go_with_their_run_also_while_they_are_written(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    await mark(store, "run", "a", number(1))
    store.append("run", "b", number(1))

    await store.clear("run")
    await store.close()

    assert await names_in(tmp_path) == []
    assert (store.bytes, store._queued) == (0, 0)


@virtual_time
async def test_who_reads_while_the_output_moves_to_a_file_gets_each_row_once(
    tmp_path: Path,
) -> None:
    store = made(messages_per_node=2, spill_dir=tmp_path)
    await store.start()
    for n in range(2):
        store.append("run", "a", number(n))
    rows = store.read("run", "a")
    first = await anext(rows)
    store.append("run", "a", number(2))
    await mark(store, "run", "a")

    rest = [row async for row in rows]
    read = [msg.payload["n"] for row in (first, *rest) for _, msg in row.messages]
    assert read == [0, 1]
    assert await numbers_of(store, "run", "a") == [0, 1, 2]


@virtual_time
async def test_who_reads_an_output_that_is_given_up_meanwhile_is_told(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    for n in range(2):
        store.append("run", "a", CheckpointRow.of([(None, Message.of({"n": n, "x": "x" * CHUNK}))]))
    written = store.written("run", "a")
    assert written is not None
    await written
    rows = store.read("run", "a")
    await anext(rows)
    store.mark_incomplete("run", "a", OVER_CAP)
    await store._tasks.ended()

    with pytest.raises(StoreUnavailableError, match=PREFIX):
        await anext(rows)


@virtual_time
async def test_a_row_that_is_being_written_is_not_there_yet(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    store.append("run", "a", number(1))
    written = store.written("run", "a")
    assert written is not None
    await written
    [name] = await names_in(tmp_path)

    def write() -> None:
        with (tmp_path / name).open("ab") as file:
            file.write(encode_row(number(2))[:10])

    await POOL.call(write)

    assert await numbers_of(store, "run", "a") == [1]
    await store.close()


@virtual_time
async def test_files_of_an_earlier_process_go_at_the_start_and_no_others(tmp_path: Path) -> None:
    for name in (f"{PREFIX}7.jsonl", "mine.jsonl"):
        await POOL.call((tmp_path / name).write_text, "left over")

    await made(spill_dir=tmp_path).start()

    assert await names_in(tmp_path) == ["mine.jsonl"]


@virtual_time
async def test_closing_leaves_no_file(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    for node in "ab":
        store.append("run", node, number(1))
    await store.close()

    assert await names_in(tmp_path) == []


@virtual_time
async def test_a_message_that_cannot_be_written_gives_the_output_up(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    store.append("run", "a", number(1))
    taken = store.append("run", "a", CheckpointRow.of(((None, Message.of(object())),)))
    await mark(store, "run", "a")
    await store.close()

    state = await state_of(store, "run", "a")
    assert taken is False
    assert state.complete is False
    assert await names_in(tmp_path) == []


@virtual_time
async def test_the_reason_of_a_message_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    store.append("run", "a", CheckpointRow.of(((None, Message.of(object())),)))

    assert (await state_of(store, "run", "a")).reason == UNSERIALISABLE


@virtual_time
async def test_a_mark_that_could_not_be_written_says_so(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path / "not there")

    with pytest.raises(StoreUnavailableError, match="could not be written"):
        await mark(store, "run", "a", number(1))

    state = await state_of(store, "run", "a")
    assert (state.complete, state.reason) == (False, WRITE_FAILED)


@virtual_time
async def test_a_spill_folder_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    await POOL.call((tmp_path / "file").write_text, "no folder")

    with pytest.raises(StoreUnavailableError, match="file"):
        await made(spill_dir=tmp_path / "file").start()


@virtual_time
async def test_nodes_are_held_back_while_too_much_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUEUE", 1000)
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    numbers = count()
    while not store.full:
        store.append("run", "a", number(next(numbers)))
    await store.room()

    assert not store.full
    await mark(store, "run", "a")
    assert await numbers_of(store, "run", "a") == list(range(next(numbers)))


@virtual_time
async def test_a_damaged_file_is_no_output(tmp_path: Path) -> None:
    store = made(messages_per_node=0, spill_dir=tmp_path)
    await store.start()
    await mark(store, "run", "a", number(1))
    [name] = await names_in(tmp_path)
    await POOL.call((tmp_path / name).write_bytes, b'{"messages": [[null, {"id"')

    with pytest.raises(StoreUnavailableError, match="damaged"):
        await rows_of(store, "run", "a")


# --- rows that belong together -------------------------------------------------------------------


@virtual_time
async def test_rows_of_an_input_that_was_not_over_do_not_count() -> None:
    def of(n: int, group: str, *inputs: tuple[str, int]) -> CheckpointRow:
        return CheckpointRow(number(n).batches, inputs, group)

    rows = [
        of(1, "", ("in1", 1)),
        *(of(2, "x"), of(3, "x"), of(4, "x", ("in2", 3))),
        *(of(5, "lost"), of(6, "lost")),
        *(of(7, "y"), of(8, "y", ("in3", 2)), of(9, "", ("in4", 1))),
        of(10, "end"),
    ]
    store = made()
    for row in rows:
        store.append("run", "a", row)

    counting = counting_rows(lambda: store.read("run", "a"))
    found = [msg.payload["n"] async for row in counting for _, msg in row.messages]
    assert found == [1, 2, 3, 4, 7, 8, 9]


# --- the suite itself ----------------------------------------------------------------------------


class ForgetsAttempts(MemoryNodeCheckpointStore):
    breaks = "C1"

    async def read(self, execution_id: str, node_id: str) -> Any:
        async for row in super().read(execution_id, node_id):
            bare = (
                (port, Message(m.payload, m.headers, m.origin, m.id)) for port, m in row.messages
            )
            yield CheckpointRow.of(tuple(bare), row.inputs, row.group)


class LosesTheLastRow(MemoryNodeCheckpointStore):
    breaks = "C2"

    def mark_complete(self, execution_id: str, node_id: str, row: Any = None) -> Any:
        held = self._output(execution_id, node_id)
        return super().mark_complete(execution_id, node_id, None if held.rows else row)


class ShowsOnlyWhatHasRows(MemoryNodeCheckpointStore):
    breaks = "C3"

    async def states(self, execution_id: str) -> Any:
        found = await super().states(execution_id)
        if len(found) < 3:
            return found
        return {name: one for name, one in found.items() if one.messages or one.reason}


class KeepsAPart(MemoryNodeCheckpointStore):
    breaks = "C4"

    def _give_up(self, output: Any, reason: str) -> None:
        if reason != OVER_CAP:
            super()._give_up(output, reason)

    def append(self, execution_id: str, node_id: str, row: CheckpointRow) -> bool:
        super().append(execution_id, node_id, row)
        return True


class ForgivesAFreshNode(MemoryNodeCheckpointStore):
    breaks = "C5"

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        if reason == OVER_CAP or node_id in self._runs.get(execution_id, {}):
            super().mark_incomplete(execution_id, node_id, reason)


class GoesOnAfterTheMark(MemoryNodeCheckpointStore):
    breaks = "C6"

    def mark_incomplete(self, execution_id: str, node_id: str, reason: str) -> None:
        output = self._output(execution_id, node_id)
        output.complete = False
        super().mark_incomplete(execution_id, node_id, reason)


class ForgetsByPrefix(MemoryNodeCheckpointStore):
    breaks = "C7"

    async def clear(self, execution_id: str) -> None:
        for run in [run for run in self._runs if run.startswith(execution_id)]:
            await super().clear(run)


class TakesSilenceForNothing(MemoryNodeCheckpointStore):
    breaks = "C8"

    async def states(self, execution_id: str) -> Any:
        try:
            return await super().states(execution_id)
        except OSError:
            return {}


class ForgetsWhatIsUnfinished(LoggedCheckpointStore):
    breaks = "C9"

    async def read(self, execution_id: str, node_id: str) -> Any:
        state = (await self.states(execution_id)).get(node_id)
        async for row in super().read(execution_id, node_id):
            if state is not None and state.complete:
                yield row


class WritesNodesOneByOne(LoggedCheckpointStore):
    breaks = "C10"

    def write(self, *line: Any) -> Any:
        done = super().write(*line)
        if line[0] != "clear" and line[1] == "run":
            self.log.sort(key=lambda line: line[2])
        return done


class SharesRows(LoggedCheckpointStore):
    breaks = "C11"

    def apply(self, line: Any) -> None:
        super().apply(line)
        if line[0] == "carried":
            for node in line[3]:
                if node in self.rows.get(line[2], {}):
                    self.rows[line[1]][node] = self.rows[line[2]][node]


WRONG = [
    ForgetsAttempts,
    LosesTheLastRow,
    ShowsOnlyWhatHasRows,
    KeepsAPart,
    ForgivesAFreshNode,
    GoesOnAfterTheMark,
    ForgetsByPrefix,
    TakesSilenceForNothing,
    ForgetsWhatIsUnfinished,
    WritesNodesOneByOne,
    SharesRows,
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.breaks)
def test_the_suite_notices_a_store_that_breaks_one_guarantee(wrong: Any) -> None:
    if issubclass(wrong, LoggedCheckpointStore):
        assert broken_guarantees(TestLogged, wrong) == {wrong.breaks}
        return

    def bad() -> Any:
        return wrong(RestartGroup(), POOL.call)

    assert broken_guarantees(TestMemory, bad) == {wrong.breaks}


def test_the_suite_has_a_bad_store_for_each_guarantee() -> None:
    numbers = {name.split("_")[1] for name in dir(CheckpointContract) if name.startswith("test_C")}

    assert {wrong.breaks for wrong in WRONG} == numbers
