"""What differs between two moments, of one run or of two: data, plans, calls and conversations of every agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from ..base import lines as lines_of
from ..journal import Key
from ..state import ABSENT, ROOT, AgentMoment, FileState, json_patch
from .call_history import Call, Place, StepHistory
from .moments import Conversations, plain

Kind = Literal["added", "removed", "changed"]


class DataChange(Struct, frozen=True):
    """A value of an agent's data that differs. `path` is a JSON pointer into `data` of its state.json, "" for all of
    it; in a list, the place in the older version, or in the newer one of what was added."""

    agent: str
    path: str
    kind: Kind
    old: Any = None
    new: Any = None


class PlanChange(Struct, frozen=True):
    """The plan of an agent as a unified diff, line by line."""

    agent: str
    lines: tuple[str, ...]


class FileChange(Struct, frozen=True):
    """A file in files/ that differs. `lines`: a unified diff, if both are short texts."""

    path: str
    kind: Kind
    lines: tuple[str, ...] = ()


class MessageChange(Struct, frozen=True):
    """A message of an agent's conversation that differs. `seq` is its number; `old` and `new` are its `role` and
    `content`, as JSON values."""

    agent: str
    seq: int
    kind: Literal["added", "removed", "changed"]
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


class CallChange(Struct, frozen=True, gc=False):
    """A call whose outcome differs, or that only one of the two has. Calls of the same scope with the same name and the
    same arguments are compared."""

    agent: str
    scope: str
    title: str
    kind: Kind
    old: Call | None = None
    new: Call | None = None


class Compared(Struct, frozen=True):
    """All that differs, agent by agent. Calls of an item are left out if one side no longer has its records."""

    data: list[DataChange]
    plans: list[PlanChange]
    calls: list[CallChange]
    files: list[FileChange]


def compared(old: StepHistory, new: StepHistory) -> Compared:
    """What differs from `old` to `new`. An agent that only one of the two has is compared with one that has nothing."""
    paths = dict.fromkeys((*old.moment.agents, *new.moment.agents))
    data: list[DataChange] = []
    plans: list[PlanChange] = []
    for path in paths:
        was, now = old.moment.agents.get(path), new.moment.agents.get(path)
        values = _data_of(was), _data_of(now)
        data += [DataChange(path, *change) for change in data_changes(*values)]
        lines = tuple(text_changes(was.plan.text if was else "", now.plan.text if now else ""))
        plans += [PlanChange(path, lines)] if lines else []
    files = [*_file_changes(old.moment.root.files, new.moment.root.files)]
    return Compared(data, plans, [*_call_changes(old, new)], files)


def _data_of(agent: AgentMoment | None) -> Any:
    return agent.data if agent is not None and agent.has_data else ABSENT


Change = tuple[str, Kind, Any, Any]
"""A path, and what `DataChange` says about it."""


def data_changes(old: Any, new: Any, path: str = "") -> Iterator[Change]:
    """The innermost values that differ, in the order of `new`; removed keys first. In a list, elements are compared in
    pairs between the equal ones at its beginning and at its end."""
    if json_patch.same(old, new):
        return
    if type(old) is dict and type(new) is dict:
        for key in old:
            if key not in new:
                yield f"{path}/{json_patch.escape(key)}", "removed", old[key], None
        for key, value in new.items():
            yield from data_changes(old.get(key, ABSENT), value, f"{path}/{json_patch.escape(key)}")
    elif type(old) is list and type(new) is list:
        start, old_middle, new_middle = _middles(old, new)
        paired = min(len(old_middle), len(new_middle))
        for at in range(paired):
            yield from data_changes(old_middle[at], new_middle[at], f"{path}/{start + at}")
        for at in range(paired, len(old_middle)):
            yield f"{path}/{start + at}", "removed", old_middle[at], None
        for at in range(paired, len(new_middle)):
            yield f"{path}/{start + at}", "added", None, new_middle[at]
    elif old is ABSENT:
        yield path, "added", None, new
    elif new is ABSENT:
        yield path, "removed", old, None
    else:
        yield path, "changed", old, new


def _middles(old: list[Any], new: list[Any]) -> tuple[int, list[Any], list[Any]]:
    """What two lists do not share at their ends, and where it begins."""
    shortest = min(len(old), len(new))
    start = end = 0
    while start < shortest and json_patch.same(old[start], new[start]):
        start += 1
    while end < shortest - start and json_patch.same(old[-1 - end], new[-1 - end]):
        end += 1
    return start, old[start : len(old) - end], new[start : len(new) - end]


def text_changes(old: str, new: str) -> Iterator[str]:
    """Two texts as a unified diff, without the two lines that name the files."""
    if old != new:
        import difflib  # slow, and most plans are equal

        was, now = (lines_of(text.removesuffix("\n")) if text else [] for text in (old, new))
        yield from islice(difflib.unified_diff(was, now, n=2, lineterm=""), 2, None)


def _file_changes(old: Mapping[str, FileState], new: Mapping[str, FileState]) -> Iterator[FileChange]:
    for path in sorted(old.keys() | new.keys()):
        was, now = (side[path].content if path in side else None for side in (old, new))
        if was is not None and now is not None and was.sha256 == now.sha256:
            continue
        kind: Kind = "added" if was is None else "removed" if now is None else "changed"
        texts = ["" if each is None else each.text for each in (was, now)]
        has_blob = any(each is not None and each.blob for each in (was, now))
        yield FileChange(path, kind, () if has_blob else (*text_changes(*texts),))


def _call_changes(old: StepHistory, new: StepHistory) -> Iterator[CallChange]:
    was, now = _in_force(old), _in_force(new)
    titles = {(each.agent, each.scope): each.title for each in (*old.work, *new.work)}
    for place in dict.fromkeys((*was, *now)):
        if any(place not in calls and _is_unknown(found, *place) for found, calls in ((old, was), (new, now))):
            continue
        before, after = was.get(place, {}), now.get(place, {})
        for key in dict.fromkeys((*before, *after)):
            one, other = before.get(key), after.get(key)
            if one is not None and other is not None and same_outcome(one, other):
                continue
            kind: Kind = "added" if one is None else "removed" if other is None else "changed"
            yield CallChange(*place, titles[place], kind, one, other)


def _is_unknown(found: StepHistory, agent: str, scope: str) -> bool:
    """Whether a scope had ended before the first record that is here: retention has removed its calls, or a fork has
    not taken them along."""
    known = found.moment.agents.get(agent)
    return found.since > 1 and known is not None and scope in known.results


def _in_force(found: StepHistory) -> dict[Place, dict[Key, Call]]:
    """The calls that count: those of each scope's last time, and effects of earlier times."""
    calls: dict[Place, dict[Key, Call]] = {}
    for each in found.work:
        if each.state == "pruned":
            continue  # the other side may know more than its effects
        if each.state == "undone" and each.scope == ROOT:
            continue  # effects of an agent itself that are done are among its other calls
        known = calls.setdefault((each.agent, each.scope), {})
        if each.state not in ("undone", "dropped"):
            known.update({call.key: call for call in each.calls})
            continue
        done = _effects_done(found.moment.agents.get(each.agent), each.scope)
        known.update({call.key: call for call in each.calls if call.key in done and call.key not in known})
    return calls


def _effects_done(agent: AgentMoment | None, scope: str) -> set[Key]:
    """The effects that the run knows to be done, in a scope that does not count or begins again."""
    known = (agent.scopes.get(scope) or agent.past.get(scope)) if agent is not None else None
    return {key for key, step in known.done.items() if step.effect} if known is not None else set()


def same_outcome(old: Call, new: Call) -> bool:
    """Whether both have ended in the same way. Times and attempts may differ."""
    if (old.state, old.error, _hash_of(old)) != (new.state, new.error, _hash_of(new)):
        return False
    return bytes(old.recorded) == bytes(new.recorded) or json_patch.same(old.result, new.result)


def _hash_of(call: Call) -> str:
    """What identifies a large result. The rest of its name says which process has written it."""
    return call.result_in.rpartition("-")[0]


def message_changes(old: Conversations, new: Conversations) -> Iterator[MessageChange]:
    """From `old` to `new`, agent by agent. What both have at their beginning and their end does not differ, whatever
    its numbers; between, a message is known by its number. An agent that one of them lacks is left out."""
    for path in old.keys() & new.keys():
        start, *middles = _middles([*map(plain, old[path])], [*map(plain, new[path])])
        was, now = (
            {row.seq: said for row, said in zip(rows[start:], middle, strict=False)}
            for rows, middle in zip((old[path], new[path]), middles, strict=True)
        )
        for seq, said in was.items():
            if seq not in now:
                yield MessageChange(path, seq, "removed", said)
        for seq, said in now.items():
            if seq not in was:
                yield MessageChange(path, seq, "added", None, said)
            elif not json_patch.same(was[seq], said):
                yield MessageChange(path, seq, "changed", was[seq], said)
