"""Which server a command talks to: `--url`, `--key`, and the variables in their place.

Feature: OBS-01.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from yukta_rx.cli.console import EXIT_USAGE, CliError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_KEY: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    Attributes:
        urls: base addresses, tried in this order; at least one.
        key: the API key, if any.
    """

    urls: tuple[str, ...]
    key: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, urls: tuple[str, ...], key: str | None) -> Target:
        """Return what the options say, or else the variables, or else the defaults.

        Raises:
            CliError: an address or the key cannot be used.
        """
        texts = urls or (os.environ.get("YUKTA_URL", ""),)
        found = [part for text in texts for part in re.split(r"[,\s]+", text) if part]
        key = key or os.environ.get("YUKTA_KEY") or None
        if key is not None and not _KEY.fullmatch(key):
            raise CliError("--key: a key has visible ASCII characters only", exit_code=EXIT_USAGE)
        bases = dict.fromkeys(base_url(text) for text in found or (DEFAULT_URL,))
        return cls(tuple(bases), key)


def base_url(text: str) -> str:
    """Return an address without a slash at its end; `host:port` is taken for http.

    Raises:
        CliError: it is no http or https address.
    """
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise CliError(
            f"--url {text}: expected an address such as {DEFAULT_URL}", exit_code=EXIT_USAGE
        )
    return whole.rstrip("/")


def server_options(command: F) -> F:
    """Add `--url` and `--key`; the command gets them as `target`."""

    @functools.wraps(command)
    def with_target(*args: Any, urls: tuple[str, ...], api_key: str | None, **options: Any) -> Any:
        return command(*args, target=Target.read(urls, api_key), **options)

    for option in (
        click.option("--key", "api_key", metavar="KEY", help="API key (default: $YUKTA_KEY)."),
        click.option(
            "--url",
            "urls",
            multiple=True,
            metavar="URL",
            help=f"Server; may be repeated or a comma list. ($YUKTA_URL, {DEFAULT_URL})",
        ),
    ):
        with_target = option(with_target)
    return with_target  # type: ignore[return-value]
