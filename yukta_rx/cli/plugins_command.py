"""`yukta plugins`: the catalogue of node types.  Feature: EXT-01."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from yukta_rx.cli.console import Console
from yukta_rx.cli.options import common_options, config_option

if TYPE_CHECKING:
    from yukta_rx.plugins.registry import PluginRegistry


@click.group(name="plugins", invoke_without_command=True)
@common_options
@config_option
@click.pass_context
def command(ctx: click.Context, config: str | None) -> None:
    """List the node types; `show TYPE` explains one."""
    if ctx.invoked_subcommand is None:
        _list(ctx.ensure_object(Console), config)


@command.command()
@click.argument("type")
@common_options
@config_option
@click.pass_obj
def show(console: Console, type: str, config: str | None) -> None:
    """Explain a node type: options, ports, defaults, example."""
    from yukta_rx.model.codec import dumps_plain

    entry = _registry(config).get(type).describe()
    if console.as_json:
        console.result(dumps_plain(entry))
        return
    for line in _explained(entry):
        console.result(line.encode())


def _registry(config: str | None) -> PluginRegistry:
    from yukta_rx.cli.documents import settings_for
    from yukta_rx.plugins.registry import PluginRegistry

    return PluginRegistry.load(settings_for(config))


def _list(console: Console, config: str | None) -> None:
    from yukta_rx.model.codec import dumps_plain

    registry = _registry(config)
    specs = list(registry.specs())
    width = max((len(spec.type) for spec in specs), default=0)
    for spec in specs:
        if console.as_json:
            console.result(dumps_plain(spec.describe()))
        else:
            console.result(f"{spec.type:{width}}  {spec.kind:9}  {spec.summary}".encode())
    for reason in registry.broken().values():
        console.say(f"yukta: {reason}", "red")


def _explained(entry: dict[str, Any]) -> list[str]:
    import json

    timeout = entry["defaultTimeoutSeconds"]
    lines = [
        f"{entry['type']} ({entry['kind'].lower()}): {entry['summary']}",
        f"  idle timeout: {'none' if timeout is None else timeout}",
        f"  ports: {', '.join(['(default)', *entry['ports']])}",
        f"  from: {entry['source']}",
    ]
    schema = entry["configSchema"]
    required = schema.get("required", [])
    for name, option in schema.get("properties", {}).items():
        words = ["required" if name in required else _default(option)]
        if option.get("x-yukta-fixed"):
            words.append("fixed")
        lines.append(f"  option {name} ({', '.join(words)}): {option.get('description', '')}")
    if entry["example"] is not None:
        lines.append(f"  example: {json.dumps(entry['example'])}")
    return lines


def _default(option: dict[str, Any]) -> str:
    import json

    return f"default {json.dumps(option['default'])}" if "default" in option else "optional"
