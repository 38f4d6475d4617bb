"""A plain sequential interpreter of a workflow: what the engine should come to, said simply.

It knows no streams, no tasks and no time. A node's fate is worked out in one pass from the parents
down; where a failure makes what happens depend on timing, the fate says so (`certain`), and lists
the statuses that may be seen.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Work:
    """What a node's plugin does with message `n`, each by a rule that is a function of `n`.

    Attributes:
        every: it acts on messages whose number, plus the node's, divides by this.
        copies: outputs for a message.
        fails: first attempts that fail, for the messages it acts on.
        bad_input: whether its failures are bad input.
        hangs: whether it hangs instead, where an attempt is timed.
    """

    every: int
    copies: int
    fails: int
    bad_input: bool
    hangs: bool


@dataclass(frozen=True)
class Spec:
    """A node of the graph.

    Attributes:
        name: its id.
        shape: how its plugin is written; "trigger" or "terminal" for those.
        count: messages of a trigger.
        parents: (node, port, required) of each edge into it.
        work: what its plugin does.
        attempts: `retry.maxAttempts`, 1 without retry.
        on_error: FAIL, CONTINUE or ROUTE.
        budget: `failureBudget.maxFailures`, with an endless window; None without.
        timed: whether `elementTimeoutMs` is set.
        trigger: the join rule, or a number for N_OF_M.
        concurrency: (max, ordered).
        buffer: overflow rule and size, None without.
        skipped: from its first to its last message.
    """

    name: str
    shape: str
    count: int = 0
    parents: tuple[tuple[str, str | None, bool], ...] = ()
    work: Work = Work(1, 1, 0, False, False)
    attempts: int = 1
    on_error: str = "FAIL"
    budget: int | None = None
    timed: bool = False
    trigger: str | int = "ALL_SUCCESS"
    concurrency: tuple[int, bool] = (1, True)
    buffer: tuple[str, int] | None = None
    skipped: bool = False

    @property
    def number(self) -> int:
        """A number that tells nodes apart."""
        return sum(map(ord, self.name))

    def acts_on(self, payload: dict[str, Any]) -> bool:
        """Whether the plugin's failures concern this message."""
        return (payload["n"] + self.number) % self.work.every == 0

    def made_of(self, payload: dict[str, Any]) -> list[dict[str, Any]]:
        """The payloads that the plugin gives for one."""
        copies = self.work.copies if self.many else 1
        return [
            {"n": payload["n"], "path": [*payload["path"], f"{self.name}{copy}"]}
            for copy in range(copies)
        ]

    @property
    def streams(self) -> bool:
        """Whether what it gives is emitted as it comes, before its call has ended."""
        attempts = self.attempts > 1 or self.on_error != "FAIL" or self.timed
        return self.many and not attempts and self.concurrency[0] == 1

    @property
    def many(self) -> bool:
        """Whether it may give other than one message for one."""
        return self.shape in ("generator", "blocking generator", "async generator")


@dataclass
class Fate:
    """What becomes of a node.

    Attributes:
        statuses: it ends with one of these.
        fails: "no", "yes", or "maybe".
        certain: whether messages and counters are as said here, whatever the timing.
        ordered: whether their order is too.
        outputs: payloads at the default port; where not certain, all there may be.
        letters: payloads at the port `error`, likewise.
        counters: in, out, failed, retried, deadLettered, skipped.
    """

    statuses: set[str]
    fails: str = "no"
    certain: bool = True
    ordered: bool = True
    outputs: list[Any] = field(default_factory=list)
    letters: list[Any] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


def interpret(specs: list[Spec]) -> dict[str, Fate]:
    """The fates of all nodes; parents stand before their children."""
    fates: dict[str, Fate] = {}
    for spec in specs:
        fates[spec.name] = _fate(spec, fates)
    _abandon(specs, fates)
    return fates


def run_statuses(specs: list[Spec], fates: dict[str, Fate]) -> set[str]:
    """How the run may end, with FINISH_OTHERS."""
    ends = {fates[spec.name].fails for spec in specs if spec.shape == "terminal"}
    if "yes" in ends:
        return {"FAILURE"}
    return {"SUCCESS", "FAILURE"} if "maybe" in ends else {"SUCCESS"}


def _fate(spec: Spec, fates: dict[str, Fate]) -> Fate:
    if spec.shape == "trigger":
        outputs = [{"n": n, "path": [spec.name]} for n in range(spec.count)]
        return Fate({"SUCCESS"}, outputs=outputs, counters=Counter(out=spec.count))
    parents = [(fates[name], port) for name, port, _ in spec.parents]
    inputs = [
        payload
        for fate, port in parents
        for payload in (fate.letters if port == "error" else fate.outputs)
    ]
    dies = _join(spec, fates)
    fate = _process(spec, inputs)
    fate.certain = all(parent.certain for parent, _ in parents)
    fate.ordered = len(parents) == 1 and parents[0][0].ordered and spec.concurrency[1]
    if spec.buffer is not None and spec.buffer[0].startswith("DROP"):
        fate.certain = False
    may_fail = fate.fails == "yes"
    if spec.skipped and not fate.certain:
        fate.statuses |= {"SUCCESS"}
    if may_fail and not (fate.certain and fate.ordered):
        # Whatever is in front of the message that fails it, or whether that comes at all.
        whole = _process(spec, inputs, past_failures=True)
        fate.outputs, fate.letters = whole.outputs, whole.letters
        if not fate.certain:
            fate.fails = "maybe"
            fate.statuses |= {"SUCCESS", "SKIPPED"}
        fate.certain = False
    if dies != "no":
        whole = _process(spec, inputs, past_failures=True)
        fate.outputs, fate.letters = whole.outputs, whole.letters
        fate.certain = False
        fate.statuses |= {"UPSTREAM_FAILED"}
        if dies == "yes":
            fate.fails = "yes"
            fate.statuses -= {"SUCCESS", "SKIPPED"}
            if not may_fail:
                fate.statuses = {"UPSTREAM_FAILED"}
        elif fate.fails == "no":
            fate.fails = "maybe"
    if spec.shape == "terminal":
        fate.counters["out"] = 0
    return fate


def _join(spec: Spec, fates: dict[str, Fate]) -> str:
    """Whether the node's join rule gives up: no, yes or maybe."""
    required = {name for name, _, needed in spec.parents if needed}
    fails = Counter(fates[name].fails for name in required)
    if spec.trigger == "ALL_SUCCESS":
        return "yes" if fails["yes"] else "maybe" if fails["maybe"] else "no"
    needed = {"ALL_DONE": 0, "ONE_SUCCESS": min(1, len(required))}.get(
        str(spec.trigger), spec.trigger
    )
    assert isinstance(needed, int)
    at_best = len(required) - fails["yes"]
    if at_best < needed:
        return "yes"
    return "maybe" if at_best - fails["maybe"] < needed else "no"


def _process(spec: Spec, inputs: list[Any], *, past_failures: bool = False) -> Fate:
    """Work inputs off one after the other."""
    fate = Fate({"SUCCESS"})
    counters = fate.counters
    given_up = 0
    for payload in inputs:
        counters["in"] += 1
        if spec.skipped:
            counters["skipped"] += 1
            counters["out"] += 1
            fate.outputs.append(payload)
            continue
        fails = spec.work.fails if spec.acts_on(payload) else 0
        if spec.shape == "terminal":
            fails = 0
        allowed = 1 if spec.work.bad_input else spec.attempts
        counters["retried"] += min(fails, allowed - 1)
        if fails < allowed:
            outputs = [payload] if spec.shape == "terminal" else spec.made_of(payload)
            counters["out"] += len(outputs)
            fate.outputs += outputs
            continue
        counters["failed"] += 1
        given_up += 1
        spent = spec.budget is not None and given_up > spec.budget
        if spec.on_error == "FAIL" or spent:
            fate.fails = "yes"
            fate.statuses = {"FAILURE"}
            if spec.streams:
                # Half of it comes before the failure.
                made = spec.made_of(payload)
                fate.outputs += made[: len(made) // 2]
                counters["out"] += len(made) // 2
            if not past_failures:
                break
        # Past failures, which ones the budget still allowed is a matter of order.
        if spec.on_error == "ROUTE":
            counters["deadLettered"] += 1
            fate.letters.append(payload)
    if spec.skipped and counters["in"]:
        fate.statuses = {"SKIPPED"}
    return fate


def _abandon(specs: list[Spec], fates: dict[str, Fate]) -> None:
    """A node whose children have all ended early is cancelled, if it has not ended before."""
    children: dict[str, set[str]] = {spec.name: set() for spec in specs}
    for spec in specs:
        for name, _, _ in spec.parents:
            children[name].add(spec.name)
    early: set[str] = {name for name, fate in fates.items() if fate.fails != "no"}
    for spec in reversed(specs):
        if children[spec.name] and children[spec.name] <= early:
            fate = fates[spec.name]
            fate.certain = False
            fate.statuses |= {"CANCELLED"}
            early.add(spec.name)
