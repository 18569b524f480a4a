"""`SatchelSession`: a conversation of the SDK in a folder of its own, which programs and runs share."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

import agents
from agents.memory.session_settings import coerce_session_settings

from satchel import Run, clean, step
from satchel.adapters import HeldTree, folder_name
from satchel.results import Held, Row

T = TypeVar("T")

_KIND = "openai-agents.session"
_WAIT, _IDLE = 30.0, 1.0
"""Seconds to wait for another process that has the conversation, and after which it is left to others."""

_MARK = "session"
"""The role of a row that says what was taken back."""


class SatchelSession(agents.SessionABC):
    """A session of the SDK, for `Runner.run(session=...)`: a folder in `root`, a folder or URL, for each `session_id`.
    `storage_options` are those of `satchel.hold`.

    Items are durable when `add_items` returns. Several processes may use a session one after the other. In a run each
    call is a step: a killed run that is started again sees the items that it saw before, and adds none twice.
    """

    def __init__(
        self,
        session_id: str,
        root: str | os.PathLike[str],
        *,
        session_settings: agents.SessionSettings | dict[str, Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ):
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or {})
        self._tree = HeldTree(root, kind=_KIND, wait=_WAIT, idle=_IDLE, storage_options=storage_options)
        self._folder = folder_name(session_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        if limit is None and self.session_settings:
            limit = self.session_settings.limit
        return [_item(row) for row in await self._rows(limit)]

    async def add_items(self, items: list[Any]) -> None:
        if items:
            await self._append([_row(clean(item)) for item in items])

    async def pop_item(self) -> Any:
        if Run.current() is None:
            return await self._ause(_pop)
        if found := await self._rows(1):
            await self._append([_mark({"pop": found[0].seq})])
        return _item(found[0]) if found else None

    async def clear_session(self) -> None:
        await self._append([_mark("clear")])

    def close(self) -> None:
        """Leave the session to other processes at once. The next call takes it again."""
        self._use(Held.release)

    def _use(self, function: Callable[[Held], T]) -> T:
        return self._tree.use(function, self._folder)

    async def _ause(self, function: Callable[[Held], T]) -> T:
        return await self._tree.ause(function, self._folder)

    async def _rows(self, limit: int | None) -> list[Row]:
        at = await self._in_step("position", self._position) if Run.current() else None
        return await self._ause(lambda held: _present(held, at, limit))

    async def _append(self, rows: list[Any]) -> None:
        """In a run a key that was drawn for this call, and is on record, is that under which a repetition adds
        nothing."""
        if (run := Run.current()) is None:
            await self._ause(lambda held: held.append(rows))
            return
        digest = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
        key = await self._in_step("key", self._drawn, digest[:16])
        await self._in_step("append", self._append_once, rows, f"{run.id}/{key}")

    def _position(self, session_id: str) -> int:
        return self._use(_position)

    def _drawn(self, session_id: str, digest: str) -> str:
        return uuid4().hex

    def _append_once(self, session_id: str, rows: list[Any], key: str) -> int:
        return self._use(lambda held: held.append(rows, key=key))

    async def _in_step(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        return await step(name=f"session.{name}")(function)(self.session_id, *args)


def _position(held: Held) -> int:
    """The highest number of a row. A person may have inserted a later one above the last."""
    last = held.rows(last=1)
    later = held.rows(after=last[0].seq) if last else ()
    return max((row.seq for row in (*last, *later)), default=0)


def _pop(held: Held) -> Any:
    if found := _present(held, None, 1):
        held.append([_mark({"pop": found[0].seq})])
    return _item(found[0]) if found else None


def _present(held: Held, at: int | None, limit: int | None) -> list[Row]:
    """The items up to the position `at`, and at most the last `limit` ones. Reads no more rows than it needs."""
    last = None if limit is None else 2 * limit
    while True:
        rows = held.rows(last=last)
        found = _not_taken_back([row for row in rows if at is None or row.seq <= at], limit)
        is_whole = last is None or len(rows) < last or any(row.value == _mark("clear") for row in rows)
        if is_whole or len(found) == limit:
            return found
        last = 4 * (last or 1)


def _row(item: Any) -> dict[str, Any]:
    """A message as it is. Anything else is the content of a row, with its type as the role."""
    is_message = item.keys() == {"role", "content"} and item["role"] != _MARK
    if is_message and not isinstance(item["content"], dict):
        return dict(item)
    return {"role": str(item.get("role") or item.get("type")), "content": item}


def _item(row: Row) -> Any:
    content = row.value["content"]
    return content if isinstance(content, dict) else row.value


def _mark(what: Any) -> dict[str, Any]:
    return {"role": _MARK, "content": what}


def _not_taken_back(rows: list[Row], limit: int | None) -> list[Row]:
    items: list[Row] = []
    popped = set[int]()
    for row in reversed(rows):
        role, content = row.value["role"], row.value["content"]
        if len(items) == limit or row.value == _mark("clear"):
            break
        if role == _MARK and isinstance(content, dict) and content.keys() == {"pop"}:
            popped.add(content["pop"])
        elif row.seq not in popped:
            items.append(row)
    return items[::-1]
