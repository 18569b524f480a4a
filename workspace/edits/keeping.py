"""Keeps what a person wrote and the run can't take: refused files beside the restored ones, all versions of a
conflict in `conflicts/`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from .. import projection
from ..errors import Conflicting, InvalidFile, SatchelError
from ..moment import Moment
from ..store import FileChanged, Store, Version
from .found import Noticed, Question, Refusal

CONFLICTS = "conflicts"
_TOLD = 3


def reject(store: Store, refusal: Refusal, fate: str = "and was restored") -> str:
    """Copy a refused file to `NAME.rejected.EXT`, durably, the reasons to `NAME.rejected.txt`. Returns the path.
    `fate` is what becomes of the file itself."""
    assert refusal.data is not None
    stem, _, extension = refusal.path.rpartition(".")
    number = 1
    while True:
        suffix = "rejected" if number == 1 else f"rejected-{number}"
        path = f"{stem}.{suffix}.{extension}"
        there = _read(store, path)
        if there is None:
            store.replace(f"{stem}.{suffix}.txt", _reasons(refusal, fate).encode())
            store.replace(path, refusal.data)
            return path
        if there == refusal.data:
            return path  # a crash came between keeping it and restoring the file
        number += 1


def turn_away(store: Store, moment: Moment, noticed: Noticed, *, settling: bool = False) -> None:
    """If something was refused or is asked about, keep it, restore what was refused, and raise: the run must not go on
    over what a person wanted. `settling` is for taking what has been settled, though something else is still asked."""
    kept = []
    for refusal in noticed.refusals:
        if refusal.data is not None:
            kept.append(f"Your version of {refusal.path} is kept as {reject(store, refusal)}, and the file is restored")
            with suppress(FileChanged):  # saved once more: that version is for the next opening
                _restore(store, moment, refusal.path, noticed.versions.get(refusal.path))
    for question in noticed.questions:
        put_question(store, question)
    for refusal in noticed.refusals[:1]:
        error, others = refusal.error, len(noticed.refusals) - 1
        more = [f"{others} more files were refused: see their reasons beside them"] if others else []
        if kept:
            error.remedy = ". ".join([*([error.remedy] if error.remedy else []), *kept[:_TOLD], *more])
        raise error
    if noticed.questions and not settling:
        question = noticed.questions[0]
        raise Conflicting(
            "and the run contradict each other" + ("" if len(noticed.questions) == 1 else ", as do other files"),
            path=question.path, why="; ".join(question.places[:_TOLD]),
            remedy=f"look at {CONFLICTS}/, or at `satchel merge`, which settles it",
        )  # fmt: skip


def _restore(store: Store, moment: Moment, path: str, version: Version | None) -> None:
    """The file as the run has it, in place of the version that was looked at."""
    data = None
    for agent in moment.agents.values():
        if path == agent.folder + projection.STATE:
            data = projection.state_file(moment, agent)
        elif path == agent.folder + projection.TODO:
            data = projection.todo_file(moment, agent)
        elif path.startswith(f"{agent.folder}{projection.STEPS}/"):
            records = {file.path: file.record for file in projection.step_files(agent, projection.steps_shown(store))}
            data = projection.step_file(moment, records[path]) if path in records else None
    if data is not None:
        store.replace(path, data, sync="data", if_version=version)
    else:
        store.remove(path)


def _reasons(refusal: Refusal, fate: str) -> str:
    return f"{refusal.path} was not taken as it was, {fate}.\n\n{said(refusal.error)}\n"


def said(error: SatchelError) -> str:
    """What is wrong, a line each."""
    if isinstance(error, InvalidFile):
        return "\n".join(f"{error.path}, {problem}" for problem in error.problems)
    return str(error)


def put_question(store: Store, question: Question) -> list[str]:
    """Write the versions of a conflict to where a person can compare them. Returns the paths: base, ours, theirs."""
    stem, _, extension = question.path.rpartition(".")
    versions = {"base": question.base, "ours": question.ours, "theirs": question.theirs}
    written = []
    for name, data in versions.items():
        path = f"{CONFLICTS}/{stem}.{name}.{extension}"
        if data is None:
            store.remove(path)
        else:
            if _read(store, path) != data:
                store.replace(path, data)
            written.append(path)
    places = "".join(f"  {place}\n" for place in question.places)
    text = f"{question.path} and the run contradict each other:\n\n{places}\nSettle it with `satchel merge`.\n"
    store.replace(f"{CONFLICTS}/{stem}.txt", text.encode())
    return written


def clear_questions(store: Store, still_open: Sequence[Question]) -> None:
    """Remove what was written about conflicts that are settled."""
    kept = {f"{CONFLICTS}/{question.path.rpartition('.')[0]}." for question in still_open}
    for path in [*_files(store, CONFLICTS)]:
        if not any(path.startswith(stem) for stem in kept):
            store.remove(path)


def _files(store: Store, folder: str) -> Sequence[str]:
    inside = [path for below in store.folders(folder) for path in _files(store, below)]
    return [*(entry.path for entry in store.list(folder)), *inside]


def _read(store: Store, path: str) -> bytes | None:
    try:
        return store.read(path).data
    except FileNotFoundError:
        return None
