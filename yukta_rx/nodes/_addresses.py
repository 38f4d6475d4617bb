"""Which addresses a node may connect to: public ones, unless a setting opens the others.

The address of each socket is looked at just before it connects, so it does not matter whether it
was written in a URL, found by name or given by a redirect.  Feature: SEC-03.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_KINDS: Final = {
    "is_unspecified": "an unspecified",
    "is_loopback": "a loopback",
    "is_link_local": "a link-local",
    "is_multicast": "a multicast",
    "is_reserved": "a reserved",
    "is_private": "a private",
}
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_EXAMPLES: Final = ipaddress.IPv6Network("3fff::/20")
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


def not_public(address: str) -> str | None:
    """Return what kind of address it is if it is not a public one, such as `a loopback`."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "an unknown kind of"
    if isinstance(ip, ipaddress.IPv6Address):
        # What only wraps an IPv4 address leads to that one.
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return not_public(str(inner))
    for name, kind in _KINDS.items():
        if getattr(ip, name):
            return kind
    if ip.version == 6 and (ip not in _UNICAST or ip in _EXAMPLES):
        return "a reserved"
    return None if ip.is_global else "a private"


class AddressRefusedError(OSError):
    """A socket would have connected to an address that is not allowed.

    The text is the same for every address: a connection that was tried with several then still
    fails with this class.

    Attributes:
        address: the address.
        kind: what kind of address it is.
    """

    def __init__(self, address: str, kind: str) -> None:
        super().__init__("the address is not a public one")
        self.address = address
        self.kind = kind


@dataclass(frozen=True)
class AddressPolicy:
    """Says which addresses may be connected to.

    Attributes:
        refuse: returns the kind of an address that is refused, None for one that is allowed.
    """

    refuse: Callable[[str], str | None]

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Make the socket for an entry of `getaddrinfo`, if its address is allowed.

        Raises:
            AddressRefusedError: it is not.
        """
        family, kind, proto, _, sockaddr = info
        if why := self.refuse(str(sockaddr[0])):
            raise AddressRefusedError(str(sockaddr[0]), why)
        made = socket.socket(family, kind, proto)
        # A peer that is gone is noticed, however long its stream was silent.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            with suppress(AttributeError, OSError):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return made


def _allow_all(address: str) -> None:
    return None


PUBLIC_ONLY: Final = AddressPolicy(not_public)
ALL: Final = AddressPolicy(_allow_all)


def policy_of(settings: Any) -> AddressPolicy:
    """Return the policy of `yukta.http-request.allow-private`; without settings, public only."""
    group = getattr(settings, "http_request", None)
    return ALL if getattr(group, "allow_private", False) else PUBLIC_ONLY
