"""Claims of a run: heavy payloads travel as references, and plugins get what they stand for.

Only a run whose record is durable, and keeps large payloads apart, has them: what a node emits is
written down anyway, so the text of a heavy payload is made once, where it leaves the node, and the
record takes it over from the reference. A plugin need not know: it is given payloads.

Feature: DUR-02.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from yukta_rx.errors import StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.model.claim import Claim
from yukta_rx.model.log_fields import log_fields
from yukta_rx.model.message import Message, Routed, copy_payload
from yukta_rx.model.preview import LONGEST, preview
from yukta_rx.model.weight import weigh
from yukta_rx.operators._valve import Undecided
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.claims import Unopened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from yukta_rx.engine.breakpoints import Breakpoint
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.model.codec import Blob

log = logging.getLogger(__name__)

KEPT: Final = 64 << 20
"""Bytes of texts whose payloads stay open for others that want them too, in all runs together; one
stays in any case."""

SECONDS: Final = 1.0
"""How long a payload stays open that nobody asks for."""

_LIGHT: Final = frozenset({int, float, bool, NoneType})
_MEMBERS: Final = 16


class ClaimSource(Protocol):
    """Where payloads are kept apart.

    Attributes:
        claim_bytes: weight from which on a payload is; 0 for none.
    """

    claim_bytes: int

    async def payload(self, blob: Blob) -> Any:
        """The payload that is kept.

        Raises:
            StoreUnavailableError: it is missing or damaged, or cannot be read; names the blob.
        """


class _Open(NamedTuple):
    payload: Any
    size: int
    used: float


_all_open: WeakKeyDictionary[asyncio.AbstractEventLoop, OpenPayloads] = WeakKeyDictionary()


class OpenPayloads:
    """The payloads that are open in the runs of one event loop.

    Each run has its own: what a plugin does to a payload against the rules stays in its run.
    """

    # No reference to the loop, or to what has one, which could then never be collected.
    __slots__ = ("_armed", "_open", "_size")

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[object, str], _Open] = OrderedDict()
        """By run and hash; what was asked for last comes last."""
        self._size = 0
        self._armed = False

    @staticmethod
    def of(loop: asyncio.AbstractEventLoop) -> OpenPayloads:
        """Those of `loop`."""
        return _all_open.setdefault(loop, OpenPayloads())

    def find(self, run: object, sha256: str, now: float) -> _Open | None:
        """What is open in a run, which stays so for a while now."""
        found = self._open.pop((run, sha256), None)
        if found is not None:
            self._open[run, sha256] = found._replace(used=now)
        return found

    def keep(
        self, run: object, claim: Claim, payload: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        """A payload is open in a run, and was not."""
        self._open[run, claim.sha256] = _Open(payload, claim.size, loop.time())
        self._size += claim.size
        while self._size > KEPT and len(self._open) > 1:
            _, gone = self._open.popitem(last=False)
            self._size -= gone.size
        if not self._armed:
            self._armed = True
            loop.call_later(SECONDS, self._let_go, loop)

    def _let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._open:
            key, oldest = next(iter(self._open.items()))
            if oldest.used + SECONDS > now:
                loop.call_at(oldest.used + SECONDS, self._let_go, loop)
                return
            del self._open[key]
            self._size -= oldest.size
        self._armed = False


class RunClaims:
    """The references of one run.

    Who wants the same payload within a moment, as the children of one node do, shares it.

    Args:
        source: where payloads are kept apart.
        preview: characters of each payload that are kept with its reference, to be shown.
    """

    def __init__(self, source: ClaimSource, preview: int = 0) -> None:
        self.limit = source.claim_bytes
        self.read = source.payload
        self.preview = preview
        self.loop = asyncio.get_running_loop()
        self._tasks = Tasks(self.loop, lambda: None)
        self._name = object()
        self._open = OpenPayloads.of(self.loop)
        self._opening: dict[str, asyncio.Future[Any]] = {}

    async def open(self, claim: Claim) -> Any:
        """The payload of a reference, shared with others.

        Raises:
            StoreUnavailableError: it cannot be read; names the blob.
        """
        found = self._open.find(self._name, claim.sha256, self.loop.time())
        if found is not None:
            return found.payload
        opening = self._opening.get(claim.sha256)
        if opening is None:
            opening = self._opening[claim.sha256] = self.loop.create_future()
            self._tasks.spawn(self._read(claim, opening), f"yukta open {claim.sha256[:12]}")
        # One who is cancelled must not cancel it for others.
        await asyncio.wait((opening,))
        return opening.result()

    async def _read(self, claim: Claim, opening: asyncio.Future[Any]) -> None:
        try:
            payload = await claim.open()
        except Exception as error:
            opening.set_exception(error)
            # Who asked may be gone.
            opening.exception()
        else:
            self._open.keep(self._name, claim, payload, self.loop)
            opening.set_result(payload)
        finally:
            del self._opening[claim.sha256]
            opening.cancel()


class NodeClaims:
    """The references of one node; see `streams.claims.Claims`.

    Args:
        run: those of its run.
        node: the node.
        wanted: whether what it emits is written down; None if never.
        shared: whether its plugin gets copies anyway.

    Attributes:
        carries: whether its plugin keeps references.
        opens: whether it looks at payloads at all.
    """

    __slots__ = (
        *("_copies", "_filed", "_id", "_limit", "_node", "_opened", "_preview", "_run"),
        *("_wanted", "carries", "opens"),
    )

    def __init__(
        self,
        run: RunClaims,
        node: NodeRuntime,
        wanted: Callable[[], bool] | None,
        *,
        shared: bool,
        opens: bool = True,
    ) -> None:
        spec = node.prepared.spec
        self._run = run
        self._node: NodeRuntime | None = node
        self._id = node.id
        self._limit = run.limit
        self._wanted = wanted
        # What is open may be given to others too.
        self._copies = not (spec.pure or shared)
        self.carries = spec.carries
        self.opens = opens
        self._preview = max(run.preview, LONGEST) if self.carries else run.preview
        self._opened: dict[Message, Claim] = {}
        """References that the plugin is about to be given, by the messages that are open for it."""
        self._filed: dict[str, tuple[Claim, int]] = {}
        """References that are in files, of payloads that were not kept yet, and in how many
        messages each is; by hash."""

    def part(self) -> None:
        """Its run has ended, and goes when nobody has it any more."""
        self._node = self._wanted = None
        self._opened.clear()
        self._filed.clear()

    @property
    def sealed(self) -> Callable[[Any], Any]:
        """What makes of an output what leaves for it; looked up once, not for each message."""
        return _same if self._wanted is None else _sealing(self._sealed, self._limit)

    @property
    def closed(self) -> Callable[[Message], bool]:
        """What tells whether a message has a reference."""
        return is_closed

    def around(self, fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`fn` for messages that have payloads; for one with a reference it raises `Unopened`."""
        sealed = self.sealed

        def whole(item: Message) -> Any:
            if type(item.payload) is Claim:
                raise Unopened
            return fn(item)

        def whole_and_sealed(item: Message) -> Any:
            if type(item.payload) is Claim:
                raise Unopened
            return sealed(fn(item))

        return whole if sealed is _same else whole_and_sealed

    async def opened(self, item: Message) -> Message:
        """The message as the plugin may have it.

        Raises:
            StoreUnavailableError: the payload cannot be read; names the blob and the node.
        """
        whole, claim = await self.whole(item), item.payload
        if self._preview and claim.preview is None:
            claim.preview = preview(whole.payload, self._preview)
        if self.carries:
            self._opened[whole] = claim
        elif self._copies:
            return with_payload(whole, copy_payload(whole.payload))
        return whole

    async def whole(self, item: Message) -> Message:
        """The message with its payload, which others may have too.

        Raises:
            StoreUnavailableError: that cannot be read; names the blob and the node.
        """
        try:
            return with_payload(item, await self._run.open(item.payload))
        except StoreUnavailableError as error:
            told = f"node {self._id}: the payload of message {item.id}: {error.detail}"
            raise StoreUnavailableError(told, **error.members) from error

    def opened_in_thread(self, item: Message) -> Message:
        """As `opened`, for a thread."""
        return asyncio.run_coroutine_threadsafe(self.opened(item), self._run.loop).result()

    def carried(self, msg: Message, given: Message) -> Message:
        """The message as a plugin gets it that carries references.

        Args:
            msg: the message, open for the options of the plugin.
            given: what the plugin would get otherwise.
        """
        claim = self._opened.pop(msg, None)
        return given if claim is None else with_payload(msg, claim)

    def flattened(self, msg: Message) -> Message:
        """A message for a file; a text that is not kept yet stays here until it is."""
        flat, claim = msg.flattened(), msg.payload
        if type(claim) is not Claim or claim.text is None:
            return flat
        first, count = self._filed.get(claim.sha256, (claim, 0))
        self._filed[claim.sha256] = first, count + 1
        return with_payload(flat, Claim(claim.sha256, claim.size))

    def restored(self, msg: Message) -> Message:
        """A message that was in a file, which says nothing of who reads its payload."""
        claim = msg.payload
        if type(claim) is not Claim:
            return msg
        first, count = self._filed.pop(claim.sha256, (claim, 0))
        if count > 1:
            self._filed[claim.sha256] = first, count - 1
        first.reader = self._run.read
        return with_payload(msg, first)

    def _sealed(self, out: Any) -> Any:
        kind = type(out)
        if kind is Routed:
            sealed = self._sealed(out.value)
            return out if sealed is out.value else Routed(out.port, sealed)
        if kind is not Message or weigh(out.payload) <= self._limit:
            return out
        if type(out.payload) is Claim or self._wanted is None or not self._wanted():
            return out
        try:
            claim = Claim.of(out.payload, self._run.read)
        except UnserialisablePayloadError:
            # The record says so as well, and is given up.
            return out
        if self._run.preview:
            claim.preview = preview(out.payload, self._run.preview)
        return with_payload(out, claim)

    def worked_off(self, item: Message, opened: Message) -> None:
        """A call is over, or could not begin: nothing here keeps its payload."""
        if opened is item or self._node is None:
            return
        self._opened.pop(opened, None)
        context = self._node.context
        if context is not None and context.message is opened:
            context.message = item

    def resealed(self, out: Any, item: Message, opened: Message) -> Any:
        """What leaves for an output that was made of a message, which may have a reference."""
        if opened is item:
            return out if self._wanted is None else self._sealed(out)
        if out is opened:
            return item
        if type(out) is Routed:
            return Routed(out.port, self.resealed(out.value, item, opened))
        # A plugin that may change a payload never gives back the object itself.
        if type(out) is Message and out.payload is opened.payload:
            return with_payload(out, item.payload)
        return self.sealed(out)

    # -- what else looks at messages

    def timed(self, limit: Callable[[Message], float]) -> Callable[[Message], Any]:
        """A time limit that depends on the message; of a reference it gives an awaitable."""

        async def opened(msg: Message) -> float:
            return limit(await self.whole(msg))

        return lambda msg: opened(msg) if self.closed(msg) else limit(msg)

    def judged(self, points: tuple[Breakpoint, ...]) -> Iterable[Callable[[Message], bool]]:
        """Breakpoints of the node, which may look at payloads."""
        if self._node is None or not any(point.reads_payload for point in points):
            return points
        return (_Judged(self, self._run.loop, self._node, points),)


class _Judged:
    """Breakpoints in front of a node: tell of a reference once that is opened."""

    __slots__ = ("_claims", "_node", "_points", "_tasks", "_verdicts")

    def __init__(
        self,
        claims: NodeClaims,
        loop: asyncio.AbstractEventLoop,
        node: NodeRuntime,
        points: tuple[Breakpoint, ...],
    ) -> None:
        self._claims = claims
        self._node = node
        self._points = points
        self._tasks = Tasks(loop, lambda: None)
        self._verdicts: dict[Message, bool | None] = {}
        """Of the messages that were asked about, one for each parent; None while one is opened."""

    def __call__(self, msg: Message) -> bool:
        if not is_closed(msg):
            return self._hold(msg)
        if msg not in self._verdicts:
            self._verdicts[msg] = None
            self._tasks.spawn(self._judge(msg), f"yukta breakpoint {self._node.id}")
        verdict = self._verdicts[msg]
        if verdict is None:
            raise Undecided
        del self._verdicts[msg]
        return verdict

    def _hold(self, msg: Message) -> bool:
        return any(point(msg) for point in self._points)

    async def _judge(self, msg: Message) -> None:
        try:
            holds = self._hold(await self._claims.whole(msg))
        except StoreUnavailableError:
            # The call says so, with the policy that the node has for that.
            holds = False
        except Exception:
            holds = False
            context = self._node.context
            run = None if context is None else context.execution_id
            told = "breakpoints of node %s let message %s go, a defect"
            log.exception(told, self._node.id, msg.id, extra=log_fields(run, self._node.id))
        self._verdicts[msg] = holds
        if self._node.stage is not None and not self._node.stage.ended:
            self._node.stage.wake()


def with_payload(msg: Message, payload: Any) -> Message:
    """The same message with what stands for its payload, or with the payload."""
    uid = msg.id if msg.uid is None and not msg.origin else msg.uid
    return Message(payload, msg.headers, msg.origin, uid, msg.attempt, msg.trail)


async def whole(msg: Message) -> Message:
    """A message with its payload, which nobody else has.

    Raises:
        StoreUnavailableError: that cannot be read; names the blob.
    """
    return with_payload(msg, await msg.payload.open()) if type(msg.payload) is Claim else msg


def is_closed(msg: Message) -> bool:
    """Whether a message has a reference in place of its payload."""
    return type(msg.payload) is Claim


def _sealing(seal: Callable[[Any], Any], limit: int) -> Callable[[Any], Any]:
    """`seal`, behind a look that finds most payloads light: every message comes by here."""
    short = limit // (4 * _MEMBERS)

    def sealed(out: Any) -> Any:
        if type(out) is Message:
            payload = out.payload
            if type(payload) is dict and len(payload) <= _MEMBERS:
                for value in payload.values():
                    kind = type(value)
                    if kind not in _LIGHT and (kind is not str or len(value) > short):
                        break
                else:
                    return out
        return seal(out)

    return sealed


def _same(out: Any) -> Any:
    return out
