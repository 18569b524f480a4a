"""Why a run does not go on by itself: what is wrong, where, what was tried, and what to do. The page shows that as a
card, `satchel status` and `satchel watch` as lines, MCP as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from ...workspace.base import (
    DEFINITION,
    InvalidFile,
    SatchelError,
    StorageFailed,
    counted,
    duration,
    moment_of,
    one_line,
)
from ...workspace.state import Moment, Pause, Tone
from ..limits import Share, budget
from ..status import RunStatus, before_a_start
from .status_words import backup_line, detail, failure_text, file_lines, not_called, pause_lines
from .value_words import attempt_line, call_name

if TYPE_CHECKING:
    from ...workspace.history import FailedAttempt, FailedCall

_SHOWN = 5  # attempts
_LONG = 300  # characters of an attempt
_STUCK = "stuck: "

Remedy = Literal["resume", "raise_budget", "merge", "check", "look_again"]
"""What the main button does. `raise_budget`: give it a higher limit, and resume it. `look_again`: read it once more."""


class Diagnosis(Struct, frozen=True, omit_defaults=True):
    """What is wrong with a run. Its text may come from a stranger.

    `where` is the innermost line of the agent's own code, `frames` all of its lines that the error came through,
    outermost first; or a file of the workspace. `call` is the name of the call that has failed (`^3/2`), `of_call` its
    step and arguments. `act` is empty if only a person at a terminal can do something.
    """

    title: str
    what: str
    where: str = ""
    frames: tuple[str, ...] = ()
    call: str = ""
    of_call: str = ""
    tried: tuple[str, ...] = ()
    to_do: str = ""
    act: Remedy | None = None
    tone: Tone = "bad"


def diagnose(status: RunStatus) -> Diagnosis | None:
    """What is wrong with a run that has failed, is stuck, has used up its budget, was interrupted, or can't be read;
    None of any other. The call that has failed, and the limits, are known from a look that is not brief."""
    if status.moved is not None:
        return Diagnosis("At another place", f"the run is now at {status.moved.to}", tone="hold")
    if status.backup_of is not None:
        return None
    if status.problem is not None:
        return _unreadable(status, status.problem)
    moment = status.moment
    if moment is None:
        return None
    match status.state:
        case "failed" if moment.error:
            return _failed(status, moment, "Failed", failure_text(moment.error))
        case "paused" if moment.reason.startswith(_STUCK):
            what = failure_text(moment.error) if moment.error else moment.reason.removeprefix(_STUCK)
            return _failed(status, moment, "Stuck", what.removeprefix("Crashed: "))
        case "paused" if moment.pause and moment.pause.by == budget.BY:
            return _over_budget(status, moment.pause)
        case "interrupted":
            what = not_called(status) or detail(status).lstrip(": ")
            crashes = f"its process has died {counted(moment.crashes, 'time')}"
            tried = (crashes,) if moment.crashes > 1 else ()
            act, to_do = _resume(status, "resume it: what is done stays done. `satchel serve` does that by itself")
            return Diagnosis("Interrupted", what, tried=tried, to_do=to_do, act=act, tone="ask")
    return None


def diagnosis_lines(found: Diagnosis) -> Iterator[tuple[str, str]]:
    """All but its title and what is wrong, each line with its name; the lines of one name follow each other."""
    if found.where:
        yield "where", found.where
        yield from (("where", f"  called in {each}") for each in reversed(found.frames[:-1]) if each != found.where)
    if found.call:
        yield "call", f"{found.call}  {found.of_call}"
    yield from (("tried", each) for each in found.tried)
    if found.to_do:
        yield "to do", found.to_do


def diagnosis_json(found: Diagnosis | None) -> dict[str, Any] | None:
    return asdict(found) if found else None


def _failed(status: RunStatus, moment: Moment, title: str, what: str) -> Diagnosis:
    frames, failed = moment.error.where if moment.error else (), status.failed_call
    # Code of others has a whole path: the agent's own line is the one that a person can correct
    where = next((each for each in reversed(frames) if not each.startswith("/")), frames[-1] if frames else "")
    act, to_do = _resume(status, "correct the cause, then resume: what is done stays done")
    return Diagnosis(
        title,
        what,
        where,
        frames,
        call=failed.name if failed else "",
        of_call=call_name(failed) if failed else "",
        tried=tuple(_tried(moment, failed)),
        to_do=to_do,
        act=act,
    )


def _over_budget(status: RunStatus, pause: Pause) -> Diagnosis:
    reasons = [share.reason for share in status.budget if share.is_used_up]
    act, to_do = _resume(status, "resume it: the limit is higher now")
    if act == "resume" and reasons:
        act = "raise_budget"
    what = "; ".join(each.removeprefix("cost: ") for each in reasons or [pause.reason])
    return Diagnosis("Budget used up", what, DEFINITION, to_do=to_do, act=act, tone="ask")


class LimitToRaise(NamedTuple):
    """A limit that is used up, as the key of `budget:`; `suggested`: as much once more, as workspace.yaml takes it."""

    kind: str
    words: str
    suggested: str


def limits_to_raise(status: RunStatus) -> list[LimitToRaise]:
    return [LimitToRaise(share.kind, share.words, _as_much_again(share)) for share in status.budget if share.is_used_up]


def _as_much_again(share: Share) -> str:
    number = f"{share.limit * (share.used // share.limit + 1):.15g}"
    return f"{number} s" if share.kind == "time" else number


def _tried(moment: Moment, failed: FailedCall | None) -> Iterator[str]:
    yield from _attempts(failed.attempts) if failed else ()
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            if scope.failures > 1 and scope.title:
                yield f"{one_line(scope.title, 60)!r} has failed {counted(scope.failures, 'time')}"
    if moment.crashes > 1:
        yield f"its process has died {counted(moment.crashes, 'time')}"


def _attempts(attempts: Sequence[FailedAttempt]) -> Iterator[str]:
    """Equal ones as one line."""
    if len(attempts) == 1:
        yield "1 attempt"
    elif len({each.error for each in attempts}) == 1:
        first, last = moment_of(attempts[0].at), moment_of(attempts[-1].at)
        seconds = (last - first).total_seconds() if first and last else 0.0
        within = f" in {duration(seconds)}" if seconds >= 0.1 else ""
        yield f"{counted(len(attempts), 'attempt')}{within}, each with {one_line(attempts[0].error, _LONG)}"
    else:
        if len(attempts) > _SHOWN:
            yield f"{counted(len(attempts) - _SHOWN, 'attempt')} before these"
        yield from (one_line(attempt_line(each), _LONG) for each in attempts[-_SHOWN:])


def _resume(status: RunStatus, to_do: str) -> tuple[Remedy | None, str]:
    """The main button of a run that can be resumed, and what a person does before."""
    if status.wants_adoption:
        return None, "it may be a copy: say first that it continues here"
    if status.wants_merge:
        return "merge", "a file conflicts with the run: decide which version counts, then resume"
    steps = before_a_start(status)
    return "resume", f"{', '.join(steps)}; then resume" if steps else to_do


def _unreadable(status: RunStatus, problem: SatchelError) -> Diagnosis:
    title = "Damaged" if status.state == "damaged" else "Not all can be read"
    act: Remedy = "check"
    to_do = problem.remedy or ""
    if isinstance(problem, StorageFailed):
        title, act, to_do = "The storage does not answer", "look_again", to_do or "look again when it does"
    if isinstance(problem, InvalidFile):
        return Diagnosis(title, "\n".join(map(str, problem.problems)), problem.path or "", to_do=to_do, act=act)
    what = f"{problem.what}: {problem.why}" if problem.why else problem.what
    return Diagnosis(title, what, problem.path or "", to_do=to_do, act=act)


def why_lines(status: RunStatus) -> list[str]:
    """Why a run rests or stops, a fact a line: what is wrong with it, and what a person has to settle, come first."""
    wrong, found = diagnose(status), list[str]()
    if status.moved and wrong:
        found.append(wrong.what)
    elif status.backup_of is not None:
        found.append(backup_line(status.backup_of))
    elif status.problem:
        found.append(str(status.problem))
    found += [each.text for each in file_lines(status) if each.tone in ("ask", "bad")]
    stops = pause_lines(status) if status.state in ("paused", "draining") or status.pause_problem else []
    if not stops and status.state in ("interrupted", "waiting", "failed", "sleeping", "paused", "cancelled"):
        found += filter(None, [detail(status).lstrip(": ")])
    found += [f"pause: {line}" for line in stops]
    if wrong is not None and status.problem is None:
        found += [line if name == "where" else f"{name}: {line}" for name, line in diagnosis_lines(wrong)]
    if status.mistake:
        found.append(str(status.mistake))
    return found
