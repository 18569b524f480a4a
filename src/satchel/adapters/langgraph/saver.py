"""Checkpoints of LangGraph, each thread in a workspace of its own."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint import base
from langgraph.checkpoint.base import CheckpointTuple, DeltaChannelHistory, get_checkpoint_metadata, writes_sort_key

from satchel.adapters import HeldTree, folder_name
from satchel.errors import Conflicting
from satchel.results import Held, Row

from .values_json import Beginning, Shown, as_json, beginning, elements_of, from_json, joined, list_of

_LOG = "checkpoints"

_REMEMBERED = 10_000
"""Of so many graphs in threads a saver knows how the last lists began, of so many checkpoints when it has seen them."""

_PROCESS = os.urandom(6).hex()
"""With the id of the process, which a fork changes: who has put a checkpoint."""


class _Thread:
    """What is kept of one thread, as of a moment."""

    def __init__(self, id: str, rows: Sequence[Row]):
        self.id, self.last = id, rows[-1].seq if rows else 0
        self.rows: dict[tuple[str, str], Shown] = {}  # checkpoints by id and namespace, also those that are deleted
        self._writes: dict[tuple[str, str], dict[tuple[str, int], Shown]] = {}
        self._deleted: set[tuple[str, str]] = set()
        for row in (each.value for each in rows):
            if "deleted" in row:
                self._deleted.update((id, ns) for id, ns in row["deleted"])
                continue
            place = row["id"], row["ns"]
            if "checkpoint" in row:
                self.rows[place] = row
                self._deleted.discard(place)
                continue
            known = self._writes.setdefault(place, {})
            for write in row["writes"]:
                if (key := (row["task"], write["at"])) not in known or write["at"] < 0:
                    known[key] = {**write, "path": row["path"]}

    def there(self, wanted: str | None = None) -> list[tuple[str, str]]:
        """The checkpoints of one namespace, or of all, oldest first."""
        return sorted(each for each in self.rows if wanted in (None, each[1]) and each not in self._deleted)

    def chain(self, id: str | None, ns: str) -> Iterator[Shown]:
        """A checkpoint and its ancestors, also deleted ones: later values are made from theirs."""
        while id is not None and (row := self.rows.get((id, ns))) is not None:
            yield row
            id = row["parent"]

    def values(self, id: str, ns: str, versions: Mapping[str, Any]) -> dict[str, tuple[str, bytes]]:
        """These channels of a checkpoint, as its serializer has made them."""
        parts, left = dict[str, list[tuple[str, bytes]]](), dict(versions)
        for row in self.chain(id, ns):
            for channel in left.keys() & row["values"].keys():
                shown = row["values"][channel]
                if channel in parts or shown["version"] == left[channel]:
                    parts.setdefault(channel, []).insert(0, from_json(shown))
                if channel not in parts or "after" not in shown:
                    del left[channel]
        return {channel: joined(each) for channel, each in parts.items() if channel not in left}

    def writes(self, id: str, ns: str) -> list[tuple[str, Shown]]:
        """Each write with its task, in the order in which LangGraph applies them."""
        known = self._writes.get((id, ns), {})
        return [
            (key[0], known[key]) for key in sorted(known, key=lambda key: writes_sort_key(known[key]["path"], *key))
        ]


def _aside(method: Any) -> Any:
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(method, *args, **kwargs)

    return call


class SatchelSaver(base.BaseCheckpointSaver[int]):
    """Keeps the checkpoints of LangGraph below `root`, a folder or URL: each thread in a workspace of its own.

    A thread is held from its first write until 5 seconds after its last. Another writer waits for it, at most `wait`
    seconds, and then gets LeaseHeld. Who only reads takes nothing. `serde` is used for all values: what it makes is
    kept as JSON if that gives the same back, else as it is. Of a list that has grown, only what was added is kept.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, serde: Any = None, wait: float = 0.0, storage_options: Any = None
    ):
        super().__init__(serde=serde)
        self._tree = HeldTree(root, kind="langgraph", wait=wait, storage_options=storage_options)
        self._last = OrderedDict[tuple[str, str], tuple[str, dict[str, Beginning]]]()
        self._seen = OrderedDict[tuple[str, str | None], int]()  # with which row a thread ended when each was read

    def close(self) -> None:
        """Let other processes write at once. The saver, and those made from it, can only read from now on."""
        self._tree.close()

    def folder(self, thread_id: str) -> str:
        """Where a thread is kept."""
        return self._tree.url(folder_name(thread_id))

    def _append(self, id: str, *rows: Shown) -> None:
        told = [{"thread": id, **row} for row in rows]
        self._tree.use(lambda held: held.append(told, log=_LOG), folder_name(id))

    def _rows(self, id: str) -> Sequence[Row]:
        return self._tree.read(lambda thread: thread.rows(_LOG), folder_name(id))

    def _thread(self, id: Any) -> _Thread:
        return _Thread(str(id), self._rows(str(id)))

    def _all(self) -> Iterator[_Thread]:
        for each in self._tree.below():
            for row in each.rows(_LOG, last=1):
                yield self._thread(row.value["thread"])

    def _shown(self, value: Any) -> Shown:
        return as_json(*self.serde.dumps_typed(value))

    def _value(self, shown: Shown) -> Any:
        return self.serde.loads_typed(from_json(shown))

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        (thread, ns, parent), id, values = _place(config), checkpoint["id"], dict[str, Shown]()
        before, known = self._last.get((thread, ns), ("", {}))
        lists = {**known} if before == parent else {}
        for channel, version in new_versions.items():
            old = lists.pop(channel, None)
            if channel in checkpoint["channel_values"]:
                kind, data = self.serde.dumps_typed(checkpoint["channel_values"][channel])
                values[channel] = {"version": version}
                if kind == "msgpack" and (new := elements_of(data))[0]:
                    lists[channel], follows = beginning(*new, old)
                    if old and follows:
                        data = list_of(new[0] - old.number, new[1][old.size :])
                        values[channel]["after"] = old.number
                values[channel] |= as_json(kind, data)
        rest = {key: each for key, each in checkpoint.items() if key != "channel_values"}
        kept = {"checkpoint": self._shown(rest), "metadata": self._shown(get_checkpoint_metadata(config, metadata))}
        by, since = f"{_PROCESS}-{os.getpid()}", None if ns else self._seen.get((thread, parent))
        row = {"thread": thread, "ns": ns, "id": id, "parent": parent, "by": by, **kept, "values": values}

        def append(held: Held) -> int:
            for other in held.rows(_LOG, after=since) if since is not None else ():
                if not other.value.get("ns") and other.value.get("by", by) != by:
                    what = "the thread has moved on since it was read"
                    why = f"another process has put the checkpoint {other.value['id']} at {other.at}"
                    remedy = "invoke the graph again: it goes on from there"
                    raise Conflicting(what, path=self.folder(thread), why=why, remedy=remedy)
            return held.append([row], log=_LOG)

        _remember(self._seen, (thread, id), self._tree.use(append, folder_name(thread)))
        _remember(self._last, (thread, ns), (id, lists))
        return _config(thread, id, ns)

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        (thread, ns, id), places = _place(config), base.WRITES_IDX_MAP
        shown = [{"at": places.get(name, n), "channel": name, **self._shown(v)} for n, (name, v) in enumerate(writes)]
        self._append(thread, {"ns": ns, "id": id, "task": task_id, "path": task_path, "writes": shown})

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        id, ns, wanted = _place(config)
        thread = self._thread(id)
        there = [each for each in thread.there(ns) if wanted in (None, each[0])]
        if not ns:  # a graph in it is read as LangGraph replays the one around it, too
            _remember(self._seen, (id, there[-1][0] if there else None), thread.last)
        return self._tuple(thread, *there[-1]) if there else None

    def _tuple(self, thread: _Thread, id: str, ns: str) -> CheckpointTuple:
        row = thread.rows[id, ns]
        checkpoint = self._value(row["checkpoint"])
        values = thread.values(id, ns, checkpoint["channel_versions"])
        lists = {name: elements_of(data) for name, (kind, data) in values.items() if kind == "msgpack"}
        began = {name: beginning(*each)[0] for name, each in lists.items() if each[0]}
        _remember(self._last, (thread.id, ns), (id, began))
        loaded: Any = {**checkpoint, "channel_values": {n: self.serde.loads_typed(each) for n, each in values.items()}}
        parent = _config(thread.id, row["parent"], ns) if row["parent"] else None
        writes = [(task, write["channel"], self._value(write)) for task, write in thread.writes(id, ns)]
        return CheckpointTuple(_config(thread.id, id, ns), loaded, self._value(row["metadata"]), parent, writes)

    def list(
        self, config: Any, *, filter: Any = None, before: Any = None, limit: int | None = None
    ) -> Iterator[CheckpointTuple]:
        of, end = (config or {}).get("configurable", {}), (before or {}).get("configurable", {}).get("checkpoint_id")
        for thread in [self._thread(of["thread_id"])] if config else self._all():
            for id, ns in reversed(thread.there(of.get("checkpoint_ns"))):
                metadata = self._value(thread.rows[id, ns]["metadata"])
                fits = all(key in metadata and metadata[key] == value for key, value in (filter or {}).items())
                if fits and of.get("checkpoint_id") in (None, id) and (end is None or id < end):
                    if limit is not None and (limit := limit - 1) < 0:
                        return
                    yield self._tuple(thread, id, ns)

    def get_delta_channel_history(self, *, config: Any, channels: Any) -> Mapping[str, DeltaChannelHistory]:
        thread_id, ns, id = _place(config)
        thread = self._thread(thread_id)
        id = id or max(thread.there(ns), default=(None,))[0]
        found, left = {name: DeltaChannelHistory(writes=[]) for name in channels}, {*channels}
        for row in [*thread.chain(id, ns)][1:]:
            for task, write in reversed(thread.writes(row["id"], ns)):
                if (name := write["channel"]) in left:
                    found[name]["writes"].insert(0, (task, name, self._value(write)))
            versions = self._value(row["checkpoint"])["channel_versions"]
            for name, seed in thread.values(row["id"], ns, {n: versions[n] for n in left & versions.keys()}).items():
                found[name]["seed"] = self.serde.loads_typed(seed)
                left.discard(name)
        return found

    def delete_thread(self, thread_id: str) -> None:
        self._tree.remove(folder_name(thread_id))

    def _delete(self, thread: _Thread, places: Iterable[tuple[str, str]]) -> None:
        if deleted := [*places]:
            self._append(thread.id, {"deleted": deleted})

    def delete_for_runs(self, run_ids: Any) -> None:
        for thread in self._all() if run_ids else ():
            runs = {each: self._value(thread.rows[each]["metadata"]).get("run_id") for each in thread.there()}
            self._delete(thread, (each for each, run in runs.items() if run in run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        rows = self._rows(source_thread_id)
        self._append(target_thread_id, *({**row.value, "thread": target_thread_id} for row in rows))

    def prune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        """With "delete" the folder of a thread is removed. Else what later values are made from stays in its log."""
        for id in thread_ids:
            if strategy == "delete":
                self.delete_thread(id)
            else:
                there = (thread := self._thread(id)).there()
                last = {ns: id for id, ns in there}
                self._delete(thread, ((id, ns) for id, ns in there if id != last[ns]))

    async def alist(self, config: Any, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for each in await asyncio.to_thread(lambda: [*self.list(config, **wanted)]):
            yield each

    aput, aput_writes, aget_tuple, acopy_thread = map(_aside, (put, put_writes, get_tuple, copy_thread))
    adelete_thread, adelete_for_runs, aprune = map(_aside, (delete_thread, delete_for_runs, prune))
    aget_delta_channel_history = _aside(get_delta_channel_history)


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _REMEMBERED:
        known.popitem(last=False)


def _place(config: Any) -> tuple[str, str, Any]:
    of = config["configurable"]
    return str(of["thread_id"]), of.get("checkpoint_ns", ""), of.get("checkpoint_id")


def _config(thread: str, id: str, ns: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}
