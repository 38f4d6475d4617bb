"""durability_matrix: what of a server outlives what, from its settings alone.

Features: DUR-05, HA-01.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from yukta_rx.config.settings import Settings


class Outlives(StrEnum):
    """What can happen to a server, from the likely to the rare."""

    PROCESS = "process_crash"
    POWER = "power_loss"
    MACHINE = "machine_loss"


_SURVIVES: Final[Mapping[StoreType, tuple[Outlives, ...]]] = {
    StoreType.MEMORY: (),
    StoreType.FILE: (Outlives.PROCESS, Outlives.POWER),
    # The database is somebody else's to keep; it is not on the machine that is lost.
    StoreType.POSTGRES: (Outlives.PROCESS, Outlives.POWER, Outlives.MACHINE),
}


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One kind of state.

    Attributes:
        item: a stable word for programs.
        what: the same for people.
        store: the type of the store that holds it; where it needs several, the weakest of them.
        settings: what decides that, the one to change first; nothing where no setting does.
        because: what that one is set to, as it would be written; empty where there is none.
        folder: where its files are.
        survives: what it outlives.
        note: what else there is to know, one or two sentences.
    """

    item: str
    what: str
    store: StoreType
    settings: tuple[str, ...]
    because: str
    folder: str | None
    survives: tuple[Outlives, ...]
    note: str

    @property
    def lost(self) -> bool:
        """Whether a restart loses it."""
        return Outlives.PROCESS not in self.survives

    def __str__(self) -> str:
        survives = ", ".join(one.replace("_", " ") for one in self.survives) or "nothing"
        return f"{self.what} ({_place(self)}) outlives {survives}"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "item": self.item,
            "what": self.what,
            "store": str(self.store),
            "settings": list(self.settings),
            "because": self.because,
            "folder": self.folder,
            "survives": [str(one) for one in self.survives],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of state, before it is known what stores there are.

    Attributes:
        item: see `MatrixRow`.
        what: see `MatrixRow`.
        switches: the stores that it needs; none where it is in memory whatever the settings say.
        lost: the note where it is in memory.
        kept: the note where it is not.
        files: what is said behind that of files.
        count: how many are kept; 0 keeps none, whatever the store.
    """

    item: str
    what: str
    switches: tuple[str, ...]
    lost: str
    kept: str
    files: str = ""
    count: str | None = None


_KINDS: Final = (
    _Kind(
        "definitions",
        "workflows with their versions",
        ("session",),
        "A folder that is applied at each start brings them back, without their versions.",
        "A version is there before its save is answered.",
    ),
    _Kind(
        "session-config",
        "sessions",
        ("session",),
        "A folder that is applied at each start brings back names and workflows only.",
        "A session and its workflows are written together.",
    ),
    _Kind(
        "history",
        "history and audit",
        ("execution-log",),
        "Nobody can say afterwards what ran or who commanded it.",
        "A start is written before its id is handed out, a command before it is answered.",
        files=" A power loss can take the newest ends of nodes, unless yukta.execution-log.fsync is"
        " set.",
    ),
    _Kind(
        "runs",
        "runs under way",
        ("execution-log",),
        "Nothing is known of them afterwards.",
        "They end ABORTED at the next start, and `recover` takes them up again if resume survives.",
    ),
    _Kind(
        "idempotency-keys",
        "idempotency keys",
        ("execution-log",),
        "A start that is repeated after a restart starts a second run.",
        "Written with the start; they expire when they would have.",
    ),
    _Kind(
        "node-outputs",
        "node outputs",
        ("restart",),
        "Up to the caps of yukta.restart.messages-per-node and bytes-per-node; what goes to"
        " yukta.restart.spill-dir is of this process alone.",
        "An end marker is durable before any child sees the completion. Without caps.",
        count="restart.retained-executions",
    ),
    _Kind(
        "resume",
        "resume and restart of runs",
        ("restart", "execution-log", "session"),
        "Needs all three stores durable: a run goes on in its session, with the workflow it ran.",
        "The last yukta.restart.retained-executions runs can be restarted, and every aborted one"
        " resumed.",
        count="restart.retained-executions",
    ),
    _Kind(
        "effects",
        "effects of ctx.once",
        ("restart",),
        "A resumed run would repeat the effect.",
        "Written before the plugin goes on.",
    ),
    _Kind(
        "queued-starts",
        "queued starts",
        ("execution-log", "session"),
        "Whoever waited has to start again. Needs both stores durable, for the saved workflow.",
        "They go on in their order; slots are counted anew.",
    ),
    _Kind(
        "approvals",
        "open approvals",
        ("restart",),
        "Somebody has to be asked again.",
        "With answers and early signals. A resumed run takes up the same request.",
    ),
    _Kind(
        "limits",
        "changed limits",
        ("execution-log",),
        "The configured ones are in force again.",
        "The last change is applied at each start and wins against the configuration.",
    ),
    _Kind(
        "results",
        "results",
        ("restart",),
        "Up to yukta.results.retained-events for each run.",
        "Of the last yukta.results.stored-runs runs that ended; durable before the run ends.",
        count="results.stored-runs",
    ),
    _Kind(
        "events",
        "events",
        ("execution-log",),
        "Who follows it learns by a `stream.reset` that something is missing.",
        "The last yukta.streaming.stored-events, no samples: who follows goes on where it was. What"
        " was not written yet is told as a gap.",
    ),
    _Kind(
        "session-memory",
        "SESSION_MEMORY histories",
        ("session-memory",),
        "Histories begin anew.",
        "A turn is written before the node goes on.",
    ),
    _Kind(
        "key-values",
        "KV_STORE entries",
        ("kv",),
        "It is empty again.",
        "An entry is written before the node goes on.",
    ),
    _Kind(
        "live-view",
        "log lines, progress snapshots, meters, browser logins",
        (),
        "Kept in memory whatever the settings say.",
        "",
    ),
)
"""Every kind of state that a server has, in the order in which it is shown."""


def durability_matrix(settings: Settings) -> tuple[MatrixRow, ...]:
    """Return what of this deployment survives what, a row for each kind of state."""
    return tuple(_rows(settings))


def _rows(settings: Settings) -> Iterator[MatrixRow]:
    types = store_types(settings)
    for kind in _KINDS:
        # The weakest decides, and the first of several that are equally weak.
        switches = sorted(kind.switches, key=lambda switch: len(_SURVIVES[types[switch]]))
        store = types[switches[0]] if switches else StoreType.MEMORY
        deciding = [(f"yukta.{switch}.store-type", str(types[switch])) for switch in switches]
        survives, note = _SURVIVES[store], kind.kept if _SURVIVES[store] else kind.lost
        if store is StoreType.FILE:
            note += kind.files
        if survives and kind.count is not None and not _value(settings, kind.count):
            deciding.insert(0, (f"yukta.{kind.count}", "0"))
            survives, note = (), f"yukta.{kind.count} = 0 keeps none."
        yield MatrixRow(
            item=kind.item,
            what=kind.what,
            store=store,
            settings=tuple(name for name, _ in deciding),
            because=" = ".join(deciding[0]) if deciding else "",
            folder=_folder(settings, switches[0]) if store is StoreType.FILE else None,
            survives=survives,
            note=note,
        )


def _value(settings: Settings, name: str) -> int:
    group, _, member = name.replace("-", "_").partition(".")
    found: int = getattr(getattr(settings, group), member)
    return found


def _folder(settings: Settings, switch: str) -> str | None:
    folder: Path | None = getattr(settings, switch.replace("-", "_")).dir
    return None if folder is None else str(folder)


def summary(settings: Settings, applied_from: str | None = None) -> Iterator[str]:
    """Yield lines that say in words what a restart keeps and what it loses.

    Args:
        settings: the settings in force.
        applied_from: the folder whose workflows are applied at each start, if any.
    """
    rows = durability_matrix(settings)
    if kept := [row for row in rows if not row.lost]:
        yield "a restart keeps:"
        for place, told in _grouped(kept, _place):
            yield f"  - {told} ({place})"
    yield "a restart loses:"
    lost = [row for row in rows if row.lost]
    for because, told in _grouped(lost, lambda row: row.because):
        decided = f" ({because})" if because else ""
        comes_back = applied_from is not None and because.startswith("yukta.session.")
        again = f"; the workflows in {applied_from} are applied again" if comes_back else ""
        yield f"  - {told}{decided}{again}"


def _place(row: MatrixRow) -> str:
    return f"{row.store}: {row.folder}" if row.folder else str(row.store)


def _grouped(
    rows: Iterable[MatrixRow], key: Callable[[MatrixRow], str]
) -> Iterator[tuple[str, str]]:
    """Yield each key with what is said of its rows, in the order of their first ones."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row.what)
    for one, told in found.items():
        yield one, ", ".join(told)
