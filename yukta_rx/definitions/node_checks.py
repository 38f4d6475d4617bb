"""What can be wrong with one node: its type, its policy for that kind of node, its options.

Feature: DEF-02.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yukta_rx.errors import BadInputError, NotFoundError
from yukta_rx.model.policy import ALLOWED_KEYS, NodePolicy, OnError, RetryPolicy
from yukta_rx.plugins.contract import (
    PluginKind,
    PluginSpec,
    Shape,
    bind_config,
    check_config,
    check_environment,
)
from yukta_rx.security.variables import compile_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.draft import DraftNode
    from yukta_rx.plugins.registry import PluginRegistry

_MESSAGE = frozenset({"payload", "metadata", "headers", "id"})
_SEVERAL_AT_ONCE = frozenset({Shape.ASYNC, Shape.ASYNC_GENERATOR})


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A fault at a place below its node."""

    loc: tuple[str | int, ...]
    code: str
    detail: str


def engine_place(key: str, *below: str) -> tuple[str, ...]:
    """Return the place of a policy key below its node."""
    return ("config", "engine", key, *below)


def find_spec(node: DraftNode, registry: PluginRegistry) -> PluginSpec | NodeFault | None:
    """Return the node's plugin, the fault that there is none, or None if the type is unreadable."""
    if node.type is None:
        return None
    try:
        return registry.get(node.type)
    except NotFoundError as error:
        return NodeFault(("type",), "unknown_type", error.detail)


def check_policy(node: DraftNode, spec: PluginSpec) -> Iterator[NodeFault]:
    """Yield what is wrong with a node's `engine` and its idle timeout, the graph apart."""
    policy = node.policy
    if policy is not None:
        yield from _keys_of_kind(policy, spec)
        yield from _attempts(policy, spec)
        if policy.concurrency.max > 1 and spec.shape not in _SEVERAL_AT_ONCE:
            detail = (
                f"only an async plugin can work on several messages at once; {spec.type} is none"
            )
            yield NodeFault(engine_place("concurrency", "max"), "option_not_allowed", detail)
        for key, value in (
            ("elementTimeoutMs", policy.element_timeout_ms),
            ("deadlineMs", policy.deadline_ms),
        ):
            yield from _number(engine_place(key), value, spec)
    if node.readable_timeout:
        yield from _number(("timeoutSeconds",), node.timeout, spec)


def check_options(
    node: DraftNode, spec: PluginSpec, settings: Settings, base_dir: Path | None
) -> Iterator[NodeFault]:
    """Yield what is wrong with a node's plugin options."""
    if node.config is None:
        return
    faults = check_config(spec, node.config)
    if not faults:
        faults = check_environment(spec, node.config, settings=settings, base_dir=base_dir)
    for fault in faults:
        yield NodeFault(("config", *fault.loc), fault.code, fault.detail)


def idle_timeout(
    timeout: float | str | None, config: Mapping[str, Any], spec: PluginSpec
) -> float | None:
    """Return a node's idle timeout in seconds as far as it is known now, None for no limit.

    An expression is known only at the first message; until then the plugin's default holds.
    """
    if isinstance(timeout, (int, float)):
        return float(timeout) or None
    return spec.timeout(bind_config(spec, config).constant)


def check_backoff(node: DraftNode, spec: PluginSpec) -> Iterator[NodeFault]:
    """Yield a fault if a retry may wait as long as the idle clock; the options are valid."""
    if node.policy is None or node.policy.retry is None or node.config is None:
        return
    if isinstance(node.timeout, str) or not node.readable_timeout:
        return
    retry: RetryPolicy = node.policy.retry
    limit = idle_timeout(node.timeout, node.config, spec)
    if limit is not None and retry.max_backoff_ms >= limit * 1000:
        default = "" if "max_backoff_ms" in retry.model_fields_set else " (the default)"
        detail = (
            f"{retry.max_backoff_ms}{default} must be below the node's idle timeout of {limit:g} s:"
            " lower it, or raise timeoutSeconds"
        )
        yield NodeFault(engine_place("retry", "maxBackoffMs"), "invalid_option", detail)


def lossy_buffer(node_id: str | None, policy: NodePolicy | None) -> str | None:
    """Return what is wrong with a node in a workflow that must lose no message; None if nothing."""
    buffer = None if policy is None else policy.edge_buffer
    if buffer is None or not buffer.overflow.drops:
        return None
    written = "" if "overflow" in buffer.model_fields_set else " (the default)"
    return (
        f"edgeBuffer.overflow {buffer.overflow}{written} of node `{node_id}` drops messages, and "
        "options.lossless asks that none is lost: use SPILL or BLOCK, or take lossless out"
    )


def ports_of(node: DraftNode, policy: NodePolicy, spec: PluginSpec) -> frozenset[str] | None:
    """Return the named ports that edges may leave the node by, None if they are not known."""
    try:
        config = None if spec.ports_of is None else bind_config(spec, node.config).constant
    except BadInputError:
        return None
    named = spec.named_ports(config)
    if named is None:
        return None
    ports = set(named)
    if policy.on_error is OnError.ROUTE:
        ports.add("error")
    if policy.edge_buffer is not None and policy.edge_buffer.overflow.drops:
        ports.add("dropped")
    return frozenset(ports)


def _keys_of_kind(policy: NodePolicy, spec: PluginSpec) -> Iterator[NodeFault]:
    allowed = ALLOWED_KEYS[spec.kind]
    for name in sorted(policy.model_fields_set):
        key = NodePolicy.model_fields[name].alias or name
        if key not in allowed:
            kinds = [kind.lower() for kind, keys in ALLOWED_KEYS.items() if key in keys]
            detail = f"a {spec.kind.lower()} cannot have it, only a {' or '.join(kinds)}"
            yield NodeFault(engine_place(key), "option_not_allowed", detail)


def _attempts(policy: NodePolicy, spec: PluginSpec) -> Iterator[NodeFault]:
    """Attempts at single messages need a plugin that is called for each."""
    if spec.shape is not Shape.STREAM:
        return
    for key, given in (
        ("retry", policy.retry is not None),
        ("onError", policy.on_error is not OnError.FAIL),
        ("elementTimeoutMs", policy.element_timeout_ms is not None),
    ):
        if given:
            detail = (
                f"{spec.type} works on the whole stream and not message by message, so there is "
                "no attempt at one message; take it out, or set deadlineMs"
            )
            yield NodeFault(engine_place(key), "option_not_allowed", detail)


def _number(place: tuple[str, ...], value: Any, spec: PluginSpec) -> Iterator[NodeFault]:
    if not isinstance(value, str):
        return
    try:
        template = compile_number(value)
    except BadInputError as error:
        yield NodeFault(place, "invalid_expression", error.detail)
        return
    if spec.kind is PluginKind.TRIGGER and template.namespaces & _MESSAGE:
        detail = f"`{value}` reads a message, but a trigger has none; it can read env, sys, context"
        yield NodeFault(place, "invalid_expression", detail)
