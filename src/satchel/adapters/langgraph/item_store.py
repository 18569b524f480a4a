"""What agents of LangGraph remember beyond one thread: items as files that people read and correct."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore

from satchel import Handle, UsageError
from satchel.adapters import HeldTree, folder_name
from satchel.results import Held, HeldFile

_WAIT = 10.0
"""Seconds that a write waits for another process that has the store."""


class SatchelStore(BaseStore):
    """Keeps the items of LangGraph in one workspace, at a folder or URL: each in a JSON file, below the folders of its
    namespace. Who only reads takes nothing; who writes has it for a second. It makes no index: a search finds by
    namespace and filter.
    """

    def __init__(self, url: str | os.PathLike[str], *, storage_options: Any = None):
        self._tree = HeldTree(url, kind="langgraph-store", wait=_WAIT, idle=1, storage_options=storage_options)

    def close(self) -> None:
        """Let other processes write at once. The store can only read from now on."""
        self._tree.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """What the store of LangGraph in memory would do that has the items which these operations see."""
        ops, memory, times = [*ops], InMemoryStore(), dict[tuple[Any, str], tuple[datetime, datetime]]()
        for prefix in {_prefix(op) for op in ops if not isinstance(op, PutOp)}:
            for file in self._tree.read(partial(Handle.held_contents, prefix=prefix)):
                item = _read(file)
                times[item.namespace, item.key] = item.created_at, item.updated_at
                memory.batch([PutOp(item.namespace, item.key, item.value)])
        results = memory.batch(ops)
        for op in {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}.values():
            self._tree.use(partial(_put, op))
        for found in results:
            for each in found if isinstance(found, list) else [found]:
                if isinstance(each, Item):
                    each.created_at, each.updated_at = times[each.namespace, each.key]
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, ops)


def _put(op: PutOp, held: Held) -> None:
    path = _path(op.namespace, op.key)
    if op.value is None:
        held.remove(path)
        return
    known, now = held.get(path), datetime.now(UTC)
    made = _read(known).created_at if known is not None else now
    row = {"namespace": op.namespace, "key": op.key, "created_at": made.isoformat(), "value": op.value}
    held.put(path, json.dumps(row, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _read(file: HeldFile) -> Item:
    """UsageError if a person has written what is no item."""
    try:
        row = json.loads(file.data)
        return Item(**row, updated_at=datetime.fromisoformat(file.at))
    except (TypeError, ValueError) as error:
        remedy = "correct it, or remove it with the key that its name shows"
        raise UsageError("is no item of LangGraph", path=f"files/{file.path}", why=str(error), remedy=remedy) from error


def _prefix(op: Any) -> str:
    """How the paths of all items begin that an operation sees."""
    if isinstance(op, GetOp):
        return _path(op.namespace, op.key)
    namespace = () if isinstance(op, ListNamespacesOp) else op.namespace_prefix
    return "".join(f"{folder_name(label)}/" for label in namespace)


def _path(namespace: tuple[str, ...], key: str) -> str:
    return "/".join(map(folder_name, (*namespace, key))) + ".json"
