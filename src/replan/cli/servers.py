"""`replan tools`: what MCP servers offer."""

from argparse import Namespace
from functools import partial
from typing import Any

from replan.encoding import encode
from replan.errors import ConfigError

from .assemble import mcp_servers
from .environment import load_env_file
from .output import write_bytes, write_error, write_text
from .recipe import source_of
from .screens import PlainScreen, logging_to, shown_levels
from .stop import Stopper, run_async
from .text import one_line

__all__ = ["execute"]


def execute(args: Namespace) -> int:
    """Run the command and give its exit code."""
    load_env_file(args.env_file)
    if not args.mcp:
        raise ConfigError("there are no servers; name some with --mcp")
    configs = mcp_servers(tuple(map(source_of, args.mcp)))
    return run_async(partial(_tools, args, configs))


async def _tools(args: Namespace, configs: dict[str, Any], stopper: Stopper) -> int:
    from replan.mcp import McpServers

    level = "error" if args.log_level == "warning" else args.log_level  # failures are listed below
    with logging_to(PlainScreen(shown_levels(level)), level):
        async with McpServers(configs) as servers:
            infos = [tool.info for tool in servers.tools]
            failed = [(status.name, status.error) for status in servers.statuses if status.error]
    if args.json:
        write_bytes(b"".join(encode(info) + b"\n" for info in infos))
    else:
        width = max((len(info.name) for info in infos), default=0)
        for info in infos:
            kind = "read-only" if info.read_only else "may write"
            write_text(f"{info.name.ljust(width)}  {info.server}  {kind}  {one_line(info.description, 80)}\n")
    for name, error in failed:
        write_error(f"replan: MCP server {name!r}: {one_line(str(error), 600)}\n")
    return 1 if failed and len(failed) == len(configs) else 0
