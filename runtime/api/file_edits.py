"""Edit todo.md and state.json as a person does in an editor, with the checks before the file is saved; and cut the
conversation of an agent off after one of its messages.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import Conflicting, Refused, SatchelError, UsageError, arguments, decode, in_force
from ...workspace.inbound.edits import CutOff, cut_off, editable, is_known, judge
from ...workspace.inspect import Look, Remark, Report, lease, look_beside
from ...workspace.lifecycle import opened
from ...workspace.state import AgentMoment
from ...workspace.store import FileChanged, FileContent, Version, read_if_there
from ...workspace.views import conversation
from ..status import Place, Steps, wait_until_free

_TIMES = 5


class Draft(Struct, frozen=True):
    """A todo.md or state.json, for a person to edit. `version` names this content for `RunFiles.edit`. Both texts are
    empty if there is no such file."""

    file: str
    text: str
    version: str


class EditResult(Struct, frozen=True):
    """The outcome of an edit.

    `says`: what it changes, one line each; empty if it changes nothing, and then the file was not written. `notes`:
    what else to know about it. `waits_for`: the process that takes it at its next safe point, in words; empty: the next
    start takes it.
    """

    file: str
    says: tuple[str, ...]
    notes: tuple[str, ...] = ()
    waits_for: str = ""


def draft(place: Place, file: str) -> Draft:
    """See `RunFiles.draft`."""
    _check_name(look_beside(place.store), file)
    there = read_if_there(place.store, file)
    return Draft(file, decode(there.data, file), there.version) if there else Draft(file, "", "")


def edit(place: Place, file: str, text: str, version: str, *, conflict: bool) -> Steps[EditResult]:
    """See `RunFiles.edit`."""
    data, version = arguments.text("text", text).encode(), arguments.text("version", version)
    for _ in range(_TIMES):
        seen = look_beside(place.store)
        _check_name(seen, file)
        if seen.moment.status == "cancelled":
            raise UsageError("was cancelled and takes no edits", path=place.url, why="a cancellation is final")
        if not data.strip():
            raise Refused(
                "can't be empty", path=file, why="an empty file is restored", remedy="to end the run, cancel it"
            )
        there = read_if_there(place.store, file)
        found = judge(place.store, seen.moment, seen.definition, file, data, is_rebuilt=seen.is_rebuilt)
        if there and there.version != version and there.data != data and not is_known(seen.moment, file, there.data):
            raise Conflicting(
                "another person has saved it since you read it",
                path=file,
                why="the run has not taken that yet",
                remedy="read the file again, and add what is missing there",
            )
        for refusal in found.refusals:
            raise refusal.error
        for question in () if conflict else found.questions:
            raise Conflicting(
                "your text conflicts with the run",
                path=file,
                why="; ".join(question.places),
                remedy="read the file again, and make your change there",
            )
        says = [line for each in found.edits for line in each.record.says]
        says += [place for question in found.questions for place in question.places]
        says += ["this is the plan of the run" for _ in found.plans]
        if says and not _save(place, file, data, there):
            yield from place.look_again(0.1)
            continue
        if seen.mistake:
            place.tell(f"note: {in_force(seen.mistake)}")
        holder = lease.holder(place.store) if says else None
        notes = tuple(each.text for each in found.findings if not each.is_lag)
        return EditResult(file, tuple(says), notes, holder.process if holder else "")
    raise UsageError("keeps changing", path=file, remedy="try again in a moment")


def _check_name(seen: Look, file: str) -> None:
    if arguments.text("file", file) not in editable(seen.moment):
        raise UsageError(
            "is no plan and no state of the run",
            path=file,
            remedy="name todo.md or state.json, of a sub-agent with its folder: agents/NAME/todo.md",
        )


def _save(place: Place, file: str, data: bytes, there: FileContent | None) -> bool:
    """Write it, unless the file has changed since it was read."""
    try:
        if there is None:
            place.store.create(file, data)
        elif there.data != data:
            place.store.replace(file, data, if_version=there.version)
    except (FileChanged, FileExistsError):
        return False
    return True


class MessageCut(Struct, frozen=True):
    """The conversation in `file`, of `agent`, ends after message `after`; at its beginning if that is 0.

    `says`: what is cut off, one line each; empty if that was its last message. `waits_for`: the process that takes the
    cut at its next safe point, in words; empty: it is recorded. `report` is that of the opening.
    """

    url: str
    run_id: str
    agent: str
    file: str
    after: int
    says: tuple[str, ...]
    waits_for: str = ""
    report: tuple[Remark, ...] = ()


def cut(place: Place, after: int, agent: str) -> Steps[MessageCut]:
    """See `RunFiles.cut_messages`."""
    number, store = arguments.count("after", after, least=0), place.store
    assert number is not None
    for last in range(_TIMES - 1, -1, -1):
        seen = look_beside(store)
        of = _find(place, seen, agent)
        file, holder = of.folder + conversation.NAME, lease.holder(store)
        try:
            found = cut_off(store, seen.moment, seen.definition, of.path, number)
        except SatchelError:
            if holder is None or not last:
                raise
            yield from place.look_again(0.1)  # its files may have changed since the journal was read
            continue
        if found.says and not _save_conversation(place, file, found):
            yield from place.look_again(0.1)
            continue
        told = MessageCut(place.url, seen.moment.run_id, of.path, file, number, found.says)
        if not found.says:
            return told
        if holder is not None:
            return replace(told, waits_for=holder.process)
        yield from wait_until_free(place)
        report, saved = Report(), store.version(file)
        try:
            with opened(store, "edit", report, take_over=True) as workspace:
                workspace.close()
        except SatchelError:
            _take_back(place, file, found, saved)
            raise
        return replace(told, report=(*report.remarks,))
    raise UsageError("keeps changing", path=file, remedy="try again in a moment")


def _find(place: Place, seen: Look, agent: str) -> AgentMoment:
    if seen.moment.status == "cancelled":
        raise UsageError("was cancelled and takes no edits", path=place.url, why="a cancellation is final")
    path = arguments.text("agent", agent).strip("/")
    if path in seen.moment.agents:
        return seen.moment.agents[path]
    known = [each for each in seen.moment.agents if each]
    remedy = f"there are {', '.join(known[:9])}" if known else "the run has no sub-agents"
    raise UsageError(f"there is no agent {path!r}", path=place.url, remedy=remedy)


def _save_conversation(place: Place, file: str, found: CutOff) -> bool:
    """Save it as a person does. False if the file has changed since it was read."""
    try:
        if found.there is None:
            place.store.create(file, found.data)
        else:
            place.store.replace(file, found.data, if_version=found.there.version)
    except (FileChanged, FileExistsError):
        return False
    return True


def _take_back(place: Place, file: str, found: CutOff, saved: Version | None) -> None:
    """The run could not be opened: a cut that was refused must not wait in the file for the next start."""
    with suppress(SatchelError, FileChanged, FileNotFoundError):
        if found.there is None:
            place.store.remove(file, if_version=saved)
        elif saved is not None:
            place.store.replace(file, found.there.data, if_version=saved)
