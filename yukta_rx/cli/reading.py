"""What several commands read of a server: pages of a list, and the end of a run.

Feature: OBS-01.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.cli import texts
from yukta_rx.cli.console import EXIT_FAILED, CliError
from yukta_rx.cli.follow import PATIENCE, RETRY_MS, passes
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from yukta_rx.cli.client import Client, Query
    from yukta_rx.cli.console import Console

PAGE: Final = 500
"""Items of one page, the most that a server gives."""

_LONGEST_POLL: Final = 30.0
_TERMINAL: Final = frozenset(str(status) for status in TaskStatus if status.terminal)


async def pages(
    client: Client, path: str, query: Query = (), *, size: int = PAGE
) -> AsyncIterator[dict[str, Any]]:
    """Yield the pages of a list up to the last that there is now.

    Raises:
        CliError: the server refuses.
    """
    cursor: str | None = None
    while True:
        place = [] if cursor is None else [("afterCursor", cursor)]
        page = (await client.get(path, [*query, ("limit", str(size)), *place])).json()
        yield page
        following = page.get("nextCursor")
        if following in (None, cursor) or not page["items"]:
            return
        cursor = following


def ended(state: dict[str, Any]) -> bool:
    """Whether a run or a node has ended."""
    return state["status"] in _TERMINAL


async def wait_for_end(
    client: Client, execution_id: str, limit: float | None = None
) -> dict[str, Any] | None:
    """Return the detail of a run once it has ended; None if it has not within `limit` seconds.

    A server that was reached once may be away for a minute.

    Raises:
        CliError: there is no such run, or no server.
    """
    began = contact = time.monotonic()
    begun = False
    while True:
        left = _LONGEST_POLL if limit is None else limit - (time.monotonic() - began)
        query = [("timeout", f"{max(0.0, min(left, _LONGEST_POLL)):.3f}"), ("until", "TERMINAL")]
        try:
            answer = await client.get(f"/api/executions/{execution_id}/wait", query)
        except CliError as error:
            if not (begun and passes(error)) or time.monotonic() - contact > PATIENCE:
                raise
            await asyncio.sleep(RETRY_MS / 1000)
        else:
            begun, contact = True, time.monotonic()
            if answer.status == 200:
                detail: dict[str, Any] = answer.json()
                return detail
        if limit is not None and time.monotonic() - began >= limit:
            return None


def say_end(console: Console, detail: dict[str, Any]) -> int:
    """Say why a run did not end well; returns 0 for SUCCESS and 1 for all else."""
    if detail["status"] == TaskStatus.SUCCESS:
        return 0
    why = texts.error_of(detail)
    if why and not console.as_json:
        console.say(f"yukta: the run ended {detail['status']}: {why}", "red")
    return EXIT_FAILED


def say_gap(console: Console, page: dict[str, Any]) -> None:
    """Say what a page could not show any more."""
    gap = page.get("gap")
    if not gap:
        return
    if console.as_json:
        console.say_json({"type": "stream.gap", **gap})
    else:
        console.say(f"yukta: {texts.gap(gap)}", "yellow")
