"""Whether a stopped run is complete: every file shows its newest moment, and its last owner has finished closing it.

A process may be killed after its `closed` record is durable and before the readable files are. Such a run needs no
resume, but it needs an opening, or its files stay as they are.
"""

from __future__ import annotations

from ..base import InvalidFile
from ..formats import pause_file
from ..inspect import Look, lease
from ..people.edits import Noticed, notice
from ..people.inbox import inbox
from ..store import Store
from ..views import BRIEF, message_file
from . import salvage


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
    if next(salvage.leftovers(store, moment), None) is not None or inbox.settled(moment):
        return False
    return _has_messages(store, seen) and not _says_less(store, seen)


def _has_messages(store: Store, seen: Look) -> bool:
    return all(message_file.is_whole(store, agent) for agent in seen.moment.agents.values())


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
