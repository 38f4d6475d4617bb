"""Reads the settings: defaults, then yukta.toml, then the environment, then overrides.

Everything that is wrong is collected and reported at once, each with its place and, where one is
close, the name or word that was probably meant.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

from yukta_rx.config.declare import PREFIX, Declared, Group, declared, env_name, nearest
from yukta_rx.config.derive import derived_values
from yukta_rx.config.settings import Settings
from yukta_rx.config.units import ExpectedError, parse
from yukta_rx.errors import ConfigError

# Variables that begin with YUKTA_ but are no settings: read elsewhere, or set by cluster managers.
_NOT_SETTINGS = re.compile(
    r"YUKTA_(?:CONFIG|DEBUG|URL|KEY|VAR_.*|SECRET_.*|TEST_.*"
    r"|.*_SERVICE_HOST|.*_SERVICE_PORT.*|PORT.*|SERVICE_.*)"
)
_OVERRIDE = "override"


@dataclass(frozen=True, slots=True)
class _Raw:
    """What one source says about one setting."""

    value: object
    place: str
    text: bool
    shown: str


@dataclass(slots=True)
class _Reading:
    """What was found so far, in rising order of precedence."""

    found: dict[str, _Raw] = field(default_factory=dict)
    maps: dict[str, dict[str, _Raw]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@cache
def catalogue() -> Mapping[str, Declared]:
    """Every declared setting by its full name."""
    return {setting.name: setting for setting in declared(Settings)}


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """Read the settings from all sources.

    Args:
        path: the file to read; None looks in the usual places (`find_config`).
        environ: the environment; None is that of this process.
        overrides: full names and values that win over everything; a text is read like a variable.

    Raises:
        ConfigError: names that are not settings or values that are not allowed; all of them.
    """
    environ = os.environ if environ is None else environ
    reading = _Reading()
    place = Path(path) if path is not None else find_config(environ)
    if place is not None:
        _read_file(place, reading)
    _read_environment(environ, reading)
    _read_overrides(overrides or {}, reading)
    values, origins = _parsed(reading)
    if reading.problems:
        raise ConfigError(reading.problems)
    for name, (value, origin) in derived_values(values).items():
        values[name] = value
        origins[name] = origin
    return Settings(**_nested(values)).traced(origins, tuple(reading.warnings))


def find_config(environ: Mapping[str, str]) -> Path | None:
    """Return the configuration file to use when none is named, or None if there is none.

    `$YUKTA_CONFIG` is taken even if it does not exist, so that a wrong path is noticed.
    """
    if named := environ.get("YUKTA_CONFIG"):
        return Path(named)
    places = [Path("yukta.toml")]
    if home := environ.get("XDG_CONFIG_HOME"):
        places.append(Path(home, "yukta", "yukta.toml"))
    places.append(Path("/etc/yukta/yukta.toml"))
    return next((place for place in places if place.is_file()), None)


# --- the three sources ---------------------------------------------------------------------------


def _read_file(path: Path, reading: _Reading) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        reading.problems.append(f"{path}: no such file")
        return
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reading.problems.append(f"{path}: cannot be read: {error}")
        return
    for name, value in document.items():
        _read_table(name, value, str(path), reading)


def _read_table(name: str, value: object, place: str, reading: _Reading) -> None:
    setting = catalogue().get(name)
    if setting is not None and setting.is_map:
        _read_map(setting, value, place, reading)
    elif setting is not None:
        _put(reading, name, _Raw(value, place, text=False, shown=name))
    elif isinstance(value, dict) and value:
        for key, inner in value.items():
            _read_table(f"{name}.{key}", inner, place, reading)
    elif any(known.startswith(f"{name}.") for known in catalogue()):
        if value != {}:
            reading.problems.append(
                f"{place}: {name} = {_show(value)}: expected a table of settings"
            )
    else:
        reading.problems.append(f"{place}: {_unknown(name)}")


def _read_map(setting: Declared, value: object, place: str, reading: _Reading) -> None:
    if not isinstance(value, dict):
        reading.problems.append(f"{place}: {setting.name} = {_show(value)}: expected a table")
        return
    for name, inner in _flat(value):
        shown = f"{setting.name}.{name}"
        reading.maps.setdefault(setting.name, {})[name] = _Raw(inner, place, False, shown)


def _flat(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _read_environment(environ: Mapping[str, str], reading: _Reading) -> None:
    by_env = {setting.env: setting for setting in catalogue().values()}
    lists = {env: setting for env, setting in by_env.items() if setting.item is not None}
    rows: dict[str, dict[int, dict[str, object]]] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith("YUKTA_") or value == "":
            continue
        setting = by_env.get(variable)
        if setting is not None and setting.item is None and not setting.is_map:
            _put(reading, setting.name, _Raw(value, variable, text=True, shown=variable))
        elif entry := _entry_of_list(variable, lists):
            name, index, member = entry
            rows.setdefault(name, {}).setdefault(index, {})[member] = value
        elif mapped := _entry_of_map(variable):
            name, key = mapped
            raw = _Raw(value, variable, text=True, shown=variable)
            reading.maps.setdefault(name, {})[key] = raw
        elif not _NOT_SETTINGS.fullmatch(variable):
            _unknown_variable(variable, by_env, reading)
    for name, indexed in rows.items():
        items = [indexed[index] for index in sorted(indexed)]
        _put(reading, name, _Raw(items, env_name(name), text=True, shown=env_name(name)))


def _entry_of_list(variable: str, lists: Mapping[str, Declared]) -> tuple[str, int, str] | None:
    """Split `YUKTA_API_KEYS_0_NAME` into the setting, the index and the member."""
    for env, setting in lists.items():
        if match := re.fullmatch(rf"{env}_(\d{{1,4}})_([A-Z_]+)", variable):
            return setting.name, int(match[1]), match[2].lower()
    return None


def _entry_of_map(variable: str) -> tuple[str, str] | None:
    """Split `YUKTA_LLM_RATE_LIMIT_OPENAI` into the setting and the key."""
    for name, setting in catalogue().items():
        before = f"{setting.env}_"
        # YUKTA_VAR_* is read by the expressions themselves, with the case of its names kept.
        if setting.is_map and name != "yukta.var" and variable.startswith(before):
            return name, variable.removeprefix(before).lower().replace("_", "-")
    return None


def _unknown_variable(variable: str, by_env: Mapping[str, Declared], reading: _Reading) -> None:
    words = {env.removeprefix("YUKTA_"): env for env in by_env}
    close = nearest(variable.removeprefix("YUKTA_"), words, cutoff=0.8)
    if close is None:
        reading.warnings.append(f"{variable}: no such setting; it is ignored")
    else:
        reading.problems.append(f"{variable}: no such setting; did you mean {words[close]}?")


def _read_overrides(overrides: Mapping[str, object], reading: _Reading) -> None:
    for name, value in overrides.items():
        setting = catalogue().get(name)
        raw = _Raw(value, _OVERRIDE, text=isinstance(value, str), shown=name)
        owner = next(
            (s for s in catalogue().values() if s.is_map and name.startswith(f"{s.name}.")), None
        )
        if setting is not None and setting.is_map:
            _read_map(setting, value, _OVERRIDE, reading)
        elif setting is not None:
            _put(reading, name, raw)
        elif owner is not None:
            key = name.removeprefix(f"{owner.name}.")
            reading.maps.setdefault(owner.name, {})[key] = raw
        else:
            reading.problems.append(f"{_OVERRIDE}: {_unknown(name)}")


def _put(reading: _Reading, name: str, raw: _Raw) -> None:
    reading.found[name] = raw


# --- from what was written to values -------------------------------------------------------------


def _parsed(reading: _Reading) -> tuple[dict[str, Any], dict[str, str]]:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, raw in reading.found.items():
        setting = catalogue()[name]
        if setting.item is not None:
            values[name] = _parse_items(setting.item, raw, reading)
        else:
            values[name] = _parse_one(setting, setting.kind, raw, reading)
        origins[name] = raw.place
    for name, entries in reading.maps.items():
        setting = catalogue()[name]
        kind = get_args(setting.kind)[1]
        values[name] = {
            key: _parse_one(setting, kind, raw, reading) for key, raw in entries.items()
        }
        origins[name] = ", ".join(dict.fromkeys(raw.place for raw in entries.values()))
    return values, origins


def _parse_one(setting: Declared, kind: Any, raw: _Raw, reading: _Reading) -> Any:
    try:
        value = parse(kind, raw.value, text=raw.text)
        _check_range(setting, value)
    except ExpectedError as error:
        expected = f"expected one of {', '.join(setting.words)}" if setting.words else str(error)
        shown = "***" if setting.secret else _show(raw.value)
        place = "" if raw.shown == raw.place else f"{raw.place}: "
        reading.problems.append(f"{place}{raw.shown} = {shown}: {expected}")
        return None
    return value


def _check_range(setting: Declared, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        return
    low, high = setting.low, setting.high
    if low is None or (low <= value and (high is None or value <= high)):
        return
    if high is None:
        raise ExpectedError(f"expected {low} or more")
    raise ExpectedError(
        f"expected {low} to {high}" if low is not None else f"expected {high} or less"
    )


def _parse_items(item: type[Group], raw: _Raw, reading: _Reading) -> tuple[dict[str, Any], ...]:
    """Parse a list of tables, such as the API keys."""
    if not isinstance(raw.value, list | tuple):
        place = "" if raw.shown == raw.place else f"{raw.place}: "
        reading.problems.append(f"{place}{raw.shown}: expected a list of tables")
        return ()
    rows = []
    for index, entry in enumerate(raw.value):
        here = f"{raw.shown}_{index}_" if raw.shown == raw.place else f"{raw.shown}[{index}]."
        if not isinstance(entry, Mapping):
            reading.problems.append(f"{raw.place}: {here.rstrip('._')}: expected a table")
            continue
        rows.append(_parse_item(item, entry, raw, here, reading))
    return tuple(rows)


def _parse_item(
    item: type[Group], entry: Mapping[str, object], raw: _Raw, here: str, reading: _Reading
) -> dict[str, Any]:
    members = {setting.path[-1]: setting for setting in declared(item)}
    from_env = raw.shown == raw.place
    row: dict[str, Any] = {}
    for written, value in entry.items():
        member = written.replace("-", "_")
        shown = f"{here}{written.upper() if from_env else written}"
        if member not in members or (not from_env and "_" in written):
            close = nearest(member, members)
            hint = f"; did you mean {close.replace('_', '-')}?" if close else ""
            place = "" if from_env else f"{raw.place}: "
            reading.problems.append(f"{place}no setting {shown}{hint}")
            continue
        place = shown if from_env else raw.place
        part = _Raw(value, place, raw.text, shown)
        row[member] = _parse_one(members[member], members[member].kind, part, reading)
    for name, setting in members.items():
        if setting.required and row.get(name, "") == "":
            place = "" if from_env else f"{raw.place}: "
            reading.problems.append(f"{place}{here.rstrip('._')} needs {name}")
    return row


def _unknown(name: str) -> str:
    close = nearest(name.replace("_", "-"), catalogue())
    if close is None and name.split(".")[0] != PREFIX:
        return f"no setting {name}; every setting is below [{PREFIX}]"
    return f"no setting {name}" + (f"; did you mean {close}?" if close else "")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *groups, last = catalogue()[name].path
        table = nested
        for group in groups:
            table = table.setdefault(group, {})
        table[last] = value
    return nested
