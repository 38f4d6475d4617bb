"""The API keys as they stand in the settings: their names and hashes. Feature: SEC-01."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import SecretStr

    from yukta_rx.config.settings import Settings

MASTER_KEY: Final = "default"
"""The name of the key of yukta.api-key."""

HASHED: Final = "sha256:"
"""Begins a key that stands in the settings as its hash."""

SHORT_KEY: Final = 16
"""A plain key of fewer characters is warned of."""


def named_keys(settings: Settings) -> list[tuple[str, SecretStr]]:
    """Return every key with its name; the one of yukta.api-key is called `default`."""
    master = [] if settings.api_key is None else [(MASTER_KEY, settings.api_key)]
    return master + [(entry.name, entry.key) for entry in settings.api_keys]


def digest_of_key(text: str) -> bytes:
    """Return the SHA-256 of a key as it stands in the settings, where it may be hashed already.

    Raises:
        ValueError: it is said to be hashed and is not.
    """
    if text.startswith(HASHED):
        return bytes.fromhex(text.removeprefix(HASHED))
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
