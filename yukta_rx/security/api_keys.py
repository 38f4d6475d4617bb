"""KeyRing: the API keys of a server, kept as hashes and compared in constant time.

REST and MCP ask the same ring. Keys are long and random (`yukta key new`), so one fast hash is
enough: nobody guesses 256 bits, and a slow one would let a caller keep the server busy.

Feature: SEC-01.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from yukta_rx.config.keys import HASHED, MASTER_KEY, digest_of_key
from yukta_rx.config.settings import Role
from yukta_rx.errors import NotAuthenticatedError

if TYPE_CHECKING:
    from datetime import datetime

    from yukta_rx.config.settings import Settings

PREFIX: Final = "yk_"
"""Begins every key that is made here, so that scanners for leaked secrets know one."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key is good for.

    Attributes:
        name: of the key.
        role: what it may do.
        sessions: the sessions that it may see; None is all.
        expires: when it stops to be good, aware; None is never.
    """

    name: str
    role: Role
    sessions: frozenset[str] | None = None
    expires: datetime | None = None

    def check(self, now: datetime) -> None:
        """Raise NotAuthenticatedError if its time is over."""
        if self.expires is not None and now >= self.expires:
            raise NotAuthenticatedError(f"the key {self.name} is no longer good: it has expired")


class KeyRing:
    """All keys of the settings.

    Args:
        settings: the settings in force.
    """

    def __init__(self, settings: Settings) -> None:
        self._entries: list[tuple[bytes, Grant]] = []
        if settings.api_key is not None:
            key = settings.api_key.get_secret_value()
            self._entries.append((digest_of_key(key), Grant(MASTER_KEY, Role.ADMIN)))
        for entry in settings.api_keys:
            sessions = frozenset(entry.sessions) or None
            grant = Grant(entry.name, entry.role, sessions, entry.expires)
            self._entries.append((digest_of_key(entry.key.get_secret_value()), grant))

    def __bool__(self) -> bool:
        """Whether there is any key; without one everybody may do everything."""
        return bool(self._entries)

    def find(self, key: str, now: datetime) -> Grant:
        """Return what a key is good for.

        It is compared with every known one, so the time tells neither which one it was nor how
        much of it was right.

        Args:
            key: as it was presented.
            now: the time of day, aware.

        Raises:
            NotAuthenticatedError: it is not known, or its time is over.
        """
        given = sha256(key.encode("utf-8", "surrogateescape")).digest()
        found: Grant | None = None
        for digest, grant in self._entries:
            if hmac.compare_digest(digest, given):
                found = grant
        if found is None:
            raise NotAuthenticatedError("this key is not known here")
        found.check(now)
        return found


def new_key() -> str:
    """Return a new key of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    """Return what stands in the settings for a key: `sha256:` and its hash."""
    return HASHED + sha256(key.encode()).hexdigest()
