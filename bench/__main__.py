"""Runs the families and prints their tables: `python -m bench [--only FAMILY] [--write]`."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from datetime import date
from pathlib import Path

from bench import before
from bench.families import FAMILIES
from bench.harness import Bar, table

RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    """Measure, print, and keep what was found if asked to."""
    names = [family.name for family in FAMILIES]
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--only", nargs="+", choices=names, help="these families")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1, help="of the messages; 0.01 to try out")
    parser.add_argument("--write", action="store_true", help=f"keep the tables in {RESULTS.name}")
    parser.add_argument("--before", metavar="REVISION", help="compare with this one of git, too")
    args = parser.parse_args()
    if args.write and (args.only or args.scale != 1):
        parser.error("--write keeps all families at full size, so not with --only or --scale")
    began = time.perf_counter()
    sections: list[str] = []
    bars: list[Bar] = []
    families = [family for family in FAMILIES if not args.only or family.name in args.only]
    if args.before:
        try:
            families.append(before.family(args.before))
        except ValueError as error:
            parser.error(str(error))
    for family in families:
        print(f"measuring {family.name} ...", file=sys.stderr, flush=True)
        found = family.run(args.rounds, args.scale)
        sections += [f"## {family.title}", "", *family.tables(found)]
        bars += family.bars(found)
    text = "\n".join([*head(args, time.perf_counter() - began), *shown(bars), *sections])
    print(text)
    if args.write:
        RESULTS.write_text(text.rstrip() + "\n", encoding="utf-8")


def head(args: argparse.Namespace, seconds: float) -> list[str]:
    """What was measured where and when."""
    return [
        "# Benchmarks",
        "",
        "Written by `python -m bench --write`. Medians of "
        f"{args.rounds} rounds, all forms of a family in turn in each round; the range is that of "
        "the rounds. A ratio is the median of the rounds' ratios.",
        f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}, "
        f"{date.today().isoformat()}; {seconds:.0f} s in all.",
        "",
    ]


def shown(bars: list[Bar]) -> list[str]:
    """The bars in one place."""
    if not bars:
        return []
    rows = [(b.about, b.asked, b.measured, "yes" if b.held else "**no**") for b in bars]
    return ["## Bars", "", *table(("bar", "asked", "measured (range)", "held"), rows)]


main()
