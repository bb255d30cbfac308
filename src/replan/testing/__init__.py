"""What tests of agents need: a scripted model, a scripted provider, and a switch that blocks real requests.

Submodules with needs of their own are imported explicitly: `replan.testing.engines`, `replan.testing.mcp`.
"""

from .model import Reply, ScriptedModel, ScriptExhausted, call

__all__ = ["Reply", "ScriptExhausted", "ScriptedModel", "call"]
