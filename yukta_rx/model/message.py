"""Messages: what travels on an edge, and ids that are the same each time a run is repeated.

An id is a hash over where a message came from, so it need not be stored with the message nor made
when nobody asks: `origin` remembers the place and the id is worked out at the first read.

Feature: ENG-01.
"""

from __future__ import annotations

import copy
import re
import secrets
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from types import MappingProxyType, NoneType
from typing import Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import force_setattr

from yukta_rx.errors import BadInputError
from yukta_rx.model import codec

NO_HEADERS: Mapping[str, Any] = MappingProxyType({})
"""The headers of a message that has none; shared and immutable."""

# The element types of an origin nest, which a type alias cannot say; the four shapes are:
#   (lineage, node, sequence number, True)   emitted by a trigger
#   (cause, node, index)                     derived from one message; a cause is an id or an origin
#   (Several(cause, ...), node, index)       derived from several
#   (origin, trail)                          a cause: what came of an origin by its trail
#   ()                                       none: the id is random
# A trail is (trail before, node), or None: the nodes that made one message of one since the origin.
# All messages that went the same way share it, so a hop makes no new origin.
# A plugin that names causes has no node id to give; "" stands there until the engine adopts it,
# with index -1 when the plugin chose the id as well.
Origin: TypeAlias = tuple[Any, ...]
Trail: TypeAlias = tuple[Any, str]


class Several(tuple[Any, ...]):
    """The causes of a message that was made from several, in their order."""

    __slots__ = ()


_OWN_ID = re.compile(r"[\x21-\x7e]{1,64}")


class Message(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The unit of data on an edge. Immutable; branches share it, so never change its payload.

    Two messages are equal when they are the same object; compare `id` to compare identity across
    branches and runs.

    Attributes:
        payload: any value; one that `codec.encode` accepts can be stored and sent.
        headers: names to values, read only.
        origin: where the message comes from; None for one that a plugin made itself.
        uid: the id, once it is known, or the id that a plugin chose.
        attempt: which attempt of a plugin gets this message, from 1.
        trail: the nodes that it went through since `origin`, one output for one input each.
    """

    payload: Any
    headers: Mapping[str, Any] = NO_HEADERS
    origin: Origin | None = None
    uid: str | None = None
    attempt: int = 1
    trail: Trail | None = None

    @classmethod
    def of(
        cls,
        payload: Any,
        headers: Mapping[str, Any] | None = None,
        id: str | None = None,
        causes: Iterable[Message] = (),
    ) -> Message:
        """Make a message in a plugin.

        Args:
            payload: any value.
            headers: copied; none by default.
            id: an id of the plugin's own, 1 to 64 visible ASCII characters. Without it the engine
                derives one, which is what a plugin should want: it stays the same on a repeat.
            causes: the messages that this one was made from, for lineage.

        Raises:
            BadInputError: the id or a header name is not usable.
        """
        if id is not None and not (isinstance(id, str) and _OWN_ID.fullmatch(id)):
            raise BadInputError(
                f"message id {_shown(id)} is not usable: give 1 to 64 visible ASCII characters"
            )
        kept = NO_HEADERS if headers is None else _frozen(headers)
        keys = [cause.cause_key for cause in causes]
        origin: Origin | None = None
        if keys:
            cause = keys[0] if len(keys) == 1 else Several(keys)
            origin = (cause, "", 0 if id is None else -1)
        return cls(payload, kept, origin, id)

    @property
    def id(self) -> str:
        """The id; worked out at the first read and kept."""
        uid = self.uid
        if uid is None:
            origin, trail = self.origin, self.trail
            if trail is not None:
                uid = _id_of((origin, trail))
            else:
                uid = _id_of(origin) if origin else secrets.token_hex(16)
            force_setattr(self, "uid", uid)
            if self.origin is None:
                # Marks the id as random: it was read, not chosen.
                force_setattr(self, "origin", ())
        return uid

    def name(self) -> None:
        """Work out the id now."""
        if self.uid is None:
            _ = self.id

    @property
    def own_id(self) -> str | None:
        """The id that a plugin chose for a message of its own; None once the engine adopted it."""
        origin = self.origin
        chosen = origin is None or (len(origin) == _DERIVED_SHAPE and origin[1:] == ("", -1))
        return self.uid if chosen and self.trail is None else None

    @property
    def cause_key(self) -> str | Origin:
        """What a message derived from this one remembers: the id if known, else the origin."""
        if self.uid is None and self.trail is not None:
            return self.origin, self.trail
        return self.uid or self.origin or self.id

    @property
    def cause(self) -> str | None:
        """Id of the one message that this one was derived from; None if there is no single one."""
        causes = self.causes
        return causes[0] if len(causes) == 1 else None

    @property
    def causes(self) -> tuple[str, ...]:
        """Ids of the messages that this one was derived from, in order."""
        origin, trail = self.origin, self.trail
        if trail is not None:
            return (_id_of((origin, trail[0])),)
        if not origin or len(origin) == _TRIGGER_SHAPE:
            return ()
        made = origin[0]
        if type(made) is not Several:
            return (made if type(made) is str else _id_of(made),)
        known: dict[int, str] = {}
        return tuple(key if type(key) is str else _id_of(key, known) for key in made)

    @property
    def made_from(self) -> Any:
        """What this message, which is derived, was made from: a key that equals that of others."""
        origin, trail = self.origin, self.trail
        if trail is None:
            return origin[0] if origin else None
        return origin if trail[0] is None else (origin, trail[0])

    def derive(
        self, node_id: str, index: int, payload: Any, headers: Mapping[str, Any] | None = None
    ) -> Message:
        """Return the `index`-th output that node `node_id` makes from this message.

        Args:
            node_id: the node that emits it.
            index: place among that node's outputs for this input, from 0.
            payload: the new payload.
            headers: the new headers, not copied; this message's own by default.
        """
        given = self.headers if headers is None else headers
        if not index and self.uid is None and self.origin:
            return Message(payload, given, self.origin, None, 1, (self.trail, node_id))
        return Message(payload, given, (self.cause_key, node_id, index))

    def adopt(self, node_id: str, index: int, cause: Message) -> Message:
        """Return this message, made by a plugin, as the `index`-th output of its node.

        Payload and headers stay. The id is the plugin's own if it chose one, else derived: from
        the causes that the plugin named, or from `cause`, the input it was working on.
        """
        origin = self.origin
        named = origin is not None and len(origin) == _DERIVED_SHAPE and origin[1] == ""
        key = origin[0] if named and origin else cause.cause_key
        return Message(self.payload, self.headers, (key, node_id, index), self.own_id)

    def replace(self, *, payload: Any = ..., headers: Mapping[str, Any] | None = None) -> Message:
        """Return a message of the plugin's own with another payload, other headers, or both.

        It has no id of its own: the engine derives one when the plugin emits it.

        Raises:
            BadInputError: a header name is not usable.
        """
        return Message(
            self.payload if payload is ... else payload,
            self.headers if headers is None else _frozen(headers),
            attempt=self.attempt,
        )

    def numbered(self, attempt: int) -> Message:
        """Return the same message as a further attempt at it gets it."""
        return Message(self.payload, self.headers, self.origin, self.id, attempt, self.trail)

    def copied(self) -> Message:
        """Return the same message with a payload of its own."""
        payload = copy_payload(self.payload)
        return Message(payload, self.headers, self.origin, self.id, self.attempt, self.trail)

    def flattened(self) -> Message:
        """Return the same message, knowing its causes by their ids: apart from other messages."""
        uid, origin = self.id, self.origin
        if self.trail is not None:
            origin = (self.causes[0], self.trail[1], 0)
        elif origin and len(origin) == _DERIVED_SHAPE:
            ids = self.causes
            origin = (Several(ids) if type(origin[0]) is Several else ids[0], *origin[1:])
        return Message(self.payload, self.headers, origin, uid, self.attempt)

    def json(self) -> bytes:
        """Return the message as JSON, in the tagged form that `codec.decode` reads back.

        Raises:
            UnserialisablePayloadError: a payload or header cannot be stored; `pointer` names it.
        """
        headers = dict(self.headers)
        lineage = {"id": self.id, "causes": list(self.causes), "attempt": self.attempt}
        return codec.encode({**lineage, "headers": headers, "payload": self.payload})

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only mapping can neither be pickled nor copied deeply, so it travels as a dict.
        rest = (self.origin, self.uid, self.attempt, self.trail)
        return _revive, (self.payload, dict(self.headers) or None, *rest)


def _revive(payload: Any, headers: dict[str, Any] | None, *rest: Any) -> Message:
    return Message(payload, NO_HEADERS if headers is None else MappingProxyType(headers), *rest)


def trigger_message(
    lineage: str, node_id: str, seq: int, payload: Any, headers: Mapping[str, Any] = NO_HEADERS
) -> Message:
    """Return the `seq`-th message of a trigger in a lineage.

    Args:
        lineage: the run's lineage; runs of one lineage give the same ids.
        node_id: the trigger.
        seq: sequence number, from 0.
        payload: the payload.
        headers: the headers, not copied.
    """
    return Message(payload, headers, (lineage, node_id, seq, True))


def derive_from_many(
    causes: Iterable[Message],
    node_id: str,
    index: int,
    payload: Any,
    headers: Mapping[str, Any] = NO_HEADERS,
) -> Message:
    """Return the `index`-th output that a node makes from several messages, in their order."""
    return Message(payload, headers, (Several(cause.cause_key for cause in causes), node_id, index))


class Routed(msgspec.Struct, frozen=True, gc=False):
    """A plugin's output for one named port."""

    port: str
    value: Any


def to_port(port: str, value: Any) -> Routed:
    """Send a value, or a message, to a port that the plugin declares."""
    return Routed(port, value)


def child_lineage(message_id: str, node_id: str) -> str:
    """Return the lineage of the run that a node starts for a message: the same on a repeat."""
    return _hash(f"c\0{len(node_id)}\0{node_id}{message_id}")


# --- ids -----------------------------------------------------------------------------------------

_TRAILED_SHAPE = 2
_DERIVED_SHAPE = 3
_TRIGGER_SHAPE = 4
_ID_BYTES = 16


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES).hexdigest()


def _id_of(origin: Origin, known: dict[int, str] | None = None) -> str:
    """Work out an id without recursion: a line of nodes may nest 500 origins.

    `known` holds ids by the identity of their origin, so that an origin shared by many branches
    is hashed once.
    """
    known = {} if known is None else known
    pending = [origin]
    while pending:
        top = pending[-1]
        if id(top) in known:
            pending.pop()
            continue
        head = top[0]
        if len(top) == _TRAILED_SHAPE:
            if id(head) not in known:
                pending.append(head)
                continue
            known[id(top)] = _along(known[id(head)], top[1])
        elif len(top) == _TRIGGER_SHAPE:
            lineage, node_id, seq, _ = top
            # Lengths keep any two different places from being written the same way.
            known[id(top)] = _hash(f"t\0{seq}\0{len(node_id)}\0{node_id}{lineage}")
        elif type(head) is Several:
            waiting = [key for key in head if type(key) is not str and id(key) not in known]
            if waiting:
                pending.extend(waiting)
                continue
            keys = "\0".join(key if type(key) is str else known[id(key)] for key in head)
            known[id(top)] = _hash(f"n\0{len(head)}\0{keys}\0{top[1]}\0{top[2]}")
        else:
            key = head if type(head) is str else known.get(id(head))
            if key is None:
                pending.append(head)
                continue
            known[id(top)] = _hash(f"d\0{key}\0{top[1]}\0{top[2]}")
        pending.pop()
    return known[id(origin)]


def _along(key: str, trail: Trail | None) -> str:
    """Return the id of what came of the message `key` by a trail."""
    nodes = []
    while trail is not None:
        trail, node_id = trail
        nodes.append(node_id)
    for node_id in reversed(nodes):
        key = _hash(f"d\0{key}\0{node_id}\0{0}")
    return key


def _frozen(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in headers:
        if not isinstance(name, str) or not name:
            raise BadInputError(
                f"header name {_shown(name)} is not usable: give a non-empty string"
            )
    return MappingProxyType(dict(headers))


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."


# --- copies --------------------------------------------------------------------------------------

_ATOMS: frozenset[type] = frozenset(
    (
        *(NoneType, bool, int, float, complex, str, bytes),
        *(Decimal, datetime, date, time, timedelta, UUID),
    )
)


def copy_payload(value: Any) -> Any:
    """Return a deep copy of a payload, quick for what JSON can say.

    Immutable values are returned as they are. Like `copy.deepcopy`, but without its bookkeeping:
    an object held twice becomes two objects.

    Raises:
        BadInputError: the payload is nested too deep to be copied.
    """
    try:
        return _copied(value)
    except RecursionError:
        # Either a value that holds itself, which deepcopy can do, or one that is just too deep.
        try:
            return copy.deepcopy(value)
        except RecursionError:
            raise BadInputError("the payload is nested too deep to be copied") from None


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {k: v if type(v) in _ATOMS else _copied(v) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in _ATOMS else _copied(v) for v in value]
    if kind is tuple:
        return tuple([_copied(v) for v in value])
    if kind is set:
        return {_copied(v) for v in value}
    return copy.deepcopy(value)
