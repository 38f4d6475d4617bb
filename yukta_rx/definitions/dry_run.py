"""What a start would do, without a run: order, clocks, options as far as they are known.

No plugin is called. A secret is never shown, nor an option whose name says that it is one.
Features: DEF-01, DEF-02.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from yukta_rx.errors import BadInputError
from yukta_rx.model.message import trigger_message
from yukta_rx.plugins.config import fixed_places
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.security.environment import looks_secret
from yukta_rx.security.placeholders import SECRET, Placeholder, parse
from yukta_rx.security.variables import Scope, compile_template, has_expression

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.definitions.prepare import PreparedNode, PreparedWorkflow

HIDDEN: Final = "***"
"""Stands for what is secret."""

# In an address, between the name and the host.
_PASSWORD: Final = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_VARIABLES: Final = frozenset({"env", "sys", SECRET})
_NOT_KNOWN: Final = frozenset({"id", "metadata", "headers"})
_START: Final = "API_TRIGGER"
"""The trigger whose message is the start payload, unless it splits it."""
_OWN: Final = "yukta."


def dry_run(prepared: PreparedWorkflow, settings: Settings, payload: Any = None) -> dict[str, Any]:
    """Return what a start of a prepared workflow would do: `{order, nodes}`.

    Args:
        prepared: the workflow, validated.
        settings: the settings in force.
        payload: the start payload: in the nodes right behind the trigger that emits it,
            `${payload...}` is shown with its value. Without one, where it has no such member, and
            in all other nodes, the expression stays as it is.
    """
    if isinstance(payload, Mapping):
        payload = {key: value for key, value in payload.items() if not key.startswith(_OWN)}
    scope = Scope(settings=settings)
    first = scope.for_message(trigger_message("dry-run", "start", 0, payload)) if payload else scope
    return {
        "order": list(prepared.order),
        "nodes": [
            _node(node, first if _is_first(node, prepared) else scope)
            for node in prepared.nodes.values()
        ],
    }


def _is_first(node: PreparedNode, prepared: PreparedWorkflow) -> bool:
    """Whether the messages of a node are the start payload."""
    parents = [prepared.nodes[parent.node_id] for parent in node.parents]
    whole = (
        parent.spec.type == _START and "splitPath" not in parent.node.plugin_config
        for parent in parents
    )
    return bool(parents) and node.spec.per_message and all(whole)


def _node(node: PreparedNode, scope: Scope) -> dict[str, Any]:
    options = node.node.plugin_config
    literal = {place[0] for place in fixed_places(node.spec.config) if len(place) == 1}
    shown = {
        name: value if name in literal else _shown(value, scope) for name, value in options.items()
    }
    missing: dict[str, None] = {}
    for name, value in options.items():
        if name not in literal:
            missing.update(dict.fromkeys(_missing(value, scope)))
    placement = node.policy.placement
    return {
        "nodeId": node.node_id,
        "type": node.spec.type,
        "kind": str(node.spec.kind),
        "ports": _ports(node),
        "clocks": _clocks(node),
        "placement": None
        if placement is None
        else placement.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "resolvedConfig": {
            name: _hidden(name, value, options[name]) for name, value in shown.items()
        },
        "missingVariables": list(missing),
    }


def _ports(node: PreparedNode) -> list[str]:
    """Return the named ports that edges leave the node by, and those that it has besides."""
    ports = list(node.spec.named_ports(node.config.constant) or ())
    used = [child.port for child in node.children if child.port is not None]
    if node.spec.kind is PluginKind.TERMINAL:
        return []
    return list(dict.fromkeys([*ports, *used]))


def _clocks(node: PreparedNode) -> dict[str, Any]:
    """Return the limits in milliseconds: null for none, text for one that a message gives."""
    policy = node.policy
    idle: Any = None if node.idle_timeout is None else round(node.idle_timeout * 1000)
    if node.timeout_template is not None:
        idle = node.node.timeout_seconds
    return {
        "idleTimeoutMs": idle,
        "elementTimeoutMs": policy.element_timeout_ms,
        "deadlineMs": policy.deadline_ms,
    }


# --- options -------------------------------------------------------------------------------------


def _shown(value: Any, scope: Scope) -> Any:
    """Return a value with every text resolved that can be; a secret is only marked."""
    if isinstance(value, str):
        return _text(value, scope)
    if isinstance(value, Mapping):
        return {name: _hidden(name, _shown(item, scope), item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(item, scope) for item in value]
    return value


def _text(text: str, scope: Scope) -> Any:
    if not has_expression(text):
        return _PASSWORD.sub(rf"\1{HIDDEN}@", text)
    template = compile_template(text)
    if SECRET in template.namespaces:
        return HIDDEN
    if template.namespaces & _NOT_KNOWN:
        return text
    try:
        value = template.resolve(scope)
    except BadInputError:
        value = text
    return _PASSWORD.sub(rf"\1{HIDDEN}@", value) if isinstance(value, str) else value


def _hidden(name: str, value: Any, written: Any) -> Any:
    """Return what is shown of a member; an expression that was not resolved gives nothing away."""
    if not looks_secret(name) or value in (None, "", True, False):
        return value
    if isinstance(written, str) and has_expression(written) and value == written:
        return value
    return HIDDEN


def _missing(value: Any, scope: Scope) -> Iterator[str]:
    """Yield the variables and secrets that a value reads and that have no value."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _missing(item, scope)
        return
    if not isinstance(value, str) or not has_expression(value):
        return
    for placeholder in _placeholders(value):
        if placeholder.namespace in _VARIABLES:
            try:
                compile_template(placeholder.text).resolve(scope)
            except BadInputError:
                yield placeholder.text


def _placeholders(text: str) -> Iterator[Placeholder]:
    if "${" not in text:
        # A text that is the name of a secret and nothing else.
        text = "${" + text + "}"
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found > at and text[found - 1] == "$":
            at = found + 2
            continue
        placeholder, at = parse(text, found)
        yield placeholder
