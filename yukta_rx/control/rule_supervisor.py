"""RuleSupervisor: steers by rules of a JSON file, without code.

    [{"name": "pause on failures",
      "when": "event.type == 'node.message_failed'",
      "count": 3, "withinMs": 60000, "per": "execution", "cooldownMs": 600000,
      "command": {"type": "PauseWorkflow", "reason": "${event.data.error.exception}"}}]

`when` is a condition over `event`, the JSON form of an event. Where it holds `count` times within
`withinMs`, counted per run, node or session, the command is given; its texts may hold `${...}` over
`event`. Times are those of the events.

Feature: CTL-07.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic import ValidationError as PydanticError
from pydantic.alias_generators import to_camel

from yukta_rx.control.commands import COMMANDS, Command, OfNode
from yukta_rx.control.supervision import ExecutionSupervisor, Proposal
from yukta_rx.errors import BadInputError, ConfigError, ValidationError, YuktaError, json_pointer
from yukta_rx.security.expressions import Condition, compile_condition
from yukta_rx.security.placeholders import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from yukta_rx.model.events import ExecutionEvent

ID: Final = "rules"
SETTING: Final = "yukta.supervisor.rules.file"
MAX_KEYS: Final = 10_000
"""Runs, nodes or sessions that a rule counts for; beyond it the one that was quiet longest goes."""

_PLACEHOLDER: Final = re.compile(r"\$\{([^{}]*)\}")
_NAMES: Final = ("event",)


class Per(StrEnum):
    """What a rule counts apart."""

    EXECUTION = "execution"
    NODE = "node"
    SESSION = "session"


class _RuleModel(BaseModel):
    """A rule as it is written."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, validate_by_name=True
    )

    name: Annotated[str, Field(min_length=1, max_length=200)]
    when: str
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    within_ms: Annotated[int, Field(ge=1)] | None = None
    per: Annotated[Per, Field(strict=False)] = Per.EXECUTION
    command: dict[str, Any]
    cooldown_ms: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _window(self) -> _RuleModel:
        if self.within_ms is not None and self.count == 1:
            raise ValueError("withinMs says nothing without a count above 1")
        return self


_RULES: Final = TypeAdapter(list[_RuleModel])


@dataclass(slots=True)
class _Tally:
    """What a rule counted for one run, node or session."""

    times: deque[float] = field(default_factory=deque)
    quiet_until: float = float("-inf")


class Template:
    """A value with `${...}` over an event; a text that is one placeholder keeps its type.

    Args:
        value: any JSON value.

    Raises:
        BadInputError: a placeholder is no expression.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self._parts: dict[str, Condition] = {}
        for text in _texts(value):
            for found in _PLACEHOLDER.finditer(text):
                self._parts[found[1]] = compile_condition(found[1], _NAMES)

    @property
    def fixed(self) -> bool:
        """Whether it is the same for every event."""
        return not self._parts

    def fill(self, event: dict[str, Any]) -> Any:
        """The value for an event.

        Raises:
            BadInputError: a placeholder has no value there.
        """
        return self._value if self.fixed else self._filled(self._value, {"event": event})

    def _filled(self, value: Any, scope: dict[str, Any]) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(member, scope) for key, member in value.items()}
        if isinstance(value, list):
            return [self._filled(member, scope) for member in value]
        if not isinstance(value, str):
            return value
        if (whole := _PLACEHOLDER.fullmatch(value)) is not None:
            return self._parts[whole[1]].evaluate(scope)
        return _PLACEHOLDER.sub(lambda found: as_text(self._parts[found[1]].evaluate(scope)), value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)


class Rule:
    """One rule, compiled.

    Args:
        model: the rule as it is written.
        faults: gets what is wrong with it, as pointer below the rule and sentence.
    """

    def __init__(self, model: _RuleModel, faults: list[tuple[list[Any], str]]) -> None:
        self.model = model
        self._tallies: dict[tuple[str, ...], _Tally] = {}
        self._fields: dict[str, Template] = {}
        try:
            self._when: Condition = compile_condition(model.when, _NAMES)
        except BadInputError as error:
            faults.append((["when"], error.detail))
        for name, value in model.command.items():
            try:
                self._fields[name] = Template(value)
            except BadInputError as error:
                faults.append((["command", name], error.detail))
        kind = model.command.get("type")
        if not isinstance(kind, str) or kind not in COMMANDS:
            faults.append((["command", "type"], f"must be one of {', '.join(COMMANDS)}"))
            return
        self._kind = COMMANDS[kind]
        self._check(faults)

    def _check(self, faults: list[tuple[list[Any], str]]) -> None:
        """Parse the command with something fitting in place of what only events can say."""
        known = self._kind.own_fields()
        values: dict[str, Any] = {"executionId": "x"}
        if issubclass(self._kind, OfNode):
            values["nodeId"] = "x"
        for name, template in self._fields.items():
            if name in ("type", "reason"):
                continue
            if template.fixed:
                values[name] = template.fill({})
            elif name in known:
                values[name] = _fitting(*known[name])
            else:
                values.setdefault(name, "x")
        try:
            self._kind.parse(values)
        except ValidationError as error:
            for fault in error.errors:
                place = [part for part in fault.pointer.split("/") if part]
                faults.append((["command", *place], fault.detail))

    def hear(self, event: ExecutionEvent, form: dict[str, Any]) -> Proposal | None:
        """The command that an event leads to, if any.

        Raises:
            YuktaError: the condition or the command has no value for it.
        """
        if not self._when.matches({"event": form}):
            return None
        model, now = self.model, event.time.timestamp()
        tally = self._tally(event)
        times = tally.times
        times.append(now)
        if model.within_ms is not None:
            while times[0] <= now - model.within_ms / 1000:
                times.popleft()
        if len(times) < model.count or now < tally.quiet_until:
            if len(times) > model.count:
                times.popleft()
            return None
        times.clear()
        tally.quiet_until = now + model.cooldown_ms / 1000
        return self._proposal(event, form)

    def forget(self, execution_id: str) -> None:
        """A run has ended."""
        if self.model.per is not Per.SESSION:
            gone = [key for key in self._tallies if key[0] == execution_id]
            for key in gone:
                del self._tallies[key]

    def _tally(self, event: ExecutionEvent) -> _Tally:
        key: tuple[str, ...]
        match self.model.per:
            case Per.SESSION:
                key = (event.session_id,)
            case Per.NODE:
                key = (event.execution_id, event.node_id or "")
            case _:
                key = (event.execution_id,)
        tally = self._tallies[key] = self._tallies.pop(key, _Tally())
        if len(self._tallies) > MAX_KEYS:
            del self._tallies[next(iter(self._tallies))]
        return tally

    def _proposal(self, event: ExecutionEvent, form: dict[str, Any]) -> Proposal:
        values = {
            name: template.fill(form) for name, template in self._fields.items() if name != "type"
        }
        reason = values.pop("reason", None)
        values.setdefault("executionId", event.execution_id)
        if issubclass(self._kind, OfNode):
            values.setdefault("nodeId", event.node_id)
        command: Command = self._kind.parse(values)
        said = f"rule {self.model.name}"
        return Proposal(command, said if reason is None else f"{said}: {as_text(reason)}")


def _fitting(kind: type, default: Any) -> Any:
    if default is not ... and default is not None:
        return default
    if issubclass(kind, StrEnum):
        return next(iter(kind))
    fitting: dict[type, Any] = {bool: True, int: 1, float: 1.0}
    return fitting.get(kind, "x")


class RuleSupervisor(ExecutionSupervisor):
    """The supervisor `rules`.

    Args:
        rules: the JSON value of the rules: a list of objects.
        source: names it in errors.

    Raises:
        ConfigError: a rule is wrong; lists every fault with its place.
    """

    id = ID

    def __init__(self, rules: Any, source: str = ID) -> None:
        try:
            models = _RULES.validate_python(rules)
        except PydanticError as error:
            raise ConfigError(
                [
                    f"{SETTING}: {source}: {json_pointer(fault['loc']) or 'document'}:"
                    f" {fault['msg']}"
                    for fault in error.errors()
                ]
            ) from error
        self.rules: list[Rule] = []
        problems: list[str] = []
        names: dict[str, int] = {}
        for place, model in enumerate(models):
            faults: list[tuple[list[Any], str]] = []
            if (first := names.setdefault(model.name, place)) != place:
                faults.append((["name"], f"rule {first} has the same name"))
            self.rules.append(Rule(model, faults))
            problems += [
                f"{SETTING}: {source}: {json_pointer([place, *path])}: {detail}"
                for path, detail in faults
            ]
        if problems:
            raise ConfigError(problems)

    @classmethod
    def read(cls, path: Path) -> RuleSupervisor:
        """Read the rules of a file; blocks.

        Raises:
            ConfigError: it cannot be read, is not JSON, or a rule is wrong.
        """
        try:
            rules = json.loads(path.read_bytes())
        except OSError as error:
            problem = f"{SETTING}: {path} cannot be read: {error.strerror}"
            raise ConfigError([problem]) from error
        except (ValueError, RecursionError) as error:
            raise ConfigError([f"{SETTING}: {path} is not JSON: {error}"]) from error
        return cls(rules, str(path))

    async def supervise(
        self, events: AsyncIterator[ExecutionEvent]
    ) -> AsyncIterator[Proposal | YuktaError]:
        """Answer each event with the commands of its rules; where a rule fails, with the error."""
        async for event in events:
            form = event.as_dict()
            form.setdefault("nodeId", None)
            for rule in self.rules:
                try:
                    proposal = rule.hear(event, form)
                except YuktaError as error:
                    yield _of_rule(rule, error)
                    continue
                if proposal is not None:
                    yield proposal
            if event.type == "execution.finished":
                for rule in self.rules:
                    rule.forget(event.execution_id)


def _of_rule(rule: Rule, error: YuktaError) -> YuktaError:
    return BadInputError(f"rule {rule.model.name}: {error.detail}")
