"""Idempotent starts: a repeated start gets the first run back. Feature: ADM-02."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from yukta_rx.errors import BadRequestError, IdempotencyKeyReusedError
from yukta_rx.model.codec import canonical

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from yukta_rx.config.settings import Settings

LONGEST_KEY = 255


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    first: asyncio.Future[Any]


class IdempotencyWindow:
    """Remembers which key started what, for `yukta.start.idempotency-ttl`.

    A repeat that comes while the first start is under way waits for it. A failed start is not
    remembered.

    Args:
        settings: the window and how many keys it holds.
        now: monotonic seconds.
    """

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._entries: TTLCache[tuple[str, str, str], _Entry] = TTLCache(
            maxsize=settings.start.idempotency_max_keys,
            ttl=settings.start.idempotency_ttl.total_seconds(),
            timer=now,
        )

    async def run(
        self, scope: tuple[str, str, str], request: Any, start: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, bool]:
        """Start once per `scope` (session, workflow, key).

        Returns:
            What the first start returned, and whether this is a repeat.

        Raises:
            IdempotencyKeyReusedError: the key came with another request before.
            BadRequestError: the key is not 1 to 255 visible characters.
        """
        key = scope[2]
        if not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
            raise BadRequestError(
                "Idempotency-Key must be 1 to 255 visible ASCII characters",
                code="invalid_parameter",
                parameter="Idempotency-Key",
            )
        fingerprint = sha256(canonical(request)).hexdigest()
        while (entry := self._entries.get(scope)) is not None:
            if entry.fingerprint != fingerprint:
                raise IdempotencyKeyReusedError(
                    f"Idempotency-Key {key} was used for another request: use a new one"
                )
            try:
                return await asyncio.shield(entry.first), True
            except asyncio.CancelledError:
                if not entry.first.cancelled():
                    raise
            except Exception:
                # The first one failed and is forgotten, so this one has its turn.
                if self._entries.get(scope) is entry:
                    raise
        first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._entries[scope] = _Entry(fingerprint, first)
        try:
            made = await start()
        except BaseException as error:
            self._entries.pop(scope, None)
            if isinstance(error, Exception):
                first.set_exception(error)
                # Looked at here: nobody else may be waiting for it.
                first.exception()
            else:
                first.cancel()
            raise
        first.set_result(made)
        return made, False

    def forget(self, scope: tuple[str, str, str], made: object) -> None:
        """Let a repeat start anew, where what `made` began has failed after all."""
        entry = self._entries.get(scope)
        if entry is not None and entry.first.done() and entry.first.result() is made:
            del self._entries[scope]
