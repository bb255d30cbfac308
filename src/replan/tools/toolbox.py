"""The tools of an agent, by name."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Self, cast

from replan.errors import ConfigError
from replan.tool import Tool

from .function import FunctionTool
from .names import check_name

__all__ = ["Toolbox"]


class Toolbox(Mapping[str, Tool]):
    """An ordered, fixed mapping of names to tools, made of tools and plain functions.

    Raises `ConfigError` for two tools of one name, for a name that no model could call, and for what is no tool.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            tool = _as_tool(given)
            name = check_name(_name_of(tool))
            if name in self._tools:
                raise ConfigError(
                    f"two tools are named {name!r}: {_describe(self._tools[name])} and {_describe(tool)}; "
                    "give one of them another name"
                )
            self._tools[name] = tool

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def check(self) -> Self:
        """Build the schemas of all functions now. Raises `ConfigError` for the first that no model could fill."""
        for tool in self._tools.values():
            if isinstance(tool, FunctionTool):
                tool.check()
        return self

    def find(self, name: str) -> Tool | None:
        """The tool of that name, else the only one whose server calls it so."""
        if name in self._tools:
            return self._tools[name]
        originals = [t for t in self._tools.values() if not isinstance(t, FunctionTool) and t.info.original == name]
        return originals[0] if len(originals) == 1 else None


def _as_tool(given: Any) -> Tool:
    if isinstance(given, FunctionTool):
        return given  # pyright: ignore[reportUnknownVariableType]  # of any signature
    if not isinstance(given, type) and isinstance(given, Tool):
        return given
    return FunctionTool(given)


def _name_of(tool: Tool) -> str:
    return tool.name if isinstance(tool, FunctionTool) else tool.info.name


def _describe(tool: Any) -> str:
    if isinstance(tool, FunctionTool):
        function = inspect.unwrap(cast("Any", tool))
        return f"the function {getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
    info = tool.info
    return f"{info.original or info.name!r} of server {info.server!r}" if info.server else f"a {type(tool).__name__}"
