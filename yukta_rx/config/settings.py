"""All `yukta.*` settings as one typed, read-only object.

A setting is one field of one group: its name, its variable, its reading, its checks and its line
on the reference page follow from that field. Groups mirror the dots of the names.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import PrivateAttr, SecretStr

from yukta_rx.config.access_settings import (
    ApiKey,
    FilesGroup,
    HttpGroup,
    HttpRequestGroup,
    LimitsGroup,
    LlmGroup,
    McpApprovals,
    McpClientGroup,
    McpGroup,
    ProcessGroup,
    Role,
    ScriptGroup,
    VariablesGroup,
)
from yukta_rx.config.declare import Group, setting
from yukta_rx.config.run_settings import (
    ControlGroup,
    DefinitionsGroup,
    ExecutionGroup,
    LogBackend,
    LogFormat,
    LogGroup,
    LogsGroup,
    MetricsGroup,
    OnLimit,
    PluginsGroup,
    ResultsGroup,
    StartGroup,
    StopGroup,
    StreamingGroup,
    SubWorkflowGroup,
    SupervisorGroup,
    TrackerGroup,
    WatchdogGroup,
)
from yukta_rx.config.store_settings import (
    ClusterGroup,
    DataGroup,
    ExecutionLogGroup,
    HaGroup,
    HaMode,
    KvGroup,
    PayloadGroup,
    PostgresGroup,
    RestartGroup,
    SessionGroup,
    SessionMemoryGroup,
    StoreType,
    WorkersGroup,
)

__all__ = [
    "ApiKey",
    "HaMode",
    "LogBackend",
    "LogFormat",
    "McpApprovals",
    "OnLimit",
    "Role",
    "Settings",
    "StoreType",
]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LOOPBACK_ORIGINS = ("http://localhost", "http://127.0.0.1", "http://[::1]")


class Settings(Group):
    """All settings, read-only; `load_settings` makes one, `Settings()` is all defaults."""

    profile: StoreType = setting(
        StoreType.MEMORY,
        "Store type of everything that has no switch of its own set.",
        feature=("DUR-04", "DUR-05"),
    )
    data: DataGroup = DataGroup()
    execution: ExecutionGroup = ExecutionGroup()
    start: StartGroup = StartGroup()
    stop: StopGroup = StopGroup()
    sub_workflow: SubWorkflowGroup = SubWorkflowGroup()
    watchdog: WatchdogGroup = WatchdogGroup()
    definitions: DefinitionsGroup = DefinitionsGroup()
    plugins: PluginsGroup = PluginsGroup()
    files: FilesGroup = FilesGroup()
    variables: VariablesGroup = VariablesGroup()
    var: Mapping[str, str] = setting({}, "Values that every workflow may read.", feature="SEC-02")
    control: ControlGroup = ControlGroup()
    supervisor: SupervisorGroup = SupervisorGroup()
    tracker: TrackerGroup = TrackerGroup()
    streaming: StreamingGroup = StreamingGroup()
    log: LogGroup = LogGroup()
    logs: LogsGroup = LogsGroup()
    results: ResultsGroup = ResultsGroup()
    metrics: MetricsGroup = MetricsGroup()
    session: SessionGroup = SessionGroup()
    execution_log: ExecutionLogGroup = ExecutionLogGroup()
    restart: RestartGroup = RestartGroup()
    payload: PayloadGroup = PayloadGroup()
    kv: KvGroup = KvGroup()
    session_memory: SessionMemoryGroup = SessionMemoryGroup()
    postgres: PostgresGroup = PostgresGroup()
    http: HttpGroup = HttpGroup()
    limits: LimitsGroup = LimitsGroup()
    api_key: SecretStr | None = setting(None, "One key that may do everything.", feature="SEC-01")
    api_keys: tuple[ApiKey, ...] = setting((), "Named keys, several at once.", feature="SEC-01")
    allowed_hosts: tuple[str, ...] = setting(
        _LOOPBACK, "Host headers that are answered while no key is set.", feature="SEC-01"
    )
    allowed_origins: tuple[str, ...] = setting(
        _LOOPBACK_ORIGINS, "Origins of pages that may change something.", feature="SEC-01"
    )
    process: ProcessGroup = ProcessGroup()
    script: ScriptGroup = ScriptGroup()
    http_request: HttpRequestGroup = HttpRequestGroup()
    llm: LlmGroup = LlmGroup()
    mcp: McpGroup = McpGroup()
    mcp_client: McpClientGroup = McpClientGroup()
    workers: WorkersGroup = WorkersGroup()
    ha: HaGroup = HaGroup()
    cluster: ClusterGroup = ClusterGroup()

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was odd about the sources but no reason to refuse them."""
        return self._warnings

    def origin(self, name: str) -> str:
        """Say where the value of a setting comes from: a file, a variable, `default`, ..."""
        return self._origins.get(name, "default")

    def traced(self, origins: Mapping[str, str], warnings: tuple[str, ...]) -> Settings:
        """Return these settings with a record of where each value came from."""
        traced = self.model_copy()
        traced._origins = dict(origins)
        traced._warnings = warnings
        return traced
