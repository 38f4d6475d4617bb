"""Writes the reference page of the settings and the sample file, both from the declarations."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import AwareDatetime, SecretStr

from yukta_rx.config.declare import Declared, declared
from yukta_rx.config.load import catalogue
from yukta_rx.config.units import ByteSize, choices, show_duration, show_size

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE_HEAD = """\
# Configuration

Made from the declarations in `yukta_rx/config`; change it there and run `make docs`.

Values come from, each winning over the one before: the defaults below, `yukta.toml`, variables of
the environment, options of the command. The file is the first of `--config`, `$YUKTA_CONFIG`,
`./yukta.toml`, `$XDG_CONFIG_HOME/yukta/yukta.toml`, `/etc/yukta/yukta.toml`. In the file a name is
a table and a key (`[yukta.execution]`, `prefetch = 64`); as a variable its dots and hyphens are
underscores (`YUKTA_EXECUTION_PREFETCH=64`). In a variable a list is separated by commas, and an
empty variable counts as not set.

A name that is no setting and a value that is not allowed stop the start; all of them are reported
at once. A variable that begins with `YUKTA_` and resembles no setting is only warned of. Not
settings: `YUKTA_CONFIG`, `YUKTA_DEBUG`, `YUKTA_URL`, `YUKTA_KEY`, `YUKTA_VAR_*`, `YUKTA_SECRET_*`,
`YUKTA_TEST_*`, and the names that cluster managers set (`YUKTA_*_SERVICE_HOST`,
`YUKTA_*_SERVICE_PORT*`, `YUKTA_PORT*`, `YUKTA_SERVICE_*`).

A duration needs its unit: `500ms`, `15s`, `10m`, `1h30m`; `0` is off. A size is `1MiB`, `500kB` or
a plain number of bytes. A name that ends in a unit takes a plain number. Relative paths start at
the working directory.

A setting is read by the feature in its last column; while that feature is planned, see
[features](features.md), it has no effect yet.
"""

_KIND_NAMES: dict[Any, str] = {
    bool: "true \\| false",
    int: "number",
    str: "text",
    SecretStr: "text, secret",
    Path: "path",
    timedelta: "duration",
    AwareDatetime: "time",
    ByteSize: "size",
}

_SAMPLE_HEAD = """\
# A sample of yukta.toml: every setting with its default, as a comment.
# Made from the declarations in yukta_rx/config; what each means: docs/reference/configuration.md
"""


def configuration_page() -> str:
    """Return `docs/reference/configuration.md`."""
    lines = [_PAGE_HEAD]
    for group, settings in groupby(_sorted(_top), key=_top):
        lines += [f"## {group}", "", "| setting | kind | default | meaning | feature |"]
        lines += ["| - | - | - | - | - |"]
        for setting in settings:
            lines += [_row(setting), *_member_rows(setting)]
        lines.append("")
    return "\n".join(lines)


def example_toml() -> str:
    """Return `yukta.example.toml`."""
    lines = [_SAMPLE_HEAD]
    for table, settings in groupby(_sorted(_table), key=_table):
        lines.append(f"[{table}]")
        for setting in settings:
            lines += _sample(setting)
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _sorted(key: Callable[[Declared], str]) -> list[Declared]:
    """Return the settings with those of the root table first, else as declared."""
    return sorted(catalogue().values(), key=lambda setting: key(setting) != "yukta")


def _top(setting: Declared) -> str:
    parts = setting.name.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else "yukta"


def _table(setting: Declared) -> str:
    return setting.name if setting.is_map else setting.name.rpartition(".")[0]


def _row(setting: Declared) -> str:
    return _cells(_shown_name(setting), setting)


def _shown_name(setting: Declared) -> str:
    if setting.is_map:
        return f"{setting.name}.<{'provider' if 'rate-limit' in setting.name else 'name'}>"
    return setting.name


def _member_rows(setting: Declared) -> list[str]:
    if setting.item is None:
        return []
    members = declared(setting.item, f"{setting.name}[]")
    return [_cells(member.name, member) for member in members]


def _cells(name: str, setting: Declared) -> str:
    features = ", ".join(setting.features)
    kind, default = _kind(setting), _default(setting)
    return f"| `{name}` | {kind} | {default} | {setting.doc} | {features} |"


def _default(setting: Declared) -> str:
    if setting.required:
        return "required"
    if setting.derived:
        shown = "unset" if setting.default is None else f"`{_plain(setting)}`"
        return f"{shown} ({setting.derived})"
    if setting.default is None:
        return "unset"
    return f"`{_plain(setting)}`" if setting.default not in ((), {}) else "empty"


def _plain(setting: Declared) -> str:
    value = setting.default
    if setting.words and isinstance(value, Enum):
        return setting.words[list(type(value)).index(value)]
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value)
    return _text(setting.kind, value)


def _text(kind: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return show_duration(value)
    if isinstance(value, Enum):
        return str(value.value)
    return show_size(value) if kind is ByteSize else str(value)


def _kind(setting: Declared) -> str:
    return _kind_name(setting.kind, setting.words, setting.low, setting.high)


def _kind_name(kind: Any, words: tuple[str, ...], low: int | None, high: int | None) -> str:
    parts = [part for part in get_args(kind) if part not in (type(None), Ellipsis)]
    if get_origin(kind) is tuple:
        return f"list of {_kind_name(parts[0], (), None, None)}"
    if parts:
        # The one part of an optional kind, or the values of a map.
        return _kind_name(parts[-1], words, low, high)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " \\| ".join(words or choices(kind))
    name = _KIND_NAMES.get(kind, "table")
    if low is None:
        return name
    return f"{name}, {low} or more" if high is None else f"{name}, {low} to {high}"


def _sample(setting: Declared) -> list[str]:
    key = setting.name.rpartition(".")[2]
    lines = [f"# {setting.doc}"]
    if setting.is_map:
        return [*lines, "# name = value"]
    if setting.item is not None:
        members = ", ".join(f"{member.path[-1]} = ..." for member in declared(setting.item))
        return [*lines, f"# {key} = [{{ {members} }}]"]
    return [*lines, f"# {key} = {_toml(setting)}"]


def _toml(setting: Declared) -> str:
    value = setting.default
    if value is None:
        return '""'
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{part}"' for part in value) + "]"
    plain = _plain(setting)
    bare = isinstance(value, bool) or (isinstance(value, int) and setting.kind is not ByteSize)
    return plain if bare else f'"{plain}"'
