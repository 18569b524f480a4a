"""messages.jsonl: messages changed, removed and inserted, and a conversation that is cut off.

A line is the message of its `seq`; one without it is new. What is missing at the end is no edit, since the run adds
messages there: it is written again, unless a line `{"cut": true}` says that the conversation ends there.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...base import InvalidFile, Refused, UsageError
from ...journal.records import now
from ...state import AgentMoment
from ...store import Content, Trace
from ...views import conversation
from .findings import Conversation, Looking
from .origin import is_blank, mark_of

CUT = b'{"cut": true}\n'
"""The line after which nothing stays."""


def look(looking: Looking, agent: AgentMoment) -> None:
    path, noticed = agent.folder + conversation.NAME, looking.noticed
    if looking.held is not None and path not in looking.held:
        return
    if looking.is_as_listed(path):
        noticed.versions[path] = looking.listed[path]
        return
    found = looking.held[path] if looking.held else conversation.read(looking.store, path)
    data = found.data if found else b""
    if conversation.of_file(agent, data) != data:
        found = looking.steady(path, limit=conversation.READ_LIMIT)
        data = found.data if found else b""
    if found:
        noticed.versions[path] = found.version
    whole = conversation.of_file(agent, data)
    if whole is None:
        whole = conversation.encode(conversation.checked(agent, looking.conversations(agent)[-1]))
    noticed.conversations[agent.path] = Conversation(whole, is_there=data == whole)
    if data != whole:
        _judge(looking, agent, path, data, whole, looking.store.trace(path))


class CutOff(NamedTuple):
    """A content of messages.jsonl that cuts the conversation off, to be saved in place of `there`, and what that would
    do; nothing if there is nothing to cut."""

    data: bytes
    there: Content | None
    says: tuple[str, ...]


def cut_off(looking: Looking, agent: AgentMoment, after: int) -> CutOff:
    """The conversation, with a person's edit of it that is not taken yet, cut off after the message `after`, or from
    its beginning if that is 0. Refused or InvalidFile if the run could not take that, UsageError if there is no such
    message."""
    path, noticed = agent.folder + conversation.NAME, looking.noticed
    there = conversation.read(looking.store, path)
    look(looking, agent)
    for refusal in noticed.refusals:
        raise refusal.error
    whole = noticed.conversations[agent.path].data
    lines = (there.data if there and noticed.edits else whole).splitlines(keepends=True)
    numbers = [0, *map(_number, lines)]
    if after not in numbers:
        raise UsageError(f"has no message {after}", path=path, remedy="`seq` of each line is its number")
    at = numbers.index(after)
    cut = [line for line, number in zip(lines[at:], numbers[at + 1 :], strict=True) if number > 0]
    data = b"".join([*lines[:at], CUT, *cut])  # what is cut shows that it is not the same cut again
    noticed.edits.clear()
    _judge(looking, agent, path, data, whole, Trace("", now()))
    for refusal in noticed.refusals:
        raise refusal.error
    return CutOff(data, there, tuple(say for edit in noticed.edits for say in edit.record.says))


def _number(line: bytes) -> int:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return -1
    seq = found.get("seq") if isinstance(found, dict) else None
    return seq if type(seq) is int and seq > 0 else -1


def _judge(looking: Looking, agent: AgentMoment, path: str, data: bytes, whole: bytes, trace: Trace) -> None:
    if whole.startswith(data.split(b"\0", 1)[0]):  # what a power failure took is a hole or the end
        if len(data.rstrip(b"\0")) < agent.messages_at.bytes:
            was = "empty" if is_blank(data) and path in looking.noticed.versions else "cut off" if data else "missing"
            looking.find(path, f"was {was}; it is restored")
        return
    if is_blank(data):
        looking.find(path, "was empty; it is restored")
    elif looking.is_merged(agent, path, mark_of(data, trace)):
        looking.find(path, "contains an edit that was merged before; Satchel writes the file again")
    elif path in agent.edits and _is_older(looking, agent, data):
        looking.find(path, "was older than the last edit of it; Satchel writes the file again")
    else:
        try:
            from .corrections import edited  # most files have no edit

            edited(looking, agent, path, data, conversation.decode(whole), trace)
        except (InvalidFile, Refused) as error:
            looking.refuse(path, error, None if looking.moment.is_new else data)  # there is none to restore


def _is_older(looking: Looking, agent: AgentMoment, data: bytes) -> bool:
    """Whether it is as the run wrote it before an edit."""
    return any(conversation.encode(rows).startswith(data) for rows in looking.conversations(agent)[:-1])
