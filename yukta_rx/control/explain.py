"""Why a run stands where it does: what it waits for, and the chain of facts behind that.

Pure: it looks at a `RunView` and at nothing else.

Features: OBS-01, CTL-02.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from yukta_rx.control.run_view import Fact
from yukta_rx.errors import NotFoundError
from yukta_rx.model.status import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from yukta_rx.control.run_view import EdgeView, NodeView, RunView

NOTICED: Final = 0.1
"""Seconds that a node has to wait for the demand of a child before a run is said to wait for it.

Where messages flow, each node waits for some child for a moment, again and again."""

MOST_FACTS: Final = 100
"""Facts of one explanation."""

_NAMED: Final = 3
_OPENING: Final = "the plugins of the nodes are being opened"
_FAILED: Final = (TaskStatus.FAILURE, TaskStatus.TIMED_OUT, TaskStatus.ERROR)


def waiting_on(view: RunView) -> list[Fact]:
    """What keeps a run from going on, each cause once; nothing for one that goes on or has ended.

    A node that the others wait for, for want of room in front of it, is named as `BACK_PRESSURE`
    unless something else that is named here holds it.
    """
    if view.queue is not None:
        return [view.queue]
    if view.status.terminal:
        return []
    found = [fact for node in view.nodes.values() for fact in node.waits]
    named = {fact.node_id for fact in found}
    paced: dict[str, list[EdgeView]] = {}
    for edge in view.edges:
        if edge.blocked >= NOTICED and edge.withheld:
            if edge.source not in named:
                found.append(_behind(edge))
                named.add(edge.source)
        elif edge.blocked >= NOTICED:
            paced.setdefault(_pacer(view, edge), []).append(edge)
    for node_id, edges in paced.items():
        if node_id not in named:
            since = min(edge.blocked_since or view.since for edge in edges)
            waiting = _list(dict.fromkeys(edge.source for edge in edges))
            detail = f"{waiting} can emit no more until it has taken what waits in front of it"
            found.append(
                Fact(kind="BACK_PRESSURE", node_id=node_id, since=since, detail=detail),
            )
    return found


def why(view: RunView, node_id: str | None = None) -> list[Fact]:
    """A chain of facts from a node, or from the run, to what is behind them.

    Every node is looked at once, so it ends; `MOST_FACTS` is the most there is.

    Raises:
        NotFoundError: there is no such node.
    """
    if view.queue is not None:
        return [view.queue]
    if node_id is not None and node_id not in view.nodes:
        raise NotFoundError(f"the run has no node {node_id}", code="node_not_found", nodeId=node_id)
    chain = _Chain(view)
    facts = _of_run(chain) if node_id is None else chain.of(node_id)
    return list(islice(facts, MOST_FACTS))


def _of_run(chain: _Chain) -> Iterator[Fact]:
    view = chain.view
    if view.status.terminal:
        facts, behind = chain.end()
        yield from facts
        for node_id in behind:
            yield from chain.of(node_id)
        return
    nodes = view.nodes.values()
    ended = sum(node.status.terminal for node in nodes)
    detail = f"the run is {view.status}: {ended} of its {len(nodes)} nodes have ended"
    yield Fact(kind="RUNNING", since=view.since, detail=detail)
    if view.opening:
        yield Fact(kind="OPENING", since=view.since, detail=_OPENING)
        return
    sources = {edge.source for edge in view.edges}
    for node in nodes:
        if node.id not in sources and not node.status.terminal:
            yield from chain.of(node.id)
    for node in nodes:
        if not node.status.terminal:
            yield from chain.of(node.id)


class _Chain:
    """Follows what nodes wait for; each node once."""

    def __init__(self, view: RunView) -> None:
        self.view = view
        self._told: set[str] = set()
        self._end_told = False

    def end(self) -> tuple[list[Fact], list[str]]:
        """How the run ended and with what error, once; and the node that is to blame."""
        view, error = self.view, self.view.error
        if self._end_told:
            return [], []
        self._end_told = True
        since = view.ended or view.since
        facts = [Fact(kind="ENDED", since=since, detail=f"the run ended {view.status}")]
        if error is None:
            return facts, []
        node_id = error.get("nodeId")
        detail = f"{error.get('code', 'error')}: {error.get('detail', '')}"
        facts.append(Fact(kind="ERROR", since=since, node_id=node_id, detail=detail))
        return facts, [] if node_id is None else [node_id]

    def of(self, first: str) -> Iterator[Fact]:
        """The facts about a node, and about those that it waits for."""
        # Not by recursion: a chain may be as long as the workflow.
        left = [first]
        while left:
            node_id = left.pop()
            if node_id not in self._told and node_id in self.view.nodes:
                self._told.add(node_id)
                facts, behind = self._look(self.view.nodes[node_id])
                yield from facts
                left += reversed(behind)

    def _look(self, node: NodeView) -> tuple[list[Fact], list[str]]:
        """What is to be said of a node, and who is to be asked next."""
        view = self.view
        if node.status.terminal or view.status.terminal:
            return self._ended(node)
        if view.opening:
            return [_fact("OPENING", node, view.since, _OPENING)], []
        if node.waits:
            return list(node.waits), []
        blocked = [edge for edge in view.edges if edge.source == node.id and edge.blocked_since]
        if blocked:
            edge = max(blocked, key=lambda edge: edge.blocked)
            if edge.withheld:
                return [_behind(edge)], []
            detail = f"waits for demand of {edge.target}, which has {edge.waiting} messages to take"
            return [_fact("BACK_PRESSURE", node, edge.blocked_since, detail)], [edge.target]
        return self._at_work(node)

    def _at_work(self, node: NodeView) -> tuple[list[Fact], list[str]]:
        view = self.view
        since = node.since or view.since
        if node.children:
            detail = f"waits for the end of run {_list(node.children)}"
            return [_fact("CHILD_RUN", node, since, detail)], []
        into = [edge for edge in view.edges if edge.target == node.id]
        waiting = sum(edge.waiting for edge in into)
        if waiting:
            detail = f"is at work, with {waiting} messages to take; {node.received} so far"
            return [_fact("BUSY", node, since, detail)], []
        parents = dict.fromkeys(
            edge.source for edge in into if not view.nodes[edge.source].status.terminal
        )
        if parents:
            detail = f"waits for messages of {_list(parents)}; {node.received} so far"
            return [_fact("INPUT", node, since, detail)], list(parents)
        does = "makes messages" if node.kind == "TRIGGER" else "finishes its work"
        return [_fact("BUSY", node, since, f"{does}; {node.emitted} so far")], []

    def _ended(self, node: NodeView) -> tuple[list[Fact], list[str]]:
        since = node.ended or self.view.ended or self.view.since
        counts = f"after {node.received} messages in and {node.emitted} out"
        if node.status is TaskStatus.UPSTREAM_FAILED:
            failed = self._failed_parents(node)
            because = f" because {_list(failed)} failed" if failed else ""
            told = _fact("ENDED", node, since, f"ended {node.status}{because}, {counts}")
            return [told], failed
        facts = [_fact("ENDED", node, since, f"ended {node.status}, {counts}")]
        if node.error:
            facts.append(_fact("ERROR", node, since, _error_of(node)))
        elif node.status is TaskStatus.CANCELLED and self.view.status.terminal:
            ending, behind = self.end()
            return facts + ending, behind
        return facts, []

    def _failed_parents(self, node: NodeView) -> list[str]:
        nodes = self.view.nodes
        parents = dict.fromkeys(edge.source for edge in self.view.edges if edge.target == node.id)
        failed = (*_FAILED, TaskStatus.UPSTREAM_FAILED)
        return [one for one in parents if one in nodes and nodes[one].status in failed]


def _pacer(view: RunView, edge: EdgeView) -> str:
    """The node at the end of the chain of those that wait for one another's demand."""
    seen = {edge.source}
    while edge.target not in seen:
        seen.add(edge.target)
        further = [other for other in view.edges if other.source == edge.target]
        slowest = max(further, key=lambda other: other.blocked, default=edge)
        if slowest.withheld or slowest.blocked < NOTICED:
            break
        edge = slowest
    return edge.target


def _behind(edge: EdgeView) -> Fact:
    """A node is held back until those who take down what it does have caught up."""
    detail = "is held back until what it has emitted is recorded"
    if not edge.recording:
        detail = "is held back until what runs have said is handed on to the event feed"
    since = edge.blocked_since or ""
    return Fact(kind="BACK_PRESSURE", node_id=edge.source, since=since, detail=detail)


def _error_of(node: NodeView) -> str:
    error = node.error or {}
    told = f"{error.get('exception')}: {error.get('detail')}"
    if message_id := error.get("messageId"):
        told += f", for message {message_id}"
    if (attempts := error.get("attempts") or 1) > 1:
        told += f", at attempt {attempts}"
    return told


def _fact(kind: str, node: NodeView, since: str | None, detail: str) -> Fact:
    return Fact(kind=kind, node_id=node.id, since=since or "", detail=detail)


def _list(names: Iterable[str]) -> str:
    """Names for a sentence; of many the first few."""
    known = list(names)
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    return ", ".join(known[:_NAMED]) + more
