"""The tools that only read."""

from __future__ import annotations

from ..control import by_need
from . import describing, shapes
from .asking import Asking

_LISTED = 500


def list_runs(asking: Asking, wanted: shapes.ListArguments) -> shapes.RunList:
    standings = sorted(asking.runs.standings().items(), key=lambda each: by_need(each[1]))
    found = [describing.line(name, each) for name, each in standings]
    text = wanted.search.casefold()
    found = [
        each
        for each in found
        if (text in each.run.casefold() or text in each.run_id.casefold()) and wanted.state in (None, each.state)
    ]
    return shapes.RunList(found[:_LISTED], max(0, len(found) - _LISTED))


def status(asking: Asking, wanted: shapes.OneRun) -> shapes.RunStatus:
    return asking.status(asking.runs.find(wanted.run))


def log(asking: Asking, wanted: shapes.LogArguments) -> shapes.Log:
    rows = asking.runs.find(wanted.run).log(
        last=wanted.last,
        item=wanted.item,
        type=wanted.type,
        agent=wanted.agent,
        step=wanted.step,
        since=wanted.since,
        audit=wanted.audit,
    )
    return shapes.Log([*map(describing.record, rows)])


def show(asking: Asking, wanted: shapes.ShowArguments) -> shapes.Moment:
    handle = asking.runs.find(wanted.run)
    shown = handle.show(wanted.at)
    agents = [shapes.ShownAgent(each.path, each.status, each.plan, each.data, each.open) for each in shown.agents]
    row = describing.record(shown.record) if shown.record else None
    return shapes.Moment(asking.runs.name(handle), shown.seq, shown.newest, shown.status, row, agents, shown.problem)
