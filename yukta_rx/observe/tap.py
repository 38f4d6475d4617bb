"""TapReader: a sample of the messages of one edge, for one reader, while that reads.

At most so many messages a second are shown, so a slow edge is seen whole and a fast one in part;
how many were passed over is told with the next one that is shown. What is shown is made at once,
because a plugin may change the payload a moment later. The work for one message is bounded,
whatever its size.

Features: OBS-01, SEC-02.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.errors import UnserialisablePayloadError
from yukta_rx.model.claim import Claim
from yukta_rx.model.codec import dumps_plain, loads_external
from yukta_rx.model.preview import preview
from yukta_rx.model.times import rfc3339
from yukta_rx.model.weight import weigh
from yukta_rx.observe.frames import Frame
from yukta_rx.observe.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from yukta_rx.model.message import Message
    from yukta_rx.security.masking import Masker
    from yukta_rx.streams.clock import LoopClock, Timer

LOOK: Final = 0.25
"""Seconds between two looks at whether the edge is there already, and whether it still is."""

UNREAD: Final = 100
"""Messages that wait for the reader at most; more are passed over."""

_LARGE: Final = 16
"""A value of more than so many times the bytes to show is not written out to be cut."""

_SECRET: Final = 4096
"""Characters at the end of a text that was cut before masking: part of a secret may stand there."""

_SPARE: Final = 64
"""A preview is cut at its length, or a few characters before it."""


class TapSource(Protocol):
    """An edge whose messages can be seen."""

    @property
    def over(self) -> bool:
        """Whether nothing can come any more."""

    def attach(self, seen: Callable[[Sequence[Message]], None]) -> bool:
        """Have each batch shown to `seen`; False if it is too early for that."""

    def detach(self) -> None:
        """Undo `attach`."""


class TapReader(Reader[dict[str, Any]]):
    """Reads an edge: `tap.message` for each message that is shown, `tap.end` when it is over.

    Args:
        source: the edge.
        clock: the loop's time.
        masker: knows the secrets that are in use.
        max_per_sec: messages that are shown per second.
        max_bytes: bytes of a payload, and of headers, that are shown; longer ones are cut.
        gone: called once, when the reader is closed.
    """

    __slots__ = (
        "_attached",
        "_clock",
        "_ended",
        "_gone",
        "_masker",
        "_max_bytes",
        "_rate",
        "_skipped",
        "_source",
        "_timer",
        "_times",
        "_unread",
    )

    def __init__(
        self,
        source: TapSource,
        clock: LoopClock,
        masker: Masker,
        *,
        max_per_sec: int,
        max_bytes: int,
        gone: Callable[[], None],
    ) -> None:
        super().__init__()
        self._source = source
        self._clock = clock
        self._masker = masker
        self._rate = max_per_sec
        self._max_bytes = max_bytes
        self._gone = gone
        self._times: deque[float] = deque()
        """When messages were shown within the last second."""
        self._skipped = 0
        self._ended = False
        self._unread: deque[Frame] = deque()
        self._attached = source.attach(self._see)
        self._timer: Timer = self._next_look()

    # -- the edge

    def _see(self, messages: Sequence[Message]) -> None:
        now = self._clock.now()
        times = self._times
        while times and now - times[0] >= 1:
            times.popleft()
        count = min(len(messages), self._rate - len(times), UNREAD - len(self._unread))
        times.extend([now] * count)
        for msg in messages[:count]:
            self._unread.append(self._shown(msg))
            self._skipped = 0
        self._skipped += len(messages) - count
        if count:
            self.wake()

    def _shown(self, msg: Message) -> Frame:
        payload, cut_payload = self._cut(msg.payload)
        headers, cut_headers = self._cut(dict(msg.headers))
        about = {
            "time": rfc3339(self._clock.wall()),
            "messageId": msg.id,
            "truncated": cut_payload or cut_headers,
            "skipped": self._skipped,
        }
        parts = (dumps_plain(about)[:-1], b',"payload":', payload, b',"headers":', headers, b"}")
        return Frame("tap.message", b"".join(parts))

    def _cut(self, value: Any) -> tuple[bytes, bool]:
        """The JSON of a masked value, or the beginning of that as a text, and whether it is so."""
        if type(value) is Claim:
            # What goes over the edge is what stands for the payload.
            return dumps_plain(value), True
        most = self._max_bytes
        if weigh(value) <= _LARGE * most:
            with suppress(UnserialisablePayloadError):
                data = dumps_plain(self._masker.mask_json(value))
                return (data, False) if len(data) <= most else (_text(data[:most]), True)
        longest = most + _SECRET
        text = preview(value, longest + _SPARE)
        masked = self._masker.mask(text)
        if len(text) >= longest:
            masked = masked[:-_SECRET]
        # Half a surrogate pair has no bytes.
        data = masked.encode("utf-8", "backslashreplace")
        return _text(data[:most]), True

    def _next_look(self) -> Timer:
        return self._clock.call_at(self._clock.now() + LOOK, self._look)

    def _look(self) -> None:
        if not self._attached:
            self._attached = self._source.attach(self._see)
        if self._source.over:
            self._unread.append(Frame.of("tap.end", {"skipped": self._skipped}))
            self._ended = True
            self.wake()
        else:
            self._timer = self._next_look()

    # -- reading

    def _pull(self, limit: int) -> list[Frame]:
        return [self._unread.popleft() for _ in range(min(limit, len(self._unread)))]

    def _over(self) -> bool:
        return self._ended

    def _item(self, kept: Frame) -> dict[str, Any]:
        return {"type": kept.type, **loads_external(kept.data)}

    def _frame(self, kept: Frame) -> Frame:
        return kept

    def _let_go(self) -> None:
        self._timer.cancel()
        self._source.detach()
        self._gone()


def _text(data: bytes) -> bytes:
    """Bytes of UTF-8, which may end within a character, as a JSON text."""
    return dumps_plain(data.decode("utf-8", "ignore"))
