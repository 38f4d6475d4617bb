"""Hold: a run that may emit nothing, since those who take down what it says are behind.

None of its edges has credit until it is let go. So every node waits as it would for a slow child,
whatever kind it is; those without children work off what waits in front of them.

Feature: OBS-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from yukta_rx.streams.circuit import Circuit
    from yukta_rx.streams.edge import Edge

_WITHHELD: Final = 1 << 50
"""Credit that is taken from each edge."""

_OF_RECORDING: Final = 1 << 60
"""What a recorder takes beside it, see `yukta_rx.engine.recording`."""


class Hold:
    """Holds the edges of a circuit, from its start on if it has not begun.

    Several may hold it, each once; it goes on when all have let go.
    """

    __slots__ = ("_circuit", "_edges", "_holders")

    def __init__(self) -> None:
        self._holders = 0
        self._circuit: Circuit | None = None
        self._edges: list[Edge] = []

    @property
    def held(self) -> bool:
        """Whether anybody holds it."""
        return self._holders > 0

    def begin(self, circuit: Circuit) -> None:
        """The circuit has started."""
        self._circuit = circuit
        if self._holders:
            self._withhold(circuit)

    def set(self, on: bool) -> None:
        """Hold, or let go."""
        before = self._holders
        self._holders += 1 if on else -1
        if self._circuit is None or (before and self._holders):
            return
        if on:
            self._withhold(self._circuit)
            return
        for edge in self._edges:
            edge.credit += _WITHHELD
            if not edge.src.ended:
                edge.src.wake()
        self._edges = []

    def _withhold(self, circuit: Circuit) -> None:
        self._edges = list(circuit.edges)
        for edge in self._edges:
            edge.credit -= _WITHHELD


def is_held(edge: Edge) -> bool:
    """Whether an edge has no credit because its run is held."""
    credit = edge.credit
    if credit < -_OF_RECORDING // 2:
        credit += _OF_RECORDING
    return credit < -_WITHHELD // 2
