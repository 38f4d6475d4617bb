"""What each policy costs a node message, switched on and switched off.

Switched on, every node of the chain has it, and no message needs it: what is measured is what it
costs to have it. Switched off, it must cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.chains import AWAITS, MAPS
from bench.harness import Bar, Family, Form, Found, at_least, table
from bench.workflows import NODES, chain, flow_chain, make_run, timed_flow, timed_run
from yukta_rx import operators as ops
from yukta_rx.engine.breakpoints import Breakpoint
from yukta_rx.model.policy import OnError, RetryPolicy
from yukta_rx.plugins.contract import PluginKind
from yukta_rx.streams import from_iterable
from yukta_rx.streams.clock import LoopClock

if TYPE_CHECKING:
    from yukta_rx.engine.node import NodeRuntime
    from yukta_rx.engine.run import Run
    from yukta_rx.streams.plan import Body

SYNC, ASYNC = "sync", "async"
BODIES: dict[str, list[Body]] = {SYNC: MAPS, ASYNC: AWAITS}

RETRY = {"maxAttempts": 3}
BUDGET = {"maxFailures": 10, "windowMs": 60_000}
EVERYTHING = {
    "retry": RETRY,
    "onError": "ROUTE",
    "failureBudget": BUDGET,
    "deadlineMs": 3_600_000,
}


def _buffer(size: int, overflow: str) -> dict[str, Any]:
    return {"edgeBuffer": {"size": size, "overflow": overflow}}


def _processors(run: Run) -> list[NodeRuntime]:
    return [node for node in run.nodes.values() if node.kind is PluginKind.PROCESSOR]


def _break_never(run: Run) -> None:
    for node in _processors(run):
        node.set_breakpoint(Breakpoint("payload", "never"))


def _break_no_more(run: Run) -> None:
    _break_never(run)
    for node in _processors(run):
        node.clear_breakpoints()


def _skip(run: Run) -> None:
    for node in _processors(run):
        node.skip(True)


def _skip_no_more(run: Run) -> None:
    _skip(run)
    for node in _processors(run):
        node.skip(False)


def _pause_and_resume(run: Run) -> None:
    run.pause()
    run.resume()


@dataclass(frozen=True, slots=True)
class Policy:
    """One thing that a node can be asked for.

    Attributes:
        name: what it is.
        engine: the `engine` object of every node.
        prepare: what is done to the run before it starts.
        seconds: `timeoutSeconds` of every node.
        kinds: the kinds of plugins that can have it.
        share: of the messages, where it is slow.
    """

    name: str
    engine: dict[str, Any] | None = None
    prepare: Callable[[Run], None] | None = None
    seconds: float | None = None
    kinds: Sequence[str] = (SYNC, ASYNC)
    share: float = 1


NOTHING = Policy("nothing is said")
OFF = (
    Policy("nothing is said, once more: the noise"),
    Policy(
        "defaults written out",
        {
            "onError": "FAIL",
            "trigger": "ALL_SUCCESS",
            "concurrency": {"max": 1, "ordered": True},
        },
    ),
    Policy("breakpoint set and cleared", prepare=_break_no_more),
    Policy("skipped and not any more", prepare=_skip_no_more),
    Policy("valve closed and opened", prepare=_pause_and_resume),
    Policy("idle clock off (`timeoutSeconds` 0)", seconds=0),
)
ON = (
    Policy("`retry`", {"retry": RETRY}),
    Policy("`onError` CONTINUE", {"onError": "CONTINUE"}),
    Policy("`onError` ROUTE", {"onError": "ROUTE"}),
    Policy("`failureBudget`", {"onError": "CONTINUE", "failureBudget": BUDGET}),
    Policy("`elementTimeoutMs`", {"elementTimeoutMs": 60_000}, kinds=(ASYNC,)),
    Policy(
        "`elementTimeoutMs` (a thread)", {"elementTimeoutMs": 60_000}, None, None, (SYNC,), 0.02
    ),
    Policy("`deadlineMs`", {"deadlineMs": 3_600_000}),
    Policy("`retry`, `onError`, `failureBudget`, `deadlineMs`", EVERYTHING),
    Policy("`edgeBuffer` BLOCK", _buffer(64, "BLOCK")),
    Policy("`edgeBuffer` DROP_OLDEST, none dropped", _buffer(100_000, "DROP_OLDEST")),
    Policy("`edgeBuffer` SPILL, all in memory", _buffer(100_000, "SPILL")),
    Policy("`edgeBuffer` SPILL, through the disk", _buffer(1, "SPILL"), share=0.1),
    Policy("`concurrency` 4", {"concurrency": {"max": 4}}, kinds=(ASYNC,), share=0.25),
    Policy("breakpoint that never matches", prepare=_break_never, share=0.5),
    Policy("skipped (no call)", prepare=_skip),
)


async def engine(count: int, kind: str, policy: Policy) -> float:
    """Nanoseconds per node message in a `Run`."""
    members: dict[str, Any] = {}
    if policy.engine is not None:
        members["config"] = {"engine": policy.engine}
    if policy.seconds is not None:
        members["timeoutSeconds"] = policy.seconds
    run = make_run(chain(kind.upper(), count, **members))
    if policy.prepare is not None:
        policy.prepare(run)
    return await timed_run(run, count) / (count * NODES) * 1e9


# --- single operators around bare functions

Wrap = Callable[[LoopClock, ops.Operator], Sequence[ops.Operator]]
"""The operators of one node, from the clock and its call."""


class _Deaf:
    """A status observer that does nothing."""

    def touched(self, stage: Any) -> None:
        pass

    def ended(self, stage: Any, outcome: Any, error: Any) -> None:
        pass


def _tap(_port: str | None, _batch: Sequence[Any]) -> None:
    pass


def _idle(clock: LoopClock) -> ops.Operator:
    return ops.idle_timeout(ops.IdleClock(clock, 30))


def _deadline(clock: LoopClock) -> ops.Operator:
    return ops.deadline(ops.Deadline(clock, 3600))


def _attempts(clock: LoopClock) -> list[ops.Operator]:
    backoff = ops.Backoff(RetryPolicy(max_attempts=3), clock)
    return [ops.retry(backoff), ops.on_error(ops.FailureLedger(OnError.CONTINUE, None, clock))]


def _all(clock: LoopClock, call: ops.Operator) -> Sequence[ops.Operator]:
    around = [*_attempts(clock), _idle(clock), _deadline(clock)]
    seen = [ops.status(_Deaf()), ops.record(_tap, None), ops.broadcast()]
    return [ops.valve(ops.Valve()), call, *around, *seen]


UNWRAPPED = "unwrapped"
IDLE = "`idle_timeout`"
WRAPS: dict[str, Wrap] = {
    UNWRAPPED: lambda _, call: [call],
    IDLE: lambda clock, call: [call, _idle(clock)],
    "`valve`": lambda _, call: [ops.valve(ops.Valve()), call],
    "`retry` and `on_error`": lambda clock, call: [call, *_attempts(clock)],
    "`deadline`": lambda clock, call: [call, _deadline(clock)],
    "`status`": lambda _, call: [call, ops.status(_Deaf())],
    "`record`": lambda _, call: [call, ops.record(_tap, None)],
    "`broadcast`": lambda _, call: [call, ops.broadcast()],
    "all of them": _all,
}


async def bare(count: int, kind: str, wrap: Wrap) -> float:
    """Nanoseconds per node message of bare functions with some operators."""
    clock = LoopClock(asyncio.get_running_loop())
    source = from_iterable(range(count))
    leaf = flow_chain(source, BODIES[kind], wrap=partial(wrap, clock))
    return await timed_flow(count, leaf) / (count * NODES) * 1e9


FORMS = tuple(
    Form(f"{policy.name}, {kind}", partial(engine, kind=kind, policy=policy), policy.share)
    for policy in (NOTHING, *OFF, *ON)
    for kind in policy.kinds
) + tuple(
    Form(f"Flow: {name}, {kind}", partial(bare, kind=kind, wrap=wrap), 5)
    for name, wrap in WRAPS.items()
    for kind in BODIES
)


def _cost(found: Found, name: str, kind: str, base: str = NOTHING.name) -> tuple[str, str]:
    form = f"{name}, {kind}"
    if form not in found:
        return "", ""
    more = found.more(form, f"{base}, {kind}")
    return f"{more.median:+,.0f}", more.range(0)


def _rows(found: Found, policies: Sequence[Policy], state: str) -> list[tuple[str, ...]]:
    return [
        (policy.name, state, *(cell for kind in BODIES for cell in _cost(found, policy.name, kind)))
        for policy in policies
    ]


def tables(found: Found) -> list[str]:
    """One row per policy, one per operator."""
    bases = [found.spread(f"{NOTHING.name}, {kind}") for kind in (SYNC, ASYNC)]
    base = (NOTHING.name, "", *(cell for b in bases for cell in (b.show(0), b.range(0))))
    head = ("policy", "is", "sync", "range", "async", "range")
    lines = [
        "Nanoseconds per node message that a policy on each of the 20 nodes adds to a chain whose "
        "definition says nothing, in a `Run`; the first row is that chain itself. No message fails "
        "or waits. A chain that says nothing has the idle clock of 30 s.",
        "",
        *table(head, [base, *_rows(found, OFF, "off"), *_rows(found, ON, "on")]),
        "Operators alone, around bare functions; the first row is the chain without any, and "
        "what follows is added to it, in nanoseconds per node message.",
        "",
    ]
    rows = []
    for name in WRAPS:
        row = [name]
        for kind in BODIES:
            form, unwrapped = f"Flow: {name}, {kind}", f"Flow: {UNWRAPPED}, {kind}"
            ratio = found.ratio(unwrapped, form).show()
            if name == UNWRAPPED:
                cost = found.spread(form)
                row += [cost.show(0), cost.range(0), ratio]
            else:
                row += [*_cost(found, f"Flow: {name}", kind, f"Flow: {UNWRAPPED}"), ratio]
        rows.append(row)
    of = "of its rate"
    return lines + table(("operator", "sync", "range", of, "async", "range", of), rows)


def bars(found: Found) -> list[Bar]:
    """What the wrapper promises."""
    return [
        at_least(
            f"idle wrapper, of unwrapped, {kind}",
            0.95,
            found.ratio(f"Flow: {UNWRAPPED}, {kind}", f"Flow: {IDLE}, {kind}"),
        )
        for kind in BODIES
    ]


FAMILY = Family("policies", "Policies", (20_000,), FORMS, tables, bars)
