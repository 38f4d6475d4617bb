"""BrowserSessions: what the cookie of a browser stands for, in memory. Feature: SEC-01."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from yukta_rx.security.api_keys import Grant

CAPACITY: Final = 1000
"""Sessions at once; beyond it the oldest ends."""


@dataclass(frozen=True, slots=True)
class _Session:
    grant: Grant
    until: float


class BrowserSessions:
    """Sessions by the hash of their token, so that what is in memory opens nothing.

    Guarantees: a token has 256 random bits; looking one up takes time that tells nothing of it,
    since it goes by its hash. They are lost with the process: the browser then asks for the key.

    Args:
        lifetime: seconds that each is good.
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._sessions: dict[bytes, _Session] = {}

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._sessions)

    def open(self, grant: Grant, now: float) -> str:
        """Return a token that stands for a grant from now on; `now` is in seconds."""
        self._forget_old(now)
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = _Session(grant, now + self._lifetime)
        return token

    def find(self, token: str, now: float) -> Grant | None:
        """Return what a token stands for; None if it is not known, or too old."""
        session = self._sessions.get(_digest(token))
        if session is None or now >= session.until:
            return None
        return session.grant

    def close(self, token: str) -> None:
        """Forget a token."""
        self._sessions.pop(_digest(token), None)

    def _forget_old(self, now: float) -> None:
        # All live equally long, so the oldest are the first.
        for digest, session in list(self._sessions.items()):
            if now < session.until and len(self._sessions) < CAPACITY:
                break
            del self._sessions[digest]


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
