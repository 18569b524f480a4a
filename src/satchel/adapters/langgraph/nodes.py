"""A node of a graph as a durable part of a run."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from functools import wraps
from typing import Any, TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.config import get_config
from langgraph.utils.runnable import RunnableCallable  # type: ignore[attr-defined]

from satchel import Run, UsageError

from .values_json import Shown, as_json, from_json

Node = TypeVar("Node")

_INJECTED = {"config", "error", "previous", "runtime", "store", "writer"}
"""Parameters of a node that LangGraph fills in."""

_UNSEEN = {"id", "response_metadata", "usage_metadata"}
"""Fields of a message that no model sees. LangGraph draws an id at each start for a message that has none."""

_serde = JsonPlusSerializer()


def durable(node: Node) -> Node:
    """Make a node a durable part of a run: a function, sync or async, or a Runnable that is no graph.

    A task of the graph is known by its thread, the names of the graphs it is in, its node, its step and its input.
    After a kill one that has finished returns its recorded result, with and without a saver. Call the graph by
    `ainvoke` or `astream` from the agent itself, not in an item or another scope, since scopes can't be nested.
    """
    name: str = node.get_name() if isinstance(node, Runnable) else getattr(node, "__name__", type(node).__name__)
    call: Any = node.ainvoke if isinstance(node, Runnable) else node
    plain: Any = _invoke(node) if isinstance(node, Runnable) else node
    is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)

    @wraps(plain)
    async def perform(*args: Any, **kwargs: Any) -> Any:
        async def result() -> Any:
            found = call(*args, **kwargs) if is_async else await asyncio.to_thread(call, *args, **kwargs)
            return await found if inspect.isawaitable(found) else found

        async def work() -> Shown:
            return as_json(*_serde.dumps_typed(await result()))

        if (run := Run.current()) is None:
            return await result()
        given = [args, {key: value for key, value in kwargs.items() if key not in _INJECTED}]
        shown = await run.scope(_scope_name(run, name, given), work)
        await run.durable()  # a saver must not know before the run that it has finished
        return _serde.loads_typed(from_json(shown))

    @wraps(plain)
    def perform_at_once(*args: Any, **kwargs: Any) -> Any:
        if Run.current() is not None:
            raise UsageError(
                f"the durable node {name!r} was called by `invoke` in a run",
                why="it would be no scope, and run again after a crash",
                remedy="call the graph with `ainvoke` or `astream`",
            )
        return plain(*args, **kwargs)

    if is_async and not isinstance(node, Runnable):
        return perform  # type: ignore[return-value]
    return RunnableCallable(perform_at_once, perform, name=name, trace=False)  # type: ignore[return-value]


def _invoke(node: Runnable[Any, Any]) -> Any:
    def invoke(state: Any, config: RunnableConfig) -> Any:
        return node.invoke(state, config)

    return invoke


_tasks: WeakKeyDictionary[Run[Any], dict[str, list[str]]] = WeakKeyDictionary()
"""The ids of the tasks of this start that are known by the same, in the order in which they began."""


def _scope_name(run: Run[Any], name: str, given: Any) -> str:
    """The name of the current task. LangGraph's own id of it depends on checkpoints that a kill may have lost. Tasks
    that are known by the same are told apart by their order; another attempt at one is the same task."""
    config = get_config()
    told, of = config["metadata"], config["configurable"]
    graphs = [each.partition(":")[0] for each in told["langgraph_checkpoint_ns"].split("|")]
    around = of.get("checkpoint_map", {}).values()
    steps = [UUID(id).clock_seq for id in around]  # of each of these graphs; LangGraph puts it into the ids
    known = [of.get("thread_id"), graphs, steps, told["langgraph_path"], _content(given)]
    digest = hashlib.blake2b(json.dumps(known).encode(), digest_size=6).hexdigest()
    equal = _tasks.setdefault(run, {}).setdefault(digest, [])
    if (task := of["__pregel_task_id"]) not in equal:
        equal.append(task)
    number = equal.index(task)
    return f"{name} {digest}" + (f" {number + 1}" if number else "")


def _content(given: Any) -> Any:
    """What identifies an input, as JSON: sets in an order, messages without what no model sees."""

    def seen(value: Shown) -> Any:
        match value:
            case {"$type": [_, [str(module), _, dict(kept), *_]]} if module.startswith("langchain_core.messages"):
                return {key: kept[key] for key in sorted(kept.keys() - _UNSEEN)}
            case {"$type": [_, ["builtins", "set" | "frozenset", [*kept], *_]]}:
                return sorted(kept, key=repr)
        return dict(sorted(value.items()))

    return json.loads(json.dumps(as_json(*_serde.dumps_typed(given))), object_hook=seen)
