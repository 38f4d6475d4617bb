"""Bodies and answers of the routes about keys and settings. Feature: SEC-01."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, SecretStr

from yukta_rx.http.shapes import Request, Shape


class SessionBody(Request):
    """A key, to get a cookie for."""

    key: Annotated[SecretStr, Field(min_length=1, max_length=1000)]


class WhoAmI(Shape):
    """Who asks, as the server sees it.

    `sessions` is null where all may be seen; `key` and `expiresAt` are null where there is none.
    """

    actor: str
    key: str | None
    role: str
    sessions: list[str] | None
    expires_at: str | None
    cookie: bool


class Setting(Shape):
    """A setting in force; the value of a secret is `***`."""

    name: str
    value: Any
    origin: str
    default: Any
    secret: bool
    doc: str


class Config(Shape):
    """Every setting, and what was odd about their sources."""

    items: list[Setting]
    next_cursor: None
    warnings: list[str]
