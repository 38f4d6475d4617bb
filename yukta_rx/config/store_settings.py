"""Settings of stores and of the servers that share them."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr

from yukta_rx.config.declare import Group, setting
from yukta_rx.config.units import ByteSize

_STORE_WORDS = ("in-memory", "file", "postgres")
_FROM_PROFILE = "follows `yukta.profile`"
_FROM_DATA_DIR = "a folder of this store's name below `yukta.data.dir`"


class StoreType(StrEnum):
    """Where a store keeps what it holds."""

    MEMORY = "memory"
    FILE = "file"
    POSTGRES = "postgres"

    @classmethod
    def _missing_(cls, value: object) -> StoreType | None:
        return cls.MEMORY if value == "in-memory" else None


class HaMode(StrEnum):
    """How it is decided which server leads."""

    SINGLE = "single"
    POSTGRES = "postgres"


class DataGroup(Group):
    """The folder of the file stores."""

    dir: Path | None = setting(
        None,
        "Folder below which every file store makes one of its own.",
        feature="DUR-05",
        derived="`./yukta-data` with `yukta.profile` = file",
    )


class SessionGroup(Group):
    """Sessions and workflow definitions."""

    store_type: StoreType = setting(
        StoreType.MEMORY,
        "Store of sessions and of workflow definitions with their versions.",
        feature=("DEF-01", "DUR-05"),
        words=_STORE_WORDS,
        derived=_FROM_PROFILE,
    )
    dir: Path | None = setting(
        None, "Folder of that store.", feature=("DEF-01", "DUR-05"), derived=_FROM_DATA_DIR
    )


class ExecutionLogGroup(Group):
    """History and audit."""

    store_type: StoreType = setting(
        StoreType.MEMORY,
        "Store of starts, ends, commands and idempotency keys.",
        feature="DUR-01",
        derived=f"file if `yukta.execution-log.dir` is set, else {_FROM_PROFILE}",
    )
    dir: Path | None = setting(
        None,
        "Folder of that store; setting it implies file.",
        feature="DUR-01",
        derived=_FROM_DATA_DIR,
    )
    retained_runs: int = setting(
        500,
        "Newest runs that are kept, those apart that other runs started; a run without an end is"
        " never dropped.",
        feature="DUR-01",
        ge=1,
    )
    retained_children: int = setting(
        1000,
        "Newest runs that SUB_WORKFLOW nodes started and that are kept beside those; they go with"
        " the run at their head.",
        feature="DUR-01",
        ge=0,
    )
    compact_after: int = setting(
        10_000, "Events after which older runs are dropped.", feature="DUR-01", ge=1
    )
    fsync: bool = setting(
        False,
        "In files: force ends of nodes to disk, too; starts, ends, commands and keys always are.",
        feature="DUR-01",
    )


class RestartGroup(Group):
    """Recorded outputs: restart, retry and resume."""

    store_type: StoreType = setting(
        StoreType.MEMORY,
        "Store of what each node emitted.",
        feature=("DUR-02", "DUR-04"),
        derived=f"file if `yukta.restart.dir` is set, else {_FROM_PROFILE}",
    )
    dir: Path | None = setting(
        None,
        "Folder of that store; setting it implies file.",
        feature="DUR-02",
        derived=_FROM_DATA_DIR,
    )
    spill_dir: Path | None = setting(
        None,
        "Folder for outputs beyond the caps of the memory store, for this server alone.",
        feature="DUR-02",
    )
    retained_executions: int = setting(
        10, "Finished runs that can be restarted.", feature=("CTL-04", "DUR-02"), ge=0
    )
    messages_per_node: int = setting(
        200, "Messages of one node that the memory store holds.", feature="DUR-02", ge=0
    )
    bytes_per_node: ByteSize = setting(
        ByteSize(4 * 1024 * 1024),
        "Bytes of one node that the memory store holds.",
        feature="DUR-02",
        ge=0,
    )
    auto_resume: bool = setting(
        False,
        "Resume interrupted runs after a restart or a take-over.",
        feature=("DUR-03", "SCL-02"),
    )


class PayloadGroup(Group):
    """Large payloads."""

    claim_check_bytes: ByteSize = setting(
        ByteSize(256 * 1024),
        "Size from which on a payload is stored apart from the output, result or start that it is "
        "in, once for all that have it, and travels through a durable run as a reference; 0 stores "
        "every payload where it is.",
        feature="DUR-02",
        ge=0,
    )


class KvGroup(Group):
    """State of KV_STORE."""

    store_type: StoreType = setting(
        StoreType.MEMORY, "Store of KV_STORE.", feature="DUR-04", derived=_FROM_PROFILE
    )
    dir: Path | None = setting(
        None, "Folder of that store.", feature="DUR-04", derived=_FROM_DATA_DIR
    )


class SessionMemoryGroup(Group):
    """History of SESSION_MEMORY."""

    store_type: StoreType = setting(
        StoreType.MEMORY, "Store of SESSION_MEMORY.", feature="DUR-04", derived=_FROM_PROFILE
    )
    dir: Path | None = setting(
        None, "Folder of that store.", feature="DUR-04", derived=_FROM_DATA_DIR
    )
    ttl: timedelta | None = setting(
        None,
        "Histories without a new turn for this long are dropped; unset keeps them.",
        feature="DUR-04",
    )


class PostgresGroup(Group):
    """The database."""

    url: SecretStr | None = setting(
        None, "Address: `postgresql://user@host:port/database`.", feature="DUR-04"
    )
    migration_url: SecretStr | None = setting(
        None,
        "Address with the rights to change the schema.",
        feature="DUR-04",
        derived="that of `yukta.postgres.url`",
    )
    migrate_on_start: bool = setting(
        True, "Bring the schema up to date at start; otherwise only check it.", feature="DUR-04"
    )
    pool_size: int = setting(10, "Connections of one server.", feature="DUR-04", ge=1, le=1000)


class WorkersGroup(Group):
    """Remote workers, on both sides."""

    lease: timedelta = setting(
        timedelta(seconds=15), "A worker silent for this long is dropped.", feature="SCL-01"
    )
    token: SecretStr | None = setting(
        None, "Shared secret of workers and servers; unset admits no worker.", feature="SCL-01"
    )
    control_plane: tuple[str, ...] = setting(
        (), "Worker: servers to connect to, `host:port` each.", feature="SCL-01"
    )
    id: str | None = setting(
        None, "Worker: its name.", feature="SCL-01", derived="host name and process id"
    )
    pools: tuple[str, ...] = setting(
        ("default",), "Worker: pools that it belongs to.", feature="SCL-01"
    )
    plugin_types: tuple[str, ...] = setting(
        (), "Worker: node types that it runs; empty is all that it knows.", feature="SCL-01"
    )
    capacity: int = setting(
        4, "Worker: attempts that it runs at the same time.", feature="SCL-01", ge=1
    )
    drain_timeout: timedelta = setting(
        timedelta(seconds=30), "Worker: time that a stop gives to attempts.", feature="SCL-01"
    )
    ssl_bundle: Path | None = setting(
        None, "PEM file with key and certificates for mutual TLS.", feature="SCL-01"
    )


class HaGroup(Group):
    """Active and standby servers."""

    mode: HaMode = setting(
        HaMode.SINGLE, "A single server always leads; postgres shares a lease.", feature="SCL-02"
    )
    lease: timedelta = setting(
        timedelta(seconds=15), "Lease of the leader, renewed three times in it.", feature="SCL-02"
    )
    instance_id: str | None = setting(
        None, "Name of this server in the lease.", feature="SCL-02", derived="random at each start"
    )


class ClusterGroup(Group):
    """Sharing the work between leaders."""

    partitions: int = setting(
        1, "Parts that sessions are divided into.", feature="SCL-02", ge=1, le=1024
    )
