"""Values of settings that follow from other settings when nobody sets them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yukta_rx.config.store_settings import StoreType

if TYPE_CHECKING:
    from collections.abc import Mapping

STORES = ("session", "execution-log", "restart", "kv", "session-memory")
"""The stores that have a switch of their own, by the middle word of their settings."""

_DIR_IMPLIES_FILE = ("execution-log", "restart")


def derived_values(values: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """Return what follows from the values that were set.

    Args:
        values: full names and values of the settings that some source sets.

    Returns:
        Further names, each with its value and the name of the setting that it comes from.
    """
    found: dict[str, tuple[Any, str]] = {}
    profile = values.get("yukta.profile", StoreType.MEMORY)
    data_dir = values.get("yukta.data.dir")
    if data_dir is None and profile is StoreType.FILE:
        data_dir = Path("yukta-data")
        found["yukta.data.dir"] = (data_dir, "yukta.profile")
    for store in STORES:
        switch, folder = f"yukta.{store}.store-type", f"yukta.{store}.dir"
        chosen = values.get(switch)
        if chosen is None and store in _DIR_IMPLIES_FILE and values.get(folder) is not None:
            chosen = StoreType.FILE
            found[switch] = (chosen, folder)
        elif chosen is None and "yukta.profile" in values:
            chosen = profile
            found[switch] = (chosen, "yukta.profile")
        if chosen is StoreType.FILE and data_dir is not None and values.get(folder) is None:
            found[folder] = (data_dir / store, "yukta.data.dir")
    if "yukta.postgres.url" in values and "yukta.postgres.migration-url" not in values:
        found["yukta.postgres.migration-url"] = (values["yukta.postgres.url"], "yukta.postgres.url")
    return found
