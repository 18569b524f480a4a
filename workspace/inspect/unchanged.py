"""Files that a listing shows to be unchanged since the last stop. Code that only shows the status need not fetch them.

The checkpoint of a stop names the files that it fully covers, with their versions in the bucket.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import journal
from ..base import DEFINITION
from ..formats import Definition, definition
from ..journal import Tail, segment_path
from ..state import Listed, Moment, Newest
from ..store import Store, Version
from ..views import is_step_file
from . import moved_file


def at_stop(
    store: Store, moment: Moment, described: Definition, version: Version | None, written: Mapping[str, Version | None]
) -> Listed:
    """Call it when all records of the `moment` are in the journal. `described` is the content of workspace.yaml in
    `version`; `written` are the readable files that show the moment."""
    if not (store.abilities.remote and store.abilities.conditional_replace):
        return {}  # on a disk reading costs nothing, and elsewhere two saves in one tick of a clock may look the same
    found = {path: known for path, known in written.items() if known and is_step_file(f"/{path}")}
    if segments := journal.segments(store):
        newest = segment_path(segments[-1])
        found |= {newest: store.version(newest) or ""}
    if version and moment.definition == described.recorded:
        found |= {DEFINITION: version}
    return {path: known for path, known in found.items() if known and store.version(path) == known}


def is_unchanged(store: Store, listed: Listed, path: str) -> bool:
    """Whether a file still has the version that a checkpoint names."""
    known = listed.get(path)
    return known is not None and store.version(path) == known


def tail(store: Store, newest: Newest) -> Tail | None:
    """The tail of a journal without records after the checkpoint; None if there may be some."""
    segments = journal.segments(store)
    if newest.moment is None or not segments or not is_unchanged(store, newest.listed, segment_path(segments[-1])):
        return None
    return Tail([], newest.moment.seq + 1, newest.moment.crc, segment_path(segments[-1]))


def defined(store: Store, newest: Newest) -> Definition | None:
    """The content of workspace.yaml, if it is what the checkpoint says. UsageError if the run has moved away."""
    moment = newest.moment
    if moment is None or moment.definition is None or not is_unchanged(store, newest.listed, DEFINITION):
        return None
    moved_file.refuse(store, moment.run_id)
    return definition.restore(moment.run_id, moment.definition)
