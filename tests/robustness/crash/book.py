"""A second reading of the journal, in plain dicts, that shares no code with the one under test."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

Key = tuple[str, str, str, int]
"""Of a call: scope, step, hash of the arguments, equal calls before it."""


@dataclass
class Book:
    """What the records say, taken together."""

    agent: str = ""  # whose records count here
    blobs: dict[str, Any] = field(default_factory=dict)  # what those hold to which a return refers
    lines: list[bytes] = field(default_factory=list)  # lines[n] is record n + 1
    kinds: list[str] = field(default_factory=list)
    run_id: str = ""
    epochs: list[int] = field(default_factory=list)  # of the openings
    data: Any = None
    plan: str | None = None
    open: set[str] = field(default_factory=set)  # scopes
    done: dict[Key, dict[str, Any]] = field(default_factory=dict)  # of open scopes
    started: dict[Key, dict[str, Any]] = field(default_factory=dict)
    past: dict[str, dict[Key, dict[str, Any]]] = field(default_factory=dict)  # effects of scopes that have ended
    ever_started: set[tuple[str, str]] = field(default_factory=set)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)  # hashes
    messages: list[Any] = field(default_factory=list)
    promoted: list[dict[str, Any]] = field(default_factory=list)
    doubts: dict[str, dict[str, Any]] = field(default_factory=dict)
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    same: dict[Key, Key] = field(default_factory=dict)  # of calls that were asked about: the earlier call, as answered
    steps: int = 0
    at: str = ""  # of the last record: a line leaves out the time of the line before it
    _pending: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, line: bytes, record: dict[str, Any]) -> None:
        self.lines.append(line)
        self.at = record.get("at", self.at)
        kind = record["type"]
        self.kinds.append(kind)
        if kind not in ("opened", "resolved", "approval.answered", "rewound") and record.get("agent", "") != self.agent:
            return
        is_of_call = "step" in record and kind != "edited"
        key = (record["scope"], record["step"], record["args"], record["n"]) if is_of_call else ("", "", "", 0)
        match kind:
            case "opened":
                self.run_id = record["run_id"]
                self.epochs.append(record["epoch"])
                self._pending.clear()
            case "step.started":
                self.started[key] = record
                self.ever_started.add(key[:2])
                self._asked_no_more(key)
            case "step.completed":
                self.done[key] = record
                self.started.pop(key, None)
                self.steps += 1
                if record.get("effect"):
                    self._asked_no_more(key)
            case "step.failed" if record.get("not_done"):
                self.started.pop(key, None)
            case "scope.begun":
                if record["scope"] not in self.open:
                    self.done |= self.past.pop(record["scope"], {})
                self.open.add(record["scope"])
            case "scope.committed":
                self._commit(record)
            case "message":
                self._pending.setdefault(record["scope"], []).append(record["content"])
            case "partial.promoted":
                self.promoted.append(record)
            case "doubt":
                for each in list(self.doubts.values()):
                    if each["why"] == record["why"] == "unclaimed" and (each["scope"], each["step"]) == key[:2]:
                        del self.doubts[each["id"]]
                self.doubts[record["id"]] = record
            case "resolved":
                self._resolve(record)
            case "approval.asked":
                self.approvals[record["id"]] = record
            case "approval.answered" if record["id"] in self.approvals:
                self._answer(record)
            case "edited":
                self._edited(record)
            case "rewound":
                agents = self.blobs[record["blob"]] if "blob" in record else record["agents"]
                if self.agent in agents:
                    self._go_back(agents[self.agent])
        for change in record.get("plan", []):
            self._replan(*change)

    def _commit(self, record: dict[str, Any]) -> None:
        scope = record["scope"]
        for change in record.get("patch", []):
            self.data = _patched(self.data, change)
        self.outputs |= {f"outputs/{name}": output["sha256"] for name, output in record.get("outputs", {}).items()}
        self.messages += self._pending.pop(scope, [])
        if scope:
            self.results[scope] = record
            self._end(scope)

    def _end(self, scope: str) -> None:
        """Of what it has done only the effects are remembered."""
        if scope in self.open:
            self.past[scope] = {key: each for key, each in self.done.items() if key[0] == scope and each.get("effect")}
        self.open.discard(scope)
        self.done = {key: each for key, each in self.done.items() if key[0] != scope}
        self.started = {key: each for key, each in self.started.items() if key[0] != scope}
        self.doubts = {id: each for id, each in self.doubts.items() if each["scope"] != scope}

    def _edited(self, record: dict[str, Any]) -> None:
        if record["file"] == "workspace.yaml":
            return
        for change in record.get("patch", []):
            self.data = _patched(self.data, change)
        for scope in record.get("redone", []):
            self.results.pop(scope, None)
            self._end(scope)
        for scope in record.get("dropped", []):
            self._end(scope)
        if edit := record.get("step"):
            key: Key = (edit["scope"], *edit["key"])
            was = self.done.pop(key, None) or self.started.pop(key)
            if not edit.get("redo"):
                self.done[key] = was | {"result": edit.get("result"), "blob": edit.get("blob", "")}

    def _go_back(self, agent: dict[str, Any]) -> None:
        """The record says all that counts from here on."""
        agent = copy.deepcopy(agent)
        self.data, self.plan, self.results = agent["data"], agent["plan"]["text"], agent["results"]
        self.open = {scope for scope in agent["scopes"] if scope}
        self.done, self.started = (
            {
                (key, each["step"], each["args"], each["n"]): each
                for key, scope in agent["scopes"].items()
                for each in scope.get(name, [])
            }
            for name in ("done", "started")
        )
        self.past = {
            scope: {(scope, each["step"], each["args"], each["n"]): each for each in past.get("done", [])}
            for scope, past in agent.get("past", {}).items()
        }

    def _resolve(self, record: dict[str, Any]) -> None:
        self.settled.add(record["id"])
        if record["id"] not in self.doubts:
            return  # another agent's
        doubt = self.doubts.pop(record["id"])
        if doubt["why"] == "unclaimed":
            others = [] if record["outcome"] == "new" else doubt["others"]
            if other := record.get("other") or next(iter(others), None):
                self.same[doubt["scope"], doubt["step"], doubt["args"], doubt["n"]] = (doubt["scope"], *other)
            return
        key = doubt["scope"], doubt["step"], doubt["args"], doubt["n"]
        self.started.pop(key, None)
        if record["outcome"] == "done":
            self.done[key] = doubt | {"result": record.get("result"), "blob": record.get("blob", "")}

    def _answer(self, record: dict[str, Any]) -> None:
        asked = self.approvals.pop(record["id"])
        result = {each: record.get(each, "") for each in ("decision", "by", "note")}
        result |= {"at": self.at, "how": record.get("how", "file")}
        key = asked["scope"], asked["step"], asked["args"], asked["n"]
        self.done[key] = asked | {"effect": True, "result": result}

    def _asked_no_more(self, key: Key) -> None:
        if (other := self.same.pop(key, None)) is not None:
            self.started.pop(other, None)
        for each in list(self.doubts.values()):
            if (each["scope"], each["step"], each["args"], each["n"]) == key:
                del self.doubts[each["id"]]

    def _replan(self, line: int, removed: int, text: str) -> None:
        lines = (self.plan or "").splitlines(keepends=True)
        lines[line : line + removed] = text.splitlines(keepends=True)
        self.plan = "".join(lines)


class Unreadable(Exception):
    """The journal is not one unbroken row of whole records."""


def read(tree: Mapping[str, bytes], *, torn: bool = False, past: Mapping[int, bytes] = MappingProxyType({})) -> Book:
    """The journal of a tree of files. `torn`: stop where it can't be read any further, instead of refusing. A merge
    that was cut off leaves segments whose very lines an earlier one holds, too. `past`: lines of records that may have
    been pruned."""
    book, pruned = Book(), pruned_to(tree)
    for record in records([past[seq] for seq in range(1, pruned + 1)]):
        book.add(past[record["seq"]], record)
    for path in sorted(path for path in tree if re.fullmatch(r"journal/\d{12}\.jsonl", path)):
        if int(path[8:20]) <= pruned:
            continue  # not removed yet
        crc = b""
        for line in tree[path].splitlines(keepends=True):
            record = parse(line, crc)
            crc = crc_of(line)
            if record is not None and line in book.lines[record["seq"] - 1 : record["seq"]]:
                continue
            if record is not None and record["type"] == "rewound" and "blob" in record:
                data = tree.get(f".satchel/blobs/{record['blob']}", b"")
                if hashlib.sha256(data).hexdigest() != record["blob"][:64]:
                    raise Unreadable(f"the blob of record {record['seq']}, a return, is gone or torn")
                book.blobs[record["blob"]] = json.loads(data)
            if record is None or record["seq"] != len(book.lines) + 1:
                if torn:
                    return book
                raise Unreadable(f"{path}: record {len(book.lines) + 1} is {line[:60]!r}")
            book.add(line, record)
    return book


def pruned_to(tree: Mapping[str, bytes]) -> int:
    """The journal begins after this record."""
    return max((int(path[13:25]) for path in tree if path.startswith("journal/kept-")), default=0)


def kept(tree: Mapping[str, bytes]) -> set[int]:
    """The pruned records that are kept for ever."""
    files = (tree[path] for path in tree if path.startswith("journal/kept-"))
    found = [parse(line, b"") for file in files for line in file.splitlines(keepends=True) if line != b"\n"]
    return {record["seq"] for record in found if record is not None}


def until(lines: Sequence[bytes], seq: int) -> Book:
    """What had been said when record `seq` was the last."""
    book = Book()
    for line, record in zip(lines, records(lines[:seq]), strict=False):
        book.add(line, record)
    return book


def records(lines: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    """What good lines say that follow one another."""
    crc = b""
    for line in lines:
        record = parse(line, crc)
        assert record is not None
        yield record
        crc = crc_of(line)


def crc_of(line: bytes) -> bytes:
    return line[-11:-3]


@lru_cache(1 << 14)
def parse(line: bytes, before: bytes) -> dict[str, Any] | None:
    """The record, which nobody may change, or None if the line is not whole. `before`: the checksum of the line before
    it, with which its own begins if it does not name that."""
    match = re.fullmatch(rb'(.*),"crc":"([0-9a-f]{8})"\}\n', line)
    if not match:
        return None
    begins = re.match(rb'\{"seq":\d+,"prev":', line)
    if not begins and not re.fullmatch(rb"[0-9a-f]{8}", before):
        return None  # the line before it is torn, or missing
    start = 0 if begins else int(before, 16)
    if zlib.crc32(match[1] + b"}", start) != int(match[2], 16):
        return None
    found: dict[str, Any] = json.loads(line)
    return found


def _patched(value: Any, change: dict[str, Any]) -> Any:
    """JSON Patch, as far as add, remove and replace go."""
    new = copy.deepcopy(change.get("value"))
    if not change["path"]:
        return new
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in change["path"][1:].split("/")]
    target = value
    for part in above:
        target = target[int(part)] if isinstance(target, list) else target[part]
    place: Any = (len(target) if last == "-" else int(last)) if isinstance(target, list) else last
    if change["op"] == "remove":
        del target[place]
    elif change["op"] == "add" and isinstance(target, list):
        target.insert(place, new)
    else:
        target[place] = new
    return value
