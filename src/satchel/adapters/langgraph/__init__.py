"""LangGraph over workspaces: `builder.add_node(durable(node))`, `builder.compile(checkpointer=SatchelSaver(root))`.

Inside a run each task of a graph whose node is durable is a scope: one that has finished returns its recorded result,
and its steps and effects belong to it alone, so a saver may skip it. Outside a run the graph is an ordinary one. The
saver needs no run: each thread is a workspace of its own, in a folder or a bucket. So is a `SatchelStore`, for what
agents remember beyond a thread.
"""

from __future__ import annotations

from satchel.adapters import require

require(__name__, "langgraph", "1.2")
require(__name__, "langgraph-checkpoint", "4.3")

from .item_store import SatchelStore
from .nodes import durable
from .saver import SatchelSaver

__all__ = ["SatchelSaver", "SatchelStore", "durable"]
