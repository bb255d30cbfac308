"""Tools: functions as tools, checking and repairing arguments, names."""

from ._docstring import read_docstring
from .arguments import prepare
from .function import FunctionTool, tool
from .names import nearest, unknown_tool_text
from .toolbox import Toolbox

__all__ = ["FunctionTool", "Toolbox", "nearest", "prepare", "read_docstring", "tool", "unknown_tool_text"]
