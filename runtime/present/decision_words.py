"""What a person has to decide, in words. An open question: where it was asked, what its choices mean, what holds once
it expires, and what a person has typed into its file. A conflict between a file and the run: what each version says at
each place, and what each choice does in numbers. And why a run does not go on by itself: what is wrong, where, what was
tried, and what to do; the page shows that as a card, `satchel status` and `satchel watch` as lines, MCP as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
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
    since,
)
from ...workspace.base import lines as lines_of
from ...workspace.inbound import APPROVE, DENY, ConflictChoice, ConflictPlace, FileConflict, Question, with_changes
from ...workspace.state import NONE_SINCE, Moment, Pause, Tone
from ..live import Share, limits
from ..status import Given, OpenQuestion, RunStatus, before_a_start
from .status_words import backup_line, detail, failure_text, file_lines, not_called, pause_lines
from .value_words import attempt_line, call_name, json_line

if TYPE_CHECKING:
    from ...workspace.history import FailedAttempt, FailedCall
    from ..api import AnswerResult

_ANSWER = 200  # characters of an answer
_DEFAULT = 60


# An open question


def place_asked(question: Question) -> str:
    """`'Letter 3', of the agent reader`; empty for a question of the agent itself."""
    parts = [repr(question.item)] if question.item else []
    parts += [f"of the agent {question.agent}"] if question.agent else []
    return ", ".join(parts)


def choice_meaning(question: Question, choice: str) -> str:
    """What an answer about an effect in doubt means; empty for one that says it itself."""
    if question.is_unclaimed:
        return question.meaning(choice)
    if question.is_doubt:
        if choice == NONE_SINCE:
            return "it has not happened, nor anything else after the backup; do it and don't ask again"
        return "it has happened" if question.has_happened(choice) else "it has not happened; do it"
    return ""


def choice_tone(question: Question, choice: str) -> Tone | None:
    """The tone of an answer: what lets the call happen, what refuses it, and what does an effect again."""
    if question.is_doubt:
        return "good" if question.has_happened(choice) else "ask"
    return {APPROVE: "good", DENY: "bad"}.get(choice)  # type: ignore[return-value]


def question_title(asked: OpenQuestion) -> str:
    """What is asked; about an effect without its arguments, which `argument_rows` shows."""
    call = asked.call
    is_long = asked.question.is_doubt and asked.text.startswith(call)
    return f"{call.partition('(')[0]}{asked.text[len(call) :]}" if is_long else asked.text


def argument_rows(asked: OpenQuestion) -> list[tuple[str, str]]:
    """The arguments of the call that it is about, each with its name; texts as they are, all else as JSON."""
    return [
        (name, value if isinstance(value, str) else _json(value)) for name, value in (asked.arguments or {}).items()
    ]


def covered(tool: str, agent: str) -> str:
    """What a standing approval covers."""
    whose = f"by the agent {agent}" if agent else "by the run's own agent"
    return f"each call of {tool} {whose}, whatever its arguments, until it is revoked or the agent's code changes"


def expiry_line(question: Question) -> str:
    """`"deny" counts once it expires, 2026-11-28 12:00:00 UTC (in 3 h 0 min)`; empty without."""
    if not question.expires:
        return ""
    return f"{json_line(question.facts.get('default'), _DEFAULT)} counts once it expires, {since(question.expires)}"


def describe_reply(asked: OpenQuestion) -> str:
    """What the file of a question says that no start has taken yet; empty without."""
    if asked.mistake:
        return f"not a valid answer: {asked.mistake}"
    if asked.reply is None:
        return ""
    said = with_changes(json_line(asked.reply.decision, _ANSWER), asked.reply.arguments)
    return f"answered {one_line(said, _ANSWER)}{_standing(asked.reply)}"


def describe_answer(done: AnswerResult) -> str:
    """`a1 is answered: approve, for later calls too`, or where an answer is that is not on record yet."""
    given = done.answer
    if given is None or not done.is_recorded:
        return f"{done.id}: the answer is in {done.file}; {done.waits_for} takes it at the latest when the run stops"
    said = " ".join(with_changes(typed_value(given.decision), given.arguments).split()) + _standing(given)
    return f"{done.id} is {'already ' * done.was_before}answered: {said}"


def describe_revocation(done: AnswerResult) -> str:
    """`a1 is revoked: it counts for no later call`."""
    late = "" if done.is_recorded else f"; {done.waits_for} reads it before the next call begins"
    return f"{done.id} is {'already ' * done.was_before}revoked: it counts for no later call{late}"


def _standing(given: Given) -> str:
    return ", for later calls too" * given.standing


def typed_value(value: Any) -> str:
    """A JSON value as a person would type it."""
    from ...workspace.inbound import answer_text  # most runs ask nothing

    return answer_text(msgspec.Raw(msgspec.json.encode(value)))


def context_text(value: Any) -> str:
    """A value that a question is about: the keys of an object one a line."""
    if isinstance(value, dict):
        return "\n".join(
            f"{key}: {context_text(each) if isinstance(each, str) else _json(each)}" for key, each in value.items()
        )
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# A conflict

CHOICES = {
    "theirs": "use the file where the two differ",
    "ours": "use the run",
    "edited": "use the whole file as it is",
}
"""What `--use` does, and a button of the page."""

_COUNTED = {
    "added": ("item of yours is added", "items of yours are added"),
    "done": ("item counts as done", "items count as done"),
    "again": ("item is done again", "items are done again"),
    "dropped": ("item is dropped", "items are dropped"),
    "revived": ("cancelled item counts again", "cancelled items count again"),
    "reworded": ("item gets your words", "items get your words"),
    "moved": ("item gets another place", "items get another place"),
    "text": ("text around the items is changed", "texts around the items are changed"),
    "values_added": ("value of yours is added", "values of yours are added"),
    "values_replaced": ("value of the run is replaced by yours", "values of the run are replaced by yours"),
    "values_removed": ("value of the run is removed", "values of the run are removed"),
    "results": ("result of the run is dropped", "results of the run are dropped"),
    "left": ("change of yours is not taken", "changes of yours are not taken"),
}

_COMPARED = 1_000
"""Lines of a version that are compared, at most."""

_SHOWN_LINES = 40  # of a version
_PLACES = 50  # of a conflict, as lines of text


def choice_line(choice: ConflictChoice) -> str:
    """`3 items of yours are added, 1 result of the run is dropped`."""
    if choice.refused:
        return f"the run can't take it: {choice.refused}"
    counts = {kind: choice.counts[kind] for kind in _COUNTED if kind in choice.counts}
    said = [f"{count:,} {_COUNTED[kind][count != 1]}" for kind, count in counts.items()]
    return ", ".join(said) or "the run stays as it is"


def offered_choices(conflict: FileConflict) -> list[ConflictChoice]:
    """The choices that differ: the whole file is not offered if it does the same as the file where the two differ."""
    theirs = next((each for each in conflict.choices if each.use == "theirs"), None)
    return [
        each
        for each in conflict.choices
        if each.use != "edited" or theirs is None or (each.counts, each.says) != (theirs.counts, theirs.says)
    ]


class SideLine(NamedTuple):
    """A line of a version. `is_changed`: it is not the same in the other versions."""

    text: str
    is_changed: bool = False


class SideText(NamedTuple):
    """One version of a place: only the lines around what differs. Without lines, `missing` says why. `more`: lines that
    are not shown."""

    name: str
    tone: Tone | None
    lines: list[SideLine]
    missing: str = ""
    more: int = 0


def side_texts(conflict: FileConflict, place: ConflictPlace) -> list[SideText]:
    """What the file was made from, the file, and the run. Empty if the place has no texts to compare."""
    if place.ours is None and place.theirs is None:
        return []
    ours, theirs = _lines(place.ours), _lines(place.theirs)
    if conflict.base is None:
        its, mine = _changed(theirs, ours)
        base, before, missing = list[str](), set[int](), "not known"
    else:
        base, missing = _lines(place.base), "nothing"
        by_ours, mine = _changed(base, ours)
        by_theirs, its = _changed(base, theirs)
        before = by_ours | by_theirs
    return [
        _side("before", None, base, before, missing),
        _side("the file", "good", theirs, its, "nothing"),
        _side("the run", "active", ours, mine, "nothing"),
    ]


def _lines(text: str | None) -> list[str]:
    return [] if text is None else [*lines_of(text)][:_COMPARED] or [""]


def _changed(old: Sequence[str], new: Sequence[str]) -> tuple[set[int], set[int]]:
    """The numbers of the lines of each that the other one does not have."""
    from difflib import SequenceMatcher  # slow, and conflicts are rare

    found = set[int](), set[int]()
    for tag, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            found[0].update(range(start, end))
            found[1].update(range(first, last))
    return found


def _side(name: str, tone: Tone | None, lines: list[str], changed: set[int], missing: str) -> SideText:
    near = sorted({at for each in changed or {0} for at in (each - 1, each, each + 1) if 0 <= at < len(lines)})
    shown, last = list[SideLine](), -1
    for at in near[:_SHOWN_LINES]:
        if at > last + 1:
            shown.append(SideLine("…"))
        shown.append(SideLine(lines[at], at in changed))
        last = at
    return SideText(name, tone, shown, "" if shown else missing, max(0, len(near) - _SHOWN_LINES))


def conflict_lines(conflict: FileConflict) -> Iterator[tuple[str, Tone | None]]:
    """A conflict as lines of text: each place with its versions."""
    for place in conflict.places[:_PLACES]:
        yield f"  {place}", None
        for side in side_texts(conflict, place):
            for number, line in enumerate(side.lines or [SideLine(side.missing)]):
                tone = side.tone if line.is_changed else "rest"
                yield f"    {'' if number else side.name:<8}  {line.text}", tone
            if side.more:
                yield f"    {'':<8}  and {side.more:,} more lines", "rest"
    if len(conflict.places) > _PLACES:
        yield f"  and {len(conflict.places) - _PLACES:,} more places", None


def conflict_json(conflict: FileConflict) -> dict[str, Any]:
    """The places with their versions, and what each choice does."""
    return {
        "path": conflict.path,
        "places": [msgspec.to_builtins(each) for each in conflict.places],
        "choices": [msgspec.to_builtins(each) for each in conflict.choices],
    }


# Why a run does not go on

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
        case "paused" if moment.pause and moment.pause.by == limits.BUDGET:
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
