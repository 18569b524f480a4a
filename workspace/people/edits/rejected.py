"""Keep what a person wrote and the run can't take: refused files next to the restored ones, all versions of a conflict
in `conflicts/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count

from ...base import Conflicting, InvalidFile, Refused, SatchelError, UsageError, fitting, stamp
from ...state import AgentMoment, Moment
from ...store import FileChanged, Store, read_if_there
from ...views import conversation, projection
from ...views import stable_read as settling
from .findings import CONFLICTS, Kept, Noticed, Question, Refusal, version_of
from .origin import is_blank, sha

KEPT = re.compile(r"\.rejected(-[0-9]+)?\.[^./]+\Z")
"""The end of the name of a refused file that was kept, and of the file with the reasons."""

_TOLD = 3
_EXTENSION = 40
"""Characters of the longest extension. What is longer is a part of the name, which may be cut."""

_COMMANDS = (
    "`satchel merge --use theirs` uses the file's version where they differ, `satchel merge --use ours` uses the run's "
    "version and keeps the file's as NAME.rejected.EXT"
)


def reject(store: Store, refusal: Refusal, fate: str = "and was restored") -> str:
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


def move_aside(store: Store, refusal: Refusal, fate: str) -> str:
    """The same for what can't be read: a folder, a link, a huge file. It is moved, not copied."""
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
            why="; ".join(question.places[:_TOLD]),
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


def _reasons(refusal: Refusal, fate: str) -> str:
    return f"{refusal.path} was not accepted as it was, {fate}.\n\n{said(refusal.error)}\n"


def said(error: SatchelError) -> str:
    """What is wrong, one line each."""
    if isinstance(error, InvalidFile):
        return "\n".join(f"{error.path}, {problem}" for problem in error.problems)
    return str(error)


# Conflicts


def not_settled(store: Store, moment: Moment) -> dict[str, bytes]:
    """By path, people's versions of files with an unresolved conflict."""
    there = set(_files(store, CONFLICTS))
    found = {}
    for agent in moment.agents.values() if there else ():
        for path in _may_conflict(agent):
            if (kept := version_of(path, "theirs")) in there:
                data = store.read(kept).data
                if agent.edits.get(path) != sha(data):
                    found[path] = data
    return found


def put_question(store: Store, moment: Moment, question: Question) -> None:
    """Write the versions of a conflict where a person can compare them, durably."""
    versions: dict[Kept, bytes | None] = {"base": question.base, "ours": question.ours, "theirs": question.theirs}
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
                _save_from(store, moment, path, there.data)
                if data is not None:
                    store.replace(file, data, if_version=there.version)
                else:
                    settling.remove(store, file, there.version)
            return


def set_aside(store: Store, noticed: Noticed) -> list[str]:
    """Keep a person's version before the decision for another version is on record. Returns a message about it."""
    said = [f"{each.error.what}; {each.path} is kept as {reject(store, each)}" for each in noticed.overruled]
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
            kept = reject(store, Refusal(path, error, there.data), "and is asked about")
            yield f"your changed copy of {path} is kept as {kept}"


def clear_questions(store: Store, moment: Moment, still_open: Sequence[Question]) -> None:
    """Remove the files of resolved conflicts. Other files there do not belong to Satchel."""
    there, asked = set(_files(store, CONFLICTS)), {question.path for question in still_open}
    for agent in moment.agents.values() if there else ():
        for path in _may_conflict(agent):
            written = {version_of(path, "base"), version_of(path, "ours"), version_of(path, "theirs")} & there
            for file in written if path not in asked else ():
                _put_version(store, moment, path, file, None)
            if path not in asked and _reasons_of(path) in there:
                store.remove(_reasons_of(path))


def _save_from(store: Store, moment: Moment, path: str, data: bytes) -> None:
    """Before a version of `path` is removed from conflicts/: keep what a person wrote into it."""
    if not is_known(moment, path, data):
        _keep(store, path, data)


def _keep(store: Store, path: str, data: bytes) -> str:
    error = Refused(
        "conflicted with the run",
        path=path,
        why="another version was used",
        remedy="add to the file what is missing there",
    )
    return reject(store, Refusal(path, error, data), "and another version is in use")


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


def _files(store: Store, folder: str) -> Sequence[str]:
    inside = [path for below in store.folders(folder) for path in _files(store, below)]
    return [*(entry.path for entry in store.list(folder)), *inside]
