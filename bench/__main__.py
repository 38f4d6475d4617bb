"""Runs the comparison and prints a table: `python -m bench [--messages N] [--write]`."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from datetime import date
from pathlib import Path

from bench.chains import FORMS, NODES, SLOW, rate


def main() -> None:
    """Measure every form in each round; medians and ratios of medians."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="keep the table in bench/RESULTS.md")
    args = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(args.rounds):
        for name in FORMS:
            rates[name].append(rate(name, args.messages))
    table = render({name: statistics.median(found) for name, found in rates.items()}, args)
    print(table)
    if args.write:
        (Path(__file__).parent / "RESULTS.md").write_text(table, encoding="utf-8")


def render(medians: dict[str, float], args: argparse.Namespace) -> str:
    """The table as Markdown."""
    lines = [
        "# Node messages per second",
        "",
        f"{args.messages:,} messages through {NODES} nodes that add one, median of {args.rounds} "
        "rounds, all forms in turn in each round.",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}, "
        f"{date.today().isoformat()}. Forms marked with * ran a tenth of the messages.",
        "",
        "| form | M/s | us per message | of the plain loop | times reactivex | back-pressure |",
        "|-|-|-|-|-|-|",
    ]
    for name, median in medians.items():
        mark = "*" if name in SLOW else ""
        of_loop = median / medians["plain loop"]
        of_rx = median / medians["reactivex map x20"]
        lines.append(
            f"| {name}{mark} | {median:.2f} | {1 / median:.3f} | {of_loop:.2f} | {of_rx:.2f} "
            f"| {FORMS[name][1]} |"
        )
    awaits = medians["Flow, async"] / medians["bare awaits"]
    valves = medians["Flow, sync, valves"] / medians["Flow, sync"]
    queues = medians["Flow, sync"] / medians["queue tasks (64)"]
    lines += [
        "",
        f"Async nodes that never suspend reach {awaits:.2f} of bare awaits; an open valve on every "
        f"node leaves {valves:.2f}; queue tasks are beaten {queues:.0f} times.",
        "",
    ]
    return "\n".join(lines)


main()
