"""Statuses and events in words, as `rich.text.Text`. Everything that an agent or a person has written is made safe."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from ....workspace.base import moment_of
from ...api import RunStatus
from ...present import MARKS, TimelineEvent, ago, colour, cost, duration, fraction, run_id_of, state_colour
from .lines import joined, plain

_ACT = 11  # columns of what happened


def state(status: RunStatus) -> Text:
    return Text(status.state, f"bold {state_colour(status.state) or ''}".strip())


def clock(at: str) -> str:
    """The local time of a record with its zone: `14:05:09 CET`; with the date if that is not today."""
    then = moment_of(at)
    try:
        local = then.astimezone() if then else None
    except (ValueError, OverflowError):
        local = None
    if local is None:
        return " " * 8
    is_today = local.date() == datetime.now().astimezone().date()
    return f"{local:%H:%M:%S %Z}" if is_today else f"{local:%Y-%m-%d %H:%M:%S %Z}"


def task(line: str, mark: str, depth: int, width: int) -> Text:
    """An item of the plan."""
    box, tone = MARKS.get(mark, MARKS["open"])
    style = "dim" if tone == "rest" else colour(tone) or ""
    text = Text("  " * min(depth, 8))
    text.append(box, f"bold {style}" if mark == "begun" else style)
    said = plain(line, max(1, width - text.cell_len - 1))
    return text.append(" ").append(said, {"begun": "bold", "cancelled": "dim"}.get(mark, ""))


def event(told: TimelineEvent, width: int) -> Text:
    """One line of the timeline."""
    style = colour(told.words.tone) or ""
    took = f"  {duration(told.took / 1000)}" if told.took else ""
    line = Text.assemble((f"{clock(told.at)} ", "dim"), (f"{plain(told.words.act, _ACT):<9} ", style))
    said = plain(" ".join((told.words.text, *told.files)), max(1, width - line.cell_len - len(took)))
    return line.append(said, style).append(took, "dim")


def head(status: RunStatus | None, name: str, width: int) -> Text:
    """The first line about a run: who, state, progress, cost, last activity. The name gives way to the rest."""
    if status is None:
        return joined([Text(plain(name, max(8, width - 12)), "bold"), Text("looking ...")])
    ahead = status.forecast
    parts = [state(status), Text(fraction(status.plan)), Text(ahead.words if ahead else ""), Text(cost(status))]
    parts.append(Text(ago(status.at), "dim"))
    rest = joined(parts)
    return joined([Text(plain(run_id_of(status) or name, max(8, width - rest.cell_len - 2)), "bold"), rest])
