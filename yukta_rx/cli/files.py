"""Files that are named on the command line, before anything is known of what they mean.

Feature: DEF-02.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from yukta_rx.cli.console import EXIT_INVALID, EXIT_USAGE, CliError


def read_text(path: str) -> str:
    """Return the text of a file.

    Raises:
        CliError: it cannot be read, or is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CliError(f"{path}: {reason}", exit_code=EXIT_USAGE) from error
    except UnicodeDecodeError as error:
        raise CliError(
            f"{path}: not UTF-8 text (at byte {error.start})",
            exit_code=EXIT_INVALID,
            code="malformed_json",
        ) from error


def json_files(folder: str) -> list[str]:
    """Return the JSON files below a folder in order; hidden folders are passed over."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(place, name) for name in files if name.endswith(".json")]
    return sorted(os.path.normpath(path) for path in found)


def is_workflow(text: str) -> bool:
    """Whether a JSON file in a folder is meant to be a workflow."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return True  # to be reported, not passed over
    return isinstance(document, dict) and not {"workflowId", "nodes"}.isdisjoint(document)
