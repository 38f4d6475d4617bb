"""What `yukta doctor --bundle` writes: a zip that can be given away. Features: OBS-04, SEC-02.

It holds what was found, versions, settings without their secrets, names of variables without their
values, and sizes of folders; no workflow, no payload, no result.
"""

from __future__ import annotations

import json
import os
import zipfile
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.config.checks import store_types
from yukta_rx.config.settings import StoreType
from yukta_rx.durability.matrix import durability_matrix
from yukta_rx.model.times import rfc3339
from yukta_rx.observe.machine import process_facts, versions
from yukta_rx.security.masking import Masker
from yukta_rx.security.settings_view import settings_in_force

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from yukta_rx.cli.checkup import Check
    from yukta_rx.config.settings import Settings

OWNER_ONLY: Final = 0o600


def write_bundle(path: str, found: Iterable[Check], settings: Settings | None) -> None:
    """Write the bundle, whole or not at all.

    Args:
        path: the file; one that is there is replaced.
        found: what the checks found.
        settings: the settings in force, None if they are refused.

    Raises:
        OSError: it cannot be written.
    """
    parts: dict[str, Any] = {
        "checks.json": [check.as_dict() for check in found],
        "versions.json": versions(),
        "process.json": process_facts() | {"time": rfc3339(datetime.now(UTC))},
        "environment.json": sorted(name for name in os.environ if name.startswith("YUKTA_")),
    }
    masker = Masker()
    if settings is not None:
        masker = Masker.of(settings)
        parts["settings.json"] = [item.as_dict() for item in settings_in_force(settings)]
        parts["durability.json"] = [row.as_dict() for row in durability_matrix(settings)]
        parts["folders.json"] = _folders(settings)
    unfinished = f"{path}.tmp"
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
    try:
        with os.fdopen(fd, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
            for name, value in parts.items():
                made.writestr(name, json.dumps(masker.mask_json(value), indent=2, default=str))
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _folders(settings: Settings) -> list[dict[str, Any]]:
    """How much is in each folder of the file stores, by the folders right below it."""
    found = []
    for switch, kind in store_types(settings).items():
        folder = getattr(settings, switch.replace("-", "_")).dir
        if kind is not StoreType.FILE or folder is None or not folder.is_dir():
            continue
        parts = {entry.name: _size(entry) for entry in sorted(folder.iterdir())}
        found.append({"store": switch, "folder": str(folder), "parts": parts})
    return found


def _size(path: Path) -> dict[str, int]:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {"files": len(files), "bytes": sum(one.stat().st_size for one in files)}
