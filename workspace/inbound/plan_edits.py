"""todo.md: items ticked, unticked, dropped, added, moved and reworded, and the text around them."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from ..base import InvalidFile, Refused, Stamped, decode, is_blank, stamp
from ..journal import Doubt, OfCall, StepCompleted
from ..plan import Plan, Task, between, plainly
from ..state import AgentMoment, Scope, is_of_item
from ..views import projection
from .findings import ConflictPlace, Edit, FileConflict, Looking, RejectedFile, check_size, foreign
from .json_edits import no_journal
from .rewind_record import note_copy

if TYPE_CHECKING:
    from ..plan import Changes, Move

_TOLD = 8
_SHOWN = 60


def look(looking: Looking, agent: AgentMoment) -> None:
    path, owner = agent.folder + projection.TODO, projection.owner(looking.moment, agent)
    if not agent.has_plan and looking.store.version(path) is None:
        return
    found = looking.settled(path, lambda data: stamp.read_markdown(data, owner).untouched)
    if found is not None:
        looking.noticed.versions[path] = found.version
    if found is not None and not (agent.has_plan and is_blank(found.data)):
        judge(looking, agent, found.data, stamp.read_markdown(found.data, owner))
    elif agent.has_plan:
        looking.find(path, f"was {'missing' if found is None else 'empty'}; it is restored")


def judge(looking: Looking, agent: AgentMoment, data: bytes, stamped: Stamped) -> None:
    """The finding about one content of the file, in it or about to be saved."""
    path = agent.folder + projection.TODO
    try:
        if note_copy(looking, agent, path, data):
            return
        if agent.has_plan:
            looking.judge(agent, path, data, stamped, stamped.untouched, edited)
        else:
            _before_the_agent(looking, agent, path, stamped)
    except (InvalidFile, Refused) as error:
        looking.refuse(path, error, data if agent.has_plan else None)


def _text(stamped: Stamped, path: str) -> str:
    text = decode(stamped.body, path)
    if "\0" in text:
        raise Refused(
            "contains bytes that are not text",
            path=path,
            why="it was copied or written only in part",
            remedy="save it again",
        )
    return plainly(("\ufeff" if stamped.body.startswith(codecs.BOM_UTF8) else "") + text)


def _before_the_agent(looking: Looking, agent: AgentMoment, path: str, stamped: Stamped) -> None:
    """A plan where there was none is taken as it is."""
    if stamped.stamp is not None:
        raise no_journal(path, stamped.stamp.seq)
    text = _text(stamped, path)
    check_size(path, len(text.encode()))
    if problems := Plan(text).problems():
        raise InvalidFile(path, problems)
    for warning in _warnings(Plan(text)):
        looking.find(path, warning)
    looking.noticed.plans[agent.path] = text


class _Saved(Struct, frozen=True):
    """A person's version of the plan, and its base, if that is known."""

    path: str
    data: bytes
    plan: Plan
    base: Plan | None
    base_file: bytes | None
    base_seq: int | None


def edited(looking: Looking, agent: AgentMoment, path: str, data: bytes) -> None:
    """The finding about a file that differs from what the run wrote: an edit, a question, or nothing new."""
    text = _new_text(looking, agent, path, data)
    if text is None:
        return
    saved = _read(looking, agent, path, data, text)
    after = _merged(looking, agent, saved)
    if after is None:
        return
    edit = _edit(looking, agent, saved, after)
    if edit is None:
        looking.find(
            path, "was changed but has the same content as the run; Satchel writes the file again", settles=True
        )
        return
    looking.take(edit, data)


def _new_text(looking: Looking, agent: AgentMoment, path: str, data: bytes) -> str | None:
    """The content of the file; None if the run has the same."""
    moment, now = looking.moment, agent.plan
    stamped = stamp.read_markdown(data, projection.owner(moment, agent))
    text = _text(stamped, path)
    if stamped.stamp is None and hashlib.sha256(text.encode()).hexdigest() == agent.adopted:
        looking.find(
            path, f"was still the version from before the run began; Satchel updates it to record {moment.seq}"
        )
        return None
    if _STAMP_CUT_OFF.search(data):
        text = text[: text.rindex("<")]
        if text.rstrip() != now.text.rstrip():
            raise _cut_off(path, "its last line is a part of the stamp that the run had put there")
    if text.rstrip() == now.text.rstrip():
        looking.find(path, "had another stamp but has the same content; Satchel writes the file again", settles=True)
        return None
    return text


def _read(looking: Looking, agent: AgentMoment, path: str, data: bytes, text: str) -> _Saved:
    """Refused or InvalidFile for a plan that can't be taken, whatever it would change."""
    now = agent.plan
    stamped = stamp.read_markdown(data, projection.owner(looking.moment, agent))
    base, base_file = _base(looking, agent, path, stamped)
    theirs = Plan(text)
    if stamped.stamp is None and _is_cut_off(projection.todo_file(looking.moment, agent), data, theirs, now):
        raise _cut_off(path, "it is only the first part of the file that the run wrote")
    if (asked := looking.noticed.kept.get(path)) is not None and _is_beginning(asked, data):
        raise Refused(
            "ends in the middle",
            path=path,
            why="it is the beginning of the version that was asked about",
            remedy="save it whole, or end its last line to remove what came after it",
        )
    known = {problem[1:] for plan in (base, now) if plan is not None for problem in plan.problems()}
    if problems := [problem for problem in theirs.problems() if problem[1:] not in known]:
        raise InvalidFile(path, problems)
    return _Saved(path, data, theirs, base, base_file, stamped.stamp.seq if base and stamped.stamp else None)


def _merged(looking: Looking, agent: AgentMoment, saved: _Saved) -> Plan | None:
    """The merged plan; None if a person has to choose a version."""
    from ..plan import conflict_sides, merge_plans  # most files have no edit

    noticed, path, now = looking.noticed, saved.path, agent.plan
    choice = looking.choice(path)
    prefer = choice if choice in ("ours", "theirs") else None
    merged = merge_plans(
        now if choice == "edited" else saved.base, now, saved.plan, prefer=prefer, highest=agent.highest_id
    )
    if merged.conflicts and not (
        choice == "edited" and {each.why for each in merged.conflicts} == {"everything_removed"}
    ):
        ours = projection.todo_file(looking.moment, agent)
        sides = conflict_sides(merged.conflicts, saved.base, now, saved.plan)
        places = tuple(ConflictPlace(str(each), *texts) for each, texts in zip(merged.conflicts, sides, strict=True))
        noticed.questions.append(FileConflict(path, places, saved.base_file, ours, saved.data))
        return None
    after = saved.plan if merged.conflicts else merged.plan.copy()
    after.identify(agent.highest_id)
    if choice == "ours":
        noticed.overruled.append(RejectedFile(path, Refused("the run's version was chosen", path=path), saved.data))
    return after


def _edit(looking: Looking, agent: AgentMoment, saved: _Saved, after: Plan) -> Edit | None:
    """The record of the edit; None if `after` is the plan of the run."""
    now = agent.plan
    splices = between(list(now.lines), list(after.lines))
    if not splices:
        return None
    from ..plan import changes

    done = changes(now, after)
    redone = tuple(pair.after.id for pair in (*done.unticked, *done.restarted) if pair.after.id and pair.after.is_work)
    dropped = tuple(
        key
        for key in agent.scopes
        if key not in redone and is_of_item(key) and now.is_to_do(key) and not after.is_to_do(key)
    )
    record = looking.edited(
        saved.path,
        saved.data,
        (*_say(agent, done), *_warnings(saved.plan, saved.base, now)) or _named(now, after),
        agent.path,
        base=saved.base_seq,
        plan=tuple(splices),
        outline=after.outline() if len(after) > _WORTH_KEEPING else [],
        own_work=tuple(sorted(after.own_work - now.own_work)),
        redone=redone,
        dropped=dropped,
    )
    return Edit(record, after, tuple(_doubts(agent, dropped)), done)


def _named(now: Plan, after: Plan) -> tuple[str, ...]:
    """What is said if nothing else was changed: items have got their ids from a person, or the text between them."""
    named = [task for task in after.tasks if task.id and now.task(task.id) is None][:_TOLD]
    return tuple(f"{_quoted(task.text)} has the id ^{task.id}" for task in named) or ("the text around the items",)


_STAMP_CUT_OFF = re.compile(rb"(?:\A|\n)<(?:!(?:-(?:-(?: (?:s[a-z]*(?: [0-9a-f.]*(?: -?-?)?)?)?)?)?)?)?\Z")


def _cut_off(path: str, why: str) -> Refused:
    return Refused(
        "ends in the middle",
        path=path,
        why=why,
        remedy="to remove something at its end, leave the last line, the stamp",
    )


def _is_cut_off(whole: bytes, data: bytes, theirs: Plan, now: Plan) -> bool:
    """Whether a save or a copy of the file was cut off. One that ends after a whole line and lacks items is asked about
    like any other; but missing words and text in it must not be obeyed."""
    if not data or not whole.startswith(data):
        return False
    return len(theirs) == len(now) or not data.endswith(b"\n")


def _is_beginning(whole: bytes, data: bytes) -> bool:
    """Whether a version in a conflict was cut off since: an answer to the conflict is for the whole of it."""
    if not whole.startswith(data) or data.rstrip() == whole.rstrip():
        return False
    return whole.endswith(b"\n") and not data.endswith(b"\n")


_WORTH_KEEPING = 1000
"""From so many items on, a later opening is spared the parsing."""


def _base(looking: Looking, agent: AgentMoment, path: str, stamped: Stamped) -> tuple[Plan, bytes] | tuple[None, None]:
    """The plan that the file was made from, and its file; None if it doesn't say, or the base is gone."""
    if stamped.stamp is None:
        return None, None
    moment = looking.history.at(stamped.stamp.seq)
    if moment is None:
        return None, None
    was = moment.agents.get(agent.path)
    if was is None or not was.has_plan or not _wrote(was.plan, projection.owner(looking.moment, agent), stamped):
        raise foreign(path, f"its stamp is not one that this run has written at record {stamped.stamp.seq}")
    return was.plan, projection.todo_file(moment, was)


def _wrote(plan: Plan, owner: str, stamped: Stamped) -> bool:
    assert stamped.stamp is not None
    return stamp.sha_of_markdown(plan.text.encode(), owner).decode() == stamped.stamp.sha


def _doubts(agent: AgentMoment, scopes: tuple[str, ...]) -> Iterator[Doubt]:
    """Removing an item from the plan does not resolve what it may have done."""
    for key in scopes:
        for started in agent.scopes[key].started.values() if key in agent.scopes else ():
            identity = {name: getattr(started, name) for name in OfCall.__struct_fields__}
            yield Doubt(**identity, id="", why="unreached")


def _warnings(theirs: Plan, *before: Plan | None) -> list[str]:
    """About new list items without a checkbox, among items that have one."""
    known = {text for plan in before if plan is not None for text in plan.without_checkbox()}
    new = [(text, line) for text, line in theirs.without_checkbox().items() if text not in known]
    return [
        f"line {line}: {_quoted(text)} has no checkbox, so it is text and not an item; write {_quoted(_boxed(text))}"
        for text, line in new[:_TOLD]
    ]


def _boxed(text: str) -> str:
    bullet, _, rest = text.partition(" ")
    return f"{bullet} [ ] {rest.strip()}"


def _say(agent: AgentMoment, done: Changes) -> Iterator[str]:
    """What it means for the run, one line per item."""
    lines: list[str] = []
    for pair in (*done.unticked, *done.restarted):
        if pair.after.is_work:
            lines.append(f"{_item(pair.after)} will be done again{_again(agent, pair.after)}")
    lines += [f"{_item(pair.after)} counts as done{_steps_so_far(agent, pair.after)}" for pair in done.ticked]
    lines += [f"{_item(pair.after)} is dropped{_steps_so_far(agent, pair.after)}" for pair in done.cancelled]
    lines += [f"{_item(task)} is removed and won't be done{_steps_so_far(agent, task)}" for task in done.removed]
    lines += [
        f"{_item(pair.after)} {'counts as done' if pair.after.is_finished else 'is open again'}"
        for pair in done.revived
    ]
    lines += [f"{_item(task)} is new" for task in done.added]
    lines += [f"{_item(pair.before)} now reads {_quoted(pair.after.text)}" for pair in done.reworded]
    lines += [_moved(move) for move in done.nested]
    lines += [f"{_quoted(task.text)} will be done after the items below it" for task in done.waiting]
    lines += [f"{_quoted(task.text)} has no items below it any more, so it will be done itself" for task in done.bare]
    if done.moved:
        lines.append("the order of the items has changed")
    yield from lines[:_TOLD]
    if len(lines) > _TOLD:
        yield f"and {len(lines) - _TOLD} more changes of items"


def _moved(move: Move) -> str:
    item, source = _quoted(move.item.text), f"under {_quoted(move.source.text)}" if move.source else ""
    if move.target is None:
        return f"{item} is no longer {source}"
    return f"{item} is now under {_quoted(move.target.text)}" + (f", and no longer {source}" if source else "")


def _item(task: Task) -> str:
    return f"item {task.id} ({_quoted(task.text)})" if task.id else f"the item {_quoted(task.text)}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")


def _again(agent: AgentMoment, task: Task) -> str:
    """`: 4 steps again; send("a") of 10:02 is kept`."""
    key = task.id or ""
    scope = agent.scope(key, task.text)
    effects = [record for record in scope.done.values() if record.effect]
    known = agent.results.get(key)
    steps = known.steps if known else len(scope.done) - len(effects)
    said = f": {steps} step{'' if steps == 1 else 's'} again" if steps else ""
    kept = [_kept(scope, record) for record in effects[:_TOLD]]
    if kept:
        more = f" and {len(effects) - _TOLD} more effects" if len(effects) > _TOLD else ""
        said += f"{';' if said else ':'} {', '.join(kept)}{more} {'is' if len(effects) == 1 else 'are'} kept"
    return said


def _kept(scope: Scope, record: StepCompleted) -> str:
    when = scope.when.get(record.key, "")
    return f"{record.step}{record.call}" + (f" of {when[11:16]}" if when else "")


def _steps_so_far(agent: AgentMoment, task: Task) -> str:
    scope = agent.scopes.get(task.id or "")
    if scope is None or not (scope.finished or scope.started):
        return ""
    count = scope.finished
    kept = f"; what its {count} finished step{'' if count == 1 else 's'} returned no longer counts"
    doubt = "; Satchel asks you whether its unfinished effects have happened" if scope.started else ""
    return (kept if count else "") + doubt
