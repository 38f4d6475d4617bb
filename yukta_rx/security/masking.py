"""Masker: keeps the secrets that are in use out of everything that is said.

A secret becomes known here when it is handed out (`decrypted:name` in an option, `ctx.secrets` in
a plugin); a server knows its keys, its passwords and all secrets of its environment from its start,
since what it kept in its stores may hold them. From then on each text that leaves (log lines,
events, errors, audit) has it replaced by `***`. What a workflow makes of its messages, results and
outputs, is the user's own data and is not looked at.

Features: SEC-01, SEC-02.
"""

from __future__ import annotations

import base64
import json
import logging
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from yukta_rx.config.keys import HASHED, named_keys

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings

J = TypeVar("J")
MASK: Final = "***"
SHORTEST: Final = 4
"""A shorter value is not masked: it stands in too many texts by chance."""
LINE: Final = 8
"""A line of a secret with several, such as a private key, is masked alone from this length on."""


class Masker:
    """Replaces secrets in texts.

    Guarantees: after `mask` no form of a known secret is left in a text, also where two overlap:
    the value itself, and as it stands in JSON, in a Python literal, in a URL, or in base64. A text
    without one is returned as it is, the same object. While no secret is known, masking costs
    the call and nothing else.

    A secret that is cut in two, such as over two lines of a log, is not found.
    """

    __slots__ = ("_known", "_values")

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._values: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Settings) -> Masker:
        """Return one that knows the secrets of the settings."""
        masker = cls()
        for _, key in named_keys(settings):
            if not key.get_secret_value().startswith(HASHED):
                masker.add(key.get_secret_value())
        for url in (settings.postgres.url, settings.postgres.migration_url):
            if url is not None and (password := urlsplit(url.get_secret_value()).password):
                masker.add(password)
        return masker

    @property
    def active(self) -> bool:
        """Whether any secret is known."""
        return bool(self._values)

    def add(self, secret: str) -> None:
        """Mask a secret from now on."""
        if secret in self._known:
            return
        self._known.add(secret)
        lines = [line.strip() for line in secret.splitlines()]
        parts = [secret, *(line for line in lines if len(line) >= LINE)]
        forms = {form for part in parts for form in _forms(part) if len(form) >= SHORTEST}
        # A new tuple, so that another thread that masks has the old one or the new one.
        self._values = tuple(sorted({*self._values, *forms}, key=len, reverse=True))

    def mask(self, text: str) -> str:
        """Return a text without secrets."""
        for value in self._values:
            if value in text:
                return self._without(text)
        return text

    def _without(self, text: str) -> str:
        # What is put in is shorter than what it replaces, so this ends.
        while found := [value for value in self._values if value in text]:
            text = _replaced(text, found)
        return text

    def mask_json(self, value: J) -> J:
        """Return a plain JSON value with its texts masked; the same object if nothing was found.

        Names of members are left as they are.
        """
        if not self._values:
            return value
        masked: J = self._masked(value)
        return masked

    def _masked(self, value: Any) -> Any:
        if type(value) is str:
            return self.mask(value)
        if type(value) is dict or isinstance(value, Mapping):
            made = {name: self._masked(item) for name, item in value.items()}
            same = all(made[name] is item for name, item in value.items())
            return value if same else made
        if isinstance(value, list | tuple):
            items = [self._masked(item) for item in value]
            same = all(new is old for new, old in zip(items, value, strict=True))
            return value if same else items
        return self.mask(value) if isinstance(value, str) else value


class MaskingFilter(logging.Filter):
    """Masks records of a handler.

    Add it with `handler.addFilter`: what a logger filters says nothing of the loggers below it.

    Args:
        masker: knows the secrets.
    """

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self._masker = masker

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the message and the traceback; the record is always let through."""
        if not self._masker.active:
            return True
        try:
            text = record.getMessage()
        except Exception:
            return True  # the handler reports what is wrong with the record
        masked = self._masker.mask(text)
        if masked is not text and masked != text:
            record.msg, record.args = masked, ()
        if record.exc_info and record.exc_info[1] is not None:
            shown = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            masked = self._masker.mask(shown)
            if masked != shown:
                # With the text in place no formatter shows the exception itself.
                record.exc_text, record.exc_info = masked, None
        return True


def _forms(secret: str) -> set[str]:
    """The ways in which a secret may stand in a text."""
    try:
        raw = secret.encode()
    except UnicodeEncodeError:
        return {secret, repr(secret)[1:-1], ascii(secret)[1:-1]}
    return {
        secret,
        secret.strip(),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        ascii(secret)[1:-1],
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    }


def _replaced(text: str, values: list[str]) -> str:
    """Replace every place that any of the values covers; what overlaps is one place."""
    spans: list[tuple[int, int]] = []
    for value in values:
        at = text.find(value)
        while at >= 0:
            spans.append((at, at + len(value)))
            at = text.find(value, at + 1)
    spans.sort()
    parts: list[str] = []
    done = 0
    start, end = spans[0]
    for begin, stop in spans[1:]:
        if begin < end:
            end = max(end, stop)
            continue
        parts += [text[done:start], MASK]
        done, start, end = end, begin, stop
    parts += [text[done:start], MASK, text[end:]]
    return "".join(parts)
