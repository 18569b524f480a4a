"""The state of a run in words."""

from __future__ import annotations

from ...workspace.base import counted, one_line, since
from ...workspace.journal.records import Failure
from ...workspace.lifecycle import said
from ...workspace.state import Tone, tone
from .run_status import Standing

_TEXT = 100  # characters

_COLOURS: dict[Tone, str] = {"active": "cyan", "good": "green", "bad": "red", "ask": "yellow", "hold": "yellow"}


def colour(state: str) -> str | None:
    """The colour of a state in a terminal."""
    return _COLOURS.get(tone(state))


def answered(standing: Standing) -> str:
    """`answered, has to be resumed` of a run that waits for a person although no question is open any more. Otherwise
    empty."""
    moment = standing.moment
    is_asked = moment is not None and (moment.doubts or moment.approvals)
    return "" if standing.state != "waiting" or moment is None or is_asked else "answered, has to be resumed"


def detail(standing: Standing) -> str:
    """What follows the state in a sentence: `: process 7 on ada, since ...`, ` for a person: 2 open questions`. Safe to
    print."""
    moment = standing.moment
    match standing.state:
        case "running" | "draining":
            assert standing.holder
            heard = f", last heartbeat {since(standing.heard)}" if standing.heard else ""
            return f": {one_line(_process(standing), 80)}, since {since(standing.holder.since)}{heard}"
        case "interrupted" if moment and moment.clean:
            return ": repaired after a crash, not running"
        case "interrupted":
            return f": {one_line(_process(standing), 80)} ended without closing the run; what was recorded is safe"
        case "waiting" if said := answered(standing):
            return f": {said}"
        case "waiting" if moment:
            return f" for a person: {counted(len(moment.doubts) + len(moment.approvals), 'open question')}"
        case "failed" if moment and moment.error:
            return f": {failure_line(moment.error)}"
        case "new":
            return ": never started"
        case "sleeping" if moment:
            return f" until {since(moment.until)} ({one_line(moment.reason, _TEXT)})"
        case "paused" if moment and moment.reason == "signal":
            return " by a signal"
        case _:
            return f": {one_line(pause_reason(standing, moment.reason), _TEXT)}" if moment and moment.reason else ""


def pause_reason(standing: Standing, text: str) -> str:
    """Why it is paused. A conflict that a person has resolved since is over."""
    is_settled = text.startswith("conflict: ") and not standing.wants_merge
    return (
        text.replace("`satchel merge` resolves it", "it is resolved; `satchel resume` continues")
        if is_settled
        else text
    )


def pause_lines(standing: Standing) -> list[str]:
    """Why the run is paused or asked to pause, by whom and until when; and what in pause.yaml can't be understood."""
    moment, found = standing.moment, []
    if moment is not None and moment.pause is not None:
        forced = "; it was forced and interrupted running work" if moment.pause.forced else ""
        found.append(f"{pause_reason(standing, said(moment.pause))}{forced}")
    elif standing.wish is not None:
        at_once = "; an emergency stop" if standing.wish.mode == "emergency" else ""
        found.append(f"{said(standing.wish)}{at_once}")
    if standing.pause_problem is not None:
        found += str(standing.pause_problem).splitlines()
    return found


def failure_line(failure: Failure) -> str:
    """An error of the agent in one line."""
    return one_line(f"{failure.kind}: {failure.message}" if failure.message else failure.kind, 500)


def _process(standing: Standing) -> str:
    """The process that has the workspace, or had it last."""
    process = standing.holder or standing.last
    return process.process if process else "a process"
