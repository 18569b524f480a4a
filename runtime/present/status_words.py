"""Where a run is in words: its state and why, how far its plan is, what it has cost, what waits for it or for a person;
and two compared moments next to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...workspace.base import Mode, counted, duration, one_line, since, usd
from ...workspace.inbound import describe_saving
from ...workspace.inspect import BackupMark, BackupState
from ...workspace.journal import Failure
from ...workspace.lifecycle import said
from ...workspace.plan import Plan
from ...workspace.state import ACTIVE, Approval, Moment, Tone
from ...workspace.views import status_of
from ..status import RunStatus, progress_of, usage_of
from .value_words import json_line

if TYPE_CHECKING:
    from ..history import Difference, Side
    from ..supervision import StopResult

_TEXT = 100  # characters
_NAMED = 5  # files of the inbox that are named
_LISTED = 3  # effects


def run_id_of(status: RunStatus) -> str:
    """Empty if it is not known."""
    known = status.definition or status.moved
    return known.run_id if known else ""


# Its state


def answered(status: RunStatus) -> str:
    """`answered, has to be resumed` of a run that waits for a person although no question is open any more. Otherwise
    empty."""
    moment = status.moment
    is_asked = moment is not None and (moment.doubts or moment.approvals)
    return "" if status.state != "waiting" or moment is None or is_asked else "answered, has to be resumed"


def detail(status: RunStatus) -> str:
    """What follows the state in a sentence: `: process 7 on ada, since ...`, ` for a person: 2 open questions`. Safe to
    print."""
    moment = status.moment
    match status.state:
        case "held" if status.holder is None:
            return ": no process has it open"
        case "running" | "draining" | "held":
            assert status.holder
            heard = f", last heartbeat {since(status.heard)}" if status.heard else ""
            shared = ", which other runs share" if status.holder.is_shared else ""
            return f": {one_line(_process(status), 80)}{shared}, since {since(status.holder.since)}{heard}"
        case "interrupted" if moment and moment.clean:
            return ": repaired after a crash, not running"
        case "interrupted":
            return f": {one_line(_process(status), 80)} ended without closing the run; what was recorded is safe"
        case "waiting" if said := answered(status):
            return f": {said}"
        case "waiting" if moment:
            return f" for a person: {counted(len(moment.doubts) + len(moment.approvals), 'open question')}"
        case "failed" if moment and moment.error:
            return f": {failure_line(moment.error)}"
        case "backup" if status.backup_of:
            return f": {backup_line(status.backup_of)}"
        case "new":
            return ": never started"
        case "sleeping" if moment:
            return f" until {since(moment.until)} ({one_line(moment.reason, _TEXT)})"
        case "paused" if moment and moment.reason == "signal":
            return " by a signal"
        case _:
            return f": {one_line(pause_reason(status, moment.reason), _TEXT)}" if moment and moment.reason else ""


def backup_line(mark: BackupMark) -> str:
    """Of which place it is a backup, and who has restored it."""
    known = f"complete at {since(mark.at)}" if mark.whole and mark.at else "not whole yet"
    line = f"follows {mark.source} on {mark.host}; {known}"
    if (done := mark.restored) is not None:
        line += f"; restored to {done.to} by {done.by}, {since(done.at)}"
    return line


_BACKUPS: dict[BackupState, str] = {
    "following": "follows",
    "ended": "has all that the last process recorded",
    "away": "can't be reached",
    "refused": "can't be used",
    "overtaken": "the run was restored from it",
    "adopted": "no longer follows, since the run goes on at two places",
}


def backup_lines(status: RunStatus) -> list[str]:
    """Where its backup is, and how far."""
    note = status.backup
    if note is None:
        wanted = status.definition.backup if status.definition else ""
        return [f"{wanted}: not begun"] if wanted and status.state != "backup" else []
    lag = max(0, status.moment.seq - note.seq) if status.moment else 0
    far = f", record {note.seq:,}" + (f", {counted(lag, 'record')} behind" if lag else "") if note.seq else ""
    if note.state not in ("following", "ended") and note.since:
        far += f", since {since(note.since)}"
    return [f"{note.to}: {_BACKUPS[note.state]}{far}", *([note.why] if note.why else [])]


def pause_reason(status: RunStatus, text: str) -> str:
    """Why it is paused. A conflict that a person has resolved since is over."""
    is_settled = text.startswith("conflict: ") and not status.wants_merge
    return (
        text.replace("`satchel merge` resolves it", "it is resolved; `satchel resume` continues")
        if is_settled
        else text
    )


_MODES: dict[Mode, str] = {"drain": "", "emergency": "; an emergency stop", "cancel": "; a cancellation"}


def pause_lines(status: RunStatus) -> list[str]:
    """Why the run is paused or asked to pause, by whom and until when; and what in pause.yaml can't be understood."""
    moment, found = status.moment, []
    if moment is not None and moment.pause is not None:
        forced = "; it was forced and interrupted running work" if moment.pause.forced else ""
        ends = "; a cancellation: the run only goes on to end" if moment.pause.mode == "cancel" else ""
        found.append(f"{pause_reason(status, said(moment.pause))}{ends}{forced}")
    elif status.wish is not None:
        found.append(f"{said(status.wish)}{_MODES[status.wish.mode]}")
    if status.pause_problem is not None:
        found += str(status.pause_problem).splitlines()
    return found


def failure_text(failure: Failure) -> str:
    """An error of the agent, whole."""
    return f"{failure.kind}: {failure.message}" if failure.message else failure.kind


def failure_line(failure: Failure) -> str:
    """The beginning of it in one line."""
    return one_line(failure_text(failure), 500)


def not_called(status: RunStatus) -> str:
    """Why the last start has not called the agent, if that is why the run does not go on. Needs more than a brief
    look."""
    if status.state != "interrupted" or status.moment is None or not status.moment.clean:
        return ""
    return "\n".join(remark.text for remark in status.report if remark.kind == "wanted")


def _process(status: RunStatus) -> str:
    """The process that has the workspace, or had it last."""
    process = status.holder or status.last
    return process.process if process else "a process"


_STOPPED: dict[str, str] = {
    "stopped": "Stopped",
    "idle": "Nothing was running. No process starts the run again until a person resumes it",
    "elsewhere": "Asked to stop. The process on another machine obeys within one poll, and the state then changes",
    "new": "Left alone",
    "draining": "Stopping",
    "failed": "Not stopped",
}


STOPS: dict[str, tuple[str, Tone | None]] = {
    "failed": ("not stopped", "bad"),
    "elsewhere": ("asked to stop on another machine", "ask"),
    "draining": ("stopping", "ask"),
    "stopped": ("stopped", "bad"),
    "idle": ("not running", "good"),
    "new": ("never begun and left alone", None),
}
"""What has become of runs that were to be killed. What a person may have to do something about comes first."""


def stop_counts(found: Iterable[StopResult]) -> str:
    """`2 stopped, 1 not running`."""
    count = Counter[str](each.how for each in found)
    return ", ".join(f"{count[how]:,} {words}" for how, (words, _) in STOPS.items() if count[how])


def describe_stop(stopped: StopResult) -> str:
    """What has become of a run that was to be killed, without a full stop."""
    pids = len(stopped.killed)
    killed = f": {pids} {'process' if pids == 1 else 'processes'} killed" if pids else ""
    return f"{_STOPPED[stopped.how]}{killed}{f' ({stopped.said})' if stopped.said else ''}"


# Its plan, its cost and its limits


def fraction(status: RunStatus) -> str:
    """`1/2`: how many items are done, and all. Empty without a plan."""
    found = progress_of(status)
    return f"{found.settled:,}/{found.leaves:,}" if found else ""


def progress(plan: Plan | None, noun: str = "") -> str:
    """`1 of 2 done, 1 dropped`; with a noun `1 of 2 items done`. Empty without a plan."""
    if plan is None or not len(plan):
        return ""
    settled, leaves = plan.progress
    return done_of(settled, leaves, noun) + (f", {plan.dropped:,} dropped" if plan.dropped else "")


def done_of(settled: int, leaves: int, noun: str = "") -> str:
    return f"{settled:,} of {counted(leaves, noun) if noun else f'{leaves:,}'} done"


def at_work_line(status: RunStatus) -> str:
    """`running: Letter 3`, `begun: ...` of a run that rests, or `next: ...`; empty if no item is left."""
    if (task := status.at_work) is None:
        return ""
    how = "next" if task.mark != "begun" else "running" if status.state == "running" else "begun"
    return f"{how}: {one_line(task.text, _TEXT)}"


def cost(status: RunStatus) -> str:
    """`$1.20`; of a run without costs its tokens: `12k tokens`."""
    usage = usage_of(status)
    if not (usage.usd or usage.tokens):
        return ""
    return usd(usage.usd) if usage.usd else f"{_short(usage.tokens)} tokens"


def _short(number: int) -> str:
    if number < 10_000:
        return f"{number:,}"
    return f"{number // 1000:,}k" if number < 10_000_000 else f"{number // 1_000_000:,}M"


def usage_line(moment: Moment) -> str:
    """`2 starts, 5 steps, 2 items committed, 800 tokens, $1.20`."""
    usage = moment.usage
    parts = [
        counted(moment.attempt, "start"),
        counted(usage.steps, "step"),
        f"{counted(usage.items, 'item')} committed",
    ]
    parts += [counted(usage.tokens, "token")] * bool(usage.tokens) + [usd(usage.usd)] * bool(usage.usd)
    return ", ".join(parts)


def uncalled_line(moment: Moment) -> str:
    """The effects of finished items that were done and that the last attempt at the item has not called."""
    found = moment.uncalled
    rest = f", and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"effects were done and not called again: {', '.join(found[-_LISTED:])}{rest}" if found else ""


class StatusLine(NamedTuple):
    """One fact about a run. `file` is the one that it is about."""

    title: str
    text: str
    tone: Tone | None = None
    file: str = ""


def queue_lines(status: RunStatus) -> list[StatusLine]:
    """The group and the priority that workspace.yaml gives it, if any."""
    definition = status.definition
    found = [StatusLine("group", definition.group)] if definition and definition.group else []
    return found + ([StatusLine("priority", str(definition.priority))] if definition and definition.priority else [])


def budget_lines(status: RunStatus) -> list[StatusLine]:
    """`$4.10 of $5.00, nearly used up`, for each limit."""
    found = []
    for share in status.budget:
        how: tuple[str, Tone | None] = ("", None)
        if share.is_used_up:
            how = ", used up", "bad"
        elif share.is_nearly:
            how = ", nearly used up", "ask"
        found.append(StatusLine("budget", share.words + how[0], how[1]))
    return found


def approval_line(id: str, approval: Approval) -> str:
    """`each call of pay by agent reader: a1, by ada, ... ago, used 2 times`."""
    whose = f" by agent {approval.agent}" if approval.agent else ""
    used = f"used {counted(approval.uses, 'time')}"
    return f"each call of {approval.tool}{whose}: {id}, by {approval.by}, {since(approval.at)}, {used}"


_UNOPENED = "done by a start whose agent did not open its inbox"


def schedule_lines(status: RunStatus) -> Iterator[str]:
    """`daily: last ...; next ...`, and that a clock is wrong."""
    for each in status.schedule:
        settled = f", {_UNOPENED}" if each.last and each.last.unopened else ""
        last = f"last {since(each.last.due)}{settled}; " if each.last else ""
        yield f"{each.name}: {last}next {since(each.next) if each.next else 'never'}"
    if status.ahead:
        yield status.ahead


class AgentLine(NamedTuple):
    """A sub-agent. `at` is its item that has begun, or its next one."""

    path: str
    depth: int
    status: str
    plan: Plan
    at: str


def agent_lines(moment: Moment, path: str = "", depth: int = 0) -> Iterator[AgentLine]:
    """The sub-agents, each below its parent."""
    for agent in moment.children(path):
        task = None if agent.has_ended else agent.plan.next_to_do()
        at = f"{'begun' if task.mark == 'begun' else 'next'}: {one_line(task.text, _TEXT)}" if task else ""
        yield AgentLine(agent.path, depth, status_of(moment, agent), agent.plan, at)
        yield from agent_lines(moment, agent.path, depth + 1)


# What waits for it, or for a person


def inbox_line(status: RunStatus) -> str:
    """`2 waiting, 1 taken but not done (order.yaml), 3 done`; empty if there was never a task."""
    moment = status.moment
    tasks = list(moment.tasks.values()) if moment else []
    if not status.waiting and not (moment and moment.tasks_taken):
        return ""
    names = ", ".join(one_line(task.file.rpartition("/")[2], 40) for task in tasks[:_NAMED])
    at_work = f", {len(tasks)} taken but not done ({names}{', ...' if len(tasks) > _NAMED else ''})" if tasks else ""
    ever = moment.tasks_taken - len(tasks) if moment else 0
    passed_over = status.state == "completed" and status.waiting and not status.has_tasks
    left = " (the agent completed without them; only a new one starts it again)" if passed_over else ""
    return f"{status.waiting} waiting{left}{at_work}" + (f", {ever} done" if ever else "")


def file_lines(status: RunStatus, merge: str = "satchel merge") -> list[StatusLine]:
    """Files that differ from what the run has written: conflicts, edits that the next start or the active run takes or
    refuses, files that are being saved, and reasons of refused edits. `merge`: the command that resolves a conflict, as
    the reader can type it."""
    noticed, found = status.noticed, list[StatusLine]()
    for asked in noticed.questions if noticed else ():
        found.append(
            StatusLine("conflict", f"{asked.path} conflicts with the run: {asked.places[0]}", "ask", asked.path)
        )
    if status.begun:
        found.append(StatusLine("conflict", str(status.begun), "ask"))
    if status.wants_merge:
        text = f"`{merge}` shows both versions; with `--use ours` it uses the run's version"
        found.append(StatusLine("merge", text, "ask"))
    elif status.has_conflict and status.state in ACTIVE:
        found.append(StatusLine("merge", "a file conflicts with the run", "ask"))
    for edit in noticed.edits if noticed else ():
        for each in edit.record.says:
            text = f"{edit.record.file}: {each}; the next start takes it"
            found.append(StatusLine("edited", text, "hold", edit.record.file))
    if noticed and noticed.back:
        found.append(StatusLine("edited", f"a start asks: {noticed.back.question}", "ask"))
    for path in status.waiting_edits:
        if path not in status.being_saved:
            found.append(
                StatusLine("edited", f"{path} was saved; the run reads it at the next safe point", "hold", path)
            )
    for path in status.being_saved:
        found.append(StatusLine("saving", describe_saving(path), "hold", path))
    for refusal in noticed.refusals if noticed else ():
        found.append(StatusLine("edited", f"refused: {refusal.error}", "bad", refusal.path))
    for path in status.refused:
        text = f"{path} says why an edit was not accepted; delete it when you have read it"
        found.append(StatusLine("refused", text, "bad", path))
    return found


def missing_log(status: RunStatus, *, is_remote: bool) -> str:
    """Why there is nothing that processes of the run have printed."""
    if status.state == "new" and status.holder is None:
        return "The run was not started yet, so no process has printed anything."
    said = (
        "No process of this run has printed anything into its log. What `satchel run` or a program prints goes to its "
    )
    said += "terminal; what `--detach`, `satchel serve` and the page start has a log"
    return f"{said}, on the machine that runs it, and in the bucket once it has stopped." if is_remote else f"{said}."


# Two compared moments next to each other


class SideRow(NamedTuple):
    """A row of the two sides. `better`: the side that did more, or took less; empty if that can't be said."""

    name: str
    old: str
    new: str
    better: Literal["old", "new", ""] = ""

    @property
    def differs(self) -> bool:
        return self.old != self.new


def side_rows(found: Difference, width: int = 60) -> list[SideRow]:
    """State, result, items, steps, tokens, money and time of both sides; none of what neither has."""
    old, new = found.old, found.new
    rows = [SideRow("state", old.status, new.status, _better(old, new, lambda side: side.status != "completed"))]
    if old.result is not None or new.result is not None:
        rows.append(SideRow("result", json_line(old.result, width), json_line(new.result, width)))
    return [*rows, *_numbers(old, new)]


def _numbers(old: Side, new: Side) -> Iterator[SideRow]:
    if old.items or new.items:
        left = _better(old, new, lambda side: side.items - side.done)
        one, other = (f"{side.done:,} of {side.items:,}" for side in (old, new))
        yield SideRow("items done", one, other, left)
    kinds: tuple[tuple[str, Callable[[Side], float], Callable[[float], str]], ...] = (
        ("steps", lambda side: side.usage.steps, lambda value: f"{value:,}"),
        ("tokens", lambda side: side.usage.tokens, lambda value: f"{value:,}"),
        ("money", lambda side: side.usage.usd, usd),
        ("time", lambda side: side.usage.seconds, duration),
    )
    for name, value, words in kinds:
        if value(old) or value(new):
            better = "" if name == "steps" else _better(old, new, value)
            yield SideRow(name, words(value(old)), words(value(new)), better)


def _better(old: Side, new: Side, least: Callable[[Side], float]) -> Literal["old", "new", ""]:
    """Two moments of one run are not compared: the later one has always used more."""
    one, other = least(old), least(new)
    return "" if one == other or old.url == new.url else "old" if one < other else "new"
