"""Effects: what is done once for a message, however often the message is worked on.

Feature: DUR-02.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from yukta_rx.durability.stores.effects import LARGEST
from yukta_rx.errors import PluginContractError, StoreUnavailableError, UnserialisablePayloadError
from yukta_rx.model import codec
from yukta_rx.streams.aio import Tasks
from yukta_rx.streams.faults import as_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from yukta_rx.durability.stores.effects import EffectKey, EffectStore

log = logging.getLogger(__name__)

T = TypeVar("T")

UNRECORDED: Final = 10_000
"""Results that wait for a store that could not be written; beyond it the oldest go."""


class Effects:
    """Does things once. One for a server; belongs to the loop, but for `once_blocking`.

    Whoever wants the same at the same time waits for the one who does it. Nothing is recorded of
    what fails. What was done and could not be recorded is not done again by this process either:
    the next one who asks records it.

    Args:
        store: where results are recorded.
        unrecorded: results that may wait for a store that cannot be written.
    """

    def __init__(self, store: EffectStore, unrecorded: int = UNRECORDED) -> None:
        self.store = store
        self._most = unrecorded
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tasks = Tasks(self._loop, lambda: None)
        self._under_way: dict[EffectKey, tuple[asyncio.Future[None], object]] = {}
        self._unrecorded: dict[EffectKey, bytes] = {}

    async def once(self, key: EffectKey, fn: Callable[[], Any]) -> Any:
        """What `fn` gives, or gave when it was called for `key` before.

        Raises:
            PluginContractError: what it gives cannot be recorded, or it waits for itself.
            StoreUnavailableError: nobody knows whether it was done, or it could not be recorded.
        """
        known = await self._begin(key, asyncio.current_task())
        if known is None:
            try:
                made = fn()
                if inspect.isawaitable(made):
                    made = await made
                data = _encoded(key, made)
            except BaseException:
                self._end(key)
                raise
            known = await self._record(key, data)
        return codec.decode(known)

    def once_blocking(self, key: EffectKey, fn: Callable[[], Any]) -> Any:
        """As `once`, for a thread; `fn` is called in it.

        Raises:
            RuntimeError: this is the thread of the event loop.
        """
        if threading.get_ident() == self._thread:
            raise RuntimeError(
                "once_blocking is for threads: on the event loop await ctx.once(...)"
            )
        known = self._from_thread(self._begin(key, threading.current_thread()))
        if known is None:
            try:
                made = fn()
                if inspect.iscoroutine(made):
                    made.close()
                    raise PluginContractError(
                        f"node {key.node_id}: once_blocking(`{key.name}`) takes a plain function;"
                        " for an async one there is once"
                    )
                data = _encoded(key, made)
            except BaseException:
                self._loop.call_soon_threadsafe(self._end, key)
                raise
            known = self._from_thread(self._record(key, data))
        return codec.decode(known)

    async def forget(self, *lineages: str) -> None:
        """Forget what was done for some lineages.

        Raises:
            StoreUnavailableError: the store cannot be written.
        """
        for key in [key for key in self._unrecorded if key.lineage in lineages]:
            del self._unrecorded[key]
        await self.store.forget(*lineages)

    async def close(self) -> None:
        """Wait for what is being recorded."""
        await self._tasks.ended()

    # -- parts

    async def _begin(self, key: EffectKey, who: object) -> bytes | None:
        """What is recorded; None if it is for the caller to do, and to say when it has ended."""
        while (other := self._under_way.get(key)) is not None:
            done, by = other
            if by is who:
                raise PluginContractError(
                    f"node {key.node_id}: once(`{key.name}`) inside of itself would never end"
                )
            await asyncio.wait((done,))
        self._under_way[key] = self._loop.create_future(), who
        try:
            known = await self.store.find(key)
        except BaseException:
            self._end(key)
            raise
        if known is None and (data := self._unrecorded.get(key)) is not None:
            return await self._record(key, data)
        if known is not None:
            self._end(key)
        return known

    def _end(self, key: EffectKey) -> None:
        done, _ = self._under_way.pop(key)
        done.set_result(None)

    async def _record(self, key: EffectKey, data: bytes) -> bytes:
        """Record what was done, also if the caller is cancelled meanwhile; what stands."""
        if not self.store.durable:
            # Nothing is waited for, so it needs no task.
            try:
                return await self.store.record(key, data)
            finally:
                self._end(key)
        outcome: asyncio.Future[bytes] = self._loop.create_future()
        self._tasks.spawn(self._write(key, data, outcome), f"yukta effect of {key.node_id}")
        return await asyncio.shield(outcome)

    async def _write(self, key: EffectKey, data: bytes, outcome: asyncio.Future[bytes]) -> None:
        try:
            stands = await self.store.record(key, data)
        except BaseException as error:
            if isinstance(error, StoreUnavailableError):
                self._keep(key, data)
            outcome.set_exception(as_error(error))
            # Perhaps nobody waits for it any more.
            outcome.exception()
        else:
            self._unrecorded.pop(key, None)
            outcome.set_result(stands)
        finally:
            self._end(key)

    def _keep(self, key: EffectKey, data: bytes) -> None:
        self._unrecorded[key] = data
        if len(self._unrecorded) > self._most:
            oldest = next(iter(self._unrecorded))
            del self._unrecorded[oldest]
            told = "node %s: `%s` of message %s was done, cannot be recorded, and may be done again"
            log.error(told, oldest.node_id, oldest.name, oldest.message_id)

    def _from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do something, and wait for it in this thread."""
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        async def relay() -> None:
            try:
                result = await work
            except BaseException as error:
                outcome.set_exception(as_error(error))
            else:
                outcome.set_result(result)

        self._loop.call_soon_threadsafe(lambda: self._tasks.spawn(relay(), "yukta effect"))
        return outcome.result()


def _encoded(key: EffectKey, result: Any) -> bytes:
    where = f"node {key.node_id}: what once(`{key.name}`) gave cannot be recorded"
    try:
        data = codec.encode(result)
    except UnserialisablePayloadError as error:
        raise PluginContractError(
            f"{where}, so a repeat would do it again: {error.detail}; give JSON values"
        ) from error
    if len(data) > LARGEST:
        raise PluginContractError(
            f"{where}: it has {len(data)} bytes and may have {LARGEST}; give what a repeat needs"
        )
    return data
