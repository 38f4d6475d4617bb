"""State in memory with a journal of its changes: reopened, torn, damaged, full, made smaller."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.durability.file import effects, histories, key_values
from yukta_rx.durability.file._operations import ROOM, Turns
from yukta_rx.durability.file.effects import FileEffectStore
from yukta_rx.durability.file.histories import FileHistoryStore
from yukta_rx.durability.file.key_values import FileKeyValueStore
from yukta_rx.durability.memory.effects import EffectTable
from yukta_rx.durability.stores.effects import EffectKey
from yukta_rx.durability.stores.histories import HistoryKey, Turn
from yukta_rx.errors import StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.feature("DUR-02", "DUR-04")

NOON = datetime(2026, 3, 1, 12, 0, 0, 125_000, tzinfo=UTC)
CHAT = HistoryKey("s", "chat")


def effect(name: str, lineage: str = "line") -> EffectKey:
    return EffectKey(lineage, "n", "m\n", name)


def turn(text: str, seconds: float = 0) -> Turn:
    return Turn("user", text, NOON + timedelta(seconds=seconds))


class Kind:
    """A store: its file, some changes, and all that it shows."""

    def __init__(self, module: Any, store: Any) -> None:
        self.store = store
        self.file = module.FILE

    def path(self, folder: Path) -> Path:
        return folder / self.file

    async def changes(self, store: Any) -> list[Any]:
        """Make changes of every kind; what the store shows before the first and after each."""
        shown = [self.show(store)]
        for change in self.steps(store):
            await change()
            shown.append(self.show(store))
        return shown


class Effects(Kind):
    def __init__(self) -> None:
        super().__init__(effects, FileEffectStore)

    def steps(self, store: Any) -> list[Any]:
        return [
            lambda: store.record(effect("a"), b'{"a": [1, "\\u0000"]}'),
            lambda: store.record(effect("b", "other"), '"ä"'.encode()),
            lambda: store.record(effect("c"), b"null"),
            lambda: store.forget("line"),
            lambda: store.record(effect("d"), b'" "'),
        ]

    def show(self, store: Any) -> Any:
        return store._table.items()


class KeyValues(Kind):
    def __init__(self) -> None:
        super().__init__(key_values, FileKeyValueStore)

    def steps(self, store: Any) -> list[Any]:
        return [
            lambda: store.put("s", "k", {"a": (1, "\0", b"x")}, cap=9),
            lambda: store.incr("s", "n", 5, cap=9, effect=effect("a")),
            lambda: store.put("t", "k", 1.0, cap=9, effect=effect("b")),
            lambda: store.incr("s", "n", 5, cap=9),
            lambda: store.remove("s", "k", effect=effect("c", "other")),
            lambda: store.remove("s", "never", effect=effect("d", "other")),
            lambda: store.put("t", "l", 2, cap=9),
            lambda: store.remove("t", "k"),
            lambda: store.forget("line"),
            lambda: store.clear("t"),
            lambda: store.put("u", "last", 3, cap=9, effect=effect("e")),
        ]

    def show(self, store: Any) -> Any:
        values = {name: dict(values) for name, values in store._sessions.items()}
        return values, store._effects.items()


class Histories(Kind):
    def __init__(self) -> None:
        super().__init__(histories, FileHistoryStore)

    def steps(self, store: Any) -> list[Any]:
        other, third = HistoryKey("s", "other"), HistoryKey("t", "chat")
        return [
            lambda: store.append(CHAT, turn("1\n"), 9),
            lambda: store.append(CHAT, turn("2"), 9, effect=effect("a")),
            lambda: store.append(CHAT, turn("3"), 2),
            lambda: store.append(other, turn("4", 5), 9),
            lambda: store.append(third, turn("5", 50), 9, effect=effect("b", "other")),
            lambda: store.sweep(NOON + timedelta(seconds=1)),
            lambda: store.append(third, turn("6", 90), 9, NOON + timedelta(seconds=60)),
            lambda: store.clear(other, effect("c")),
            lambda: store.append(other, turn("7"), 9),
            lambda: store.forget("line"),
            lambda: store.drop("t"),
            lambda: store.append(CHAT, turn("8"), 9, effect=effect("d")),
        ]

    def show(self, store: Any) -> Any:
        turns = {key: list(turns) for key, turns in store._histories.items()}
        return turns, store._effects.items()


KINDS = [Effects(), KeyValues(), Histories()]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.file)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


async def found(kind: Kind, folder: Path) -> Any:
    """What a new server finds."""
    async with kind.store(folder) as store:
        return kind.show(store)


async def test_every_change_is_found_again(kind: Kind, tmp_path: Path) -> None:
    async with kind.store(tmp_path) as store:
        shown = await kind.changes(store)

    assert len({repr(one) for one in shown}) == len(shown)
    assert await found(kind, tmp_path) == shown[-1]
    assert await found(kind, tmp_path) == shown[-1]


async def test_each_change_is_durable_when_it_returns(kind: Kind, tmp_path: Path) -> None:
    # What is in the file at that moment is what another process finds.
    copies = tmp_path / "copies"
    async with kind.store(tmp_path / "live") as store:
        for number, change in enumerate(kind.steps(store)):
            await change()
            (copies / str(number)).mkdir(parents=True)
            data = kind.path(tmp_path / "live").read_bytes()
            kind.path(copies / str(number)).write_bytes(data)

            assert await found(kind, copies / str(number)) == kind.show(store)


async def test_of_a_write_that_was_cut_off_there_is_all_or_nothing(
    kind: Kind, tmp_path: Path
) -> None:
    async with kind.store(tmp_path / "whole") as store:
        shown = await kind.changes(store)
    data = kind.path(tmp_path / "whole").read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(data) + 1):
        folder = tmp_path / str(size)
        folder.mkdir()
        kind.path(folder).write_bytes(data[:size])

        async with kind.store(folder) as store:
            assert kind.show(store) == shown[-1 if size == len(data) else -2], size
            # And it goes on from there.
            await kind.steps(store)[-1]()
        assert await found(kind, folder) == shown[-1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"not json", "line 3 cannot be read"),
        (b'{"op":"else"}', "line 3 cannot be read"),
        (b'{"op":"begin","kind":"x","version":1}', "line 3"),
    ],
)
async def test_a_line_that_is_none_of_its_own_is_named(
    kind: Kind, tmp_path: Path, line: bytes, told: str
) -> None:
    async with kind.store(tmp_path) as store:
        await kind.changes(store)
    first, second, _, *rest = kind.path(tmp_path).read_bytes().split(b"\n")
    kind.path(tmp_path).write_bytes(b"\n".join([first, second, line, *rest]))

    with pytest.raises(StoreUnavailableError, match=told) as caught:
        await found(kind, tmp_path)

    assert str(kind.path(tmp_path)) in caught.value.detail


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ('{"op":"begin","kind":"else","version":1}', "is of else"),
        ('{"op":"begin","kind":"%s","version":2}', "form 2"),
        ('{"op":"forget","lineage":"x"}', "does not say what this file is"),
    ],
)
async def test_a_file_of_something_else_is_refused(
    kind: Kind, tmp_path: Path, first: str, told: str
) -> None:
    text = first.replace("%s", kind.file.removesuffix(".jsonl"))
    kind.path(tmp_path).write_text(f"{text}\n")

    with pytest.raises(StoreUnavailableError, match=told):
        await found(kind, tmp_path)

    assert kind.path(tmp_path).read_text() == f"{text}\n"


async def test_a_folder_that_cannot_be_is_named(kind: Kind, tmp_path: Path) -> None:
    # Below a file: for root, too, nothing can be made there.
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailableError, match=r"file/below.*Not a directory"):
        await found(kind, tmp_path / "file" / "below")


def test_a_full_disk_changes_nothing_and_then_it_goes_on(kind: Kind, tmp_path: Path) -> None:
    # In a process of its own: the limit is for all its files.
    program = """
        import asyncio, resource, signal, sys
        from pathlib import Path
        from tests.durability.test_file_state import KINDS
        from yukta_rx.errors import StoreUnavailableError

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        async def main():
            folder, kind = Path(sys.argv[1]), KINDS[int(sys.argv[2])]
            async with kind.store(folder) as store:
                *first, last = kind.steps(store)
                for change in first:
                    await change()
                before = kind.show(store)
                size = kind.path(folder).stat().st_size
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, resource.RLIM_INFINITY))
                try:
                    await last()
                except StoreUnavailableError as error:
                    print(error.detail.removeprefix(str(kind.path(folder))))
                print(kind.show(store) == before, kind.path(folder).stat().st_size == size)
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
                await last()
                after = kind.show(store)
            async with kind.store(folder) as store:
                print(kind.show(store) == after != before)

        asyncio.run(main())
    """

    said = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(program),
            str(tmp_path),
            str(KINDS.index(kind)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )

    assert said.stdout.splitlines() == [
        ": cannot be written: File too large",
        "True True",
        "True",
    ]


async def test_a_change_whose_caller_is_cancelled_is_made_and_the_next_sees_it(
    tmp_path: Path,
) -> None:
    async with FileKeyValueStore(tmp_path) as store:
        await store.put("s", "n", 1, cap=9)
        first = asyncio.ensure_future(store.incr("s", "n", 1, cap=9))
        second = asyncio.ensure_future(store.incr("s", "n", 1, cap=9))
        await asyncio.sleep(0)
        first.cancel()

        assert await second == 3
        with pytest.raises(asyncio.CancelledError):
            await first
        assert len(store._turns._locks) == 0
    async with FileKeyValueStore(tmp_path) as store:
        assert (await store.get("s", "n")).value == 3


async def test_a_turn_that_is_given_up_holds_up_nobody() -> None:
    turns = Turns()
    async with turns.of("a"):
        waiting = asyncio.ensure_future(turns.of("a").__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        async with turns.of("b"):
            pass
        await asyncio.wait((waiting,))
    async with asyncio.timeout(5), turns.of("a"):
        pass

    assert turns._locks == {}


@pytest.mark.slow
async def test_what_is_not_needed_any_more_goes(tmp_path: Path) -> None:
    path = tmp_path / key_values.FILE
    async with FileKeyValueStore(tmp_path) as store:
        await store.put("gone", "k", 1, cap=9)
        await store.clear("gone")
        await store.incr("s", "0", 1, cap=1000, effect=effect("a", "old"))
        await store.forget("old")
        await store.incr("s", "0", 1, cap=1000, effect=effect("b"))
        for _ in range(ROOM // 100 + 1):
            await asyncio.gather(*(store.incr("s", str(key), 1, cap=1000) for key in range(100)))
        await store._log._tasks.ended()
        shown = KINDS[1].show(store)

    assert path.read_bytes().count(b"\n") < ROOM / 10
    assert await found(KINDS[1], tmp_path) == shown
    assert [len(values) for values in shown[0].values()] == [100]
    assert [key.name for key, _ in shown[1]] == ["b"]


async def test_a_file_with_much_that_is_not_needed_is_made_smaller_when_it_is_opened(
    tmp_path: Path,
) -> None:
    lines = ['{"op":"begin","kind":"key-values","version":1}']
    lines += [f'{{"op":"put","session":"s","key":"k","value":{n}}}' for n in range(3 * ROOM)]
    (tmp_path / key_values.FILE).write_text("\n".join(lines) + "\n")

    async with FileKeyValueStore(tmp_path) as store:
        assert (await store.get("s", "k")).value == 3 * ROOM - 1
        assert len((tmp_path / key_values.FILE).read_text().splitlines()) == 2


async def test_what_a_full_table_forgets_is_forgotten_when_it_is_read_too(tmp_path: Path) -> None:
    async with FileEffectStore(tmp_path, EffectTable(kept=10)) as store:
        for number in range(25):
            await store.record(effect(str(number)), b"1")
        kept = [key.name for key, _ in store._table.items()]
        assert store.dropped == 15
    async with FileEffectStore(tmp_path, EffectTable(kept=10)) as store:
        assert [key.name for key, _ in store._table.items()] == kept
