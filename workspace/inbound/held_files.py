"""files/: what a person has saved there while a program holds the workspace, or before it does.

A saved file becomes the next version of the file, if it was made from the version that is recorded. Otherwise the
program has put another version meanwhile: then the person's is kept as rejected, and the program's is written again. A
missing file is written again, since only the program removes one. So a file in place of a folder with recorded files is
kept as rejected, too, and so is a folder in place of a recorded file, with all that is in it. A new file is a new
version of what was not there, unless its name is one of an editor or a sync program.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..base import InvalidFile, Refused, UsageError, counted, is_blank
from ..state import FILES, AgentMoment, FileState
from ..store import LARGE_LIMIT, FileContent, Store, walk
from . import rejection
from .findings import Edit, Looking, RejectedFile, Repair, StillMoving, sha

_ONLY_PROGRAMS = "only a program removes what it has put into files/"
_OTHER_NAME = "give it another name, and it is taken"


def look(looking: Looking, agent: AgentMoment) -> None:
    if not looking.moment.kind or agent.path:
        return
    known = (FILES + path for path in agent.files)
    paths = (*known, *saved_files(looking.store)) if looking.held is None else looking.held
    wanted = dict.fromkeys(path for path in paths if path.startswith(FILES))
    has_new = any(path.removeprefix(FILES) not in agent.files for path in wanted)
    folders = {above for path in agent.files for above in _above(path)} if has_new else set[str]()
    for path in wanted:
        try:
            _look(looking, agent, path, folders)
        except StillMoving:
            continue


def saved_files(store: Store) -> Iterator[str]:
    """What is in files/, without what editors, sync programs and Satchel have put there for themselves."""
    paths = (entry.path for entry in walk(store, FILES.rstrip("/")))
    return (path for path in paths if not any(map(rejection.is_of_tools, path.split("/"))))


def _above(path: str) -> Iterator[str]:
    """The folders of a path."""
    return (path[:end] for end, letter in enumerate(path) if letter == "/")


def _look(looking: Looking, agent: AgentMoment, path: str, folders: Collection[str]) -> None:
    """`folders`: those that the recorded files need."""
    noticed, name = looking.noticed, path.removeprefix(FILES)
    known = agent.files.get(name)
    replaced = None if known is not None else next((each for each in _above(name) if each in agent.files), None)
    if replaced is not None:
        _keep_folder(looking, FILES + replaced)
        return
    found = _read(looking, path, known)
    if found is None:
        if known is not None:
            noticed.findings.append(Repair(path, "was missing; it is restored", is_lag=True))
        return
    noticed.versions[path] = found.version
    digest = sha(found.data)
    if known is not None and digest == known.content.sha256:
        noticed.files[path] = known.version
    elif known is not None and is_blank(found.data) and _may_be_left_by_a_crash(looking):
        noticed.findings.append(Repair(path, "was empty after a crash; it is restored"))
        noticed.files[path] = 0
    elif _is_older(looking, path, digest):
        noticed.findings.append(Repair(path, "was older than the record; Satchel updates it", is_lag=True))
        noticed.files[path] = 0
    elif known is not None and (why := _has_moved_on(looking, path, known)):
        error = Refused("was changed by hand", path=path, why=why, remedy="add to the newer version what is missing")
        noticed.overruled.append(RejectedFile(path, error, found.data))
    elif known is None and name in folders:
        error = Refused("is a file in place of a folder", path=path, why=_ONLY_PROGRAMS, remedy=_OTHER_NAME)
        noticed.overruled.append(RejectedFile(path, error, found.data))
        noticed.files[path] = 0
    else:
        says = f"{'changed' if known is not None else 'new'}, {counted(len(found.data), 'byte')}"
        record = looking.edited(path, found.data, [says], base=known.version if known is not None else None)
        noticed.edits.append(Edit(record, data=found.data))


def _keep_folder(looking: Looking, path: str) -> None:
    """Move a folder that a person has put in place of the file `path` aside. A bucket can have both."""
    if not looking.store.abilities.remote and all(each.path != path for each in looking.noticed.overruled):
        error = Refused("is a folder in place of a file", path=path, why=_ONLY_PROGRAMS, remedy=_OTHER_NAME)
        looking.noticed.overruled.append(RejectedFile(path, error))


def _may_be_left_by_a_crash(looking: Looking) -> bool:
    """Whether an empty file is what a process left that was killed while it wrote. A bucket may show it only after the
    next one has opened the workspace."""
    return looking.store.abilities.remote or (looking.held is None and not looking.moment.clean)


def _read(looking: Looking, path: str, known: FileState | None) -> FileContent | None:
    """The file; if it is not as recorded, once it is completely saved."""
    if looking.held is None:
        try:
            found = looking.store.read(path, limit=LARGE_LIMIT)
        except FileNotFoundError:
            return None
        except (InvalidFile, UsageError):  # a folder, a link that leads elsewhere, or far too large
            if known is not None and path in looking.store.folders(path.rpartition("/")[0]):
                _keep_folder(looking, path)
                return None
            looking.find(path, "is no file that could be taken; Satchel leaves it as it is")
            raise StillMoving(path) from None
        if known is not None and sha(found.data) == known.content.sha256:
            return found
    return looking.steady(path, limit=LARGE_LIMIT)


def _is_older(looking: Looking, path: str, digest: str) -> bool:
    """Whether a crash came before a newer version was written, or the removal. A person may also have gone back to an
    older version: while a program holds the workspace its own writes are known, and after a normal stop the time
    tells, to the second."""
    if looking.held is not None:
        return False
    is_later = looking.moment.clean and looking.store.trace(path).at[:19] > looking.moment.last_at[:19]
    return not is_later and looking.was_put(path, digest)


def _has_moved_on(looking: Looking, path: str, known: FileState) -> str:
    """Why a person's version may not be one of the recorded version; empty if it is. While a program holds the
    workspace it knows which version the file had. A program that was killed may not have shown what it had put."""
    moment = looking.moment
    if looking.held is not None:
        return "the program has put another version meanwhile" if path in looking.moved_on else ""
    if not moment.clean and known.at >= moment.opened_at:
        return "the program was killed, and the file may have shown a version before its last one"
    return ""
