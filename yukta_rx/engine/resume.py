"""Resume: a node of an aborted run that goes on behind the inputs it had finished.

What it had emitted leaves it first, under credit, and is not recorded again: the run has it on its
record already. Then inputs that are listed there are taken out in front of it, as they come again
from its parents; a terminal publishes them, and its plugin is not called. The rest is worked on as
in any run, and nothing of this is left on the way of a message.

A trigger has no inputs. One that is replayable begins anew, and what it gives is compared with
what it gave before; another goes on with the next number.

Feature: DUR-03.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.engine.claims import whole
from yukta_rx.errors import EngineError, UnserialisablePayloadError
from yukta_rx.model.codec import canonical
from yukta_rx.model.message import NO_HEADERS, Message, Routed
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams.buffer import DROPPED_PORT
from yukta_rx.streams.plan import ERROR_PORT, DeadLetter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from yukta_rx.durability.stores.checkpoints import CheckpointRow, Rows
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.streams.known import Memory
    from yukta_rx.streams.stage import Stage

    _Output = tuple[str | None, Message]

HEX: Final = 32
"""Length of the ids that are hashes."""

DIGEST: Final = 8
"""Bytes of a message that are kept to compare it with."""

PATIENCE: Final = 0.01
"""Seconds until a reader of the port `dropped`, who wakes another stage, is asked again."""


class KnownInputs:
    """Ids of finished inputs with the number of times that each was one; small, and forgetful."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[bytes | str, int] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, message_id: str) -> None:
        """An input was finished."""
        key = _small(message_id)
        self._ids[key] = self._ids.get(key, 0) + 1

    def take(self, message_id: str) -> bool:
        """Whether a message was finished; it is forgotten, as it comes again only once."""
        key = _small(message_id)
        times = self._ids.get(key)
        if times is None:
            return False
        if times == 1:
            del self._ids[key]
        else:
            self._ids[key] = times - 1
        return True


def _small(message_id: str) -> bytes | str:
    if len(message_id) == HEX:
        try:
            return bytes.fromhex(message_id)
        except ValueError:
            pass
    return message_id


class Prelude:
    """What leaves a node before it goes on: the gate of its stage until that is over.

    Args:
        node: the node.
        rows: what is recorded of it.
    """

    def __init__(self, node: NodeRuntime, rows: Rows) -> None:
        self._node = node
        self._valve = node.valve
        self._rows = rows
        self._known = KnownInputs()
        self._over = False
        self._task: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._stage: Stage | None = None
        self._sorting: Stage | None = None
        self.recall: Callable[[Message, bool], None] | None = None
        """Tells the plugin of what it had finished, if it wants to know."""
        self.given: GivenBefore | None = None
        if node.kind is PluginKind.TRIGGER:
            self.given = GivenBefore(node.id, replayable=node.prepared.spec.replayable)

    # -- what the stage asks (streams.plan.Gate)

    @property
    def open(self) -> bool:
        """Whether everything may pass."""
        return False

    def attach(self, stage: Stage) -> None:
        """Remember the stage, which takes nothing before this is over."""
        self._stage = stage
        stage.prelude = True
        self._valve.attach(stage)

    def limit(self, n: int) -> int:
        """None before this is over; there is credit, so go on."""
        if self._over:
            allowed = self._valve.limit(n)
            if allowed > 0 and self._sorting is not None:
                # A terminal: what it publishes without a call passes the valve too.
                self._sorting.wake()
            return allowed
        stage = self._stage
        assert stage is not None, "only its stage asks"
        if self._task is None:
            name = f"yukta resume {self._node.id}"
            self._task = stage.circuit.tasks.spawn(self._play(stage), name)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return 0

    def passed(self, n: int) -> None:
        """Use up permits."""
        self._valve.passed(n)

    def cancel(self) -> None:
        """The node has ended."""
        if self._task is not None:
            self._task.cancel()

    # -- what was recorded

    async def _play(self, stage: Stage) -> None:
        outputs: deque[_Output] = deque()
        try:
            async with aclosing(self._rows()) as recorded:
                async for row in recorded:
                    if self.recall is not None:
                        await self._recalled(row, outputs)
                    for port, messages in row.batches:
                        if self.given is not None:
                            for msg in messages:
                                # One at a time, since its payload may be large.
                                self.given.add(port, (await whole(msg),))
                        await self._emit(stage, port, messages)
                    for message_id, _ in row.inputs:
                        self._known.add(message_id)
        except Exception as error:
            what = f"what node {self._node.id} emitted cannot be read: {error}"
            failure = EngineError(what)
            failure.__cause__ = error
            stage.fail(failure)
            return
        self._end(stage)

    async def _recalled(self, row: CheckpointRow, outputs: deque[_Output]) -> None:
        """Tell the plugin what it emitted, under the ids of its inputs.

        Args:
            row: what is recorded next.
            outputs: those whose inputs come in a later row.
        """
        assert self.recall is not None, "only such a plugin is told"
        outputs.extend(one for one in row.messages if one[0] != DROPPED_PORT)
        for message_id, count in row.inputs:
            for _ in range(min(count, len(outputs))):
                port, msg = outputs.popleft()
                if port is None:
                    payload = (await whole(msg)).payload
                    self.recall(Message(payload, msg.headers, uid=message_id), True)

    async def _emit(self, stage: Stage, port: str | None, messages: Sequence[Message]) -> None:
        node = self._node
        place = 0
        while place < len(messages):
            n = self._room(stage, port)
            if n < 1:
                await self._granted(port)
                continue
            chunk = list(messages[place : place + n])
            place += len(chunk)
            if not stage.touched:
                stage.touch()
            self._valve.passed(len(chunk))
            node.replaying = True
            try:
                self._leave(stage, port, chunk)
            finally:
                node.replaying = False

    def _leave(self, stage: Stage, port: str | None, chunk: list[Message]) -> None:
        buffer = self._node.buffer
        if port == DROPPED_PORT and buffer is not None:
            for edge in buffer.ports.get(DROPPED_PORT, ()):
                edge.push(chunk)
        else:
            stage.emit_outputs([leaving(port, msg) for msg in chunk])

    def _room(self, stage: Stage, port: str | None) -> int:
        if stage.ended:
            raise asyncio.CancelledError("the node has ended")
        edges = stage.outs
        if port == DROPPED_PORT and self._node.buffer is not None:
            edges = self._node.buffer.ports.get(DROPPED_PORT, [])
        n = min((edge.credit for edge in edges), default=stage.quantum)
        return self._valve.limit(min(n, stage.quantum))

    async def _granted(self, port: str | None) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            if port == DROPPED_PORT:
                await asyncio.wait((self._waiter,), timeout=PATIENCE)
            else:
                await self._waiter
        finally:
            self._waiter = None

    def _end(self, stage: Stage) -> None:
        self._over = True
        stage.prelude = False
        if not self._known or self._node.kind is not PluginKind.TERMINAL:
            self._let_go(stage)
        if self._sorting is not None:
            self._sorting.wake()
        elif stage.draining:
            stage.drain()
        stage.wake()

    def _let_go(self, stage: Stage) -> None:
        """Nothing is asked here any more."""
        stage.gate = self._valve
        stage.steer = True

    # -- the inputs that come again

    @property
    def memory(self) -> Memory:
        """What the stage in front of the node takes out inputs by."""
        return _Sorting(self)

    def sorts(self, stage: Stage) -> None:
        """Remember the stage in front that takes out what is known."""
        self._sorting = stage

    def room(self, n: int) -> int:
        """How many of the next `n` inputs may be looked at now."""
        if not self._over:
            return 0
        if self._known and self._node.kind is PluginKind.TERMINAL:
            return self._valve.limit(n)
        return n

    def fresh(self, batch: list[Message]) -> list[Message]:
        """The inputs that the node had not finished; the others are counted, or published."""
        known = self._known
        if not known:
            return batch
        fresh: list[Message] = []
        finished: list[Message] = []
        for msg in batch:
            (finished if known.take(msg.id) else fresh).append(msg)
        if self.recall is not None:
            for msg in finished:
                self.recall(msg, False)
        stage = self._stage
        if finished and stage is not None and not stage.ended:
            if not stage.touched:
                stage.touch()
            stage.received += len(finished)
            if self._node.kind is PluginKind.TERMINAL:
                self._valve.passed(len(finished))
                stage.emit(finished)
                if not known:
                    self._let_go(stage)
        return fresh


class _Sorting:
    """A prelude as the memory of the stage in front of its node's."""

    __slots__ = ("_prelude", "fresh", "room")

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude
        self.fresh = prelude.fresh
        self.room = prelude.room

    def attach(self, stage: Stage) -> None:
        self._prelude.sorts(stage)


class GivenBefore:
    """What a trigger gave before the run went on."""

    __slots__ = ("_digests", "_last", "_node_id", "_replayable", "headers")

    def __init__(self, node_id: str, *, replayable: bool) -> None:
        self._node_id = node_id
        self._replayable = replayable
        self._digests = bytearray()
        self.headers: dict[str, Any] = {}
        """The last value of each header."""
        self._last: Any = None

    @property
    def count(self) -> int:
        """How many messages."""
        return len(self._digests) // DIGEST

    def add(self, port: str | None, messages: Iterable[Message]) -> None:
        """It gave these."""
        for msg in messages:
            self._last = msg.payload
            self._digests += _digest(port, msg) if self._replayable else bytes(DIGEST)
            self.headers.update(msg.headers)

    def emitted(self) -> tuple[int, Any]:
        """How many messages, and the payload of the last one."""
        return self.count, self._last

    def numbered(self, made: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """`made`, which makes a message of a number and a value, for values that come now.

        What it gives for a value that was given before is None.
        """
        if not self._replayable:
            return lambda seq, value: made(self.count + seq, value)

        def compared(seq: int, value: Any) -> Any:
            item = made(seq, value)
            if seq >= self.count:
                return item
            port, msg = (item.port, item.value) if type(item) is Routed else (None, item)
            if _digest(port, msg) != self._digests[seq * DIGEST : (seq + 1) * DIGEST]:
                raise EngineError(
                    f"trigger {self._node_id} is declared replayable, but its message number "
                    f"{seq + 1} is not what it was before the run was aborted; what it works on "
                    "has changed, so the run cannot go on with it"
                )
            return None

        return compared

    def check_end(self, count: int) -> None:
        """Raise EngineError if `count` values were all, and there were more before."""
        if self._replayable and count < self.count:
            raise EngineError(
                f"trigger {self._node_id} is declared replayable, but gives {count} messages where "
                f"it gave {self.count} before the run was aborted; what it works on has changed, "
                "so the run cannot go on with it"
            )

    def values(self, made: Callable[[int, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """The messages of values."""
        number, count = self.numbered(made), 0
        for value in values:
            yield number(count, value)
            count += 1
        self.check_end(count)


def _digest(port: str | None, msg: Message) -> bytes:
    try:
        payload = canonical(msg.payload)
    except UnserialisablePayloadError:
        # It was written before, so it is something else now.
        return bytes(DIGEST)
    about = f"{port or ''}\0{msg.id}\0".encode()
    return blake2b(about + payload, digest_size=DIGEST).digest()


def settled(out: Any) -> list[Message]:
    """The inputs that an output names as its causes, by their ids alone."""
    msg: Message = out.value if type(out) is Routed else out
    return [Message(None, NO_HEADERS, (), cause) for cause in msg.causes]


def leaving(port: str | None, msg: Message) -> Any:
    """The message as a stage emits it for a port."""
    if port is None:
        return msg
    return DeadLetter(msg) if port == ERROR_PORT else Routed(port, msg)
