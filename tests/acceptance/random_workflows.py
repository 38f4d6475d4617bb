"""Random workflows of built-in nodes, and what they come to when nothing interrupts them.

Whatever the timing, a workflow gives the same messages with the same ids: what depends on the order
of messages (BATCH, DEDUPLICATE by payload) stands only where their order is always the same.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from yukta_rx.app import Engine
from yukta_rx.config.load import load_settings
from yukta_rx.control.continuation import Continuation
from yukta_rx.control.start_request import StartRequest
from yukta_rx.model.status import TaskStatus
from yukta_rx.plugins.contract import Message, processor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from random import Random

SESSION = "s"
LINES = 24
"""Lines of the file that FILE_TRIGGER reads."""

DROPPING = 40
"""Messages of a workflow whose buffer drops."""

CHILD = {
    "workflowId": "child",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER", "config": {"splitPath": "items"}},
        {"nodeId": "wait", "type": "DELAY", "config": {"ms": 2}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "wait"}, {"source": "wait", "target": "out"}],
}
LOOK = {
    "workflowId": "look",
    "nodes": [
        {"nodeId": "in", "type": "API_TRIGGER"},
        {"nodeId": "get", "type": "KV_STORE", "config": {"op": "get", "key": "${payload.key}"}},
        {"nodeId": "out", "type": "COLLECT_TERMINAL"},
    ],
    "edges": [{"source": "in", "target": "get"}, {"source": "get", "target": "out"}],
}


class Way(NamedTuple):
    """A way out of a node that nothing is connected to yet.

    Attributes:
        node: the node.
        port: its port; None for the default one.
        ordered: whether the messages always come in the same order.
    """

    node: str
    port: str | None
    ordered: bool


@dataclass
class Made:
    """A workflow.

    Attributes:
        document: as it is saved.
        counted: keys of its counters in KV_STORE.
        requests: its HTTP_REQUEST nodes, with how many of their requests may be under way.
        files: its FILE_TERMINAL nodes.
        asks: whether messages wait for a signal.
        exact: whether what comes out does not depend on timing.
    """

    document: dict[str, Any]
    counted: list[str] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    asks: bool = False
    exact: bool = True

    @property
    def id(self) -> str:
        return str(self.document["workflowId"])


class Maker:
    """Makes one workflow.

    Args:
        rng: decides.
        workflow_id: its id.
        address: where HTTP_REQUEST nodes send to.
    """

    def __init__(self, rng: Random, workflow_id: str, address: str) -> None:
        self.rng = rng
        self.address = address
        self.made = Made({"workflowId": workflow_id, "nodes": [], "edges": []})
        self.ways: list[Way] = []

    # -- parts

    def node(
        self, type: str, config: dict[str, Any] | None = None, *parents: Way, **engine: Any
    ) -> str:
        """Add a node behind these; returns its id."""
        document = self.made.document
        name = f"{type.split('_')[0].lower()}{len(document['nodes'])}"
        if parents and self.rng.random() < 0.15:
            overflow = self.rng.choice(["SPILL", "BLOCK"])
            engine["edgeBuffer"] = {"size": self.rng.randint(1, 8), "overflow": overflow}
        config = dict(config or {}) | ({"engine": engine} if engine else {})
        document["nodes"].append({"nodeId": name, "type": type, "config": config})
        for way in parents:
            port = {} if way.port is None else {"sourcePort": way.port}
            document["edges"].append({"source": way.node, "target": name} | port)
        return name

    def several(self) -> tuple[dict[str, Any], bool, int]:
        """Perhaps more than one call at once: policy, whether order is kept, how many."""
        if self.rng.random() < 0.5:
            return {}, True, 1
        ordered, most = self.rng.random() < 0.7, self.rng.randint(2, 5)
        return {"concurrency": {"max": most, "ordered": ordered}}, ordered, most

    def trigger(self) -> Way:
        rng, kind = self.rng, self.rng.randrange(4)
        count = rng.randint(5, 40)
        if kind == 0:
            pause = rng.choice([0, 0, 5, 20])
            return Way(
                self.node("SEQUENCE_TRIGGER", {"count": count, "intervalMs": pause}), None, True
            )
        if kind == 1:
            return Way(self.node("API_TRIGGER", {"splitPath": "items"}), None, True)
        if kind == 2:
            return Way(self.node("FILE_TRIGGER", {"path": "lines.jsonl"}), None, True)
        name = self.node("INTERVAL_TRIGGER", {"everyMs": rng.randint(1, 20), "count": count})
        # Which ticks there are depends on timing, how many does not.
        name = self.node("TRANSFORM", {"replace": {"n": 7}}, Way(name, None, True))
        return Way(name, None, True)

    def take(self) -> Way:
        """A way that goes on; it may go on another way as well."""
        way = self.rng.choice(self.ways)
        if self.rng.random() < 0.75:
            self.ways.remove(way)
        return way

    def step(self) -> None:
        """Put something behind one of the ways."""
        way = self.take()
        simple: list[Callable[[Way], Iterable[Way]]] = [
            *(self.filter, self.transform, self.split, self.switch, self.delay, self.rate_limit),
            *(self.count, self.child, self.request, self.retry, self.route, self.merge),
            *(self.delay, self.request, self.count),
        ]
        if way.ordered:
            simple += [self.batch, self.unique]
        self.ways.extend(self.rng.choice(simple)(way))

    def filter(self, way: Way) -> Iterable[Way]:
        rest = self.rng.randint(0, 2)
        name = self.node("FILTER", {"when": f"payload.n % 3 != {rest}"}, way)
        return [Way(name, None, way.ordered)]

    def transform(self, way: Way) -> Iterable[Way]:
        size = self.rng.choice([1, 1, 1, 400])
        name = self.node("TRANSFORM", {"set": {"text": "x" * size}}, way)
        return [Way(name, None, way.ordered)]

    def split(self, way: Way) -> Iterable[Way]:
        elements = [{"n": "${payload.n:int}", "part": n} for n in range(self.rng.randint(0, 4))]
        name = self.node("TRANSFORM", {"replace": {"items": elements}}, way)
        name = self.node("SPLIT", {"path": "items"}, Way(name, None, way.ordered))
        return [Way(name, None, way.ordered)]

    def switch(self, way: Way) -> Iterable[Way]:
        cases = [
            {"port": "small", "when": "payload.n < 8"},
            {"port": "even", "when": "payload.n % 2 == 0"},
        ]
        name = self.node("SWITCH", {"cases": cases, "otherwise": "rest"}, way)
        return [Way(name, port, way.ordered) for port in ("small", "even", "rest")]

    def delay(self, way: Way) -> Iterable[Way]:
        engine, kept, _ = self.several()
        name = self.node("DELAY", {"ms": self.rng.randint(1, 30)}, way, **engine)
        return [Way(name, None, way.ordered and kept)]

    def rate_limit(self, way: Way) -> Iterable[Way]:
        config = {"perSecond": self.rng.choice([50, 200, 1000]), "burst": self.rng.randint(1, 5)}
        return [Way(self.node("RATE_LIMIT", config, way), None, way.ordered)]

    def count(self, way: Way) -> Iterable[Way]:
        engine, kept, _ = self.several()
        key = f"{self.made.id}/{len(self.made.counted)}"
        self.made.counted.append(key)
        config = {"op": "incr", "key": key, "target": "count"}
        name = self.node("KV_STORE", config, way, **engine)
        # Which message has which number depends on timing.
        name = self.node("TRANSFORM", {"remove": ["count"]}, Way(name, None, way.ordered and kept))
        return [Way(name, None, way.ordered and kept)]

    def child(self, way: Way) -> Iterable[Way]:
        engine, kept, _ = self.several()
        items = [{"n": "${payload.n:int}", "part": n} for n in range(self.rng.randint(1, 3))]
        config = {"workflowId": "child", "payload": {"items": items}}
        name = self.node("SUB_WORKFLOW", config, way, **engine)
        name = self.node("SPLIT", {"path": "results"}, Way(name, None, way.ordered and kept))
        return [Way(name, None, way.ordered and kept)]

    def request(self, way: Way) -> Iterable[Way]:
        engine, kept, most = self.several()
        body = {"id": "${id}", "payload": "${payload:json}"}
        name = self.node("HTTP_REQUEST", {}, way, **engine)
        url = f"{self.address}/{self.made.id}/{name}"
        self.made.document["nodes"][-1]["config"] |= {"url": url, "method": "POST", "body": body}
        self.made.requests[name] = most
        config = {"replace": "${payload.body.payload:json}"}
        name = self.node("TRANSFORM", config, Way(name, None, way.ordered and kept))
        return [Way(name, None, way.ordered and kept)]

    def retry(self, way: Way) -> Iterable[Way]:
        engine, kept, _ = self.several()
        fails, before = self.rng.randint(1, 2), self.rng.randint(0, 2)
        engine |= {"retry": {"maxAttempts": 3, "backoffMs": self.rng.choice([0, 5])}}
        config = {"failTimes": fails, "emitBeforeFailing": before, "delayMs": 1}
        name = self.node("FAULT_INJECTOR", config, way, **engine)
        return [Way(name, None, way.ordered and kept)]

    def route(self, way: Way) -> Iterable[Way]:
        engine, kept, _ = self.several()
        engine["onError"] = self.rng.choice(["ROUTE", "ROUTE", "CONTINUE"])
        if self.rng.random() < 0.5:
            engine["retry"] = {"maxAttempts": 2, "backoffMs": 1}
        name = self.node("FAULT_INJECTOR", {"failWhen": "payload.n % 4 == 1"}, way, **engine)
        ways = [Way(name, None, way.ordered and kept)]
        if engine["onError"] == "ROUTE":
            ways.append(Way(name, "error", False))
        return ways

    def merge(self, way: Way) -> Iterable[Way]:
        parents = {(way.node, way.port): way}
        for _ in range(self.rng.randint(1, 2)):
            other = self.rng.choice(self.ways or [way])
            parents[other.node, other.port] = other
        alone = len(parents) == 1
        name = self.node("TRANSFORM", {"set": {"merged": True}}, *parents.values())
        return [Way(name, None, alone and way.ordered)]

    def batch(self, way: Way) -> Iterable[Way]:
        name = self.node("BATCH", {"size": self.rng.randint(2, 7)}, way)
        batches = Way(name, None, True)
        if self.rng.random() < 0.3:
            self.end(batches)
        return [Way(self.node("SPLIT", {"path": "items"}, batches), None, True)]

    def unique(self, way: Way) -> Iterable[Way]:
        name = self.node("DEDUPLICATE", {"key": "${payload.n:int}", "window": 50}, way)
        return [Way(name, None, True)]

    def end(self, way: Way) -> None:
        """Put a terminal there."""
        if self.rng.random() < 0.3:
            name = self.node("FILE_TERMINAL", {"path": "?"}, way)
            path = f"{self.made.id}-{name}.jsonl"
            self.made.document["nodes"][-1]["config"]["path"] = path
            self.made.files.append(name)
        else:
            self.node("COLLECT_TERMINAL", {}, way)

    def any(self) -> Made:
        """A graph of up to some twenty nodes."""
        self.ways += [self.trigger() for _ in range(self.rng.choice([1, 1, 1, 2]))]
        for _ in range(self.rng.randint(1, 8)):
            self.step()
        for way in self.ways:
            self.end(way)
        return self.made

    def asking(self) -> Made:
        """Some messages that wait for a signal."""
        way = Way(self.node("SEQUENCE_TRIGGER", {"count": self.rng.randint(2, 5)}), None, True)
        [way] = self.delay(way)
        most = self.rng.choice([1, 10])
        name = self.node("WAIT_FOR_SIGNAL", {"signal": "go", "maxWaiting": most}, way)
        self.made.asks = True
        [way] = self.transform(Way(name, None, True))
        self.node("COLLECT_TERMINAL", {}, way)
        return self.made

    def endless(self) -> Made:
        """Numbers until somebody stops it."""
        name = self.node("SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 25})
        self.node("COLLECT_TERMINAL", {}, Way(name, None, True))
        self.made.exact = False
        return self.made

    def dropping(self) -> Made:
        """Numbers that either get through a buffer or leave by its port `dropped`."""
        name = self.node("SEQUENCE_TRIGGER", {"count": DROPPING, "intervalMs": 4})
        slow = self.node("DELAY", {"ms": 12}, Way(name, None, True))
        overflow = self.rng.choice(["DROP_OLDEST", "DROP_NEWEST"])
        self.made.document["nodes"][-1]["config"]["engine"] = {
            "edgeBuffer": {"size": 2, "overflow": overflow}
        }
        self.node("COLLECT_TERMINAL", {}, Way(slow, None, True))
        self.node("COLLECT_TERMINAL", {}, Way(slow, "dropped", True))
        self.made.exact = False
        return self.made


# --- the run that nothing interrupts -------------------------------------------------------------


@dataclass
class Whole:
    """What a run comes to.

    Attributes:
        results: terminal, message id and payload of each result.
        sent: ids of the messages of each HTTP_REQUEST node.
    """

    results: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sent: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


@dataclass
class Wanted:
    """A run that is to be made in this process.

    Attributes:
        made: the workflow.
        lineage: the id of the first run of that work.
        payload: what it was started with.
    """

    made: Made
    lineage: str
    payload: Any

    @property
    def document(self) -> dict[str, Any]:
        """The workflow, with what stands in for nodes that have effects, or that wait."""
        nodes = []
        for node in self.made.document["nodes"]:
            type, config = node["type"], node["config"]
            if type == "HTTP_REQUEST":
                type, config = "SENT", {}
            elif type == "FILE_TERMINAL":
                type, config = "COLLECT_TERMINAL", {}
            elif type == "WAIT_FOR_SIGNAL":
                type, config = "ANSWERED", {}
            nodes.append({"nodeId": node["nodeId"], "type": type, "config": config})
        return {**self.made.document, "nodes": nodes}


async def uninterrupted(folder: Path, wanted: Iterable[Wanted]) -> tuple[list[Whole], Any]:
    """Run all of them, one after the other: what each comes to, and a reader of counters."""
    whole = Whole()

    @processor("SENT", blocking=False)
    def sent(msg: Message, cfg: Any, ctx: Any) -> Any:
        """An HTTP_REQUEST that is answered with what was sent."""
        whole.sent[ctx.node_id].add(msg.id)
        return {"body": {"payload": msg.payload}}

    @processor("ANSWERED", blocking=False)
    def answered(msg: Message, cfg: Any, ctx: Any) -> Any:
        """A message that was let through."""
        return msg

    overrides = {
        "yukta.data.dir": str(folder),
        "yukta.files.allowed-dirs": [str(folder)],
        "yukta.plugins.allow-fault-injection": True,
        "yukta.results.retained-events": 10_000,
    }
    settings = load_settings(overrides=overrides, environ={})
    found: list[Whole] = []
    counts: dict[str, Any] = {}
    async with Engine(settings, plugins=[sent, answered]) as engine:
        for document in (CHILD, LOOK):
            await engine._save(SESSION, document)
        for one in wanted:
            whole = Whole()
            await engine._save(SESSION, one.document)
            record = await engine.definitions.get(SESSION, one.made.id)
            started = await engine._starter.start(
                StartRequest(
                    session_id=SESSION,
                    workflow_id=one.made.id,
                    payload=one.payload,
                    continuation=Continuation(
                        definition=record.definition, base_dir=folder, lineage=one.lineage
                    ),
                )
            )
            detail = await engine.gateway.wait(started.execution_id, 3600)
            assert detail["status"] == TaskStatus.SUCCESS, detail
            channel = await engine.results.open(started.execution_id)
            whole.results = Counter(
                (item.node_id, item.message_id, shown(item.payload))
                for item in (await channel.fetch(None, 10_000)).items
                if item.type == "RESULT"
            )
            found.append(whole)
            for key in one.made.counted:
                run = await engine.start(SESSION, "look", {"key": key})
                [counts[key]] = [
                    item.payload["value"] async for item in run.results() if item.type == "RESULT"
                ]
    return found, counts


def shown(payload: Any) -> str:
    """A payload as a text that is the same for equal ones."""
    return json.dumps(payload, sort_keys=True)
