"""Option types of the nodes that send requests: URLs and headers that are safe to send.

No fault repeats a value: it may be a secret.  Features: SEC-02, SEC-03.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator
from yarl import URL

from yukta_rx.nodes._addresses import policy_of
from yukta_rx.plugins.contract import ConfigFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMES: Final = ("http", "https")

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_OWN: Final = frozenset(
    ("connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade")
)


def _url(text: str) -> str:
    # A URL parser leaves out line breaks and tabs in silence, so they are looked for first.
    if _UNSAFE.search(text) or "\t" in text:
        raise ValueError("holds a line break or another control sign")
    try:
        url = URL(text)
        port = url.port
    except ValueError:
        raise ValueError("is no URL: its host or port is malformed") from None
    if url.scheme not in SCHEMES:
        raise ValueError("must begin with http:// or https://")
    if not url.host or port is None:
        raise ValueError("names no host")
    if ":" in (url.user or ""):
        raise ValueError("has a colon in its user name")
    return text


def header_name(name: str) -> str:
    """Return a name of a header that may be set.

    Raises:
        ValueError: it is malformed, or belongs to the connection.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!a} is no name of a header")
    if name.lower() in _OWN:
        raise ValueError(f"`{name}` cannot be set: it belongs to the connection")
    return name


def header_value(value: str | float) -> str:
    """Return the text of a header that may be sent: one line, whatever it was made from.

    Raises:
        ValueError: it holds a line break or another control sign.
    """
    text = str(value)
    if _UNSAFE.search(text):
        raise ValueError("holds a line break or another control sign, which no header can carry")
    return text.strip(" \t")


Url = Annotated[str, AfterValidator(_url)]
"""An address that begins with http:// or https://."""

Headers = dict[
    Annotated[str, AfterValidator(header_name)],
    Annotated[str | int | float, AfterValidator(header_value)],
]
"""Names and values of headers; numbers become text."""


def check_url(cfg: Any, settings: Any, base_dir: Path | None) -> Iterator[ConfigFault]:
    """Yield a fault if `cfg.url` names an address that is refused; names are looked up later."""
    host = URL(cfg.url).host or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return
    if kind := policy_of(settings).refuse(host):
        yield ConfigFault(("url",), "address_not_allowed", refusal(host, kind))


def refusal(address: str, kind: str) -> str:
    """Return the sentence for an address that is refused."""
    return (
        f"{address} is {kind} address, which no node may connect to;"
        " yukta.http-request.allow-private = true allows it"
    )


def shown(url: URL) -> str:
    """Return a URL for logs and errors: without what may be secret in it, user and query."""
    bare = url.with_user(None).with_fragment(None)
    return f"{bare.with_query(None)}?..." if bare.query_string else str(bare)
