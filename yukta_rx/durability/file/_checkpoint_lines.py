"""Lines of the checkpoint log: a check sum, what the line says of which node, then the row.

The row comes last and is copied as text: to find out what there is, nobody reads it.

Feature: DUR-02.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT: Final = 1
"""Version of the lines, said at the beginning of each file."""

ROW: Final = "row"
DONE: Final = "done"
INCOMPLETE: Final = "incomplete"
CLEAR: Final = "clear"
GROUP: Final = "group"
SEGMENT: Final = "segment"

_SUMMED: Final = len(b'{"crc":"00000000",')
_BODY: Final = b',"row":'


class Head(msgspec.Struct, frozen=True, gc=False):
    """What a line says, without the row.

    Attributes:
        kind: `row`, `done` (also with a row), `incomplete`, `clear`; `group`: all before it was
            durable when it was written; `segment`: the first line of a file.
        run: id of the run.
        again: how often the id had been used and cleared before.
        node: id of the node.
        nth: rows of the node before this one.
        n: messages in the row; negative in a line without one.
        inputs: inputs that are finished in the row.
        blobs: hashes of payloads that the row refers to.
        reason: why the output is incomplete for good.
        format: of the lines in the file.
        after: number and size of the file before this one.
    """

    kind: str
    run: str = ""
    again: int = 0
    node: str = ""
    nth: int = 0
    n: int = -1
    inputs: int = 0
    blobs: tuple[str, ...] = ()
    reason: str = ""
    format: int = FORMAT
    after: tuple[int, int] | None = None


_read_head = msgspec.json.Decoder(Head).decode
_quoted = msgspec.json.encode


def sealed(rest: bytes) -> bytes:
    """A line with its check sum and its newline, of all that follows the sum."""
    return b'{"crc":"%08x",%b\n' % (crc32(rest), rest)


def about(run: str, again: int) -> bytes:
    """The members that name a run."""
    if again:
        return b'"run":%b,"again":%d' % (_quoted(run), again)
    return b'"run":%b' % _quoted(run)


def about_node(of_run: bytes, node: str) -> bytes:
    """The members that name a node of a run."""
    return b'%b,"node":%b' % (of_run, _quoted(node))


def row_line(
    of_node: bytes,
    nth: int,
    sizes: tuple[int, int],
    body: bytes,
    *,
    done: bool = False,
    blobs: Sequence[str] = (),
) -> bytes:
    """The line of a row with so many messages and inputs; with `done` the end marker as well."""
    kind = b"done" if done else b"row"
    refers = b',"blobs":%b' % _quoted(blobs) if blobs else b""
    return sealed(
        b'"kind":"%b",%b,"nth":%d,"n":%d,"inputs":%d%b,"row":%b}'
        % (kind, of_node, nth, sizes[0], sizes[1], refers, body)
    )


def done_line(of_node: bytes, rows: int) -> bytes:
    """The end marker of a node with so many rows."""
    return sealed(b'"kind":"done",%b,"nth":%d}' % (of_node, rows))


def incomplete_line(of_node: bytes, reason: str) -> bytes:
    """A node's output is given up."""
    return sealed(b'"kind":"incomplete",%b,"reason":%b}' % (of_node, _quoted(reason)))


def clear_line(of_run: bytes) -> bytes:
    """A run is forgotten."""
    return sealed(b'"kind":"clear",%b}' % of_run)


def segment_line(after: tuple[int, int] | None) -> bytes:
    """The first line of a file that follows another one of a known size."""
    return sealed(b'"kind":"segment","format":%d,"after":%b}' % (FORMAT, _quoted(after)))


GROUP_LINE: Final = sealed(b'"kind":"group"}')


def intact(line: bytes) -> bool:
    """Whether a line, without its newline, is as it was written."""
    return line[8:16] == b"%08x" % crc32(memoryview(line)[_SUMMED:])


def head_of(line: bytes) -> Head | None:
    """What a line says; None if that cannot be read. See `intact`."""
    end = line.find(_BODY)
    try:
        return _read_head(line if end < 0 else line[:end] + b"}")
    except msgspec.DecodeError:
        return None


def body_of(line: bytes) -> bytes | None:
    """The row in a line without its newline; None if there is none."""
    start = line.find(_BODY)
    return None if start < 0 else line[start + len(_BODY) : -1]
