"""Keep what a person or another program wrote and the run can't take, before the run writes the file again.

Refused files are kept next to the restored ones, and all versions of a conflict in `conflicts/`. A save into a file
that the run was replacing is put back, to be merged. So is an output of the run replaced only where another program's
version is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple
from urllib.parse import unquote

from ..base import Conflicting, InvalidFile, Refused, SatchelError, StorageFailed, UsageError, fitting, is_blank, stamp
from ..inspect import is_sync_copy
from ..journal import Output
from ..state import FILES, AgentMoment, Moment
from ..store import DISPLACED, FileChanged, Store, displaced_name, read_if_there, walk
from ..views import conversation, projection
from ..views import guarded_files as settling
from .findings import CONFLICTS, FileConflict, KeptVersion, Noticed, RejectedFile, sha, version_of, versions_put

KEPT = re.compile(r"\.rejected(-[0-9]+)?(\.reasons)?(\.[^./]+)?\Z")
"""The end of the name of a refused file that was kept, and of the file with the reasons."""

_DISPLACED_NAME = re.compile(r"\d+-\d+-(?P<version>\d+-\d+-\d+)-(?P<path>.+?)~?")
_HASH = re.compile("[0-9a-f]{64}")
_TOLD = 3
_READ_LIMIT = 1 << 32
_EXTENSION = 40
"""Characters of the longest extension. What is longer is a part of the name, which may be cut."""

_COMMANDS = (
    "`satchel merge --use theirs` uses the file's version where they differ, `satchel merge --use ours` uses the run's "
    "version and keeps the file's as NAME.rejected.EXT"
)


def reject(store: Store, refusal: RejectedFile, fate: str = "and was restored") -> str:
    """Copy a refused file to `NAME.rejected.EXT`, durably, and the reasons to `NAME.rejected.txt`. Returns the path.
    `fate` is what happens to the file itself."""
    assert refusal.data is not None
    for path, reasons in _names(refusal.path):
        try:
            there = read_if_there(store, path)
        except (InvalidFile, UsageError):
            continue  # a folder or a link has that name
        if there is None:
            store.replace(reasons, _reasons(refusal, fate).encode())
            with suppress(FileExistsError):
                store.create(path, refusal.data)
                return path
        elif there.data == refusal.data:  # a crash came between keeping it and restoring the file
            return path
    raise AssertionError


def move_aside(store: Store, refusal: RejectedFile, fate: str) -> str:
    """Keep what can't be read, and so not be copied: a folder, a link, a huge file. It is moved."""
    for path, reasons in _names(refusal.path):
        with suppress(UsageError):
            if store.version(path) is None:
                store.replace(reasons, _reasons(refusal, fate).encode())
                store.rename(refusal.path, path)
                return path
    raise AssertionError


def _names(path: str) -> Iterator[tuple[str, str]]:
    """Where a version of the file may be kept, and the reasons."""
    folder, slash, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".") if "." in name[1:] else (name, "", "")
    if len(extension) > _EXTENSION:
        stem, dot, extension = name, "", ""
    reasons = "reasons.txt" if extension == "txt" else "txt"  # the reasons of a text file would have its own name
    for number in count(1):
        mark = ".rejected" if number == 1 else f".rejected-{number}"
        kept = f"{folder}{slash}{fitting(stem, f'{mark}{dot}{extension}', f'{mark}.{reasons}')}{mark}"
        yield f"{kept}{dot}{extension}", f"{kept}.{reasons}"


def is_of_tools(path: str) -> bool:
    """Whether the name tells that an editor, a copying or sync program, or Satchel has written the file."""
    name = path.rpartition("/")[2]
    is_temporary = name.startswith((".", "#", "~")) or name.endswith(("~", ".swp", ".tmp", ".part", ".crdownload"))
    return is_temporary or KEPT.search(name) is not None or is_sync_copy(name)


def turn_away(store: Store, moment: Moment, noticed: Noticed, *, settling: bool = False) -> None:
    """If something was refused or is asked about, keep it, restore what was refused, and raise: the run must not
    continue over a person's edit. `settling`: to take what was resolved, although there is another question."""
    kept = []
    for refusal in noticed.refusals:
        if refusal.data is not None:
            kept.append(f"Your version of {refusal.path} is kept as {reject(store, refusal)}, and the file is restored")
            with suppress(FileChanged):  # saved once more: that version is for the next opening
                _restore(store, moment, refusal.path, noticed)
    for question in noticed.questions:
        put_question(store, moment, question)
    for refusal in noticed.refusals[:1]:
        error, others = refusal.error, len(noticed.refusals) - 1
        more = [f"{others} more refused: each file has its reasons next to it"] if others else []
        if kept:
            error.remedy = ". ".join([*([error.remedy] if error.remedy else []), *kept[:_TOLD], *more])
        raise error
    if noticed.questions and not settling:
        question = noticed.questions[0]
        more_files = "" if len(noticed.questions) == 1 else ", as do other files"
        raise Conflicting(
            f"the file conflicts with the run{more_files}",
            path=question.path,
            why="; ".join(map(str, question.places[:_TOLD])),
            remedy=f"`satchel merge` shows the versions, which are in {CONFLICTS}/. {_COMMANDS}",
        )


def _restore(store: Store, moment: Moment, path: str, noticed: Noticed) -> None:
    """Write the run's version of the file in place of the version that was read."""
    data, version = current(moment, path), noticed.versions.get(path)
    for agent in moment.agents.values():
        if path == agent.folder + conversation.NAME:
            data = noticed.conversations[agent.path].data or None
        if path.startswith(f"{agent.folder}{projection.STEPS}/"):
            records = {file.path: file.record for file in projection.step_files(agent, projection.steps_shown(store))}
            data = projection.step_file(moment, records[path]) if path in records else None
    if data is not None:
        settling.replace(store, path, data, version)
    else:
        settling.remove(store, path, version)


def current(moment: Moment, path: str) -> bytes | None:
    """The run's version of a todo.md or state.json; None for any other path."""
    for agent in moment.agents.values():
        if path == agent.folder + projection.STATE:
            return projection.state_file(moment, agent)
        if path == agent.folder + projection.TODO:
            return projection.todo_file(moment, agent)
    return None


def _reasons(refusal: RejectedFile, fate: str) -> str:
    return f"{refusal.path} was not accepted as it was, {fate}.\n\n{said(refusal.error)}\n"


def said(error: SatchelError) -> str:
    """What is wrong, one line each."""
    if isinstance(error, InvalidFile):
        return "\n".join(f"{error.path}, {problem}" for problem in error.problems)
    return str(error)


# Conflicts


def not_settled(store: Store, moment: Moment) -> dict[str, bytes]:
    """By path, people's versions of files with an unresolved conflict."""
    there = {entry.path for entry in walk(store, CONFLICTS)}
    found = {}
    for agent in moment.agents.values() if there else ():
        for path in _may_conflict(agent):
            if (kept := version_of(path, "theirs")) in there:
                data = store.read(kept).data
                if agent.edits.get(path) != sha(data):
                    found[path] = data
    return found


def put_question(store: Store, moment: Moment, question: FileConflict) -> None:
    """Write the versions of a conflict where a person can compare them, durably."""
    versions: dict[KeptVersion, bytes | None] = {
        "base": question.base,
        "ours": question.ours,
        "theirs": question.theirs,
    }
    for side, data in versions.items():
        _put_version(store, moment, question.path, version_of(question.path, side), data)
    places = "".join(f"  {place}\n" for place in question.places)
    text = f"{question.path} conflicts with the run:\n\n{places}\n{_COMMANDS}.\n"
    store.replace(_reasons_of(question.path), text.encode())


def _put_version(store: Store, moment: Moment, path: str, file: str, data: bytes | None) -> None:
    """Write `data` into `file`, a version of `path`, or remove it. What a person wrote into it is kept."""
    while (there := read_if_there(store, file)) is None or there.data != data:
        with suppress(FileChanged, FileExistsError):  # saved at this moment: that is looked at, too
            if there is None and data is not None:
                store.create(file, data)
            elif there is not None:
                if not is_known(moment, path, there.data):
                    _keep(store, path, there.data)
                if data is not None:
                    store.replace(file, data, if_version=there.version)
                else:
                    settling.remove(store, file, there.version)
            return


def set_aside(store: Store, noticed: Noticed) -> list[str]:
    """Keep a person's version before the decision for another version is on record. Returns a message about it."""
    said = []
    for each in noticed.overruled:
        kept = reject(store, each) if each.data is not None else move_aside(store, each, "and was restored")
        said.append(f"{each.error.what}; {each.path} is kept as {kept}")
    done = {question.path for question in noticed.questions} | {refusal.path for refusal in noticed.overruled}
    for path, data in noticed.kept.items():
        if path not in done and not any(edit.record.sha == sha(data) for edit in noticed.edits):
            said.append(f"the version of {path} that was asked about is kept as {_keep(store, path, data)}")
            file = version_of(path, "theirs")
            if (there := read_if_there(store, file)) is not None and there.data == data:
                settling.remove(store, file, there.version)
    return [*said, *_changed_copies(store, noticed)]


def _changed_copies(store: Store, noticed: Noticed) -> Iterator[str]:
    """What a person has changed in a copy from a checkpoint, before the run writes the file again."""
    for path in noticed.changed_copies:
        if (there := read_if_there(store, path)) is not None:
            error = Refused("is a changed copy from a checkpoint", path=path, why="Satchel asks what to do with it")
            kept = reject(store, RejectedFile(path, error, there.data), "and is asked about")
            yield f"your changed copy of {path} is kept as {kept}"


def clear_questions(store: Store, moment: Moment, still_open: Sequence[FileConflict]) -> None:
    """Remove the files of resolved conflicts. Other files there do not belong to Satchel."""
    there, asked = {entry.path for entry in walk(store, CONFLICTS)}, {question.path for question in still_open}
    for agent in moment.agents.values() if there else ():
        for path in _may_conflict(agent):
            written = {version_of(path, "base"), version_of(path, "ours"), version_of(path, "theirs")} & there
            for file in written if path not in asked else ():
                _put_version(store, moment, path, file, None)
            if path not in asked and _reasons_of(path) in there:
                store.remove(_reasons_of(path))


def _keep(store: Store, path: str, data: bytes) -> str:
    error = Refused(
        "conflicted with the run",
        path=path,
        why="another version was used",
        remedy="add to the file what is missing there",
    )
    return reject(store, RejectedFile(path, error, data), "and another version is in use")


def is_known(moment: Moment, path: str, data: bytes) -> bool:
    """Whether this version of a readable file contains nothing new of a person: it is blank, as the run wrote it, or an
    edit that already counts."""
    is_merged = any(agent.edits.get(path) == sha(data) for agent in moment.agents.values())
    return is_merged or is_blank(data) or is_ours(moment, path, data)


def is_ours(moment: Moment, path: str, data: bytes) -> bool:
    """Whether it is as the run wrote it."""
    if path.endswith(".json"):
        return stamp.read_json(data).untouched
    agents = [agent for agent in moment.agents.values() if path == agent.folder + projection.TODO]
    return any(stamp.read_markdown(data, projection.owner(moment, agent)).untouched for agent in agents)


def _may_conflict(agent: AgentMoment) -> tuple[str, str]:
    return agent.folder + projection.STATE, agent.folder + projection.TODO


def _reasons_of(path: str) -> str:
    return f"{CONFLICTS}/{path.rpartition('.')[0]}.txt"


# Saves into a file while the run was replacing it, if the process ended before it looked at them


def put_back_displaced(store: Store, moment: Moment) -> None:
    """Put such saves back, to be merged like any other, and remove the rest. If a later save is in the place, the
    earlier one is kept as rejected; so is one into a file of files/, for a program has put another version since."""
    put = None
    for entry in [*store.list(DISPLACED)]:
        match = _DISPLACED_NAME.fullmatch(entry.path.rpartition("/")[2])
        if match is None:
            continue
        path = _displaced_path(moment, match["path"])
        if store.has_writer(entry.path):
            continue  # more may come
        if store.version(entry.path) == match["version"]:
            store.remove(entry.path)  # it is as it was when the run had written or merged it
            continue
        try:
            data = store.read(entry.path).data
            there = read_if_there(store, path)
        except SatchelError:
            continue  # it stays where it is
        is_held = bool(moment.kind) and path.startswith(FILES)
        if is_held:
            put = versions_put(store, moment) if put is None else put
        if not (is_known(moment, path, data) or (there and there.data == data) or (put and (path, sha(data)) in put)):
            if there is None or (is_ours(moment, path, there.data) and not is_held):
                try:
                    store.replace(path, data, if_version=there.version) if there else store.create(path, data)
                except (FileChanged, FileExistsError, StorageFailed):
                    continue  # saved once more, or a file is in place of its folder: the next opening looks again
            else:
                error = Refused(
                    "was saved twice at the same time",
                    path=path,
                    why="the other version is newer",
                    remedy="add to the newer version what is missing there",
                )
                reject(store, RejectedFile(path, error, data))
        store.remove(entry.path)


def _displaced_path(moment: Moment, name: str) -> str:
    """The path of the file whose displaced version has this name."""
    for agent in moment.agents.values() if _HASH.fullmatch(name) else ():
        for path in (*_may_conflict(agent), *(file.path for file in projection.step_files(agent))):
            if displaced_name(path) == name:
                return path
    return unquote(name)


# Outputs: a version of another program is kept, and a version of a later owner stays


class WrittenOutput(NamedTuple):
    output: Output
    kept: str = ""  # the place of another program's version


def write_output(
    store: Store, path: str, data: bytes, last: Output | None, check_owner: Callable[[], None]
) -> WrittenOutput:
    """Make `data` the output `path`, durably. `last` is what the run has made there last; None: nothing yet.

    Only `last` or nothing is replaced. For anything else `check_owner` first raises if this process no longer has the
    workspace. Then that version is kept as rejected, unless its bytes are those of `last` or of `data`. Not guaranteed,
    on a disk: that a save in the microseconds between a look and the replacement is seen; and in a bucket, whose
    versions are hashes: that a late request does nothing if the same bytes are there again.
    """
    sha256, kept = hashlib.sha256(data).hexdigest(), ""
    known = last.version if last else ""
    while True:
        try:
            if known:
                version = store.replace(path, data, if_version=known)
            else:
                store.create(path, data)
                version = store.version(path) or ""
            md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
            return WrittenOutput(Output(sha256, len(data), version, md5), kept)
        except (FileChanged, FileExistsError):
            there = read_if_there(store, path, limit=_READ_LIMIT)
        check_owner()  # after the look: a later owner's write has another version
        if there is None:
            known = ""
            continue
        known = there.version
        if hashlib.sha256(there.data).hexdigest() not in (sha256, last.sha256 if last else ""):
            error = Refused(
                "is not what the run made",
                path=path,
                why="another program wrote it, or an interrupted attempt wrote it",
                remedy="add to the new version what is missing there",
            )
            kept = reject(store, RejectedFile(path, error, there.data), "and the agent has made it again")
