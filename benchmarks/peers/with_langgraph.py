"""LangGraph with its SQLite saver: a graph of one node that is run again and again.

A step of it runs the node and commits the state that the node has changed. So it is what an item does in Satchel.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from .pairing import Pairing


class Last(TypedDict):
    count: int
    last: str


class Growing(TypedDict):
    count: int
    all: Annotated[list[str], operator.add]


def _joined(values: list[str], more: Sequence[list[str]]) -> list[str]:
    return [*values, *(each for part in more for each in part)]


class Delta(TypedDict):
    count: int
    all: Annotated[list[str], DeltaChannel(_joined)]


def sync(folder: Path, pairing: Pairing) -> None:
    _steps(folder, pairing, Last, "sync")


def default(folder: Path, pairing: Pairing) -> None:
    """Its checkpoints are written while the next node runs."""
    _steps(folder, pairing, Last, "async")


def growing(folder: Path, pairing: Pairing) -> None:
    _steps(folder, pairing, Growing, "sync")


def delta(folder: Path, pairing: Pairing) -> None:
    """Its checkpoints keep what was added, and the whole list every 100 steps."""
    _steps(folder, pairing, Delta, "sync")


def satchel(folder: Path, pairing: Pairing) -> None:
    """The same with the saver of Satchel's adapter."""
    from satchel.adapters.langgraph import SatchelSaver

    _invoke(SatchelSaver(folder / "threads"), pairing, Last, "sync")


def _steps(folder: Path, pairing: Pairing, state: Any, durability: Literal["sync", "async"]) -> None:
    with SqliteSaver.from_conn_string(str(folder / "graph.sqlite")) as saver:
        _invoke(saver, pairing, state, durability)


def _invoke(
    saver: BaseCheckpointSaver[Any], pairing: Pairing, state: Any, durability: Literal["sync", "async"]
) -> None:
    def work(now: dict[str, Any]) -> dict[str, Any]:
        result = pairing.body()
        return {"count": now["count"] + 1} | ({"last": result} if state is Last else {"all": [result]})

    builder = StateGraph(state)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda now: "work" if now["count"] < pairing.total else END)
    app = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "benchmark"}, "recursion_limit": pairing.total + 10}
    begun = bool(app.get_state(config).values)
    first: Any = None if begun else {"count": 0} | ({"last": ""} if state is Last else {"all": []})
    app.invoke(first, config, durability=durability)
