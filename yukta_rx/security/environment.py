"""Which variables of the process a configuration may read: few, and never what looks secret.

Feature: SEC-02.
"""

from __future__ import annotations

import os
import platform
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from yukta_rx.config.settings import Settings

HARMLESS_ENV: Final = frozenset(
    ("HOME", "USER", "LOGNAME", "PATH", "LANG", "LC_ALL", "TZ", "HOSTNAME", "TMPDIR")
)
"""Environment variables that anyone may read."""

_FACTS: Final[dict[str, Callable[[Mapping[str, str]], str | None]]] = {
    "user.name": lambda env: env.get("USER") or env.get("LOGNAME") or env.get("USERNAME"),
    "user.home": lambda env: env.get("HOME") or env.get("USERPROFILE"),
    "user.dir": lambda env: os.getcwd(),
    "os.name": lambda env: platform.system(),
    "os.version": lambda env: platform.release(),
    "os.arch": lambda env: platform.machine(),
    "host.name": lambda env: platform.node(),
    "python.version": lambda env: platform.python_version(),
}
HARMLESS_SYS: Final = frozenset(_FACTS)
"""Facts about the process that anyone may read."""

_VAR_ENV = "YUKTA_VAR_"
_VAR_SYS = "yukta.var."
# Distinctive enough to count wherever they stand in a name, also run together with others.
_ANYWHERE = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "TOKEN", "CREDENTIAL", "APIKEY")
# Short ones count only as a whole word: MONKEY and COMPASS are no secrets.
_WORDS = frozenset(
    (
        *("KEY", "KEYS", "PASS", "PWD", "AUTH", "AUTHORIZATION", "CRED", "CREDS", "PRIVATE"),
        *("JWT", "COOKIE", "SALT", "SIGNATURE", "BEARER", "DSN", "PIN", "OTP", "CERT", "PEM"),
    )
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def looks_secret(name: str) -> bool:
    """Whether a name says that its value is a secret (`DB_PASSWORD`, `githubToken`, `API_KEY`)."""
    flat = re.sub(r"[^A-Z0-9]", "", name.upper())
    if any(word in flat for word in _ANYWHERE):
        return True
    words = [word.upper() for word in _WORD.findall(name)]
    # PWD alone is the working folder.
    return (len(words) > 1 and not _WORDS.isdisjoint(words)) or flat in _WORDS - {"PWD"}


def may_read(kind: str, name: str, settings: Settings | None) -> bool:
    """Whether a configuration may read a variable.

    Args:
        kind: `env` or `sys`.
        name: its name.
        settings: the settings in force; `yukta.variables.allowed` extends the list.
    """
    if looks_secret(name):
        return False
    if name.startswith(_VAR_ENV if kind == "env" else _VAR_SYS):
        return True
    if name in (HARMLESS_ENV if kind == "env" else HARMLESS_SYS):
        return True
    return settings is not None and name in settings.variables.allowed


def read(kind: str, name: str, environ: Mapping[str, str], settings: Settings | None) -> Any:
    """Return a variable that may be read, None if it is not set.

    `sys` names are facts about the process or `yukta.var.*` settings; the setting
    `yukta.var.region` may also come as the variable `YUKTA_VAR_REGION`.
    """
    if kind == "env":
        return environ.get(name)
    if name in _FACTS:
        return _FACTS[name](environ)
    key = name.removeprefix(_VAR_SYS)
    if settings is not None and key in settings.var:
        return settings.var[key]
    if key == name:
        return None
    return environ.get(_VAR_ENV + re.sub(r"[^A-Z0-9]", "_", key.upper()))
