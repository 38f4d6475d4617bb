"""`yukta serve` with everything in files, killed with SIGKILL, as clients of streams see it."""

from __future__ import annotations

import http.client
import itertools
import json
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from yukta_rx.model.sse_parser import SseParser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.slow, pytest.mark.feature("OBS-01", "OBS-03", "DUR-05")]

FLOWS = {
    "tick": [
        ("t", "SEQUENCE_TRIGGER", {"count": 0, "intervalMs": 8}),
        ("show", "CONSOLE_TERMINAL"),
    ],
    "some": [("t", "SEQUENCE_TRIGGER", {"count": 25}), ("out", "COLLECT_TERMINAL")],
}


@pytest.fixture
def flows(tmp_path: Any, workflow: Callable[..., str]) -> str:
    """A folder with a session `s` that has one endless workflow and one that ends."""
    (tmp_path / "flows" / "s").mkdir(parents=True)
    for name, nodes in FLOWS.items():
        workflow(*nodes, name=f"flows/s/{name}.json", workflowId=name)
    return "flows"


@pytest.fixture
def durable(
    serve: Callable[..., Any], flows: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """Start a server on the same port and the same data folder each time."""
    monkeypatch.setenv("YUKTA_PROFILE", "file")
    monkeypatch.setenv("YUKTA_DATA_DIR", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return lambda: serve("--apply", flows, port=port)


def ask(port: int, path: str) -> Any:
    """A JSON answer."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        client.request("GET", path, headers={"Accept": "application/json"})
        answer = client.getresponse()
        body = json.loads(answer.read())
    finally:
        client.close()
    assert answer.status == 200, body
    return body


def stream(port: int, path: str, after: str | None) -> Iterator[Any]:
    """The events of a stream until the connection ends, however it does."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {} if after is None else {"Last-Event-ID": after}
    parser = SseParser()
    try:
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        assert answer.status == 200, answer.read()
        while data := answer.read1(65536):
            yield from parser.feed(data)
    except (ConnectionError, http.client.HTTPException):
        return
    finally:
        client.close()


def listed(port: int) -> list[dict[str, Any]]:
    """All events that the server still has, page by page."""
    found: list[dict[str, Any]] = []
    place = ""
    while True:
        page = ask(port, f"/api/events?limit=100{place}")
        found += page["items"]
        if not page["items"]:
            return found
        place = f"&afterCursor={page['nextCursor']}"


def test_case_27_a_client_of_the_feed_goes_on_over_crashes(durable: Callable[[], Any]) -> None:
    place: str | None = None
    seen: list[tuple[str, str]] = []
    told: list[list[str]] = []
    for _ in range(3):
        server = durable()
        server.ask("start", "s/tick")
        says: list[str] = []
        facts = 0
        for event in stream(server.port, "/api/events/stream", place):
            place = event.id or place
            if event.type.startswith("stream."):
                says.append(event.type)
                if event.type == "stream.reset":
                    says[-1] += " " + json.loads(event.data)["reason"]
                    seen.append(("reset", ""))
                continue
            if event.id and json.loads(event.data).get("id") == event.id:
                seen.append((event.id, event.data))
                facts += 1
                if facts == 150:
                    # While the client still reads: it may have more than the disk.
                    server.process.send_signal(signal.SIGKILL)
        server.process.wait(timeout=20)
        told.append(says)

    server = durable()
    stored = {item["id"]: item for item in listed(server.port)}
    ids = [id for id, _ in seen if id != "reset"]
    epochs = list(dict.fromkeys(id.partition(":")[0] for id in ids))
    # Never an id twice, and each life has one epoch.
    assert len(ids) == len(set(ids)) >= 3 * 150
    assert len(epochs) == 3
    # Each number follows the one before, or a reset stands between the two.
    for (before, _), (id, _) in itertools.pairwise(seen):
        if "reset" not in (before, id):
            assert int(id.partition(":")[2]) == int(before.partition(":")[2]) + 1
    assert told[0] == ["stream.hello"]
    for says in told[1:]:
        assert says in (["stream.hello"], ["stream.hello", "stream.reset epoch"])
    # What the server still has is what the client was told, in the same words.
    shown = dict(seen)
    assert sum(id in stored for id in ids) > 250
    for id, item in stored.items():
        if id in shown:
            assert json.loads(shown[id]) == item
    numbers = [int(id.partition(":")[2]) for id in stored]
    assert numbers == list(range(1, len(numbers) + 1))


def test_results_are_read_on_by_cursor_after_a_crash(durable: Callable[[], Any]) -> None:
    server = durable()
    run = server.ask("start", "s/some").out.strip()
    path = f"/api/sessions/s/executions/{run}/results"
    live = []
    for event in stream(server.port, path, None):
        live.append((event.id, event.type, event.data))
        if len(live) == 10:
            break
    deadline = time.monotonic() + 20
    while True:
        shown = ask(server.port, f"/api/executions/{run}")
        if (shown["status"], shown["recorded"]) == ("SUCCESS", True):
            break
        assert time.monotonic() < deadline, shown
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(timeout=20)

    server = durable()
    rest = [(event.id, event.type, event.data) for event in stream(server.port, path, live[-1][0])]
    page = ask(server.port, f"{path}?limit=500")

    frames = [frame for frame in live + rest if not frame[1].startswith("stream.")]
    assert [int(id) for id, _, _ in frames] == list(range(1, 28))
    assert [kind for _, kind, _ in frames] == ["RESULT"] * 25 + ["NODE_END", "EXECUTION_END"]
    assert [json.loads(data)["payload"] for _, _, data in frames[:25]] == [
        item["payload"] for item in page["items"][:25]
    ]
    assert (len(page["items"]), page["nextCursor"]) == (27, None)
    assert json.loads(frames[-1][2])["truncated"] is False


def test_an_interrupted_run_has_its_results_and_an_end(durable: Callable[[], Any]) -> None:
    server = durable()
    run = server.ask("start", "s/tick").out.strip()
    path = f"/api/sessions/s/executions/{run}/results"
    live = []
    for event in stream(server.port, path, None):
        if event.type == "RESULT":
            live.append((event.id, json.loads(event.data)["payload"]))
        if len(live) == 200:
            server.process.send_signal(signal.SIGKILL)
    server.process.wait(timeout=20)

    server = durable()
    after = [
        (event.id, event.type, json.loads(event.data))
        for event in stream(server.port, path, None)
        if not event.type.startswith("stream.")
    ]

    results = [(id, item["payload"]) for id, kind, item in after if kind == "RESULT"]
    common = min(len(results), len(live))
    # All but the last few of a moment, and nothing else in their place.
    assert results[:common] == live[:common]
    assert common > 50
    id, kind, end = after[-1]
    assert (kind, end["status"], int(id)) == ("EXECUTION_END", "ABORTED", len(results) + 1)
