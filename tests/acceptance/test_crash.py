"""Crashes: a real server with everything in files, killed at any moment of any workflow.

`YUKTA_TEST_CRASHES=200` makes as many rounds. Each has a seed, which is its name; one that failed
is made again by `-k` and that name (what the moment of the kill meets is another each time).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.acceptance.crash_server import Api, RefusedError, Server, Shop, serving
from tests.acceptance.random_workflows import (
    CHILD,
    DROPPING,
    LINES,
    LOOK,
    SESSION,
    Made,
    Maker,
    Wanted,
    Whole,
    shown,
    uninterrupted,
)
from yukta_rx.testing.clock import run_virtual

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

ROUNDS = int(os.environ.get("YUKTA_TEST_CRASHES", "10"))

OVER = {"SUCCESS", "FAILURE", "ERROR", "STOPPED", "CANCELLED", "TIMED_OUT"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.feature("DUR-01", "DUR-02", "DUR-03", "DUR-04", "DUR-05", "CTL-04", "CTL-05"),
]


@dataclass
class Start:
    """A start that is asked for.

    Attributes:
        made: its workflow.
        name: a label of its run.
        key: its idempotency key; None for none.
        waits: whether it is to be answered when the run has begun, and not before.
        execution_id: what was answered; None as long as nothing was.
        end: the end that was seen, recorded.
        signal: what an early signal said that was accepted or kept.
        stopping: whether a stop was asked for.
    """

    made: Made
    name: str
    key: str | None
    waits: bool
    execution_id: str | None = None
    end: str | None = None
    signal: int | None = None
    stopping: bool = False


@dataclass
class Known:
    """What the servers have acknowledged, starts apart.

    Attributes:
        asked: approval ids by message.
        tried: what was answered, perhaps in vain.
        answers: what was answered and acknowledged, by approval.
        commands: runs by the ids of commands that were given to them.
        limit: what the limit of runs was set to.
    """

    asked: dict[str, str] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    answers: dict[str, int] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    limit: int | None = None


@dataclass
class Found:
    """What there is in the end.

    Attributes:
        ends: how the last run of each start ended.
        results: its results.
        first: the results of its first run.
        counts: counters in KV_STORE.
    """

    ends: list[Any]
    results: list[list[Any]]
    first: list[list[Any]]
    counts: dict[str, Any]


class Round:
    """Servers on one folder that are killed, all but the last.

    Args:
        seed: decides.
        folder: where everything is kept.
        address: where the shop is.
    """

    def __init__(self, seed: str, folder: Path, address: str) -> None:
        self.rng = rng = Random(seed)
        self.folder = folder
        self.documents = [Maker(rng, f"w{n}", address).any() for n in range(rng.randint(2, 4))]
        self.documents.append(Maker(rng, "ask", address).asking())
        self.documents.append(Maker(rng, "drop", address).dropping())
        starts = [
            Start(made, f"{made.id}-{n}", rng.choice([None, f"key-{n}"]), rng.random() < 0.5)
            for made in self.documents
            for n in range(rng.choice([1, 1, 2]))
        ]
        rng.shuffle(starts)
        self.endless = Start(Maker(rng, "endless", address).endless(), "endless", "endless", True)
        self.before = Start(self.documents[0], "before", "before", True)
        self.starts = [self.before, self.endless, *starts]
        self.payload = {"items": [{"n": n} for n in range(rng.randint(0, 20))]}
        self.known = Known()
        self.kills = 0
        self.told: list[list[Any]] = []
        moments = [rng.uniform(0.01, 1.5), rng.uniform(0.01, 1.0), rng.uniform(0.2, 1.5)]
        self.first, self.second, self.boot = moments
        self.again = rng.choice(["resume", "boot", "", ""])
        self.settings = {
            "YUKTA_PROFILE": "file",
            "YUKTA_DATA_DIR": str(folder),
            "YUKTA_FILES_ALLOWED_DIRS": str(folder),
            "YUKTA_PLUGINS_ALLOW_FAULT_INJECTION": "true",
            "YUKTA_HTTP_REQUEST_ALLOW_PRIVATE": "true",
            # Each message of a SUB_WORKFLOW node is a run, too.
            "YUKTA_RESULTS_STORED_RUNS": "10000",
            "YUKTA_RESULTS_RETAINED_EVENTS": "10000",
            "YUKTA_EXECUTION_LOG_RETAINED_RUNS": "10000",
            "YUKTA_EXECUTION_MAX_CONCURRENT": str(rng.choice([0, 0, 2, 3])),
            "YUKTA_EXECUTION_PREFETCH": str(rng.choice([1, 4, 64])),
            "YUKTA_PAYLOAD_CLAIM_CHECK_BYTES": str(rng.choice([100, 262144])),
            "YUKTA_RESTART_AUTO_RESUME": rng.choice(["true", "false", "false"]),
        }
        folder.mkdir()
        lines = "".join(f'{{"n": {n}}}\n' for n in range(LINES))
        (folder / "lines.jsonl").write_text(lines)

    async def play(self) -> Found:
        """All of it."""
        async with serving(self.settings) as api:
            documents = [CHILD, LOOK, self.endless.made.document]
            documents += [made.document for made in self.documents]
            await api("PUT", f"/api/sessions/{SESSION}", {"workflows": documents})
            await self._start(api, self.before)
            self.before.end = (await api.ended(str(self.before.execution_id)))["status"]
            self.told = await self._told(api)
            await self._until_killed(api, self._work(api), self.first)
        if self.again == "resume":
            async with serving(self.settings) as api:
                await self._check_kept(api)
                await self._until_killed(api, self._settle(api), self.second)
        if self.again == "boot":
            async with Server(self.settings):
                await asyncio.sleep(self.boot)
                self.kills += 1
        async with serving(self.settings) as api:
            await self._check_kept(api)
            ends = await self._settle(api)
            await self._check_kept(api)
            return await self._collect(api, ends)

    async def _until_killed(self, api: Api, work: Coroutine[Any, Any, Any], seconds: float) -> None:
        """Work until the server is killed, which may be after all of it."""
        task = asyncio.create_task(work)
        await asyncio.wait((task,), timeout=seconds)
        api.kill()
        self.kills += 1
        try:
            await task
        except aiohttp.ClientError:
            return
        except BaseExceptionGroup as group:
            _, others = group.split(aiohttp.ClientError)
            if others is not None:
                raise others from group

    # -- before the kill

    async def _work(self, api: Api) -> None:
        rng = self.rng
        async with asyncio.TaskGroup() as group:
            for start in self.starts[1:]:
                group.create_task(self._run(api, start, rng.choice([0, 0, 0.05, 0.3])))
            group.create_task(self._answer_some(api, rng.uniform(0, 0.5)))
            if rng.random() < 0.5:
                group.create_task(self._command(api, rng.uniform(0.1, 0.4)))
            if rng.random() < 0.2:
                group.create_task(self._stop(api, rng.uniform(0.1, 1)))

    async def _start(self, api: Api, start: Start) -> None:
        headers = {} if start.key is None else {"Idempotency_Key": start.key}
        if not start.waits:
            headers["Prefer"] = "respond-async"
        body = {
            "sessionId": SESSION,
            "workflowId": start.made.id,
            "payload": self.payload,
            "labels": {"name": start.name},
        }
        answer = await api("POST", "/api/workflow/start", body, **headers)
        assert start.execution_id in (None, answer["executionId"]), "another run for the same key"
        start.execution_id = answer["executionId"]

    async def _run(self, api: Api, start: Start, pause: float) -> None:
        """Start, and see how it ends."""
        await asyncio.sleep(pause)
        await self._start(api, start)
        if start.made.asks and self.rng.random() < 0.5:
            await self._signal(api, start)
        ended = await api("GET", f"/api/executions/{start.execution_id}/wait?timeout=30")
        if ended is not None and ended["recorded"]:
            start.end = ended["status"]

    async def _signal(self, api: Api, start: Start) -> None:
        """Answer before anything is asked, perhaps."""
        data = self._data()
        body = {"name": "go", "decision": "yes", "data": data}
        with suppress(RefusedError):
            [ask] = [
                node["nodeId"]
                for node in start.made.document["nodes"]
                if node["type"] == "WAIT_FOR_SIGNAL"
            ]
            path = f"/api/executions/{start.execution_id}/nodes/{ask}/signal"
            answer = await api("POST", path, body)
            if answer["answer"] == "ACCEPTED" or not self.known.tried - {data}:
                start.signal = data

    def _data(self) -> int:
        data = self.rng.randint(1, 10**9)
        self.known.tried.add(data)
        return data

    async def _answer_some(self, api: Api, pause: float) -> None:
        await asyncio.sleep(pause)
        while True:
            await self._answer(api, 0.3)
            await asyncio.sleep(0.05)

    async def _answer(self, api: Api, share: float) -> None:
        """Answer approvals that are open."""
        known = self.known
        for item in await api.all("/api/approvals"):
            name = known.asked.setdefault(item["messageId"], item["approvalId"])
            assert name == item["approvalId"], "another approval for the same message"
            assert name not in known.answers, "asked again for what was answered"
            if self.rng.random() < share:
                data = self._data()
                with suppress(RefusedError):
                    body = {"decision": "yes", "data": data}
                    await api("POST", f"/api/approvals/{name}", body)
                    known.answers[name] = data

    async def _command(self, api: Api, pause: float) -> None:
        """Give commands that do not change what comes out."""
        await asyncio.sleep(pause)
        limit = self.rng.randint(4, 9)
        await api("PUT", f"/api/scheduler/limits?maxConcurrent={limit}&perWorkflow=0")
        self.known.limit = limit
        for start in self.starts:
            for word in ("pause", "resume"):
                if start.execution_id is not None:
                    with suppress(RefusedError):
                        path = f"/api/executions/{start.execution_id}/{word}"
                        answer = await api("POST", path)
                        self.known.commands[answer["commandId"]] = start.execution_id
                        await asyncio.sleep(0.02)

    async def _stop(self, api: Api, pause: float) -> None:
        await asyncio.sleep(pause)
        if self.endless.execution_id is not None:
            self.endless.stopping = True
            path = f"/api/executions/{self.endless.execution_id}/stop?mode=CANCEL"
            with suppress(RefusedError):
                answer = await api("POST", path)
                self.known.commands[answer["commandId"]] = self.endless.execution_id

    # -- after a kill

    async def _told(self, api: Api) -> list[list[Any]]:
        run = str(self.before.execution_id)
        return [await api.results(run), await api.all(f"/api/events?executionId={run}")]

    async def _check_kept(self, api: Api) -> None:
        """What was acknowledged is there."""
        known = self.known
        for start in self.starts:
            if start.execution_id is not None:
                found = await api("GET", f"/api/executions/{start.execution_id}")
                assert start.end in (None, found["status"]), found
                if start.key is not None:
                    await self._start(api, start)
        for command_id, execution_id in known.commands.items():
            rows = await api.all(f"/api/executions/{execution_id}/history")
            assert command_id in [row.get("commandId") for row in rows], rows
        if known.limit is not None:
            limits = await api("GET", "/api/scheduler/limits")
            assert limits["maxConcurrent"] == known.limit
        results, events = await self._told(api)
        assert results == self.told[0]
        # Its last events may have been told after they were asked for.
        assert events[: len(self.told[1])] == self.told[1]

    async def _settle(self, api: Api) -> list[Any]:
        """Go on with everything to its end: the end of the last run of each start."""
        answering = asyncio.create_task(self._answer_all(api))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._finish(api, start)) for start in self.starts]
        finally:
            answering.cancel()
            with suppress(asyncio.CancelledError, aiohttp.ClientError):
                await answering
        return [task.result() for task in tasks]

    async def _answer_all(self, api: Api) -> None:
        while True:
            await self._answer(api, 1)
            await asyncio.sleep(0.05)

    async def _finish(self, api: Api, start: Start) -> Any:
        """The end of what a start comes to, by as many resumes as it takes."""
        if start.execution_id is None and start.key is None:
            # It may have been started, though nobody was told so.
            runs = await api.all(f"/api/executions?workflowId={start.made.id}")
            for run in reversed(runs):
                if run["labels"] == {"name": start.name}:
                    start.execution_id = start.execution_id or run["executionId"]
        if start.execution_id is None:
            await self._start(api, start)
        execution_id = str(start.execution_id)
        while True:
            found = await api("GET", f"/api/executions/{execution_id}")
            if found["status"] in OVER:
                return await api.ended(execution_id)
            if found["status"] == "ABORTED":
                execution_id = await self._recover(api, execution_id)
                continue
            if start is self.endless and found["status"] == "RUNNING":
                await asyncio.sleep(0.5)
                await api("POST", f"/api/executions/{execution_id}/stop?mode=DRAIN")
            await api("GET", f"/api/executions/{execution_id}/wait?timeout=1")

    async def _recover(self, api: Api, execution_id: str) -> str:
        """Resume a run, asked for twice at once; the id of the run that goes on."""
        path = f"/api/executions/{execution_id}/recover"
        asked = [api("POST", path, Prefer="respond-async") for _ in range(2)]
        begun = set()
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, RefusedError):
                problem = answer.problem
                assert (answer.status, problem["reason"]) == (409, "already_resumed"), problem
                begun.add(problem.get("resumedBy"))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                begun.add(answer["executionId"])
        [name] = begun - {None}
        return str(name)

    async def _collect(self, api: Api, ends: list[Any]) -> Found:
        counts = {}
        for made in self.documents:
            for key in made.counted:
                answer = await api("POST", f"/api/workflow/{SESSION}/look/run", {"key": key})
                counts[key] = answer["results"][0]["payload"]["value"]
        return Found(
            ends,
            [await api.results(end["executionId"]) for end in ends],
            [await api.results(str(start.execution_id)) for start in self.starts],
            counts,
        )

    # -- in the end

    def wanted(self) -> list[Wanted]:
        """The runs that are the same whatever the timing, for this process."""
        return [
            Wanted(start.made, str(start.execution_id), self.payload)
            for start in self.starts
            if start.made.exact
        ]

    def check(self, found: Found, wholes: list[Whole], counts: dict[str, Any], shop: Shop) -> None:
        """Every result is there once, every effect at least once."""
        rest = iter(wholes)
        sent: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        lines: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for start, end, items, first in zip(
            self.starts, found.ends, found.results, found.first, strict=True
        ):
            results = results_of(items)
            if start is self.endless:
                check_endless(end, items, first, stopping=start.stopping)
                continue
            assert end["status"] == "SUCCESS", end
            if not start.made.exact:
                numbers = Counter(json.loads(payload)["n"] for _, _, payload in results.elements())
                assert numbers == Counter(range(DROPPING))
                continue
            whole = next(rest)
            assert results == whole.results, (results - whole.results, whole.results - results)
            assert results_of(first) <= whole.results
            if start.made.asks:
                self._check_answers(start, items)
            for node, ids in whole.sent.items():
                sent[start.made.id, node] |= ids
                times = Counter(name for name, _ in shop.sent[start.made.id, node] if name in ids)
                # Only calls that were under way may be made again: their outcome is not known.
                again = times.total() - len(times)
                assert again <= start.made.requests[node] * self.kills, "repeated, though recorded"
            for (node, _, payload), times in whole.results.items():
                lines[start.made.id, node][payload] += times
        assert found.counts == counts
        self._check_sent(sent, shop)
        self._check_files(lines)

    def _check_answers(self, start: Start, items: list[Any]) -> None:
        """Messages were let through by the answers that were given, each by one."""
        results = [item for item in items if item["type"] == "RESULT"]
        data = [item["headers"]["signal.data"] for item in results]
        assert len(data) == len(set(data))
        assert set(data) <= self.known.tried
        if start.signal is not None:
            assert start.signal in data, "an accepted signal is lost"

    def _check_sent(self, wanted: dict[tuple[str, str], set[str]], shop: Shop) -> None:
        for made in self.documents:
            for node in made.requests:
                keys = dict(shop.sent[made.id, node])
                assert set(keys) == wanted[made.id, node]
                assert set(shop.sent[made.id, node]) == set(keys.items()), "another key for it"

    def _check_files(self, wanted: dict[tuple[str, str], Counter[str]]) -> None:
        for made in self.documents:
            for node in made.files:
                text = (self.folder / f"{made.id}-{node}.jsonl").read_text()
                lines = Counter(shown(json.loads(line)) for line in text.splitlines())
                assert set(lines) == set(wanted[made.id, node])
                assert lines >= wanted[made.id, node]


def check_endless(end: Any, items: list[Any], first: list[Any], *, stopping: bool) -> None:
    """Numbers without a gap, and in the first run nothing else."""
    assert end["status"] == "STOPPED" or (stopping and end["status"] == "CANCELLED"), end
    numbers, before = (
        [item["payload"]["n"] for item in part if item["type"] == "RESULT"]
        for part in (items, first)
    )
    assert numbers == list(range(len(numbers)))
    assert before == numbers[: len(before)]


def results_of(items: list[Any]) -> Counter[tuple[str, str, str]]:
    """Terminal, message id and payload of each result."""
    return Counter(
        (item["nodeId"], item["messageId"], shown(item["payload"]))
        for item in items
        if item["type"] == "RESULT"
    )


@pytest.mark.parametrize("seed", [f"crash-{n}" for n in range(ROUNDS)])
def test_what_was_acknowledged_outlives_crashes_and_the_rest_goes_on(
    seed: str, tmp_path: Path
) -> None:
    shop = Shop()

    async def play() -> tuple[Round, Found]:
        async with shop.open() as address:
            made = Round(seed, tmp_path / "data", address)
            return made, await made.play()

    made, found = asyncio.run(play())
    wholes, counts = run_virtual(uninterrupted(made.folder, made.wanted()))
    made.check(found, wholes, counts, shop)
