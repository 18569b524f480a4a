"""Repair what a crash has left, and cut a damaged journal, without running the agent."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...workspace.base import counted
from ...workspace.inspect import Remark, Report, look
from ...workspace.lifecycle import Cut, opened, truncate
from ...workspace.state import Status
from . import takeover
from .place import Place
from .questions import OpenQuestion, questions_of
from .waiting import Steps

_NAMED = 10
"""How many effects or tasks are named."""


class Recovered(Struct, frozen=True):
    """A repaired workspace: `status` of the run, and whether it `has_begun`; `questions` that are open; `report`: what
    was found and done."""

    url: str
    run_id: str
    status: Status
    has_begun: bool
    questions: list[OpenQuestion]
    report: tuple[Remark, ...]


def recover(place: Place, cut: Cut | int | None, *, take_over: bool, adopt: bool) -> Steps[Recovered]:
    """Bring all files to the same moment, if `cut` is given after the end of a damaged journal was removed: everything
    after that record."""
    if take_over:
        takeover.holder(place)
    else:
        yield from takeover.wait(place)
    report = Report()
    kept = ""
    if cut is not None:
        kept = _cut_off(place, cut if isinstance(cut, Cut) else truncate.plan(place.store, cut), report, adopt)
    _repair(place, report, adopt, kept)
    moment = look(place.store).moment
    return Recovered(
        place.url, moment.run_id, moment.status, bool(moment.seq), questions_of(moment, place), (*report.remarks,)
    )


def forgotten(cut: Cut) -> str:
    """What a cut forgets, in words; may be empty."""
    says = []
    if cut.effects:
        says.append(f"these effects are forgotten and will be done again: {_some(cut.effects)}")
    if cut.lost:
        says.append(f"these tasks are forgotten and can't come back, because their files are gone: {_some(cut.lost)}")
    return "; ".join(says)


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def _cut_off(place: Place, cut: Cut, report: Report, adopt: bool) -> str:
    """Returns the folder that keeps what was cut off."""
    kept = truncate.carry_out(place.store, cut, adopt=adopt)
    report.add("done", f"{cut.says}; the files from before this change are in {kept}/")
    if cut.tasks:
        report.add("done", f"{counted(len(cut.tasks), 'task')} that the run took later came back into inbox/")
    if said := forgotten(cut):
        report.add("found", said)
    return kept


def _repair(place: Place, report: Report, adopt: bool, cut_off: str) -> None:
    if look(place.store).moment.is_new:
        report.add("found", f"the run has not started: there is nothing to recover. Next: {place.command('run')}")
        return
    with opened(place.store, "recover", report, take_over=True, adopt=adopt, cut_off=cut_off) as workspace:
        workspace.close()
    if len(report.remarks) == 1:
        report.add("done", "nothing: no file needed a repair")
