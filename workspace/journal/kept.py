"""What stays of the records that were pruned: effects, questions and answers, people's edits, the conversation.

`journal/kept-000000004000.jsonl` says two things. The records up to 4000 are pruned, whether or not their segments are
already gone. And the file holds those of them that are kept for ever, each as a line that needs no other line. The file
with the highest number counts; a crash may leave an earlier one whose lines it repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from ..base import Damaged
from ..store import Store
from .naming import FOLDER, kept_files
from .records import (
    NOTHING,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Doubt,
    Edited,
    Message,
    Pruned,
    Resolved,
    Rewound,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from .records.line import Line, encode, parse_each

FULL_BYTES = 4 << 20
"""A larger file is not written again; the next records begin another."""

_READ_LIMIT = 1 << 30
_KEPT = (StepStarted, Doubt, Resolved, ApprovalAsked, ApprovalAnswered, ApprovalRevoked, Edited, Rewound, Pruned)


def kept_path(up_to: int) -> str:
    return f"{FOLDER}/kept-{up_to:012d}.jsonl"


def kept_lines(store: Store) -> list[Line]:
    """Those of the pruned records that are kept for ever, oldest first. Damaged if one can't be read."""
    found: dict[int, Line] = {}
    for up_to in kept_files(store):
        path = kept_path(up_to)
        rows = [row for row in store.read(path, limit=_READ_LIMIT).data.split(b"\n") if row]
        for number, line in enumerate(parse_each(rows), 1):
            if line is None:
                raise Damaged(
                    f"line {number} is damaged",
                    path=path,
                    remedy="restore the file from a backup: it has what is "
                    "kept for ever of pruned records. The run itself does not need it",
                )
            found[line.seq] = line
    return [found[seq] for seq in sorted(found)]


def chosen(lines: Sequence[Line]) -> list[Line]:
    """Those that are kept for ever, of the records of some segments."""
    said = {line.seq for line in conversation(lines)}
    return [_lean(line) for line in lines if line.seq in said or _is_kept(line)]


def _lean(line: Line) -> Line:
    """Without the whole state that a return to an earlier record has."""
    if not isinstance(line.record, Rewound):
        return line
    return replace(line, record=replace(line.record, agents=NOTHING, blob=""))


def _is_kept(line: Line) -> bool:
    if isinstance(line.record, StepCompleted | StepFailed):
        return line.record.effect
    return isinstance(line.record, _KEPT)


def conversation(lines: Iterable[Line]) -> Iterator[Line]:
    """What makes the conversation: the messages among them that count, because their scope has committed in the same
    group, and people's edits of it."""
    waiting: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        match line.record:
            case Message(agent=agent, scope=scope):
                waiting.setdefault((agent, scope), []).append(line)
            case ScopeCommitted(agent=agent, scope=scope):
                yield from (each for each in waiting.pop((agent, scope), ()) if each.commit == line.commit)
            case ScopeFailed(agent=agent, scope=scope):
                waiting.pop((agent, scope), None)
            case Edited(agent=agent, redone=redone, dropped=dropped, messages=edits):
                if edits:
                    yield line
                for scope in (*redone, *dropped):
                    waiting.pop((agent, scope), None)


def encode_kept(lines: Iterable[Line]) -> bytes:
    """Never empty: some storages and tools take an empty file for something else."""
    return b"".join(map(encode, lines)) or b"\n"
