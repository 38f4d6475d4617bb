"""`${...}` in a node's configuration: compiled once, resolved per message.

A path is looked up in mappings and lists only, never by attribute, and what an expression gives
is never read for further expressions. What cannot be resolved is bad input: it is not retried.
Feature: SEC-02.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from yukta_rx.errors import BadInputError
from yukta_rx.model.codec import MAX_INPUT_DEPTH
from yukta_rx.model.message import copy_payload
from yukta_rx.security.environment import may_read, read
from yukta_rx.security.placeholders import REQUIRED, SECRET, Placeholder, as_text, parse
from yukta_rx.security.secrets import EnvironmentSecrets, is_secret_name

if TYPE_CHECKING:
    from yukta_rx.config.settings import Settings
    from yukta_rx.model.message import Message
    from yukta_rx.security.secrets import SecretSource

_NOTHING: Final[Mapping[str, Any]] = {}
_MISSING: Final = object()
_PREFIX: Final = SECRET + ":"


class Scope:
    """What expressions can read.

    Args:
        message: the message at hand; None for a trigger, whose options can read no message.
        context: plain values of the run.
        environ: environment variables; those of the process by default.
        settings: the settings in force, for `yukta.variables.allowed` and `yukta.var.*`.
        secrets: where `decrypted:name` comes from; the environment by default.
    """

    __slots__ = ("context", "environ", "message", "secrets", "settings")

    def __init__(
        self,
        message: Message | None = None,
        context: Mapping[str, Any] = _NOTHING,
        environ: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        secrets: SecretSource | None = None,
    ) -> None:
        self.message = message
        self.context = context
        self.environ = os.environ if environ is None else environ
        self.settings = settings
        self.secrets = secrets

    def for_message(self, message: Message) -> Scope:
        """Return the same scope with another message at hand."""
        return Scope(message, self.context, self.environ, self.settings, self.secrets)


class Template:
    """A value that may hold expressions at any depth.

    Attributes:
        constant: whether it holds none.
        namespaces: what its expressions read (`payload`, `env`, ...; `decrypted` for secrets).
    """

    __slots__ = ("_root", "constant", "namespaces")

    def __init__(self, root: _Node, namespaces: frozenset[str]) -> None:
        self._root = root
        self.constant = not namespaces
        self.namespaces = namespaces

    def resolve(self, scope: Scope) -> Any:
        """Return the value with every expression replaced.

        A constant part is the same object each time, so the result must not be changed.

        Raises:
            BadInputError: an expression has no value, may not be read, or is not of its type;
                names the expression.
        """
        return self._root.resolve(scope)


def has_expression(text: str) -> bool:
    """Whether a text has to be resolved: it holds a `${` that is no `$${`, or names a secret."""
    return "${" in text.replace("$${", "") or _is_secret(text)


def compile_template(value: Any) -> Template:
    """Compile a configuration value: text, or objects and arrays with text in them.

    Names of members are never read for expressions.

    Raises:
        BadInputError: an expression is malformed; names it and says why.
    """
    namespaces: set[str] = set()
    return Template(_compiled(value, namespaces, MAX_INPUT_DEPTH), frozenset(namespaces))


def compile_number(text: str) -> Template:
    """Compile the text of an option that is a number: one typed expression and nothing else.

    Raises:
        BadInputError: it is malformed, or not of type int or number.
    """
    template = compile_template(text)
    root = template._root
    if not isinstance(root, _Value) or root.placeholder.type not in ("int", "number"):
        raise BadInputError(
            f"`{text[:80]}`: a number is written as one typed expression, `${{payload.secs:int}}`"
        )
    return template


# --- compiled form -------------------------------------------------------------------------------


class _Node(Protocol):
    def resolve(self, scope: Scope) -> Any: ...


class _Constant:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def resolve(self, scope: Scope) -> Any:
        return self.value


class _Value:
    """A text that is one expression: gives the value itself."""

    __slots__ = ("placeholder",)

    def __init__(self, placeholder: Placeholder) -> None:
        self.placeholder = placeholder

    def resolve(self, scope: Scope) -> Any:
        placeholder = self.placeholder
        value = _lookup(placeholder, scope)
        if value is _MISSING:
            return copy_payload(placeholder.default)
        return placeholder.convert(value)


class _Text:
    """A text with expressions in it: gives text."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[str | _Value]) -> None:
        self.parts = parts

    def resolve(self, scope: Scope) -> str:
        return "".join(
            [part if type(part) is str else as_text(part.resolve(scope)) for part in self.parts]  # type: ignore[union-attr]
        )


class _Object:
    __slots__ = ("members",)

    def __init__(self, members: dict[str, _Node]) -> None:
        self.members = members

    def resolve(self, scope: Scope) -> dict[str, Any]:
        return {name: node.resolve(scope) for name, node in self.members.items()}


class _Array:
    __slots__ = ("items",)

    def __init__(self, items: list[_Node]) -> None:
        self.items = items

    def resolve(self, scope: Scope) -> list[Any]:
        return [node.resolve(scope) for node in self.items]


def _compiled(value: Any, namespaces: set[str], depth: int) -> _Node:
    if isinstance(value, str):
        return _compiled_text(value, namespaces)
    if not isinstance(value, (Mapping, list, tuple)):
        return _Constant(value)
    if depth == 0:
        raise BadInputError(f"a configuration is nested deeper than {MAX_INPUT_DEPTH} levels")
    if isinstance(value, Mapping):
        members = {name: _compiled(item, namespaces, depth - 1) for name, item in value.items()}
        if all(isinstance(node, _Constant) for node in members.values()):
            return _Constant({name: node.resolve(_EMPTY) for name, node in members.items()})
        return _Object(members)
    items = [_compiled(item, namespaces, depth - 1) for item in value]
    if all(isinstance(node, _Constant) for node in items):
        return _Constant([node.resolve(_EMPTY) for node in items])
    return _Array(items)


def _compiled_text(text: str, namespaces: set[str]) -> _Node:
    if _is_secret(text):
        text = "${" + text + "}"
    if "${" not in text:
        return _Constant(text)
    parts = _parts(text)
    found = [part for part in parts if isinstance(part, _Value)]
    namespaces.update(value.placeholder.namespace for value in found)
    if not found:
        return _Constant("".join(str(part) for part in parts))
    if len(parts) == 1:
        return found[0]
    for value in found:
        if value.placeholder.type == "json":
            raise BadInputError(
                f"`{value.placeholder.text}`: an expression of type json must be the whole text",
                expression=value.placeholder.text,
            )
    return _Text(parts)


def _parts(text: str) -> list[str | _Value]:
    parts: list[str | _Value] = []
    literal: list[str] = []
    at = 0
    while True:
        found = text.find("${", at)
        if found < 0:
            break
        if found > at and text[found - 1] == "$":
            literal += [text[at : found - 1], "${"]
            at = found + 2
            continue
        literal.append(text[at:found])
        if "".join(literal):
            parts.append("".join(literal))
        literal = []
        placeholder, at = parse(text, found)
        parts.append(_Value(placeholder))
    literal.append(text[at:])
    if "".join(literal):
        parts.append("".join(literal))
    return parts


def _is_secret(text: str) -> bool:
    return text.startswith(_PREFIX) and is_secret_name(text[len(_PREFIX) :])


# --- looking up ----------------------------------------------------------------------------------


def _lookup(placeholder: Placeholder, scope: Scope) -> Any:
    """Return the value, or `_MISSING` where a default has to stand in."""
    namespace = placeholder.namespace
    if namespace == "payload":
        value = _walk(_message(placeholder, scope).payload, placeholder.keys)
    elif namespace in ("metadata", "headers"):
        value = _named(_message(placeholder, scope).headers, placeholder)
    elif namespace == "id":
        value = _message(placeholder, scope).id
    elif namespace == "context":
        value = _named(scope.context, placeholder)
    elif namespace == SECRET:
        return (scope.secrets or EnvironmentSecrets(scope.environ)).get(placeholder.path)
    else:
        value = _variable(placeholder, scope)
    if value is _MISSING and placeholder.default is REQUIRED:
        raise _no_value(placeholder, scope)
    return value


def _message(placeholder: Placeholder, scope: Scope) -> Message:
    if scope.message is None:
        raise BadInputError(
            f"`{placeholder.text}`: no message is at hand here; env, sys and context can be read",
            expression=placeholder.text,
        )
    return scope.message


def _walk(value: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if type(value) is dict or isinstance(value, Mapping):
            value = value.get(key, _MISSING)
        elif isinstance(value, (list, tuple)) and key.isdecimal() and key.isascii():
            value = value[int(key)] if len(key) < 19 and int(key) < len(value) else _MISSING
        else:
            return _MISSING
        if value is _MISSING:
            return _MISSING
    return value


def _named(values: Mapping[str, Any], placeholder: Placeholder) -> Any:
    """Look up a name that may itself hold dots (`failure.attempts`), then members of its value."""
    keys = placeholder.keys
    for length in range(len(keys), 0, -1):
        value = values.get(".".join(keys[:length]), _MISSING)
        if value is not _MISSING:
            return _walk(value, keys[length:])
    return _MISSING


def _variable(placeholder: Placeholder, scope: Scope) -> Any:
    kind, name = placeholder.namespace, placeholder.path
    if not may_read(kind, name, scope.settings):
        raise BadInputError(
            f"`{placeholder.text}`: {name} may not be read; add it to yukta.variables.allowed",
            expression=placeholder.text,
        )
    value = read(kind, name, scope.environ, scope.settings)
    return _MISSING if value is None else value


def _no_value(placeholder: Placeholder, scope: Scope) -> BadInputError:
    namespace = placeholder.namespace
    if namespace in ("env", "sys"):
        why = f"{placeholder.path} is not set"
    else:
        why = f"the {namespace} has no `{placeholder.path}`{_nearest(placeholder, scope)}"
    detail = f"`{placeholder.text}` has no value: {why}, and the expression gives no default"
    return BadInputError(detail, expression=placeholder.text)


def _nearest(placeholder: Placeholder, scope: Scope) -> str:
    values: Any = scope.context
    if placeholder.namespace != "context":
        message = _message(placeholder, scope)
        values = message.payload if placeholder.namespace == "payload" else message.headers
    if not isinstance(values, Mapping):
        return ""
    names = [name for name in islice(values, 200) if isinstance(name, str) and len(name) < 100]
    close = get_close_matches(placeholder.path[:100], names, n=1)
    return f" (there is `{close[0]}`)" if close else ""


_EMPTY: Final = Scope(environ=_NOTHING)
