"""Settings of who may do what, and of what a node may touch."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, SecretStr

from yukta_rx.config.declare import Group, setting
from yukta_rx.config.units import ByteSize


class Role(StrEnum):
    """What a key may do; each role may do all that the one before it may."""

    VIEWER = "VIEWER"
    OPERATOR = "OPERATOR"
    ADMIN = "ADMIN"


class McpApprovals(StrEnum):
    """What happens when an agent wants to answer an approval."""

    ELICIT = "elicit"
    ALLOW = "allow"
    DENY = "deny"


class ApiKey(Group):
    """One named key."""

    name: str = setting(..., "Name shown in the audit as `key:<name>`.", feature="SEC-01")
    key: SecretStr = setting(..., "The key, or `sha256:` and its hash in hex.", feature="SEC-01")
    role: Role = setting(Role.VIEWER, "What the key may do.", feature="SEC-01")
    sessions: tuple[str, ...] = setting(
        (), "Sessions that it may see; empty is all.", feature="SEC-01"
    )
    expires: AwareDatetime | None = setting(
        None, "When it stops to be good; unset is never.", feature="SEC-01"
    )


class HttpGroup(Group):
    """The HTTP server."""

    host: str = setting("127.0.0.1", "Address to listen on.", feature="SEC-01")
    port: int = setting(
        8080, "Port to listen on; 0 takes a free one.", feature="SEC-01", ge=0, le=65535
    )
    require_if_match: bool = setting(
        False, "Refuse a change of a definition without If-Match (428).", feature="DEF-01"
    )
    session_lifetime: timedelta = setting(
        timedelta(hours=12), "How long the cookie of a browser is good.", feature="SEC-01"
    )


class LimitsGroup(Group):
    """Sizes."""

    max_body: ByteSize = setting(
        ByteSize(1024 * 1024),
        "Largest request body; a larger one is refused (413).",
        feature="SEC-03",
        ge=1,
    )


class VariablesGroup(Group):
    """What expressions may read."""

    allowed: tuple[str, ...] = setting(
        (), "Further names that `${env.X}` and `${sys.x}` may read.", feature="SEC-02"
    )


class ProcessGroup(Group):
    """PROCESS_EXECUTOR."""

    allowed_commands: tuple[str, ...] = setting(
        (), "Programs that may be started; empty is none.", feature="SEC-03"
    )
    allow_any: bool = setting(False, "Allow every program.", feature="SEC-03")


class ScriptGroup(Group):
    """SCRIPT."""

    timeout_ms: int = setting(10_000, "Time of one call, in ms.", feature="SEC-03", ge=1)
    max_statements: int = setting(50_000_000, "Work of one call.", feature="SEC-03", ge=1)


class FilesGroup(Group):
    """Files that nodes read and write."""

    allowed_dirs: tuple[Path, ...] = setting(
        (), "Folders that file nodes may use; empty is none.", feature="SEC-03"
    )


class HttpRequestGroup(Group):
    """HTTP_REQUEST and SSE_TRIGGER."""

    allow_private: bool = setting(
        False,
        "Allow HTTP_REQUEST and SSE_TRIGGER to connect to private and loopback addresses.",
        feature="SEC-03",
    )


class LlmGroup(Group):
    """LLM_CALL."""

    rate_limit: Mapping[str, int] = setting(
        {},
        "Requests per minute to a provider, over all runs.",
        feature="EXT-03",
        ge=1,
        per_value=True,
    )
    deny_input_patterns: tuple[str, ...] = setting(
        (), "Regular expressions; a prompt that one matches is refused.", feature="SEC-03"
    )
    deny_output_patterns: tuple[str, ...] = setting(
        (), "Regular expressions; an answer that one matches is refused.", feature="SEC-03"
    )
    max_input_chars: int = setting(
        0, "Longest prompt in characters; 0 is no limit.", feature="SEC-03", ge=0
    )


class McpGroup(Group):
    """The MCP server."""

    toolsets: tuple[str, ...] = setting(
        ("observe", "operate"), "Groups of tools that are offered.", feature="SEC-01"
    )
    approvals: McpApprovals = setting(
        McpApprovals.ELICIT, "Whether an agent may answer an approval itself.", feature="CTL-05"
    )


class McpClientGroup(Group):
    """MCP_TOOL_CALL."""

    allowed_tools: tuple[str, ...] = setting(
        (), "Tools that may be called; empty is none.", feature="SEC-03"
    )
    max_argument_bytes: ByteSize = setting(
        ByteSize(64 * 1024), "Largest arguments of one call.", feature="SEC-03", ge=1
    )
    deny_argument_patterns: tuple[str, ...] = setting(
        (), "Regular expressions; arguments that one matches are refused.", feature="SEC-03"
    )
