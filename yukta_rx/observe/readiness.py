"""Readiness: why a server takes no requests yet, or for the moment.  Features: DUR-05, OBS-04."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from yukta_rx.errors import StoreUnavailableError, UnavailableError, YuktaError
from yukta_rx.streams.aio import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

log = logging.getLogger(__name__)

STARTING: Final = "starting"

FRESH: Final = 5.0
"""Seconds for which a store that was tried is not tried again."""

PATIENCE: Final = 2.0
"""Seconds after which a store that does not answer counts as one that is down."""


class Readiness:
    """What has to be done before requests are taken, and which stores answer.

    Until `started` is called, and during whatever is wrapped in `during`, the server is not ready.
    """

    def __init__(self) -> None:
        self._under_way: list[str] = [STARTING]
        self._checks: dict[str, Callable[[], str | None]] = {}
        self._stores: list[_Store] = []
        self._tasks: Tasks | None = None

    # -- what is told to it

    def started(self) -> None:
        """The start is done."""
        if STARTING in self._under_way:
            self._under_way.remove(STARTING)

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Take no requests while this lasts; `what` completes "the server is ...".

        Args:
            what: what is done, like "recovering 12 runs".
        """
        self._under_way.append(what)
        try:
            yield
        finally:
            self._under_way.remove(what)

    def check(self, name: str, fault: Callable[[], str | None]) -> None:
        """Ask `fault` each time for what is wrong with a part, None if all is well."""
        self._checks[name] = fault

    def watch(self, name: str, attempt: Callable[[], Awaitable[object]]) -> None:
        """Find out by `attempt`, from time to time, whether a store answers.

        Args:
            name: the store, as it is shown.
            attempt: raises a `YuktaError` that says why, if it does not.
        """
        self._stores.append(_Store(name, attempt))

    # -- what it says

    @property
    def waits_for(self) -> UnavailableError | None:
        """Why no request is taken yet, or None."""
        if not self._under_way:
            return None
        told = ", ".join(self._under_way)
        return UnavailableError(f"the server is {told}", code="recovering", retry_after=1)

    async def fault(self) -> UnavailableError | None:
        """Why the server is not ready, or None; names the stores that are down.

        Not the folders and reasons: who asks whether a server is well need not show a key.
        """
        if (waits := self.waits_for) is not None:
            return waits
        down = await self.down()
        if not down:
            return None
        told = f"these stores cannot be used: {', '.join(sorted(down))}; the log says why"
        return StoreUnavailableError(told, retry_after=FRESH, stores=sorted(down))

    async def down(self) -> Mapping[str, str]:
        """What does not work, by name, with the reason of each."""
        found = {name: told for name, check in self._checks.items() if (told := check())}
        if self._stores:
            trials = [trial for store in self._stores if (trial := self._trial(store))]
            if trials:
                await asyncio.wait(trials, timeout=PATIENCE)
        return {store.name: told for store in self._stores if (told := store.fault)} | found

    async def close(self) -> None:
        """End what is being tried."""
        if self._tasks is not None:
            self._tasks.cancel()
            await self._tasks.ended()

    def _trial(self, store: _Store) -> asyncio.Task[None] | None:
        """The trial of a store that is under way or due; None if it was tried just now."""
        loop = asyncio.get_running_loop()
        if store.trial is not None and not store.trial.done():
            return store.trial
        if store.tried_at is not None and loop.time() - store.tried_at < FRESH:
            return None
        if self._tasks is None:
            self._tasks = Tasks(loop, lambda: None)
        store.tried_at = loop.time()
        # Several requests wait for one trial, and one that hangs is not begun a second time.
        store.trial = self._tasks.spawn(store.look(), f"yukta check of {store.name}")
        return store.trial


class _Store:
    """A store that is tried from time to time."""

    def __init__(self, name: str, attempt: Callable[[], Awaitable[object]]) -> None:
        self.name = name
        self._attempt = attempt
        self._fault: str | None = None
        self.tried_at: float | None = None
        self.trial: asyncio.Task[None] | None = None

    @property
    def fault(self) -> str | None:
        """What was found out last; a trial that goes on for so long says something too."""
        if self.trial is not None and not self.trial.done():
            return f"gives no answer for {PATIENCE:g} s"
        return self._fault

    async def look(self) -> None:
        """Try it."""
        try:
            await self._attempt()
        except YuktaError as error:
            if self._fault is None:
                log.error("store %s cannot be used: %s", self.name, error.detail)
            self._fault = error.detail
        else:
            if self._fault is not None:
                log.warning("store %s can be used again", self.name)
            self._fault = None
