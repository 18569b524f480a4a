"""What a dead process has left: whether it has crashed, what is saved of its work, and whether all is repaired.

A crash counts for the items that the process ran (state/agent_state.py). These do not: the end of its machine, a kill
while the run was to stop, and an error of Satchel's own for which it let go of the workspace, such as a failing disk. A
stop that Satchel has forced is none either: the opening that follows it is one of its own.

What is left in partials/ is promoted to recovered/, where the next attempt can see it. The recovered file is durable
before the record that points to it, and the record before the partial is removed. A partial that comes back after a
power failure is recognised by its attempt.

A stopped run is whole if every file shows its newest moment, and its last owner has finished closing it. A process may
be killed after its `closed` record is durable and before the readable files are. Such a run needs no resume, but it
needs an opening, or its files stay as they are.
"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ..base import InvalidFile, fitting
from ..formats import pause_file
from ..inbound import Noticed, inbox, notice
from ..inspect import Look, lease
from ..journal import PartialPromoted
from ..state import Moment
from ..store import Store, read_if_there
from ..views import BRIEF, PartialHead, conversation, partial_files
from .acquire import Owned


def is_crash(store: Store, mine: Owned, moment: Moment) -> bool:
    """Call it before the lease is written. Compares with the process of the last opening."""
    if not moment.boot or moment.boot != boot_id() or moment.status != "running":
        return False
    return not _has_failed(store, mine) and not _is_to_stop(store, moment)


def boot_id() -> str:
    """The current boot of this machine, which all its containers share; `unknown` where the system does not tell."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    with suppress(OSError):
        told = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        return told.stdout.strip() or "unknown"
    return "unknown"


def _has_failed(store: Store, mine: Owned) -> bool:
    """On a disk. In a bucket its lease has another content by now, and one that can't reach the bucket could not tell
    anyway."""
    before = lease.read(store) if mine.heartbeat is None else None
    return before is not None and before.has_failed


def _is_to_stop(store: Store, moment: Moment) -> bool:
    """Whether a person wants it stopped, and the journal does not say so yet."""
    file = lease.read_pause(store)
    return file is not None and not file.lets_go_on and not file.is_of(moment.lifted)


class Leftover(NamedTuple):
    """A file in partials/, and what to do with it."""

    path: str
    head: PartialHead | None  # None: not even its head can be read
    text: str
    damaged: bool
    stale: bool  # its step has an outcome, or it was promoted before
    edited: bool = False  # a person has changed the text


def leftovers(store: Store, moment: Moment) -> Iterator[Leftover]:
    """The files in partials/. Changes nothing. A process that works may remove one between the listing and the reading:
    its step has returned, and it is passed over."""
    for agent in moment.agents.values():
        for folder in store.folders(f"{agent.folder}{partial_files.PARTIALS}"):
            for entry in store.list(folder):
                found = read_if_there(store, entry.path)
                if found is None:
                    continue
                data = found.data
                parsed = partial_files.parse_partial(data)
                if parsed is None:
                    text = data.decode(errors="ignore").strip("\0")
                    yield Leftover(entry.path, None, text, True, stale=not text.strip())
                else:
                    head, text, damaged, edited = parsed
                    yield Leftover(entry.path, head, text, damaged, _is_stale(head, moment), edited)


def promote(store: Store, leftover: Leftover, moment: Moment, by: str) -> PartialPromoted | None:
    """Write the recovered file, durably, and return the record to commit before `store.remove(leftover.path)`.

    None if nothing points to it: the file is stale, or so damaged that its call is unknown (then it is kept in
    recovered/ for people).
    """
    head = leftover.head
    if leftover.stale:
        return None
    if head is None:
        folder, _, name = leftover.path.rpartition("/")
        above, _, scope = folder.rpartition("/")
        text = leftover.text.encode()
        end = f"-{zlib.crc32(text):08x}-damaged.md"  # next to those of earlier crashes
        kept = fitting(name.removesuffix(".md"), end) + end
        store.replace(f"{above.removesuffix(partial_files.PARTIALS)}{partial_files.RECOVERED}/{scope}/{kept}", text)
        return None
    agent = moment.agents[head.agent]
    title = agent.scopes[head.scope].title
    path = partial_files.recovered_path(agent.folder, head.scope, title, head.no, head.step, head.attempt)
    data, record = partial_files.promotion(head, leftover.text, leftover.damaged, by, path, edited=leftover.edited)
    store.replace(path, data)
    return record


def describe(leftover: Leftover) -> str:
    if leftover.head is None:
        return f"{leftover.path} is too damaged to tell which step wrote it"
    how = ""
    if leftover.edited:
        how = ", as a person has edited it"
    elif leftover.damaged and len(leftover.text) < leftover.head.characters:
        how = f", damaged: it had {leftover.head.characters}"
    elif leftover.damaged:
        how = ", damaged"
    return f"{leftover.path}: {len(leftover.text)} characters of an unfinished answer{how}"


def _is_stale(head: PartialHead, moment: Moment) -> bool:
    agent = moment.agents.get(head.agent)
    scope = agent.scopes.get(head.scope) if agent else None
    if scope is None or head.run_id != moment.run_id or head.key in scope.done:
        return True
    promoted = scope.promoted.get(head.key, ())
    return any(record.attempt >= head.attempt for record in promoted)


def is_whole(store: Store, seen: Look, noticed: Noticed | None = None) -> bool:
    """Whether an opening would find nothing to repair. Reads every readable file, unless what there is to notice is
    `noticed` already, and changes nothing.

    Later edits of people are no damage: the next resume takes them.
    """
    moment = seen.moment
    if not moment.clean or seen.complaints or seen.is_rebuilt:
        return False
    if store.version(lease.PATH) is not None:  # its owner removes the lease last
        return False
    if _is_behind(noticed or notice(store, moment, seen.definition, patience=BRIEF)):
        return False
    if next(leftovers(store, moment), None) is not None or inbox.settled(moment):
        return False
    return _has_messages(store, seen) and not _says_less(store, seen)


def _has_messages(store: Store, seen: Look) -> bool:
    return all(conversation.is_whole(store, place) for place in seen.moment.row_logs)


def _is_behind(noticed: Noticed) -> bool:
    return bool(noticed.findings or noticed.leftovers) and not (noticed.refusals or noticed.questions)


def _says_less(store: Store, seen: Look) -> bool:
    """Whether pause.yaml lacks what the journal says: it announces a pause that is in force, or over."""
    moment, pause = seen.moment, seen.moment.pause
    if store.version(pause_file.PATH) in (None, pause.file if pause else None):
        return False
    try:
        file = pause_file.parse(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except (FileNotFoundError, InvalidFile):
        return False
    if pause is None:
        return file.is_of(moment.lifted)
    is_in_force = bool(pause.paused_at) and file.requested_at == pause.requested_at
    return is_in_force and file.status in ("requested", "draining")
