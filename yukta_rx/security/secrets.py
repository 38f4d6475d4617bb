"""Secrets by name, so that a stored definition never holds one.

A configuration says `decrypted:name`; the value comes from the variable `YUKTA_SECRET_NAME`.
Feature: SEC-02.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, Protocol

from yukta_rx.errors import BadInputError
from yukta_rx.security.masking import Masker

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "YUKTA_SECRET_"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,127}")


class SecretSource(Protocol):
    """Hands out secrets by name.

    Guarantees:
        1. `get` is fast and may be called from any thread, for each message.
    """

    def get(self, name: str) -> str:
        """Return the secret.

        Raises:
            BadInputError: there is no secret of that name.
        """


class SecretProvider(SecretSource, Protocol):
    """A source that keeps what it hands out from being said.

    Guarantees:
        1. Those of `SecretSource`.
        2. From the moment that `get` returns a secret, `masker` knows it.
    """

    @property
    def masker(self) -> Masker:
        """Replaces the secrets that were handed out."""


class EnvironmentSecrets:
    """Reads secrets from the environment.

    Attributes:
        masker: knows what was handed out, and all of them after `mask_all`.

    Args:
        environ: the variables; those of the process by default.
        masker: is told of what is handed out; one of its own if None.
    """

    def __init__(
        self, environ: Mapping[str, str] | None = None, masker: Masker | None = None
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self.masker = masker or Masker()

    def mask_all(self) -> None:
        """Let the masker know every secret there is: an earlier server may have handed it out."""
        for name, value in self._environ.items():
            if name.startswith(_PREFIX):
                self.masker.add(value)

    def get(self, name: str) -> str:
        """Return the value of `YUKTA_SECRET_<NAME>`.

        The name is written in upper case, with `_` for a dot or dash.

        Raises:
            BadInputError: the name is malformed, or the variable is not set.
        """
        if not is_secret_name(name):
            raise BadInputError(f"{name[:40]!a} is not the name of a secret")
        variable = secret_variable(name)
        value = self._environ.get(variable)
        if value is None:
            raise BadInputError(f"there is no secret `{name}`: set {variable}", secret=name)
        self.masker.add(value)
        return value


def is_secret_name(name: str) -> bool:
    """Whether a text has the shape of a secret's name."""
    return _NAME.fullmatch(name) is not None


def secret_variable(name: str) -> str:
    """Return the environment variable that holds a secret."""
    return _PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())
