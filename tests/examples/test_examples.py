"""Every example runs to SUCCESS as its README says, with exact counts."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/workflow.json"))

pytestmark = pytest.mark.slow


def run(*args: str) -> tuple[int, list[Any], str]:
    done = subprocess.run(
        [sys.executable, "-m", "yukta_rx", "run", *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.feature("ENG-01")
def test_airports_become_features_and_pages_and_none_is_lost() -> None:
    with (EXAMPLES / "airports" / "airports.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    code, results, err = run("examples/airports/workflow.json")

    assert code == 0
    assert err.splitlines()[-1].startswith(
        "SUCCESS airports: 7 nodes (7 SUCCESS), 3376 messages in"
    )
    assert "read: SUCCESS (in 0, out 3376)" in err
    assert "count: SUCCESS (in 3376, out 0)" in err
    assert "page: SUCCESS (in 3376, out 16)" in err
    pages = [result["payload"] for result in results]
    assert pages == [
        {
            "page": f"{first['iata']} to {last['iata']}",
            "begins": f"{first['name']}, {first['city']}, {first['state']}",
            "at": [float(first["longitude"]), float(first["latitude"])],
        }
        for first, last in zip(rows[::211], rows[210::211], strict=True)
    ]


@pytest.mark.feature("ENG-01")
def test_ids_are_unique_within_a_run_and_between_runs() -> None:
    _, first, _ = run("examples/orders/workflow.json", "--payload", "@examples/orders/payload.json")
    _, second, _ = run(
        "examples/orders/workflow.json", "--payload", "@examples/orders/payload.json"
    )

    ids = [{result["messageId"] for result in results} for results in (first, second)]
    assert len(ids[0]) == len(first)
    assert ids[0].isdisjoint(ids[1])


@pytest.mark.feature("ENG-01")
def test_orders_give_a_mail_each_and_two_entries_per_line_that_has_a_price() -> None:
    payload = json.loads((EXAMPLES / "orders" / "payload.json").read_text())
    lines = [line for order in payload["orders"] for line in order["lines"]]

    code, results, err = run(
        "examples/orders/workflow.json", "--payload", "@examples/orders/payload.json"
    )

    assert code == 0
    assert err.splitlines()[-1].startswith("SUCCESS orders: 9 nodes (9 SUCCESS), 5 messages in, 31")
    by_node = Counter(result["nodeId"] for result in results)
    assert by_node == {"mail": 5, "ledger": 25, "unpriced": 1}
    entries = [result["payload"] for result in results if result["nodeId"] == "ledger"]
    prices = [entry for entry in entries if entry["kind"] == "price"]
    assert sum(entry["each"] * entry["quantity"] for entry in prices) == pytest.approx(
        sum(
            float(line["price"]) * line["quantity"]
            for line in lines
            if line["price"] != "on request"
        )
    )
    [letter] = [result for result in results if result["nodeId"] == "unpriced"]
    assert letter["payload"] == lines[-3]
    assert "unpriced | ask for a price: {" in err
    assert re.search(r"price: message \w{32} failed after 1 attempt, sent to port error: ", err)
    assert "price: SUCCESS (in 13, out 12, failed 1)" in err
    picks = [entry for entry in entries if entry["kind"] == "pick"]
    assert [entry["what"] for entry in picks] == [
        f"{line['quantity']} x {line['sku']}" for line in lines
    ]
    assert [entry["shelf"] for entry in picks].count("ask") == 1
    assert 'mail | mail: "Dear Amélie Roux, your order 4711 is accepted."' in err


@pytest.mark.feature("DUR-04")
def test_the_desk_numbers_questions_and_remembers_what_was_asked() -> None:
    code, results, err = run(
        "examples/desk/workflow.json", "--payload", "@examples/desk/payload.json"
    )

    assert code == 0
    assert err.splitlines()[-1].startswith("SUCCESS desk: 5 nodes (5 SUCCESS), 4 messages in, 4")
    answers = [result["payload"] for result in results]
    assert [(one["customer"], one["number"], len(one["history"])) for one in answers] == [
        ("Ada", 1, 1),
        ("Bob", 1, 1),
        ("Ada", 2, 2),
        ("Ada", 3, 2),
    ]
    assert answers[3]["history"] == [
        {"role": "user", "content": answers[n]["question"]} for n in (2, 3)
    ]
    assert answers[3]["greeting"] == "Hello Ada, this is your question no. 3."


@pytest.mark.feature("DEF-02")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_example_is_named_in_the_readme_with_the_command_that_runs_it(folder: Path) -> None:
    readme = (EXAMPLES / "README.md").read_text()

    assert f"[{folder.name}]({folder.name})" in readme
    assert f"yukta run examples/{folder.name}/workflow.json" in readme


def test_the_data_is_the_file_that_its_note_describes() -> None:
    note = (EXAMPLES / "airports" / "DATA.md").read_text()
    data = (EXAMPLES / "airports" / "airports.csv").read_bytes()

    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    assert re.search(r"sha256 \| `(\w+)`", note)[1] == hashlib.sha256(data).hexdigest()
    assert re.search(r"git blob \| `(\w+)`", note)[1] == blob
    assert f"{len(data):,} bytes" in note


@pytest.mark.feature("DEF-02")
def test_every_example_is_valid_with_the_settings_that_one_begins_with() -> None:
    # `yukta dev examples/` is the first thing a newcomer types.
    done = subprocess.run(
        [sys.executable, "-m", "yukta_rx", "validate", "examples"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "stormy.json: valid" in done.stdout + done.stderr
