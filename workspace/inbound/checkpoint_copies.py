"""Files from the folder of a checkpoint that a person has copied over the run's: a question, since they may mean that
the run shall go back, or only that its data are those of then."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Raw

from ..base import Copy, Refused, decode, stamp
from ..formats import jsontext
from ..journal import ApprovalAsked, Back
from ..state import DATA, GO_BACK, KEEP, ROOT, AgentMoment, Moment
from .findings import Copied, Looking, foreign

Usable = Callable[[Looking, AgentMoment, str, bytes, Copy], Raw | None]
"""The data of such a state.json, if the agent could take them."""


def look(looking: Looking, agent: AgentMoment, path: str, data: bytes, usable: Usable | None = None) -> bool:
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


def ask(looking: Looking) -> None:
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


def _may_go_back(now: Moment, then: Moment) -> bool:
    """Not to before the run has read the plan that a person had written for it."""
    return not (now.root.adopted and not then.root.has_plan)


def _is_same(now: Moment, then: Moment) -> bool:
    """Whether a return would change nothing."""
    return dict(_substance(now)) == dict(_substance(then))


def _substance(moment: Moment) -> Iterator[tuple[str, object]]:
    for path, agent in moment.agents.items():
        done = {key: {*scope.done} for key, scope in agent.scopes.items()}
        yield path, (agent.data, agent.has_data, agent.plan.text, {*agent.results}, done, agent.has_ended)
