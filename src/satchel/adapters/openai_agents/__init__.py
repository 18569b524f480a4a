"""The OpenAI Agents SDK over a workspace: `SatchelRunner.run(agent, ...)` in place of `Runner.run(agent, ...)`.

Inside a run each model request is a step, and each call of a tool that `@durable_tool` declares a step or an effect.
They are identified by their content and not by their place in an order, so tool calls may run in parallel, and a
changed prompt is asked again. Outside a run agents, models and tools are ordinary ones.
"""

from __future__ import annotations

from satchel.adapters import require

require(__name__, "openai-agents", "0.24")

from .durable_runner import SatchelModel, SatchelRunner
from .durable_tools import durable_tool
from .sessions import SatchelSession

__all__ = ["SatchelModel", "SatchelRunner", "SatchelSession", "durable_tool"]
