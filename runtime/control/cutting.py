"""Cut the conversation of an agent off after one of its messages."""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import SatchelError, UsageError, arguments
from ...workspace.inbound.edits import CutOff, cut_off
from ...workspace.inspect import Look, Remark, Report, lease, look_beside
from ...workspace.lifecycle import opened
from ...workspace.state import AgentMoment
from ...workspace.store import FileChanged, Version
from ...workspace.views import conversation
from . import takeover
from .place import Place
from .waiting import Steps

_TIMES = 5


class Cutting(Struct, frozen=True):
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


def cut(place: Place, after: int, agent: str) -> Steps[Cutting]:
    """See `Handle.cut_messages`."""
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
        if found.says and not _save(place, file, found):
            yield from place.look_again(0.1)
            continue
        told = Cutting(place.url, seen.moment.run_id, of.path, file, number, found.says)
        if not found.says:
            return told
        if holder is not None:
            return replace(told, waits_for=holder.process)
        yield from takeover.wait(place)
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


def _save(place: Place, file: str, found: CutOff) -> bool:
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
