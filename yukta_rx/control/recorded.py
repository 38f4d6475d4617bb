"""Recorded: what the stores have of a run that nobody is told unasked: start payload, outputs.

Features: OBS-01, DUR-02.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from yukta_rx.durability.stores.checkpoints import UNFINISHED
from yukta_rx.errors import ConflictError, NotFoundError
from yukta_rx.model.claim import Claim
from yukta_rx.observe.frames import json_safe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.control.resume import Resumes
    from yukta_rx.control.starter import Starter
    from yukta_rx.durability.stores.archive import ArchivedRun
    from yukta_rx.model.message import Message
    from yukta_rx.model.workflow import WorkflowDefinition
    from yukta_rx.observe.state import RunState


class Recorded:
    """Reads of what is recorded of runs. Belongs to the loop.

    Args:
        starter: knows the log, and what nodes emitted.
        resumes: knows the runs that a crash ended.
        mask: takes secrets out of what is shown.
    """

    def __init__(
        self,
        starter: Starter,
        resumes: Resumes,
        mask: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._starter = starter
        self._resumes = resumes
        self._mask = mask

    async def payload(self, execution_id: str) -> Any:
        """What a run was started with, secrets masked.

        Raises:
            NotFoundError: the execution log has no start of such a run, or not any more.
            StoreUnavailableError: it cannot be read; names what is missing.
        """
        start = await self._starter.history.start_of(execution_id)
        if start is None:
            told = f"the execution log has no start of run {execution_id}, or not any more"
            raise _unknown(told, execution_id)
        return self._shown({"payload": start.payload})["payload"]

    async def outputs(
        self, execution_id: str, node_id: str, after: int, limit: int, state: RunState | None
    ) -> dict[str, Any]:
        """What a node emitted, in order: `{items, nextCursor, complete}`.

        `complete` says whether the node has emitted all that it will. `nextCursor` is None once all
        of that was shown; before, it is where to look for more.

        Args:
            execution_id: the run.
            node_id: the node.
            after: so many outputs were seen.
            limit: so many are shown at most.
            state: what is known of the run beside it.

        Raises:
            NotFoundError: there is no such run or node.
            ConflictError: `output_not_kept`: the output is not recorded, or not any more; `reason`.
            StoreUnavailableError: it cannot be read.
        """
        archive = self._starter.archive
        if self._starter.scheduler.pending(execution_id) is not None:
            return {"items": [], "nextCursor": str(after), "complete": False}
        # What is being read stays.
        archive.pin(execution_id)
        try:
            run = await archive.find(execution_id, whole=False)
            feeds = _feeds(await self._ran(execution_id, run, state), execution_id, node_id)
            await archive.gathered(execution_id, node_id)
            found = (await archive.states(execution_id)).get(node_id)
            if found is not None and found.reason is not None:
                raise _not_kept(found.reason, execution_id, node_id)
            if found is None and feeds and (run is None or run.status is not None):
                # Nothing was recorded while the run was live, and nothing will be.
                raise _not_kept(UNFINISHED, execution_id, node_id)
            complete = found is not None and found.complete
            if found is None and not feeds:
                # It emits nothing that is for anybody.
                complete = run is not None and node_id in run.nodes
            items = [] if found is None else await self._read(execution_id, node_id, after, limit)
            shown = [self._shown(await _row(*one)) for one in items[:limit]]
        finally:
            await archive.unpin(execution_id)
        over = complete and len(items) <= limit
        cursor = None if over else str(after + len(shown))
        return {"items": shown, "nextCursor": cursor, "complete": complete}

    async def _ran(
        self, execution_id: str, run: ArchivedRun | None, state: RunState | None
    ) -> WorkflowDefinition:
        """What a run ran of which outputs are recorded."""
        if run is not None:
            return run.definition
        if state is not None and state.parent_execution_id is not None:
            raise _not_kept("child_run", execution_id)
        if execution_id in self._resumes.needed():
            with suppress(NotFoundError):
                return await self._resumes.ran(execution_id)
        if state is None and await self._starter.history.session_of(execution_id) is None:
            raise _unknown(f"there is no run {execution_id}", execution_id)
        raise _not_kept("evicted", execution_id)

    async def _read(
        self, execution_id: str, node_id: str, after: int, limit: int
    ) -> list[tuple[str | None, Message]]:
        """The outputs behind a place: `limit` and one more, if there are as many.

        Payloads that are kept apart are not read: a row may refer to more than memory holds.
        """
        found: list[tuple[str | None, Message]] = []
        seen = 0
        rows = self._starter.archive.rows(execution_id, node_id)
        async with aclosing(rows) as recorded:
            async for row in recorded:
                if seen + len(row) > after:
                    found += list(row.messages)[max(0, after - seen) :]
                seen += len(row)
                if len(found) > limit:
                    break
        return found

    def _shown(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return self._mask({name: json_safe(one) for name, one in value.items()})


async def _row(port: str | None, msg: Message) -> dict[str, Any]:
    payload = await msg.payload.open() if type(msg.payload) is Claim else msg.payload
    row = {"id": msg.id, "payload": payload, "headers": dict(msg.headers)}
    return row if port is None else {**row, "port": port}


def _feeds(definition: WorkflowDefinition, execution_id: str, node_id: str) -> bool:
    """Whether a node of a run feeds others."""
    if all(node.node_id != node_id for node in definition.nodes):
        raise NotFoundError(
            f"run {execution_id} has no node {node_id}",
            code="node_not_found",
            executionId=execution_id,
            nodeId=node_id,
        )
    return any(edge.source == node_id for edge in definition.edges)


def _unknown(detail: str, execution_id: str) -> NotFoundError:
    return NotFoundError(detail, code="execution_not_found", executionId=execution_id)


def _not_kept(reason: str, execution_id: str, node_id: str | None = None) -> ConflictError:
    whose = f"what node {node_id} of run {execution_id} emitted"
    if node_id is None:
        whose = f"what the nodes of run {execution_id} emitted"
    detail = f"{whose} is not kept: {_REASONS.get(reason, reason)}"
    members = {"executionId": execution_id} | ({} if node_id is None else {"nodeId": node_id})
    return ConflictError(detail, code="output_not_kept", reason=reason, **members)


_REASONS = {
    "output_over_cap": "it is more than the settings of yukta.restart allow for",
    "output_unserialisable": "a message of it cannot be written",
    UNFINISHED: "the run ended before the node had emitted all",
    "left_alone": "the run began behind the node, which did nothing",
    "write_failed": "it could not be written",
    "output_damaged": "a part of it cannot be read",
    "evicted": "the run is not among the newest",
    "child_run": "it belongs to another run",
}
