"""Index: where the rows of each node are in the files, and how much of each file is in use.

Feature: DUR-02.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from yukta_rx.durability.file._checkpoint_lines import (
    CLEAR,
    DONE,
    INCOMPLETE,
    ROW,
    Head,
    about,
    about_node,
    head_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where a line is."""

    segment: int
    start: int
    size: int


class Segment:
    """One file."""

    __slots__ = ("live", "number", "runs", "size")

    def __init__(self, number: int, size: int = 0) -> None:
        self.number = number
        self.size = size
        self.live = 0
        """Bytes of lines that are needed."""
        self.runs: set[Run] = set()
        """Runs of which there are lines, needed or not."""


class Run:
    """What is known of a run; after `clear` only where its lines still are."""

    __slots__ = ("about", "again", "cleared", "gone", "id", "outputs", "segments")

    def __init__(self, run_id: str, again: int) -> None:
        self.id = run_id
        self.again = again
        self.about = about(run_id, again)
        self.outputs: dict[str, Output] = {}
        self.segments: set[int] = set()
        self.gone = False
        self.cleared: Place | None = None
        """The line that says so; needed as long as other files have lines of the run."""


class Output:
    """What is known of a node's output."""

    __slots__ = (
        "about",
        "complete",
        "end",
        "ending",
        "inputs",
        "last",
        "messages",
        "node_id",
        "pending",
        "places",
        "reason",
        "run",
        "taken",
    )

    def __init__(self, run: Run, node_id: str) -> None:
        self.run = run
        self.node_id = node_id
        self.about = about_node(run.about, node_id)
        self.places = array("Q")
        """Segment, start and size of each row that is durable, one after the other."""
        self.taken = 0
        """Rows that were taken over, durable or not."""
        self.messages = 0
        self.inputs = 0
        self.complete = False
        self.reason: str | None = None
        self.end: Place | None = None
        """The end marker that has no row, or the line that gives the output up."""
        self.pending = 0
        """Lines that are on their way."""
        self.last: Any = None
        """The one that was handed over last."""
        self.ending: Any = None
        """The end marker on its way."""

    @property
    def rows(self) -> int:
        """Rows that are durable."""
        return len(self.places) // 3

    @property
    def dead(self) -> bool:
        """Whether its rows are not wanted any more."""
        return self.run.gone or self.reason is not None

    def place(self, nth: int) -> Place:
        """Where a row is."""
        return Place(*self.places[3 * nth : 3 * nth + 3])

    def from_row(self, nth: int, rows: int, size: int) -> list[Place]:
        """Where rows from one on are, one at least, as long as they have no more bytes."""
        places = [self.place(nth)]
        total = places[0].size
        for following in range(nth + 1, rows):
            place = self.place(following)
            total += place.size
            if total > size:
                break
            places.append(place)
        return places

    def lines(self) -> Iterator[tuple[int, Place]]:
        """Every line that is needed: number of the row, or -1 for one without a row."""
        for nth in range(self.rows):
            yield nth, self.place(nth)
        if self.end is not None:
            yield -1, self.end

    def lines_in(self, number: int) -> Iterator[tuple[int, Place]]:
        """Those of one file; rows may be released meanwhile."""
        for nth, segment in enumerate(self.places[::3]):
            if segment == number and nth < self.rows:
                yield nth, self.place(nth)
        if self.end is not None and self.end.segment == number:
            yield -1, self.end


class Index:
    """All runs and files. Lives on the loop; filled in a thread before anybody else has it."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.segments: dict[int, Segment] = {}
        self.cleared: dict[str, list[Run]] = {}
        """Runs that are gone, but not all files with lines of them."""

    def output(self, run_id: str, node_id: str) -> Output:
        """The output of a node, made if it is not known."""
        run = self.runs.get(run_id)
        if run is None:
            earlier = self.cleared.get(run_id)
            run = Run(run_id, max(one.again for one in earlier) + 1 if earlier else 0)
            self.runs[run_id] = run
        output = run.outputs.get(node_id)
        if output is None:
            output = run.outputs[node_id] = Output(run, node_id)
        return output

    def find(self, run_id: str, node_id: str) -> Output | None:
        """The output of a node, if it is known."""
        run = self.runs.get(run_id)
        return None if run is None else run.outputs.get(node_id)

    # -- what is where

    def segment(self, number: int) -> Segment:
        """A file, made if it is not known."""
        found = self.segments.get(number)
        if found is None:
            found = self.segments[number] = Segment(number)
        return found

    def seen(self, run: Run, number: int) -> None:
        """There is a line of a run in a file."""
        if number not in run.segments:
            run.segments.add(number)
            self.segment(number).runs.add(run)

    def keep_row(self, output: Output, place: Place, messages: int, inputs: int) -> None:
        """The next row of a node is durable."""
        output.places.extend(place)
        output.messages += messages
        output.inputs += inputs
        self.segments[place.segment].live += place.size

    def keep_end(self, output: Output, place: Place) -> None:
        """A line of a node without a row is durable, and needed."""
        output.end = place
        self.segments[place.segment].live += place.size

    def move(self, output: Output, nth: int, place: Place) -> None:
        """A copy of a line is durable and takes its place."""
        old = output.end if nth < 0 else output.place(nth)
        assert old is not None
        self.segments[old.segment].live -= old.size
        self.segments[place.segment].live += place.size
        if nth < 0:
            output.end = place
        else:
            output.places[3 * nth : 3 * nth + 3] = array("Q", place)

    def release(self, output: Output) -> None:
        """The lines of a node are not needed any more."""
        for _, place in output.lines():
            self.segments[place.segment].live -= place.size
        output.places = array("Q")
        output.end = None
        output.messages = output.inputs = 0

    def forget(self, run: Run) -> None:
        """A run is gone; its lines may still be there."""
        run.gone = True
        for output in run.outputs.values():
            self.release(output)
        if self.runs.get(run.id) is run:
            del self.runs[run.id]
        if run.segments or any(output.pending for output in run.outputs.values()):
            self.cleared.setdefault(run.id, []).append(run)

    def keep_cleared(self, run: Run, place: Place) -> None:
        """The line that a run is gone is durable; it is needed while lines elsewhere are."""
        if run.cleared is not None:
            self.segments[run.cleared.segment].live -= run.cleared.size
        run.cleared = place
        self.segments[place.segment].live += place.size
        self.settle(run)

    def settle(self, run: Run) -> None:
        """Let go of the line that a run is gone, and of the run, if no other file needs it."""
        place = run.cleared
        if place is None or run.segments - {place.segment}:
            return
        self.segments[place.segment].live -= place.size
        run.cleared = None
        self.segments[place.segment].runs.discard(run)
        run.segments.clear()
        others = [one for one in self.cleared.get(run.id, ()) if one is not run]
        if others:
            self.cleared[run.id] = others
        else:
            self.cleared.pop(run.id, None)

    def removed(self, number: int) -> None:
        """A file is not there any more."""
        segment = self.segments.pop(number)
        for run in segment.runs:
            run.segments.discard(number)
            if run.gone:
                self.settle(run)


class Rebuilding:
    """Fills an index with the lines of files, in any order that copies may have put them in."""

    def __init__(self) -> None:
        self.index = Index()
        self._runs: dict[tuple[str, int], Run] = {}
        self._strays: dict[Output, dict[int, tuple[tuple[int, int, int], int, int]]] = {}
        self._rows_at_end: dict[Output, int] = {}
        self.damaged: dict[Output, None] = {}
        """Outputs of which a line cannot be read, or is missing."""
        self._unnamed = 0

    def sized(self, number: int, size: int) -> None:
        """How long a file is."""
        self.index.segment(number).size = size

    def take(self, number: int, start: int, size: int, head: Head) -> None:
        """A line that is intact."""
        run = self._runs.get((head.run, head.again))
        if run is None:
            run = self._runs[head.run, head.again] = Run(head.run, head.again)
        if number not in run.segments:
            self.index.seen(run, number)
        if head.kind == CLEAR:
            run.gone = True
            run.cleared = Place(number, start, size)
            return
        output = run.outputs.get(head.node)
        if output is None:
            output = run.outputs[head.node] = Output(run, head.node)
        if head.kind == ROW:
            self._row(output, (number, start, size), head)
        elif head.kind == DONE:
            with_row = head.n >= 0
            self._rows_at_end[output] = head.nth + with_row
            if with_row:
                self._row(output, (number, start, size), head)
            elif output.end is None:
                output.end = Place(number, start, size)
        elif head.kind == INCOMPLETE:
            output.reason = head.reason
            output.end = Place(number, start, size)
        else:
            log.warning("a line of kind %s in file %d is not known", head.kind, number)

    def _row(self, output: Output, place: tuple[int, int, int], head: Head) -> None:
        if head.nth == output.taken:
            output.places.extend(place)
            output.taken += 1
            output.messages += head.n
            output.inputs += head.inputs
        elif head.nth > output.taken:
            # Of a copy and an original that was not removed any more, one is enough.
            self._strays.setdefault(output, {})[head.nth] = (place, head.n, head.inputs)

    def hurt(self, number: int, start: int, line: bytes) -> None:
        """A line that cannot be read; where it does not say whose it is, it may be anybody's."""
        head = head_of(line)
        run = self._runs.get((head.run, head.again)) if head is not None else None
        if head is None or run is None:
            self._unnamed += 1
            return
        self.index.seen(run, number)
        output = run.outputs.get(head.node)
        if output is None:
            output = run.outputs[head.node] = Output(run, head.node)
        self.damaged[output] = None

    def finish(self) -> Index:
        """The index, once all lines were given."""
        index = self.index
        self._place_strays()
        for output, rows in self._rows_at_end.items():
            if rows != output.taken:
                self.damaged[output] = None
            output.complete = output.reason is None
        latest: dict[str, Run] = {}
        for run in sorted(self._runs.values(), key=lambda run: run.again):
            if not run.gone:
                latest[run.id] = run
        for run in self._runs.values():
            if latest.get(run.id) is run:
                self._alive(run)
            else:
                run.gone = True
                run.outputs = {}
                index.cleared.setdefault(run.id, []).append(run)
                if run.cleared is not None:
                    index.segments[run.cleared.segment].live += run.cleared.size
                    index.settle(run)
        self.damaged = {one: None for one in self.damaged if not one.dead}
        return index

    def _place_strays(self) -> None:
        """Put rows in order that came before those they follow."""
        for output, strays in self._strays.items():
            while (row := strays.pop(output.taken, None)) is not None:
                place, messages, inputs = row
                output.places.extend(place)
                output.taken += 1
                output.messages += messages
                output.inputs += inputs
            if any(nth > output.taken for nth in strays):
                self.damaged[output] = None

    def _alive(self, run: Run) -> None:
        segments = self.index.segments
        self.index.runs[run.id] = run
        for output in run.outputs.values():
            if self._unnamed and not output.complete:
                self.damaged[output] = None
            if output.reason is not None:
                output.places = array("Q")
                output.messages = output.inputs = 0
            for segment, size in zip(output.places[::3], output.places[2::3], strict=True):
                segments[segment].live += size
            if output.end is not None:
                segments[output.end.segment].live += output.end.size
