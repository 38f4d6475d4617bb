# Long because it is one table: every error in one place, and nothing but the errors.
"""Every error that yukta_rx raises on purpose, named after the fact and not after a transport.

Each class carries a stable `code`: the problem body, the metric label, the audit reason and the
MCP error all show that same word. No class knows an HTTP status; the web layer maps classes.
"""

# Long because it is one table: every code with its class.

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def json_pointer(parts: Iterable[str | int]) -> str:
    """Return the RFC 6901 pointer of a path: `("nodes", 3, "a/b")` is `/nodes/3/a~1b`.

    The empty path is the whole document, written as the empty string.
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


class YuktaError(Exception):
    """Base of all errors of yukta_rx.

    Args:
        detail: one sentence for people: what is wrong, where, and what to do about it.
        code: which of the class's `codes` applies; needed only by a family with several.
        members: further facts, named as in the problem body (`requiredRole=`, `limitBytes=`).

    Raises:
        TypeError: the code is not one of the class's own.
    """

    codes: ClassVar[tuple[str, ...]] = ("error",)
    code: str
    detail: str
    members: dict[str, Any]

    def __init__(self, detail: str, *, code: str | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.code = self._checked(code)
        self.detail = detail
        self.members = members

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if len(cls.codes) == 1:
            cls.code = cls.codes[0]

    @classmethod
    def _checked(cls, code: str | None) -> str:
        if code is None and len(cls.codes) == 1:
            return cls.codes[0]
        if code not in cls.codes:
            raise TypeError(f"{cls.__name__} needs code= one of {', '.join(cls.codes)}, not {code}")
        return code

    def __str__(self) -> str:
        return self.detail

    def __reduce__(self) -> tuple[Any, ...]:
        # Some constructors need more than the detail, so pickle and copy bypass them.
        return _rebuild, (type(self), self.args, self.__dict__.copy(), self.__cause__)


def _rebuild(
    cls: type[YuktaError], args: tuple[Any, ...], state: dict[str, Any], cause: BaseException | None
) -> YuktaError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    error.__cause__ = cause
    return error


# --- requests that cannot be read or are not allowed ---------------------------------------------


class BadRequestError(YuktaError):
    """A request or an argument that cannot be understood; `pointer` or `parameter` names it."""

    codes = ("malformed_json", "invalid_parameter", "invalid_cursor")


class NotAuthenticatedError(YuktaError):
    """No key was given, or none that is known."""

    codes = ("unauthenticated",)


class RoleError(YuktaError):
    """The key is known but its role does not allow this; `requiredRole` says which would."""

    codes = ("forbidden",)


class ControlRejectedError(YuktaError):
    """A reviewer refused a command.

    Args:
        reviewer: the id of the reviewer.
        reason: its words.
    """

    codes = ("control_rejected",)

    def __init__(self, reviewer: str, reason: str) -> None:
        super().__init__(f"refused by reviewer {reviewer}: {reason}")
        self.reviewer = reviewer
        self.reason = reason
        self.members = {"reviewer": reviewer, "reason": reason}


class HostNotAllowedError(YuktaError):
    """The Host header names a host that this server does not answer for."""

    codes = ("host_not_allowed",)


class OriginNotAllowedError(YuktaError):
    """A page from another origin tried to change something."""

    codes = ("origin_not_allowed",)


class NotFoundError(YuktaError):
    """What the request names does not exist; the id is among the members."""

    codes = (
        "session_not_found",
        "workflow_not_found",
        "version_not_found",
        "execution_not_found",
        "node_not_found",
        "edge_not_found",
        "plugin_not_found",
        "approval_not_found",
        "command_not_found",
        "supervisor_not_found",
        "nothing_held",
        "route_not_found",
    )


class MethodNotAllowedError(YuktaError):
    """The path exists, but not for this method."""

    codes = ("method_not_allowed",)


class NotAcceptableError(YuktaError):
    """No representation that the client accepts can be made."""

    codes = ("not_acceptable",)


class ConflictError(YuktaError):
    """The request is fine but the thing it acts on is in another state; `reason` may say more."""

    codes = (
        "execution_not_running",
        "not_paused",
        "node_kind_not_skippable",
        "node_takes_no_messages",
        "node_not_failed",
        "signal_not_registered",
        "not_recoverable",
        "not_restartable",
        "output_not_kept",
        "not_queued",
        "already_answered",
        "in_use",
        "supervisor_disabled",
        "lease_expired",
        "loop_guard",
    )


class CursorExpiredError(YuktaError):
    """The place named by a cursor is no longer kept; `oldest` is the first that is."""

    codes = ("cursor_expired",)


class StaleDefinitionError(YuktaError):
    """Someone else changed the definition first; both hashes are among the members."""

    codes = ("stale_definition",)


class PreconditionRequiredError(YuktaError):
    """This server wants `If-Match` on every change."""

    codes = ("precondition_required",)


class BodyTooLargeError(YuktaError):
    """The request body is larger than `limitBytes`."""

    codes = ("body_too_large",)


# --- documents and values that are refused -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a document.

    Attributes:
        pointer: RFC 6901 pointer to the place; empty for the whole document.
        code: a stable word for programs.
        detail: one sentence for people.
        node_id: the node concerned, if any.
        option: the option concerned, dotted, as written in the document (`engine.retry`).
    """

    pointer: str
    code: str
    detail: str
    node_id: str | None = None
    option: str | None = None

    def as_dict(self) -> dict[str, str]:
        """Return the JSON form: camelCase names, absent members left out."""
        named = {
            "pointer": self.pointer,
            "code": self.code,
            "detail": self.detail,
            "nodeId": self.node_id,
            "option": self.option,
        }
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        places = []
        if self.node_id is not None:
            places.append(f"node `{self.node_id}`")
        if self.option is not None:
            places.append(f"option `{self.option}`")
        if not places:
            return f"{self.pointer or 'document'}: {self.detail}"
        where = ", ".join(places)
        return (
            f"{where} ({self.pointer}): {self.detail}"
            if self.pointer
            else f"{where}: {self.detail}"
        )


class ValidationError(YuktaError):
    """A document or body is well-formed JSON but not valid; all its faults at once.

    Args:
        errors: the faults, at least one, in document order.
    """

    codes = ("validation",)

    def __init__(self, errors: Sequence[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in errors))
        self.errors: tuple[Fault, ...] = tuple(errors)
        self.members = {"errors": [fault.as_dict() for fault in self.errors]}


class DefinitionError(ValidationError):
    """A workflow definition is refused; each fault names pointer, node and option."""


class UnserialisablePayloadError(YuktaError):
    """A value cannot be stored or sent without changing it; `pointer` names the place."""

    codes = ("unserialisable_payload",)


class IdempotencyKeyReusedError(YuktaError):
    """The same idempotency key came with another body."""

    codes = ("idempotency_key_reused",)


class ConfigError(YuktaError):
    """The start-up configuration is refused; every problem is listed.

    Args:
        problems: one sentence each, beginning with the file or variable at fault.
    """

    codes = ("configuration",)

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = tuple(problems)


# --- limits and availability ---------------------------------------------------------------------


class _RetryLaterError(YuktaError):
    """Shared shape of errors that pass by themselves: `retry_after` is in seconds."""

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail, code=code, **members)
        self.retry_after = retry_after


class RejectedError(_RetryLaterError):
    """A start does not fit the limits now.

    Args:
        retry_after: seconds after which a repeat is sensible; None when unknown.
    """

    codes = ("limit", "queue_full", "workflow_queue_full", "queue_timeout")


class SignalBufferFullError(_RetryLaterError):
    """A node already keeps as many early signals as it may."""

    codes = ("signal_buffer_full",)


class RateLimitedError(_RetryLaterError):
    """Too many requests in the time allowed."""

    codes = ("rate_limited",)


class TooManyStreamsError(_RetryLaterError):
    """Too many event streams are open."""

    codes = ("too_many_streams",)


class BackPressureError(_RetryLaterError):
    """A live node takes no more messages from outside for the moment."""

    codes = ("back_pressure",)


class UnavailableError(_RetryLaterError):
    """The server cannot do this now, through no fault of the request."""

    codes: ClassVar[tuple[str, ...]] = (
        "shutting_down",
        "recovering",
        "store_unavailable",
        "stale_leader",
    )


class NotLeaderError(UnavailableError):
    """This server is a standby; `leader` says who leads, if known."""

    codes = ("not_leader",)


class StaleLeaderError(UnavailableError):
    """A write carried an old fencing number: another server leads by now."""

    codes = ("stale_leader",)


class StoreUnavailableError(UnavailableError):
    """A store gave no answer, which is never the same as an empty answer."""

    codes = ("store_unavailable",)


class InternalError(YuktaError):
    """Anything unexpected, as it is shown outside: without detail of the inside."""

    codes = ("internal",)


# --- how a node or a run ends (no transport ever sees these raised) ------------------------------


class BadInputError(YuktaError, ValueError):
    """The input itself is at fault, so another attempt would fail the same way: never retried."""

    codes = ("bad_input",)


class HeldOutputError(BadInputError):
    """One attempt at one message gave more than may be held back until the attempt has ended."""

    codes = ("held_output",)


class FailureBudgetError(YuktaError):
    """More messages of a node failed within its window than `failureBudget` allows."""

    codes = ("failure_budget",)


class RunAbortedError(YuktaError):
    """A plugin or a budget asks that the whole run ends; never retried, dropped or routed."""

    codes = ("run_aborted",)


class UpstreamFailedError(YuktaError):
    """A node did not end by itself: a parent that it needs failed.

    Args:
        parent: id of the failed parent.
        cause: the error of that parent, if it is known.
    """

    codes = ("upstream_failed",)

    def __init__(self, parent: str, cause: BaseException | None = None) -> None:
        super().__init__(f"parent node `{parent}` failed", parent=parent)
        self.parent = parent
        self.__cause__ = cause


class ElementTimeoutError(YuktaError, TimeoutError):
    """One attempt at one message took longer than `elementTimeoutMs`."""

    codes = ("element_timeout",)


class IdleTimeoutError(YuktaError):
    """A node showed no activity for its idle timeout."""

    codes = ("idle_timeout",)


class DeadlineExceededError(YuktaError):
    """A node or a run was not finished by its deadline, paused time not counted."""

    codes = ("deadline_exceeded",)


class BackPressureOverflowError(YuktaError):
    """A source without demand sent more than its bounded buffer holds, under strategy ERROR."""

    codes = ("back_pressure_overflow",)


class SubWorkflowDepthError(BadInputError):
    """A node would start a run deeper below the first one than is allowed."""

    codes = ("sub_workflow_depth",)


class SubWorkflowError(YuktaError):
    """A run that a node started ended badly, or could not be started now; may be tried again."""

    codes = ("sub_workflow_failed", "sub_workflow_limit")


class SignalRejectedError(BadInputError):
    """Somebody answered a waiting message with `reject`; asking again gives the same answer."""

    codes = ("signal_rejected",)


class SignalTimeoutError(YuktaError, TimeoutError):
    """No signal came for a message within its time, pauses not counted."""

    codes = ("signal_timeout",)


class KeyValueFullError(YuktaError):
    """A session has as many keys as it may, so a further one is not kept; may be tried again."""

    codes = ("key_value_full",)


class PluginContractError(YuktaError):
    """A plugin broke its contract; names the node and what was returned."""

    codes = ("plugin_contract",)


class EngineError(YuktaError):
    """A defect of the engine or a store, not of a plugin."""

    codes = ("engine",)


def _registry(base: type[YuktaError]) -> Mapping[str, type[YuktaError]]:
    """Map each code to the class nearest the root that owns it."""
    found: dict[str, type[YuktaError]] = {}
    level = [base]
    while level:
        level = [child for parent in level for child in parent.__subclasses__()]
        for cls in level:
            if "codes" in cls.__dict__ and cls.__module__ == __name__:
                for code in cls.codes:
                    found.setdefault(code, cls)
    return MappingProxyType(found)


ERRORS: Mapping[str, type[YuktaError]] = _registry(YuktaError)
"""Every code with the class that carries it, for tables, clients and the reference page."""
