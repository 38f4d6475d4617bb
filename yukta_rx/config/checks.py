"""Checks between settings: what cannot work, and what works but will surprise someone.

The findings are worded for the start-up log. Feature: DUR-05.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yukta_rx.config.derive import STORES
from yukta_rx.config.keys import HASHED, MASTER_KEY, SHORT_KEY, digest_of_key, named_keys
from yukta_rx.config.settings import HaMode, Settings, StoreType
from yukta_rx.errors import ConfigError
from yukta_rx.model.ids import id_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the settings say together.

    Attributes:
        refused: True when the server must not start like this.
        text: one sentence that names the settings and what to do.
    """

    refused: bool
    text: str


def check(settings: Settings) -> tuple[Finding, ...]:
    """Return everything that is wrong or risky about the settings as a whole."""
    return tuple(finding for rule in _RULES for finding in rule(settings))


def require(settings: Settings) -> tuple[str, ...]:
    """Refuse settings that cannot work; return the warnings of the others.

    Raises:
        ConfigError: at least one finding refuses the start; it lists all of those.
    """
    findings = check(settings)
    refused = [finding.text for finding in findings if finding.refused]
    if refused:
        raise ConfigError(refused)
    return tuple(finding.text for finding in findings)


def store_types(settings: Settings) -> dict[str, StoreType]:
    """Return the type in force of every store that has a switch."""
    return {store: _group(settings, store).store_type for store in STORES}


def _group(settings: Settings, store: str) -> Any:
    return getattr(settings, store.replace("-", "_"))


def _file_stores_have_a_folder(settings: Settings) -> Iterator[Finding]:
    for store, kind in store_types(settings).items():
        if kind is StoreType.FILE and _group(settings, store).dir is None:
            yield Finding(
                True,
                f"yukta.{store}.store-type = file needs yukta.{store}.dir or yukta.data.dir",
            )


def _postgres_has_an_address(settings: Settings) -> Iterator[Finding]:
    users = [
        f"yukta.{store}.store-type"
        for store, kind in store_types(settings).items()
        if kind is StoreType.POSTGRES
    ]
    if settings.ha.mode is HaMode.POSTGRES:
        users.append("yukta.ha.mode")
    if users and settings.postgres.url is None:
        yield Finding(True, f"{', '.join(users)} = postgres needs yukta.postgres.url")


def _addresses_are_postgres_urls(settings: Settings) -> Iterator[Finding]:
    for name in ("url", "migration_url"):
        value = getattr(settings.postgres, name)
        if value is not None and not _is_postgres_url(value.get_secret_value()):
            yield Finding(
                True,
                f"yukta.postgres.{name.replace('_', '-')}: expected"
                " postgresql://user@host:port/database",
            )


def _is_postgres_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises when it is no number
    except ValueError:
        return False
    return parts.scheme in {"postgresql", "postgres"}


def _resume_needs_both_halves(settings: Settings) -> Iterator[Finding]:
    log, outputs = settings.execution_log.store_type, settings.restart.store_type
    memory = StoreType.MEMORY
    if settings.restart.auto_resume and memory in (log, outputs):
        yield Finding(
            True,
            "yukta.restart.auto-resume needs a durable yukta.execution-log.store-type and"
            f" yukta.restart.store-type, which are {log.value} and {outputs.value}",
        )
    elif log is not memory and outputs is memory:
        yield Finding(
            False,
            f"the execution log is kept ({log.value}) but node outputs are not: after a restart"
            " no run can be resumed; set yukta.restart.store-type",
        )
    elif outputs is not memory and log is memory:
        yield Finding(
            False,
            f"node outputs are kept ({outputs.value}) but the execution log is not: after a"
            " restart no run can be resumed; set yukta.execution-log.store-type",
        )


def _resume_needs_records(settings: Settings) -> Iterator[Finding]:
    group = settings.restart
    if group.store_type is not StoreType.MEMORY and not group.retained_executions:
        yield Finding(
            group.auto_resume,
            "yukta.restart.retained-executions = 0 records nothing of what nodes emit: no run can"
            " be resumed or restarted",
        )


def _definitions_outlive_their_runs(settings: Settings) -> Iterator[Finding]:
    log = settings.execution_log.store_type
    if settings.session.store_type is StoreType.MEMORY and log is not StoreType.MEMORY:
        yield Finding(
            False,
            f"history and queued starts are kept ({log.value}) but sessions and workflow"
            " definitions are not; set yukta.session.store-type or apply them at each start",
        )


def _standby_sees_what_the_leader_wrote(settings: Settings) -> Iterator[Finding]:
    if settings.ha.mode is not HaMode.POSTGRES:
        return
    for store, kind in store_types(settings).items():
        if kind is not StoreType.POSTGRES:
            yield Finding(
                store in {"session", "execution-log"},
                f"yukta.ha.mode = postgres with yukta.{store}.store-type = {kind.value}: a server"
                " that takes over does not see what this one stored; set it to postgres",
            )


def _leases_last(settings: Settings) -> Iterator[Finding]:
    for name, lease in (("ha", settings.ha.lease), ("workers", settings.workers.lease)):
        if lease < timedelta(seconds=1):
            yield Finding(True, f"yukta.{name}.lease must be 1s or longer")


def _one_partition_only(settings: Settings) -> Iterator[Finding]:
    if settings.cluster.partitions != 1:
        yield Finding(True, "yukta.cluster.partitions: only 1 works in this version")


def _keys_are_told_apart(settings: Settings) -> Iterator[Finding]:
    names = [entry.name for entry in settings.api_keys]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Finding(True, f"yukta.api-keys: the name `{name}` is used more than once")
    if settings.api_key is not None and MASTER_KEY in names:
        yield Finding(True, f"yukta.api-keys: the name `{MASTER_KEY}` is that of yukta.api-key")
    texts = [key.get_secret_value() for _, key in named_keys(settings)]
    if len({_comparable(text) for text in texts}) < len(texts):
        yield Finding(True, "yukta.api-key, yukta.api-keys: two of the keys are the same")


def _keys_can_be_used(settings: Settings) -> Iterator[Finding]:
    for name, key in named_keys(settings):
        text = key.get_secret_value()
        if name != MASTER_KEY and (fault := id_fault("name", name)):
            yield Finding(True, f"yukta.api-keys: {fault}")
        if text.startswith(HASHED):
            if not re.fullmatch(r"[0-9a-fA-F]{64}", text.removeprefix(HASHED)):
                yield Finding(
                    True, f"the key `{name}`: {HASHED} is followed by the 64 hex digits of a hash"
                )
        elif not re.fullmatch(r"[\x21-\x7e]{1,1000}", text):
            yield Finding(True, f"the key `{name}` must be 1 to 1000 visible ASCII characters")
        elif len(text) < SHORT_KEY:
            yield Finding(
                False,
                f"the key `{name}` is shorter than {SHORT_KEY} characters and can be guessed;"
                " `yukta key new` makes a good one",
            )
    for entry in settings.api_keys:
        for session in entry.sessions:
            if fault := id_fault("sessions", session):
                yield Finding(True, f"the key `{entry.name}`: {fault}")


def _comparable(text: str) -> bytes:
    try:
        return digest_of_key(text)
    except ValueError:
        return text.encode()


def _open_server_is_local(settings: Settings) -> Iterator[Finding]:
    keyless = settings.api_key is None and not settings.api_keys
    if keyless and not _is_loopback(settings.http.host):
        yield Finding(
            False,
            f"yukta.http.host = {settings.http.host} is reachable from outside and no key is set:"
            " anyone whose Host header is in yukta.allowed-hosts may do everything",
        )
    if keyless and settings.metrics.auth:
        yield Finding(True, "yukta.metrics.auth asks for a key, but no key is set")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _safety_is_on(settings: Settings) -> Iterator[Finding]:
    if settings.process.allow_any:
        yield Finding(
            False, "yukta.process.allow-any lets a workflow start every program on this machine"
        )
    if settings.plugins.allow_fault_injection:
        yield Finding(False, "yukta.plugins.allow-fault-injection lets a workflow fail on purpose")


def _patterns_compile(settings: Settings) -> Iterator[Finding]:
    for name, patterns in (
        ("llm.deny-input-patterns", settings.llm.deny_input_patterns),
        ("llm.deny-output-patterns", settings.llm.deny_output_patterns),
        ("mcp-client.deny-argument-patterns", settings.mcp_client.deny_argument_patterns),
    ):
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                yield Finding(True, f"yukta.{name}: {pattern!r} is no regular expression: {error}")


_RULES: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _file_stores_have_a_folder,
    _postgres_has_an_address,
    _addresses_are_postgres_urls,
    _resume_needs_both_halves,
    _resume_needs_records,
    _definitions_outlive_their_runs,
    _standby_sees_what_the_leader_wrote,
    _leases_last,
    _one_partition_only,
    _keys_are_told_apart,
    _keys_can_be_used,
    _open_server_is_local,
    _safety_is_on,
    _patterns_compile,
)
