"""Adds samples of what is kept in files; those that are there are never written again.

    make golden LABEL=0.1.0

makes `tests/golden/<form>/<label>/` of every form that has none of that label: the files as they
are written today, and `expected.json`, what is read of them today. Label it with the version that
is released with it. Look at what it made before it is committed; from then on it stays as it is,
and every later version has to read it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.golden.formats import FORMS

if TYPE_CHECKING:
    from tests.golden.formats import Form

GOLDEN: Final = Path(__file__).parent
EXPECTED: Final = "expected.json"
FILES: Final = "files"


async def made(form: Form, sample: Path) -> None:
    """Make one sample.

    Raises:
        FileExistsError: there is one.
    """
    await asyncio.to_thread(sample.mkdir, parents=True)
    await form.write(sample / FILES)
    with tempfile.TemporaryDirectory() as below:
        copied = Path(below) / FILES
        shutil.copytree(sample / FILES, copied)
        expected = await form.read(copied)
    for left in (sample / FILES).rglob(".lock"):
        left.unlink()
    text = json.dumps(expected, indent=1, ensure_ascii=False, sort_keys=True)
    (sample / EXPECTED).write_text(f"{text}\n", encoding="utf-8")


def main() -> None:
    """Make those that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("label", help="the version that writes so")
    label = parser.parse_args().label
    for form in FORMS:
        sample = GOLDEN / form.name / label
        if not sample.exists():
            asyncio.run(made(form, sample))


if __name__ == "__main__":
    main()
