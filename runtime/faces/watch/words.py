"""Statuses and events in words, as `rich.text.Text`. Everything that an agent or a person has written is made safe."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from ....workspace.base import moment_of
from ...api import Standing, answered, colour, duration, events, since
from .lines import joined, plain

MARKS = {"open": "[ ]", "begun": "[/]", "done": "[x]", "cancelled": "[-]"}
_MARK_COLOURS = {"open": "", "begun": "yellow", "done": "green", "cancelled": "dim"}
_RESULT = 60  # characters


def state(standing: Standing) -> Text:
    return Text(standing.state, f"bold {colour(standing.state) or ''}".strip())


def items(standing: Standing) -> str:
    progress = standing.plan.progress if standing.plan and standing.plan.tasks else None
    return f"{progress.settled:,}/{progress.leaves:,}" if progress else ""


def cost(standing: Standing) -> str:
    usage = standing.moment.usage if standing.moment else None
    if usage is None or not (usage.usd or usage.tokens):
        return ""
    return f"${usage.usd:,.2f}" if usage.usd else f"{_short(usage.tokens)} tokens"


def _short(number: int) -> str:
    if number < 10_000:
        return f"{number:,}"
    return f"{number // 1000:,}k" if number < 10_000_000 else f"{number // 1_000_000:,}M"


def ago(at: str, now: datetime | None = None) -> str:
    """`5 s`, `3 min`, `2 h`, `4 days` since a time of the journal; empty if there is none."""
    then = moment_of(at)
    if then is None:
        return ""
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= (2 * size if unit == "days" else size):
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


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


def run_id(standing: Standing) -> str:
    """Empty if it is not known."""
    known = standing.definition or standing.moved
    return plain(known.run_id) if known else ""


def detail(standing: Standing) -> str:
    """Why it is in its state, one fact a line."""
    found = []
    if standing.moved:
        found.append(f"the run is now at {standing.moved.to}")
    elif standing.problem:
        found.append(str(standing.problem))
    found += _unsettled(standing)
    moment = standing.moment
    if moment is not None:
        if standing.state == "failed" and moment.error:
            found += [f"{moment.error.kind}: {moment.error.message}", *moment.error.where]
        pause = moment.pause or standing.wish
        if pause is not None and standing.state in ("paused", "draining"):
            until = f", until {pause.until}" if pause.until else ""
            found.append(f"{_MODES[pause.mode]} by {pause.by}: {pause.reason}{until}")
        elif standing.state in ("sleeping", "waiting") and moment.until:
            found.append(f"until {since(moment.until)}")
    if said := answered(standing):
        found.append(said)
    if standing.pause_problem:
        found.append(str(standing.pause_problem))
    if standing.mistake:
        found.append(str(standing.mistake))
    return "\n".join(found)


def _unsettled(standing: Standing) -> list[str]:
    """The edits of a run that rests which a person has to settle or correct before it starts."""
    asked = standing.noticed.questions if standing.noticed else []
    found = [f"{each.path} conflicts with the run: {each.places[0]}" for each in asked]
    if standing.noticed and standing.noticed.back:
        found.append(f"a start asks: {standing.noticed.back.question}")
    if standing.begun:
        found.append(str(standing.begun))
    if standing.wants_merge:
        found.append("`satchel merge` shows both versions and settles it")
    return found + ([f"refused: {each.error}" for each in standing.noticed.refusals] if standing.noticed else [])


_MODES = {"drain": "pause requested", "emergency": "stopped", "cancel": "cancelled"}


def task(line: str, mark: str, depth: int, width: int) -> Text:
    """An item of the plan."""
    style = _MARK_COLOURS.get(mark, "")
    text = Text("  " * min(depth, 8))
    text.append(MARKS.get(mark, "[ ]"), f"bold {style}" if mark == "begun" else style)
    said = plain(line, max(1, width - text.cell_len - 1))
    return text.append(" ").append(said, {"begun": "bold", "cancelled": "dim"}.get(mark, ""))


def event(told: events.Event, took: float | None, width: int) -> Text:
    """One line of the timeline. `took`: the seconds of an item that has ended."""
    verb, rest, style = _of(told)
    end = f"  {duration(took)}" if took is not None else ""
    line = Text.assemble((f"{clock(told.at)} ", "dim"), (f"{verb:<8}", style))
    said = plain(f"{told.agent}: {rest}" if told.agent else rest, max(1, width - line.cell_len - len(end)))
    return line.append(said, style).append(end, "dim")


def _of(told: events.Event) -> tuple[str, str, str]:
    """What happened: a verb, the rest, and a colour."""
    match told:
        case events.RunStarted():
            return "started", f"by process {told.pid} on {told.host}{', after a crash' * told.after_crash}", "cyan"
        case events.RunStopped():
            why = told.error or told.reason or (f"until {told.until}" if told.until else "")
            return "stopped", f"{told.status}{f', {why}' if why else ''}", colour(told.status) or ""
        case events.ItemBegun():
            return "begin", f"{_scope(told.scope)} {told.title}", ""
        case events.ItemFailed():
            return "failed", f"{_scope(told.scope)} {told.title}: {told.error}", "red"
        case events.ItemCommitted():
            skipped = f", skipped: {told.skipped}" if told.skipped is not None else ""
            made = f" -> {', '.join(told.outputs)}" if told.outputs else ""
            return "commit", f"{_scope(told.scope)} {told.title}{skipped}{made}", "green"
        case events.EffectBegun():
            return "effect", f"{told.step}{told.call}", ""
        case events.StepCompleted():
            took = f" ({duration(told.ms / 1000)})" if told.ms else ""
            how = "" if told.how == "returned" else f" [{told.how}]"
            return "done", f"{told.step}{told.call}{took}{how}{_result(told.result)}", ""
        case events.StepFailed():
            return "failed", f"{told.step}{told.call}: {told.error}", "red"
        case events.StepRetried():
            return "again", f"{told.step}{told.call} in {told.wait:g} s: {told.error}", "yellow"
        case events.Asked():
            return "asked", f"{told.id} {told.question}", "yellow"
        case events.Answered():
            return "answer", f"{told.id} by {told.by}: {_json(told.decision)}", "yellow"
        case events.PauseRequested():
            return "stop", f"{_MODES.get(told.mode, told.mode)} by {told.by}: {told.reason}", "yellow"
        case events.Paused():
            return "paused", "and running work was cut off" * told.forced, "yellow"
        case events.Resumed():
            return "resumed", f"by {told.by}{f': {told.instructions}' if told.instructions else ''}", "cyan"
        case events.AgentBegun():
            return "agent", f"begins{told.call}", "cyan"
        case events.AgentEnded():
            return "agent", f"ends{f': {told.error}' if told.error else ''}", "red" if told.error else "cyan"
        case events.PlanChanged():
            return "plan", f"changed by {told.by}{f': {told.why}' if told.why else ''}", "magenta"
        case events.Edited():
            return "edited", f"{told.file} by {told.by}: {'; '.join(told.says)}", "magenta"
        case events.TaskTaken():
            return "taken", f"{told.id} {told.file}", "yellow"
        case events.TaskDone():
            return "done", told.id, "green"
        case _:
            return "", type(told).__name__, ""


def _scope(key: str) -> str:
    return key if key.startswith("_") else f"^{key}"


def _result(value: Any) -> str:
    return "" if value is None else f" -> {_json(value)}"


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _RESULT else f"{text[: _RESULT - 1]}…"


def head(standing: Standing | None, name: str, width: int) -> Text:
    """The first line about a run: who, state, progress, cost, last activity. The name gives way to the rest."""
    if standing is None:
        return joined([Text(plain(name, max(8, width - 12)), "bold"), Text("looking ...")])
    ahead = standing.forecast
    parts = [state(standing), Text(items(standing)), Text(ahead.words if ahead else ""), Text(cost(standing))]
    last = ago(standing.at)
    parts.append(Text(f"{last} ago" if last else "", "dim"))
    rest = joined(parts)
    return joined([Text(plain(run_id(standing) or name, max(8, width - rest.cell_len - 2)), "bold"), rest])
