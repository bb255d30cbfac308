"""What tests of agents need: a scripted model, a scripted provider, and a switch that blocks real requests.

Submodules with needs of their own are imported explicitly: `replan.testing.engines`, `replan.testing.mcp`.
"""

from .model import Reply, ScriptedModel, ScriptExhausted, call
from .requests import allow_real_requests, block_real_requests
from .server import HttpReply, HttpRequest, ScriptedServer, ServerReply, error_reply, sse_reply

__all__ = [
    "HttpReply",
    "HttpRequest",
    "Reply",
    "ScriptExhausted",
    "ScriptedModel",
    "ScriptedServer",
    "ServerReply",
    "allow_real_requests",
    "block_real_requests",
    "call",
    "error_reply",
    "sse_reply",
]
