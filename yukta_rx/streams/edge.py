"""An edge: one producer, one consumer, and the credit between them.

The producer appends to `buf`; the consumer swaps `buf` for `cur` and walks it from `pos`, so
neither ever moves the other's elements. `credit` is the outstanding demand: how many elements
the producer may still append. The consumer adds up what it has worked off in `used` and hands
it back in one `request(used)` per three quarters of the window, which keeps the producer going
without a wake per element. Waiting elements never exceed `prefetch`.

Feature: ENG-01.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yukta_rx.streams.stage import Stage


class Edge:
    """The bounded queue between two stages of one circuit; owned by the loop thread."""

    __slots__ = (
        "blocked",
        "blocked_at",
        "buf",
        "closed",
        "credit",
        "cur",
        "dead",
        "dropped",
        "dst",
        "err",
        "held",
        "low",
        "passed",
        "pinned",
        "port",
        "pos",
        "prefetch",
        "src",
        "used",
    )

    def __init__(self, src: Stage, dst: Stage, prefetch: int, port: str | None = None) -> None:
        self.src = src
        self.dst = dst
        self.port = port
        self.prefetch = prefetch
        self.low = max(1, prefetch - prefetch // 4)
        self.credit = prefetch
        self.used = 0
        self.held = 0
        self.passed = 0
        self.dropped = 0
        """Elements that a buffer at its end dropped, for want of room when they came."""
        self.blocked = 0.0
        """Seconds that the producer had an element to make and no credit here, up to now."""
        self.blocked_at: float | None = None
        self.buf: list[Any] = []
        self.cur: list[Any] = []
        self.pos = 0
        self.pinned = False
        """Whether a breakpoint has held the first element, which has not passed yet."""
        self.closed = False
        self.dead = False
        self.err: BaseException | None = None

    @property
    def waiting(self) -> int:
        """Elements between the two stages, those in the consumer's hand included."""
        return len(self.buf) + len(self.cur) - self.pos + self.held

    @property
    def empty(self) -> bool:
        """Nothing left to take (what the consumer holds is not counted)."""
        return not self.buf and self.pos >= len(self.cur)

    # -- producer's side

    def push(self, chunk: list[Any]) -> None:
        """Append `chunk`, which the producer's credit must cover, and wake the consumer."""
        if self.dead:
            return
        self.buf.extend(chunk)
        count = len(chunk)
        self.credit -= count
        self.passed += count
        if self.blocked_at is not None:
            self.unblock()
        dst = self.dst
        if not dst.queued:
            dst.wake()

    def block(self, now: float) -> None:
        """The producer waits for this edge's credit, since `now` if not before."""
        if self.blocked_at is None and self.credit < 1:
            self.blocked_at = now

    def unblock(self) -> None:
        """The producer goes on."""
        if self.blocked_at is not None:
            self.blocked += self.src.circuit.loop.time() - self.blocked_at
            self.blocked_at = None

    def blocked_seconds(self) -> float:
        """Seconds that the producer has waited for this edge, the current wait included."""
        waiting = 0.0
        if self.blocked_at is not None:
            waiting = self.src.circuit.loop.time() - self.blocked_at
        return self.blocked + waiting

    def close(self, err: BaseException | None = None) -> None:
        """End the edge: on_completed, or on_error with `err`."""
        if self.closed or self.dead:
            return
        self.unblock()
        self.closed = True
        self.err = err
        self.dst.closing = True
        self.dst.wake()

    # -- consumer's side

    def take(self, n: int) -> list[Any]:
        """Up to `n` waiting elements, oldest first; account for them with `release`."""
        cur = self.cur
        pos = self.pos
        if pos >= len(cur):
            cur, self.buf, pos = self.buf, [], 0
        end = pos + n
        if end >= len(cur):
            batch = cur[pos:] if pos else cur
            self.cur = []
            self.pos = 0
        else:
            batch = cur[pos:end]
            self.cur = cur
            self.pos = end
        self.held = len(batch)
        return batch

    def widen(self, n: int) -> None:
        """Let the producer run ahead by `n` more elements, before it begins."""
        self.prefetch += n
        self.credit += n

    def untake(self, batch: list[Any], done: int) -> None:
        """Put `batch[done:]` back in front: a control action stopped the batch that it was in."""
        self.cur = batch[done:] + self.cur[self.pos :]
        self.pos = 0

    def replace_first(self, item: Any) -> None:
        """Let another element stand in the place of the first that waits."""
        held = self.held
        self.take(1)
        self.untake([item], 0)
        self.held = held

    def drop_first(self) -> Any:
        """Take out the first element that waits, for good, and return it; credit goes back."""
        held = self.held
        [item] = self.take(1)
        self.release(1)
        self.held = held
        return item

    def drop_oldest(self, n: int) -> list[Any]:
        """Take out up to `n` waiting elements for good, none that is pinned; credit goes back."""
        held = self.held
        pinned = self.take(1) if self.pinned else []
        dropped = self.take(n)
        while len(dropped) < n and self.buf:
            dropped = dropped + self.take(n - len(dropped))
        if pinned:
            self.untake(pinned, 0)
        self.held = held
        self.credit += len(dropped)
        return dropped

    def release(self, n: int) -> None:
        """Account for `n` worked-off elements; hands back credit at the low-water mark."""
        self.held = 0
        used = self.used + n
        if used >= self.low:
            self.credit += used
            self.used = 0
            src = self.src
            if not src.queued:
                src.wake()
        else:
            self.used = used

    def finish(self) -> None:
        """Take nothing more from the producer, but keep what waits: a drain of the consumer."""
        if not self.dead and not self.closed:
            self.unblock()
            self.dead = True
            self.closed = True
            self.src.pruning = True
            self.src.wake()

    def cancel(self) -> list[Any]:
        """Cancel upstream and drop what waits; the dropped elements."""
        self.unblock()
        dropped = self.cur[self.pos :] + self.buf
        self.buf = []
        self.cur = []
        self.pos = self.held = 0
        if not self.dead and not self.closed:
            self.dead = True
            self.src.pruning = True
            self.src.wake()
        return dropped
