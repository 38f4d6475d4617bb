"""Settings of admission, runs, their steering and what is shown of them."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from yukta_rx.config.declare import Group, setting
from yukta_rx.config.units import ByteSize


class OnLimit(StrEnum):
    """What happens to a start that does not fit the limits."""

    QUEUE = "QUEUE"
    REJECT = "REJECT"


class LogBackend(StrEnum):
    """Where the lines that plugins write are kept."""

    MEMORY = "memory"


class ExecutionGroup(Group):
    """Admission and the speed of a run."""

    max_concurrent: int = setting(
        0, "Runs at the same time in all; 0 is no limit.", feature="ADM-01", ge=0
    )
    max_concurrent_per_workflow: int = setting(
        0, "Runs of one workflow at the same time; 0 is no limit.", feature="ADM-01", ge=0
    )
    max_concurrent_per_session: int = setting(
        0, "Runs of one session at the same time; 0 is no limit.", feature="ADM-01", ge=0
    )
    on_limit: OnLimit = setting(
        OnLimit.QUEUE, "Let a start that does not fit wait, or refuse it (429).", feature="ADM-01"
    )
    queue_capacity: int = setting(
        100, "Starts that may wait; one more is refused (429).", feature="ADM-01", ge=0
    )
    queue_capacity_per_workflow: int = setting(
        0, "Starts of one workflow that may wait; 0 is no limit.", feature="ADM-01", ge=0
    )
    queue_timeout: timedelta = setting(
        timedelta(0),
        "A start that waits longer ends TIMED_OUT; 0 lets it wait for ever.",
        feature=("ADM-01", "ENG-05"),
    )
    queue_ageing: timedelta = setting(
        timedelta(seconds=30),
        "Waiting so long counts as one level of priority, so nobody waits for ever; 0 is no"
        " ageing.",
        feature="ADM-01",
    )
    shutdown_timeout: timedelta = setting(
        timedelta(seconds=30), "Time that running runs get at shutdown.", feature="ADM-01"
    )
    suspend_after: timedelta = setting(
        timedelta(0),
        "A run in which nothing happens for so long but that messages wait in WAIT_FOR_SIGNAL is "
        "put aside until anything concerns it, so that it takes a few KiB; 0 never does that.",
        feature="CTL-05",
    )
    prefetch: int = setting(
        64, "Messages that an edge holds in flight at most.", feature="ENG-01", ge=1, le=65536
    )
    held_output_bytes: ByteSize = setting(
        ByteSize(64 * 1024 * 1024),
        "What one attempt at one message may hold back until it has ended, roughly.",
        feature="ENG-04",
        ge=1,
    )
    spill_dir: Path | None = setting(
        None,
        "Where edge buffers with SPILL keep what finds no room in memory; the system's folder for"
        " temporary files if unset.",
        feature="ENG-01",
    )
    blocking_threads: int = setting(
        16, "Threads for plugins that block, shared by all runs.", feature="ENG-01", ge=1, le=1024
    )


class StartGroup(Group):
    """Repeated starts."""

    idempotency_ttl: timedelta = setting(
        timedelta(minutes=10), "How long a repeated key gets the first run back.", feature="ADM-02"
    )
    idempotency_max_keys: int = setting(100_000, "Keys remembered at most.", feature="ADM-02", ge=1)


class StopGroup(Group):
    """Stopping."""

    drain_timeout: timedelta = setting(
        timedelta(seconds=30), "Time that a DRAIN gives to work under way.", feature="CTL-03"
    )


class SubWorkflowGroup(Group):
    """Runs that runs start."""

    max_depth: int = setting(
        5, "Levels of runs below one that was started from outside.", feature="ENG-07", ge=1, le=100
    )
    max_children: int = setting(
        1000,
        "Runs below one that was started from outside that may live at once, all levels together; "
        "one more fails the attempt that wants it. 0 is no limit.",
        feature="ENG-07",
        ge=0,
    )
    max_results: int = setting(
        10_000,
        "Results that SUB_WORKFLOW collects from one run; with one more the attempt fails.",
        feature="ENG-07",
        ge=1,
    )
    max_result_bytes: ByteSize = setting(
        ByteSize(16 * 1024 * 1024),
        "What these may take, roughly; beyond it the attempt fails.",
        feature="ENG-07",
        ge=1,
    )


class WatchdogGroup(Group):
    """The watch over the event loop."""

    limit: timedelta = setting(
        timedelta(milliseconds=500),
        "The event loop may be held this long before the log names the node that holds it; 0 does "
        "not watch.",
        feature="EXT-01",
    )


class DefinitionsGroup(Group):
    """Limits of a workflow graph, and how many versions of it stay."""

    max_nodes: int = setting(500, "Nodes that a workflow may have.", feature="DEF-02", ge=1)
    max_edges: int = setting(2000, "Edges that a workflow may have.", feature="DEF-02", ge=0)
    retained_versions: int = setting(
        20,
        "Newest versions of a workflow that stay; one with a note stays anyway.",
        feature="DEF-01",
        ge=1,
    )


class ControlGroup(Group):
    """Commands."""

    hold_timeout: timedelta = setting(
        timedelta(minutes=10),
        "A command held for a second person counts as rejected after this time.",
        feature="CTL-06",
    )
    review_timeout: timedelta = setting(
        timedelta(seconds=5),
        "A reviewer that takes longer refuses the command.",
        feature="CTL-06",
    )
    audit_rows: int = setting(
        50_000,
        "Commands, of all runs together, that the audit keeps; the oldest go first.",
        feature="CTL-01",
        ge=1,
    )


class SupervisorRulesGroup(Group):
    """The rule supervisor."""

    file: Path | None = setting(
        None, "JSON file with rules; setting it turns the rule supervisor on.", feature="CTL-07"
    )


class SupervisorGroup(Group):
    """Programs that steer runs."""

    max_commands_per_second: int = setting(
        20, "Commands per second that one supervisor may send.", feature="CTL-07", ge=1
    )
    dry_run: bool = setting(
        False, "Record the commands of supervisors without applying them.", feature="CTL-07"
    )
    loop_guard_commands: int = setting(
        10,
        "How often within the window a supervisor may give the same command to the same target;"
        " one more switches it off. 0 lets it.",
        feature="CTL-07",
        ge=0,
    )
    loop_guard_window: timedelta = setting(
        timedelta(seconds=60), "The window of the loop guard.", feature="CTL-07"
    )
    rules: SupervisorRulesGroup = SupervisorRulesGroup()


class TrackerGroup(Group):
    """State of runs in memory."""

    max_sessions: int = setting(
        0,
        "Beyond this many sessions the oldest without a live run is forgotten; 0 keeps all.",
        feature="OBS-01",
        ge=0,
    )
    cleanup_ttl: timedelta = setting(
        timedelta(minutes=10), "How long the state of a finished run is kept.", feature="OBS-01"
    )
    max_executions: int = setting(
        10_000,
        "Beyond this many runs the one that ended first is forgotten; live ones stay. As many are"
        " kept beside them of those that SUB_WORKFLOW nodes started; they go with their parent.",
        feature="OBS-01",
        ge=1,
    )
    queue_max_bytes: ByteSize = setting(
        ByteSize(32 * 1024 * 1024),
        "With more than this of what runs say waiting, roughly, those that say more are held back.",
        feature="OBS-01",
        ge=1,
    )


class StreamingGroup(Group):
    """The event feed, and history of progress for clients that come late."""

    replay_events: int = setting(
        10_000, "Events of the feed that a client can catch up with.", feature="OBS-01", ge=1
    )
    replay_max_bytes: ByteSize = setting(
        ByteSize(64 * 1024 * 1024), "What these may take, roughly.", feature="OBS-01", ge=1
    )
    stored_events: int = setting(
        100_000,
        "Events that a durable store keeps for clients that resume.",
        feature="OBS-01",
        ge=1,
    )
    stored_for: timedelta | None = setting(
        None, "Older events go from a durable store; unset keeps them.", feature="OBS-01"
    )
    max_streams: int = setting(
        1000, "Event streams that may be open; one more is refused (429).", feature="OBS-01", ge=1
    )

    status_history_max_per_run: int = setting(
        200, "Progress snapshots kept per run.", feature="OBS-01", ge=1
    )
    status_history_max_executions: int = setting(
        1000,
        "Runs whose progress snapshots are kept, and of those that others started as many beside"
        " them.",
        feature="OBS-01",
        ge=1,
    )
    status_history_ttl_minutes: int = setting(
        5, "Minutes that progress snapshots are kept.", feature="OBS-01", ge=1
    )
    status_history_max_bytes: ByteSize = setting(
        ByteSize(64 * 1024 * 1024),
        "What the progress snapshots of all runs may take.",
        feature="OBS-01",
        ge=1,
    )


class LogRetentionGroup(Group):
    """How long log lines are kept."""

    default_period_minutes: int = setting(
        30, "Minutes that log lines are kept.", feature="OBS-02", ge=1, le=1440
    )


class LogStoreGroup(Group):
    """The store of log lines."""

    backend: LogBackend = setting(
        LogBackend.MEMORY, "Where the log lines of plugins are kept.", feature="OBS-02"
    )
    max_lines: int = setting(10_000, "Log lines kept per run.", feature="OBS-02", ge=1)
    max_bytes: ByteSize = setting(
        ByteSize(128 * 1024 * 1024),
        "What the log lines of all runs may take, roughly.",
        feature="OBS-02",
        ge=1,
    )
    retention: LogRetentionGroup = LogRetentionGroup()


class LogFormat(StrEnum):
    """How the program writes its own log."""

    TEXT = "text"
    JSON = "json"


class LogGroup(Group):
    """The log of the program itself."""

    format: LogFormat = setting(
        LogFormat.TEXT,
        "How `yukta serve` writes its log to stderr: text, or an object per line with the run, node"
        " and request that it is about.",
        feature="OBS-02",
    )


class LogsGroup(Group):
    """Live logs."""

    echo_output: bool = setting(
        False,
        "Write each message that a node emits, cut to 2,048 characters, to the log of the node,"
        " unless the node writes lines of its own. Costs as much as a line per message does.",
        feature="OBS-02",
    )
    store: LogStoreGroup = LogStoreGroup()


class ResultsGroup(Group):
    """What reached the terminals."""

    retained_events: int = setting(
        1000, "Results of one run that a late reader can still read.", feature="OBS-03", ge=0
    )
    retention: timedelta = setting(
        timedelta(hours=1), "Time after the last use before results go.", feature="OBS-03"
    )
    max_executions: int = setting(
        200,
        "Runs whose results are kept, and of those that others started as many beside them.",
        feature="OBS-03",
        ge=1,
    )
    max_bytes: ByteSize = setting(
        ByteSize(256 * 1024 * 1024),
        "What the results of all runs may take in memory, roughly.",
        feature="OBS-03",
        ge=1,
    )
    stored_runs: int = setting(
        500,
        "Ended runs whose results a durable store keeps; live ones stay.",
        feature="OBS-03",
        ge=0,
    )
    stored_children: int = setting(
        1000,
        "Ended runs that SUB_WORKFLOW nodes started and whose results it keeps beside those; they"
        " go with the run at their head.",
        feature="OBS-03",
        ge=0,
    )
    stored_for: timedelta | None = setting(
        None,
        "Older runs lose their results in a durable store; unset keeps them.",
        feature="OBS-03",
    )
    stored_per_run: int = setting(
        1_000_000,
        "Results of one run that a durable store keeps, roughly, the newest; 0 keeps all.",
        feature="OBS-03",
        ge=0,
    )


class MetricsGroup(Group):
    """The metrics page."""

    auth: bool = setting(False, "Ask for a key on /metrics.", feature=("OBS-04", "SEC-01"))


class PluginsGroup(Group):
    """Plugins from other packages."""

    disabled: tuple[str, ...] = setting((), "Node types that are left out.", feature="EXT-01")
    strict: bool = setting(
        False, "Refuse to start with a plugin that fails to load.", feature="EXT-01"
    )
    allow_fault_injection: bool = setting(
        False, "Allow the node type FAULT_INJECTOR.", feature="EXT-01"
    )
