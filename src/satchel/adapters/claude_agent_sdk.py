"""The Claude Agent SDK over workspaces: `ClaudeAgentOptions(session_store=SatchelSessionStore(root))` mirrors the
transcripts of sessions, and `can_use_tool=ask_people()` asks in the run that the session belongs to.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial, wraps
from os import PathLike
from typing import Any
from urllib.parse import quote, unquote

from satchel import Handle, UsageError
from satchel.adapters import HeldTree, ask_about, require
from satchel.results import Held

require(__name__, "claude-agent-sdk", "0.2.184")

import claude_agent_sdk as sdk
from anyio import to_thread
from claude_agent_sdk.types import SessionListSubkeysKey, SessionStoreListEntry, SessionSummaryEntry

__all__ = ["SatchelSessionStore", "ask_people"]

_KIND = "claude-transcript"
_LOG = "transcript"
_SUMMARY = "summary.json"
_MAIN = "main"
_SUB = "sub."
"""How the names of the folders of subagents begin."""

_MOST = 240
"""Bytes of the name of a folder. File systems end at 255."""

_REMEMBERED = 100
"""Transcripts whose uuids a store knows without reading them again."""


def _in_thread(method: Callable[..., Any]) -> Any:
    @wraps(method)
    async def call(*args: Any, **more: Any) -> Any:
        return await to_thread.run_sync(partial(method, *args, **more))

    return call


class SatchelSessionStore(sdk.SessionStore):
    """Mirrors sessions into workspaces below `root`, a folder or URL: one for each transcript, `PROJECT/SESSION/main`
    and one for each subagent.

    What an `append` has returned from is durable, all of it. Entries with a `uuid` that is there already are left out,
    so that a retry adds nothing twice. `wait` is how many seconds a call waits for another process that has the
    transcript; a store releases one that it has not used for `idle` seconds. Safe for threads and event loops.

    Not guaranteed: that everything Claude Code has written arrives. It writes on the local disk first, and the SDK
    drops a batch that it could not append in three attempts.
    """

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        wait: float = 10.0,
        idle: float = 5.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._tree = HeldTree(root, kind=_KIND, wait=wait, idle=idle, storage_options=storage_options)
        self._known = OrderedDict[str, _Known]()  # by the URLs of the transcripts

    @_in_thread
    def append(self, key: sdk.SessionKey, entries: list[sdk.SessionStoreEntry]) -> None:
        if entries:
            url = self._tree.url(*(names := _names(key)))
            self._tree.use(lambda held: self._append(held, key, entries, url), *names)

    @_in_thread
    def load(self, key: sdk.SessionKey) -> list[sdk.SessionStoreEntry] | None:
        return [row.value for each in self._tree.below(*_names(key)) for row in each.rows(_LOG)] or None

    @_in_thread
    def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        found = ((name, each.rows(_LOG, last=1)) for name, each in self._sessions(project_key))
        return [{"session_id": name, "mtime": _milliseconds(rows[-1].at)} for name, rows in found if rows]

    @_in_thread
    def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        found = ((name, each.held_file(_SUMMARY)) for name, each in self._sessions(project_key))
        return [
            {"session_id": name, "mtime": _milliseconds(file.at), "data": json.loads(file.text)["data"]}
            for name, file in found
            if file is not None
        ]

    @_in_thread
    def delete(self, key: sdk.SessionKey) -> None:
        """LeaseHeld if another process has used the transcript in the last seconds."""
        *session, main = _names(key)
        for name in [main] if "subpath" in key else [_last(each) for each in self._tree.below(*session)]:
            self._tree.remove(*session, name)

    @_in_thread
    def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        names = [_last(each) for each in self._tree.below(*_names(key)[:-1])]
        return [_text(name.removeprefix(_SUB)) for name in names if name.startswith(_SUB)]

    def close(self) -> None:
        """Release the transcripts. The store can be used again."""
        self._tree.release()

    def _append(self, held: Held, key: sdk.SessionKey, entries: list[sdk.SessionStoreEntry], url: str) -> None:
        known, last = self._known.pop(url, _Known()), held.rows(_LOG, last=1)
        if not last or last[0].seq < known.read:  # another process has deleted it
            known = _Known()
        for row in held.rows(_LOG, after=known.read):  # another process may have appended
            known.read = row.seq
            known.uuids.add(row.value.get("uuid", ""))
        fresh: dict[object, sdk.SessionStoreEntry] = {}
        for entry in entries:
            if (uuid := entry.get("uuid")) not in known.uuids:
                fresh.setdefault(uuid or object(), entry)
        if fresh:
            held.append([*fresh.values()], log=_LOG)
        if "subpath" not in key:
            _summarise(held, key)
        self._known[url] = known
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _sessions(self, project_key: str) -> list[tuple[str, Handle]]:
        """The id of each session, and its main transcript."""
        found = [(each.url.split("/"), each) for each in self._tree.below(_name(project_key))]
        return [(_text(parts[-2]), each) for parts, each in found if parts[-1] == _MAIN]


@dataclass
class _Known:
    """The uuids of the rows of a transcript up to the row `read`."""

    uuids: set[str] = field(default_factory=set)
    read: int = 0


def _summarise(held: Held, key: sdk.SessionKey) -> None:
    """Fold what is new into the summary, and what a crash has left out of it."""
    file = held.get(_SUMMARY)
    before = json.loads(file.text) if file else {"upto": 0}
    if rows := held.rows(_LOG, after=before["upto"]):
        given: Any = {"session_id": key["session_id"], "mtime": 0, "data": before["data"]} if file else None
        entries: list[Any] = [row.value for row in rows]
        data = sdk.fold_session_summary(given, key, entries)["data"]
        held.put(_SUMMARY, json.dumps({"upto": rows[-1].seq, "data": data}))


def _names(key: Mapping[str, Any]) -> tuple[str, str, str]:
    """The folders of a transcript."""
    name = _SUB + _name(key["subpath"]) if "subpath" in key else _MAIN
    return _name(key["project_key"]), _name(key["session_id"]), name


def _last(transcript: Handle) -> str:
    return transcript.url.rpartition("/")[2]


def _name(text: str) -> str:
    """A part of a key as the name of a folder or object."""
    name = quote(text, safe="").replace("~", "%7E").replace("%", "=")
    name = f"=2E{name[1:]}" if name.startswith(".") else name
    if not 0 < len(name) <= _MOST:
        raise UsageError(f"the key {text!r} can't be the name of a folder", why=f"it has {len(name)} bytes")
    return name


def _text(name: str) -> str:
    return unquote(name.replace("=", "%"))


def _milliseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1000)


def ask_people(*, wait_for: float = 10.0) -> sdk.CanUseTool:
    """For `ClaudeAgentOptions(can_use_tool=...)` of a session in a run: a tool that needs permission is a question in
    `approvals/`. A person approves it, perhaps with other arguments, or denies it.

    After `wait_for` seconds without an answer the turn is interrupted, and the run stops as `waiting`. The next start
    finds the answer when Claude asks for the same tool with the same arguments.
    """

    async def can_use_tool(
        name: str, given: dict[str, Any], context: sdk.ToolPermissionContext
    ) -> sdk.PermissionResultAllow | sdk.PermissionResultDeny:
        try:
            said = await ask_about(
                f"May Claude use {name}?",
                given,
                tool=f"claude.{name}",
                context={"agent": context.agent_id} if context.agent_id else None,
                wait_for=wait_for,
            )
        except asyncio.CancelledError as error:
            if type(error) is asyncio.CancelledError:  # Claude Code does not ask any more
                raise
            return sdk.PermissionResultDeny(message="No person has answered yet.", interrupt=True)
        if said.refusal:
            return sdk.PermissionResultDeny(message=said.refusal)
        return sdk.PermissionResultAllow(updated_input=None if said.arguments == given else said.arguments)

    return can_use_tool
