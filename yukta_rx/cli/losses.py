"""What a restart of a server loses, and what it keeps, from the settings.  Feature: HA-01."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from yukta_rx.config.settings import Settings

_HELD: Final[Mapping[str, str]] = {
    "session": "sessions and workflows",
    "execution-log": "the history of runs, the audit, idempotency keys",
    "restart": "what nodes emitted, so no run can be resumed",
    "kv": "what KV_STORE holds",
    "session-memory": "what SESSION_MEMORY holds",
}
"""What each store that has a switch of its own holds, in the order of the switches."""

_IN_MEMORY: Final = "runs under way, results, log lines, the event feed"
"""What no store keeps, whatever the settings say."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of state.

    Attributes:
        what: in words.
        where: the setting that decides, or None where none does.
        store: the type of its store.
    """

    what: str
    where: str | None
    store: StoreType

    @property
    def lost(self) -> bool:
        """Whether a restart loses it."""
        return self.store is StoreType.MEMORY

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"what": self.what, "setting": self.where, "store": str(self.store)}


def kinds_of_state(settings: Settings) -> Iterator[Kept]:
    """Yield every kind of state and where it is."""
    for store, kind in store_types(settings).items():
        yield Kept(_HELD[store], f"yukta.{store}.store-type", kind)
    yield Kept(_IN_MEMORY, None, StoreType.MEMORY)


def said(settings: Settings, applied_from: str | None) -> Iterator[str]:
    """Yield lines for the start of a server.

    Args:
        settings: the settings in force.
        applied_from: the folder whose workflows are applied at each start, if any.
    """
    states = list(kinds_of_state(settings))
    yield "a restart loses:"
    for state in states:
        if state.lost:
            setting = f" ({state.where} = {state.store})" if state.where else ""
            comes_back = applied_from is not None and state.where == "yukta.session.store-type"
            again = f"; those in {applied_from} are applied again" if comes_back else ""
            yield f"  - {state.what}{setting}{again}"
    kept = [f"{state.what} ({state.store})" for state in states if not state.lost]
    if kept:
        yield f"it keeps: {'; '.join(kept)}"
