"""Return to an earlier record by adding a record, never by deleting. So a return can itself be undone, by another one.

Data, plan and the results of steps are those of that record; what was done since is done again. Effects and people's
answers stay on record: an equal call still returns its recorded result. Conversation and outputs stay.

A person may ask for it without a command: by files from the folder of a checkpoint, copied over the run's. They may
mean that the run shall go back, or only that its data are those of then, so the run asks; `obey_answer` does what the
person decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import Copy, InvalidFile, NewerFormat, Refused, UsageError, decode, stamp
from ..formats import jsontext
from ..inspect import Report
from ..journal import ApprovalAsked, Back, Edited, Journal, Kept, Rewound, blobs
from ..state import (
    DATA,
    GO_BACK,
    KEEP,
    ROOT,
    AgentMoment,
    LaterEffect,
    Moment,
    PastMoments,
    Scope,
    checkpoint,
    earlier_moment,
    json_patch,
)
from ..store import Store
from ..views import STATE, TODO
from .findings import Copied, Looking, foreign

_TOLD = 8

Usable = Callable[[Looking, AgentMoment, str, bytes, Copy], Raw | None]
"""The data of such a state.json, if the agent could take them."""


class Point(NamedTuple):
    """A checkpoint to return to."""

    moment: Moment
    path: str
    at: str  # when it was written, as far as the storage tells


class Return(Struct, frozen=True):
    """What a return does: its record, without the `agents` that it changes, and the effects that were done or began
    since that moment."""

    record: Rewound
    agents: Raw
    effects: tuple[LaterEffect, ...]

    def add(self, store: Store, writer: Journal) -> None:
        """Let it be the next record."""
        kept = blobs.keep(store, bytes(self.agents), writer.generation)
        writer.add(replace(self.record, agents=kept.result, blob=kept.blob))


def last_good(store: Store, moment: Moment) -> Point | None:
    """The newest checkpoint of an earlier record that was not written at, or after, a stop that was not clean."""
    for path in reversed(checkpoint.paths(store)):
        try:
            found, _ = checkpoint.load(store, path)
        except (FileNotFoundError, ValueError, InvalidFile, NewerFormat):
            continue
        if found.seq < moment.seq and not found.unclean and found.run_id == moment.run_id:
            return Point(found, path, store.trace(path).at)
    return None


def plan(
    now: Moment,
    then: Moment,
    by: str,
    *,
    file: str = "",
    forgets: bool = False,
    reused: earlier_moment.Reused | None = None,
) -> Return:
    """The return from `now` to `then`, an earlier moment of the same run. `forgets`: effects since then are done again.
    `reused`: results of later steps that equal calls return. UsageError for a moment before the run had read the plan
    that a person had written for it."""
    if not _may_go_back(now, then):
        raise UsageError(
            f"record {then.seq:,} is too early to return to",
            why=f"the run had not read your {TODO} yet",
            remedy="name a later record; `satchel log` shows when the plan changed",
        )
    agents = earlier_moment.joined(now.agents, then.agents, forgets=forgets, reused=reused)
    says = tuple(say for path, agent in agents.items() for say in _told(now.agents[path], agent, then.seq))
    record = Rewound(to=then.seq, by=by, file=file, forgets=forgets, says=says)
    return Return(
        record, earlier_moment.pack(agents, now.agents), (*earlier_moment.effects_since(now.agents, then.agents),)
    )


def _may_go_back(now: Moment, then: Moment) -> bool:
    """Not to before the run has read the plan that a person had written for it."""
    return not (now.root.adopted and not then.root.has_plan)


def _told(now: AgentMoment, after: AgentMoment, seq: int) -> Iterator[str]:
    """What the return changes, in words."""
    says = [*_of_plan(now, after)]
    yield from (f"{now.folder}{TODO}: {say}" for say in says[:_TOLD])
    if len(says) > _TOLD:
        yield f"{now.folder}{TODO}: and {len(says) - _TOLD} more"
    if (now.data, now.has_data) != (after.data, after.has_data):
        whose = f"record {seq:,}" if after.has_data else "a new agent"
        yield f"{now.folder}{STATE}: the data is that of {whose}"


def _of_plan(now: AgentMoment, after: AgentMoment) -> Iterator[str]:
    is_gone = len(after.plan) < len(now.plan) and not len(after.plan)
    if is_gone:
        yield "the plan is made again"
    for task in now.plan.tasks if not is_gone else ():
        back = after.plan.task(task.id) if task.id else None
        if task.id and task.is_work and back is None:
            yield f"item {task.id} ({task.text!r}) is no longer in the plan"
        elif task.is_work and task.is_finished and back is not None and not back.is_finished:
            yield f"item {task.id} ({task.text!r}) will be done again"
    for key in now.results:
        if key.startswith("_") and key not in after.results:
            yield f"{key[1:]} will run again"
    for key, scope in now.scopes.items():
        if key == ROOT or (key not in after.scopes and not _steps(scope)):
            continue
        kept = _steps(after.scopes.get(key, Scope()))
        if kept < _steps(scope):
            yield f"{scope.title!r} " + (f"returns to its first {kept} steps" if kept else "starts from its beginning")


def _steps(scope: Scope) -> int:
    """Calls with an outcome, but no effects."""
    return sum(not step.effect for step in scope.done.values()) + len(scope.failed)


def note_copy(looking: Looking, agent: AgentMoment, path: str, data: bytes, usable: Usable | None = None) -> bool:
    """Whether a file is such a copy. Then it is noted. Refused, or InvalidFile, for one that nothing can be done
    with."""
    copy = None if looking.is_rebuilt else _copy_in(path, data)
    if copy is None:
        return False
    _check(looking, agent, path, copy)
    if not copy.untouched and (secret := looking.secret(path, data)) is not None:
        raise secret
    found = None if usable is None else usable(looking, agent, path, data, copy)
    looking.copies.append(Copied(path, copy, data, agent.path, found))
    return True


def _copy_in(path: str, data: bytes) -> Copy | None:
    if path.endswith(".md"):
        return stamp.read_copy(data)
    if b'"checkpoint"' not in data:
        return None
    if (copy := stamp.read_json_copy(data)) is not None and copy.untouched:
        of = jsontext.load(decode(data, path), path)
        return copy._replace(of=str(of["run_id"]))
    return None if stamp.read_json(data).untouched else _in_changed(data, path)


def _in_changed(data: bytes, path: str) -> Copy | None:
    """The stamp in a file that a person has changed, or a program has written in another way."""
    found = jsontext.load(decode(data, path), path)
    name = found.get("checkpoint") if isinstance(found, dict) else None
    if not isinstance(name, str) or not stamp.is_checkpoint(name):
        return None
    return Copy(name, str(found.get("run_id", "")), untouched=False)


def _check(looking: Looking, agent: AgentMoment, path: str, copy: Copy) -> None:
    moment = looking.moment
    run, _, of_agent = copy.of.partition("/")
    if run != moment.run_id:
        raise Refused(
            "is from another run",
            path=path,
            why=f"it is a copy from the checkpoint {copy.name} of the run {run}",
            remedy="copy a file of this run, from its own folder checkpoints/",
        )
    if path.endswith(".md") and of_agent != agent.path:
        raise foreign(path, f"it is a copy of the plan of {of_agent or 'the run itself'} in a checkpoint")
    if copy.seq > moment.seq or moment.is_new:
        raise Refused(
            f"is from a checkpoint at record {copy.seq:,}, and the journal ends at record {moment.seq:,}",
            path=path,
            why="the journal was replaced by an older one",
            remedy="copy the whole folder again, or move this file away to continue from the journal",
        )
    if moment.status == "cancelled":
        raise Refused(
            f"is from the checkpoint {copy.name}, and a cancelled run does not go back",
            path=path,
            remedy=f"start a new run from there: `satchel fork WS DST --at {copy.seq}`",
        )
    if looking.is_active or looking.is_unsaved:
        raise Refused(
            f"is a copy from the checkpoint {copy.name}, and only a start asks what to do with it",
            path=path,
            why="the run is active" if looking.is_active else "only a copied file is asked about",
            remedy=f"to go back, pause the run, then type `satchel rewind WS --to {copy.seq}`; or copy the file again "
            "while the run is stopped",
        )


def ask_about_copies(looking: Looking) -> None:
    """Make one question of all copies, or a finding if they say nothing new."""
    noticed, moment, copies = looking.noticed, looking.moment, looking.copies
    if not copies:
        return
    names = sorted({each.copy.name for each in copies})
    if len(names) > 1:
        for each in copies:
            error = Refused(
                f"is from the checkpoint {each.copy.name}, and other files are from another one",
                path=each.path,
                why=f"they are from {', '.join(names)}",
                remedy="copy the files of one checkpoint",
            )
            looking.refuse(each.path, error, each.bytes)
        return
    copy = copies[0].copy
    then = looking.history.at(copy.seq)
    goes_back = then is not None and _may_go_back(moment, then) and not _is_same(moment, then)
    data = {each.agent: each.data for each in copies if each.data is not None}
    has_new_data = any(bytes(raw) != msgspec.json.encode(moment.agents[path].data) for path, raw in data.items())
    if not goes_back and not has_new_data:
        _say_nothing_is_asked(looking, is_gone=then is None)
        return
    files = tuple(each.path for each in copies)
    choices = (*((GO_BACK,) if goes_back else ()), *((DATA,) if has_new_data else ()), KEEP)
    back = Back(checkpoint=copy.name, to=copy.seq, files=files, data=Raw(msgspec.json.encode(data)))
    known = [id for id, asked in moment.approvals.items() if asked.back is not None]
    for each in copies:
        looking.find(each.path, f"is a copy from the checkpoint {copy.name}; Satchel asks what to do with it")
    noticed.changed_copies += [each.path for each in copies if not each.copy.untouched]
    noticed.back = ApprovalAsked(
        scope=ROOT,
        no=0,
        step="checkpoint",
        args=copy.name[:12].rjust(16, "0"),
        n=0,
        id="",
        question=_question(copy, files, choices),
        choices=choices,
        back=back,
        withdraws=tuple(known),
    )


def _say_nothing_is_asked(looking: Looking, *, is_gone: bool) -> None:
    """About copies that say nothing new, or of which nothing can be taken."""
    for each in looking.copies:
        if each.copy.untouched and not is_gone:
            said = f"is a copy from the checkpoint {each.copy.name} and says nothing new; Satchel writes the file again"
            looking.find(each.path, said, settles=True)
            continue
        error = Refused(
            f"is from the checkpoint {each.copy.name}, and nothing of it can be taken",
            path=each.path,
            why="the records of that moment are pruned" if is_gone else "the run is as it was then",
            remedy="to change something, edit the file of the run itself",
        )
        looking.refuse(each.path, error, each.bytes)


def _question(copy: Copy, files: tuple[str, ...], choices: tuple[str, ...]) -> str:
    what = f"{' and '.join(files)} {'is' if len(files) == 1 else 'are'} from the checkpoint {copy.name}"
    meant = {
        GO_BACK: f"{GO_BACK} returns the run to that moment, as `satchel rewind` does, and another rewind undoes it",
        DATA: f"{DATA} takes only its data, and keeps the plan and what is done",
        KEEP: f"{KEEP} leaves the run as it is now",
    }
    return f"{what}. What shall the run do? {'; '.join(meant[choice] for choice in choices)}."


def _is_same(now: Moment, then: Moment) -> bool:
    """Whether a return would change nothing."""
    return dict(_substance(now)) == dict(_substance(then))


def _substance(moment: Moment) -> Iterator[tuple[str, object]]:
    for path, agent in moment.agents.items():
        done = {key: {*scope.done} for key, scope in agent.scopes.items()}
        yield path, (agent.data, agent.has_data, agent.plan.text, {*agent.results}, done, agent.has_ended)


def obey_answer(
    store: Store, moment: Moment, report: Report, journal: Journal, back: Back, decision: str, by: str
) -> None:
    """Add the records of it. They come before that of the answer: if a crash keeps only them, the question is asked
    once more, and the same answer changes nothing. UsageError if that moment can't be made any more."""
    if decision == GO_BACK:
        _go_back(store, moment, report, journal, back, by)
    elif decision == DATA:
        _take_data(store, moment, report, journal, back, by)


def _go_back(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    journal.flush()
    was, then = moment.seq, PastMoments(store, moment).at(back.to)
    if then is None:
        raise UsageError(
            f"the run can't go back to the checkpoint {back.checkpoint} any more",
            why="the records before it are pruned",
            remedy="answer `data` or `keep`",
        )
    returned = plan(moment, then, by, file=f"checkpoints/{back.checkpoint}.json")
    returned.add(store, journal)
    for say in returned.record.says:
        report.add("edited", say)
    done = f"went back to the checkpoint {back.checkpoint}; effects and answers since then are kept"
    report.add("done", f"{done}. `satchel rewind WS --to {was}` undoes it")


def _take_data(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    data: dict[str, Any] = msgspec.json.decode(blobs.fetch(store, Kept(back.data, back.blob)))
    for path, value in data.items():
        agent = moment.agents.get(path)
        if agent is None or not (patch := json_patch.diff(agent.data, value)):
            continue
        says = (f"the data is that of the checkpoint {back.checkpoint}",)
        file = f"{agent.folder}{STATE}"
        journal.add(Edited(agent=path, file=file, by=by, sha="", base=back.to, patch=patch, says=says))
        report.add("edited", f"{file}: {says[0]}")
