"""Look at all readable files of a run: which are being saved at this moment, and what a person has changed in the rest.
Work out what an edit of one agent means for its parents, and record what was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ...schemas import short
from ..base import DEFINITION, InvalidFile, Refused, read_json, read_markdown
from ..formats import Definition, parse, pause_file
from ..inspect import Report
from ..journal import ApprovalAsked, Edited, Journal, PlanChanged, blobs
from ..plan import Plan, Splice, Task, between
from ..secrets import as_recorded, redactor_of
from ..state import ROOT, AgentMoment, Listed, Moment, PastMoments, folder_of_agent, is_of_task, json_patch
from ..store import FileContent, ListedDisk, Store, listed, read_if_there
from ..views import BRIEF, PATIENCE, STATE, TODO, guarded_files, is_left_open, owner, projection
from . import held_files, inbox, json_edits, message_edits, plan_edits, rejection
from .findings import (
    CheckData,
    ConflictPlace,
    Edit,
    FileConflict,
    Looking,
    Noticed,
    RejectedFile,
    Side,
    StillMoving,
    version_of,
)
from .question import APPROVALS
from .rewind_record import ask_about_copies

_LONGEST_SAVE = 60.0  # seconds
_BETWEEN_LOOKS = 0.1


def notice(
    store: Store,
    moment: Moment,
    defined: Definition,
    choices: Mapping[str, Side] | None = None,
    check_data: CheckData | None = None,
    *,
    is_rebuilt: bool = False,
    held: Mapping[str, FileContent] | None = None,
    patience: float = PATIENCE,
    listed: Listed = MappingProxyType({}),
    moved_on: Collection[str] = (),
) -> Noticed:
    """The content of the files, compared with the moment. Changes nothing.

    `choices` resolve conflicts, by path; the empty path stands for all. `check_data` asks the agent's own type.
    `is_rebuilt` says that the moment was made from these very files. For an active run, `held` are the edited files
    that have settled, and others are not waited for. Otherwise each is waited for `patience` seconds. `listed` are
    files that show the moment as long as they have these versions. `moved_on`: of `held`, files in files/ that are
    older than what is recorded.
    """
    history = PastMoments(store, moment)
    looking = Looking(
        store,
        moment,
        history,
        Noticed(),
        choices or {},
        check_data,
        is_rebuilt,
        held,
        patience,
        listed,
        redactor_of(defined),
        moved_on=moved_on,
    )
    if held is None:
        store.fetch(path for path in _expected(store, moment) if not looking.is_as_listed(path))
        looking.noticed.kept = rejection.not_settled(store, moment)
    for agent in moment.agents.values():
        for look in (
            json_edits.look_at_state,
            plan_edits.look,
            json_edits.look_at_steps,
            message_edits.look,
            held_files.look,
        ):
            try:
                look(looking, agent)
            except StillMoving:
                continue
            except (InvalidFile, Refused) as error:  # what can't even be read: too large, a folder
                looking.refuse(error.path or agent.folder, error)
    ask_about_copies(looking)
    _ask_again(looking)
    if looking.redactor:
        _refuse_secrets(looking)
    try:
        look_at_definition(looking, defined)
    except StillMoving:
        pass
    except (InvalidFile, Refused) as error:
        looking.refuse(DEFINITION, error)
    _check_steps(looking)
    _reach(looking)
    # Parents first: if a crash cuts the group short, a sub-agent's new work must still be reachable.
    place = {path: number for number, path in enumerate(moment.agents)}
    looking.noticed.edits.sort(key=lambda edit: place[edit.record.agent])
    return looking.noticed


def editable(moment: Moment) -> dict[str, AgentMoment]:
    """The plans and states of all agents by their paths, whether the files exist or not."""
    return {agent.folder + name: agent for agent in moment.agents.values() for name in (TODO, STATE)}


def judge(
    store: Store, moment: Moment, defined: Definition, path: str, data: bytes, *, is_rebuilt: bool = False
) -> Noticed:
    """What a look would find if a person saved `data` as this one of the `editable` files. Changes nothing."""
    looking = Looking(
        store,
        moment,
        PastMoments(store, moment),
        Noticed(),
        {},
        None,
        is_rebuilt,
        redactor=redactor_of(defined),
        is_unsaved=True,
    )
    looking.noticed.kept = rejection.not_settled(store, moment)
    agent = editable(moment)[path]
    try:
        if path.endswith(STATE):
            json_edits.judge(looking, agent, data)
        else:
            plan_edits.judge(looking, agent, data, read_markdown(data, owner(moment, agent)))
    except (InvalidFile, Refused) as error:
        looking.refuse(path, error, data)
    if (secret := looking.secret(path, data)) is not None:
        looking.refuse(path, secret)
    _reach(looking)
    return looking.noticed


def cut_off(store: Store, moment: Moment, defined: Definition, path: str, after: int) -> message_edits.CutOff:
    """How a person cuts off the conversation of the agent `path`; see message_edits.py. Changes nothing."""
    looking = Looking(
        store, moment, PastMoments(store, moment), Noticed(), {}, None, patience=BRIEF, redactor=redactor_of(defined)
    )
    return message_edits.cut_off(looking, moment.agents[path], after)


def _ask_again(looking: Looking) -> None:
    """A person's version in a conflict replaces a file that says nothing new: a missing, empty or unchanged file does
    not resolve the conflict."""
    noticed, moment = looking.noticed, looking.moment
    said = {edit.record.file for edit in noticed.edits} | {each.path for each in noticed.findings if each.settles}
    said |= {question.path for question in noticed.questions}
    said |= {refusal.path for refusal in (*noticed.refusals, *noticed.overruled)}
    for agent in moment.agents.values() if noticed.kept else ():
        for path, edited in ((agent.folder + STATE, json_edits.edited), (agent.folder + TODO, plan_edits.edited)):
            data = noticed.kept.get(path)
            if data is None or path in said:
                continue
            noticed.findings = [each for each in noticed.findings if each.path != path]
            try:
                edited(looking, agent, path, data)
            except (InvalidFile, Refused) as error:  # it can't be merged any more, so only the run's version is left
                if looking.choice(path) == "ours":
                    noticed.overruled.append(RejectedFile(path, error, data))
                else:
                    ours = rejection.current(moment, path) or b""
                    noticed.questions.append(FileConflict(path, (ConflictPlace(str(error)),), None, ours, data))
            if noticed.questions and (question := noticed.questions[-1]).path == path:
                where = version_of(path, "theirs")
                gone = f"{path} itself is missing, empty or older now; its content is kept in {where}"
                noticed.questions[-1] = replace(question, places=(ConflictPlace(gone), *question.places))


def _expected(store: Store, moment: Moment) -> Iterator[str]:
    """The readable files, except those that the listing shows to be unchanged."""
    if store.abilities.remote:
        yield from _expected_editable(store, moment)
        for agent in moment.agents.values():
            yield from (file.path for file in projection.step_files(agent, projection.steps_shown(store)))
            yield from (place.path for place in agent.row_logs if place.log.messages)


def _expected_editable(store: Store, moment: Moment) -> Iterator[str]:
    for agent in moment.agents.values() if store.abilities.remote else ():
        store.expect(agent.folder + STATE, projection.state_file(moment, agent))
        store.expect(agent.folder + TODO, projection.todo_file(moment, agent))
        yield from (agent.folder + STATE, agent.folder + TODO)


def untaken(store: Store, moment: Moment) -> Iterator[str]:
    """The plans and states that a person has saved since the run last wrote them. Costs a read of each, or in a bucket
    of those that have changed."""
    store.fetch(_expected_editable(store, moment))
    for agent in moment.agents.values():
        for path in (agent.folder + STATE, agent.folder + TODO):
            if store.version(path) is None:
                continue
            if (there := read_if_there(store, path)) is None:
                continue
            data = there.data
            found = read_json(data) if path.endswith(STATE) else read_markdown(data, owner(moment, agent))
            if not found.untouched and data.strip():
                yield path


def notice_saved(store: Store, moment: Moment, defined: Definition) -> Noticed:
    """What an opening would find in the `untaken` files of a run at rest. Waits for none that is being saved."""
    try:
        held = {path: store.read(path) for path in untaken(store, moment)}
    except FileNotFoundError:  # removed at this moment
        held = {}
    return notice(store, moment, defined, held=held) if held else Noticed()


def _refuse_secrets(looking: Looking) -> None:
    """A secret that a person has typed into a readable file would come into the journal. The run's own version of the
    file has none."""
    noticed = looking.noticed
    edited = {edit.record.file for edit in noticed.edits if not edit.record.messages}  # messages are redacted
    edited |= {question.path for question in noticed.questions}
    new_plans = {f"{looking.moment.agents[path].folder}{TODO}": path for path in noticed.plans}
    for path in sorted(edited | {*new_plans}):
        there = read_if_there(looking.store, path)
        error = looking.secret(path, there.data) if there else None
        if there is None or error is None:
            continue
        noticed.edits = [edit for edit in noticed.edits if edit.record.file != path]
        noticed.questions = [question for question in noticed.questions if question.path != path]
        is_new = noticed.plans.pop(new_plans.get(path, "/"), None) is not None  # there is none to restore
        looking.refuse(path, error, None if is_new else there.data)


def _check_steps(looking: Looking) -> None:
    """A step is edited, and its item restarted or dropped at the same time: it is unclear which of the two is meant."""
    noticed = looking.noticed
    ended = {(edit.record.agent, key) for edit in noticed.edits for key in (*edit.record.redone, *edit.record.dropped)}
    for edit in [*noticed.edits]:
        record = edit.record
        if record.step is None or (record.agent, record.step.scope) not in ended:
            continue
        agent = looking.moment.agents[record.agent]
        noticed.edits.remove(edit)
        error = Refused(
            f"belongs to item {record.step.scope}, which {agent.folder}{TODO} starts again or leaves out",
            path=record.file,
            why="so none of its steps counts any more",
            remedy="change either the item's mark or its steps",
        )
        looking.refuse(record.file, error, looking.store.read(record.file).data)


def _reach(looking: Looking) -> None:
    """An edit gives work to an ended sub-agent, which is only reached through the scope that spawned it. If that has
    committed, it is entered again, and so on upwards."""
    moment, noticed = looking.moment, looking.noticed
    plans = {edit.record.agent: edit.after for edit in noticed.edits if edit.after is not None}
    plans |= {path: Plan(text) for path, text in noticed.plans.items()}
    waiting = [path for path, plan in plans.items() if plan.progress.settled < plan.progress.leaves]
    waiting += [edit.record.agent for edit in noticed.edits if edit.record.step is not None]
    found = reopen_parents(moment, plans, waiting)
    noticed.edits += found.edits
    for path, why in found.unreached.items():
        looking.find(moment.agents[path].folder + TODO, f"adds work to {path}, but {why}")


# Files that are being saved: `status` names them, and a start waits for them


def being_saved(store: Store, *, with_inbox: bool = False) -> list[str]:
    """The files that a program has open for writing and that are not taken yet, because they may be half saved."""
    if store.abilities.remote:
        return []
    looked = listed(store)
    paths = [*_may_be_saved(looked), *(inbox.files(looked) if with_inbox else ())]
    recent = [path for path in paths if _is_recent(looked, path)]  # asking for a writer means opening the file
    return [path for path in recent if store.has_writer(path) and not is_left_open(store, path)]


def until_saved(store: Store) -> Iterator[tuple[float, str]]:
    """Seconds to wait before the next look, and what for, as long as a program is saving a file. Gives up after a
    minute: the active run then takes such a file, or leaves it."""
    give_up = time.monotonic() + _LONGEST_SAVE
    while (paths := being_saved(store)) and time.monotonic() < give_up:
        yield _BETWEEN_LOOKS, paths[0]


def describe_saving(path: str) -> str:
    """The message about one of them."""
    seconds = guarded_files.WAITS.open_pause if path == pause_file.PATH else guarded_files.WAITS.open
    return (
        f"{path} is being saved: the run reads it when the program has closed it, or left it alone for {seconds:.0f} s"
    )


def _is_recent(store: Store, path: str) -> bool:
    """Whether it was written in the last minute, as far as a listing tells. An older one is not half saved, although a
    program may have it open."""
    folder, _, name = path.rpartition("/")
    status = store.facts(folder).get(name) if isinstance(store, ListedDisk) else None
    return status is None or status.st_mtime > time.time() - _LONGEST_SAVE


def _may_be_saved(store: Store) -> Iterator[str]:
    yield from (DEFINITION, pause_file.PATH)
    yield from (entry.path for entry in store.list(APPROVALS))
    yield from projection.files_there(store)


# workspace.yaml


def look_at_definition(looking: Looking, definition: Definition) -> None:
    """workspace.yaml is a person's file. Its content counts as it is; changes are recorded."""
    known = looking.moment.definition
    says: dict[str, object] = as_recorded(known, looking.redactor.value(definition.recorded))
    if known is None:
        if looking.store.has_writer(DEFINITION) is not False:
            _settled_definition(looking, definition)
        looking.noticed.definition = says
        return
    change = json_patch.diff(known, says)
    if not change:
        return
    found = _settled_definition(looking, definition)
    told = []
    for each in change:
        value = f" is now {short(each['value'])}" if "value" in each else " is removed"
        told.append(str(each["path"])[1:].replace("/", ".") + value + _without_effect(looking, str(each["path"])))
    looking.noticed.edits.append(Edit(looking.edited(DEFINITION, found.data, told, patch=change)))


def _without_effect(looking: Looking, place: str) -> str:
    root = looking.moment.root
    has_begun = root.has_data or root.input is not None
    return "; the run keeps the arguments it began with" if has_begun and place.split("/")[1] == "input" else ""


def _settled_definition(looking: Looking, definition: Definition) -> FileContent:
    """The file, which must still have the content that was read before."""
    try:
        found = looking.steady(DEFINITION)
    except StillMoving:
        if looking.held is not None:
            raise
        found = None
    if found is None or parse(found.data).said != definition.said:
        raise Refused("is changing at this moment", path=DEFINITION, remedy="wait until it is saved, then run again")
    return found


# Ways to an ended sub-agent that a person gives work to


class ReopenedParents(NamedTuple):
    """What is entered again, and the sub-agents that nothing reaches any more, with the reasons."""

    edits: list[Edit]
    unreached: dict[str, str]


def reopen_parents(moment: Moment, plans: dict[str, Plan], waiting: Iterable[str]) -> ReopenedParents:
    """The way to the agents `waiting`. `plans`: those that this change leaves behind, by agent; it adds its own."""
    edits: list[Edit] = []
    unreached: dict[str, str] = {}
    reached: set[tuple[str, str]] = set()
    paths = [*waiting]
    while paths:
        path = paths.pop()
        if not path:
            continue
        agent = moment.agents[path]
        above = moment.agents[path.rpartition("/")[0]]
        key = agent.spawned_in
        if (above.path, key) in reached:
            continue
        reached.add((above.path, key))
        plan = plans.get(above.path, above.plan)
        task = plan.task(key) if key != ROOT and not key.startswith("_") else None
        needs, says = False, ""
        if key == ROOT:
            needs, says = above.result is not None, f"{above.path} runs again, because {path} was spawned by it"
        elif is_of_task(key):
            if key not in above.scopes:
                unreached[path] = "the task of the inbox that spawned it is done"
        elif key.startswith("_"):
            needs, says = key in above.results, f"{key[1:]} will run again, because {path} was spawned in it"
        elif task is None or _is_newly_left(task, plan, above.plan):
            unreached[path] = f"its item {key} is not in the plan above"
        else:
            needs = not plan.is_to_do(key)
            says = f"item {key} ({task.text!r}) will run again, because {path} was spawned in it"
        if needs:
            after = plan.copy()
            if task is not None:
                after.reopen(task)
            plans[above.path] = after
            record = Edited(
                agent=above.path,
                file=f"{agent.folder}{TODO}",
                by="the runtime",
                sha="",
                redone=(key,),
                plan=tuple(between(list(plan.lines), list(after.lines))),
                says=(says,),
            )
            edits.append(Edit(record, after))
        paths.append(above.path)
    return ReopenedParents(edits, unreached)


def _is_newly_left(task: Task, plan: Plan, before: Plan) -> bool:
    """Whether a person has just dropped an item or a parent of it, or marked it as done."""
    if task.is_finished and (was := before.task(task.id or "")) is not None and was.mark != task.mark:
        return True
    return task.parent is not None and _is_newly_left(plan.at(task.parent), plan, before)


# Recording what was found: from then on it counts


FreeId = Callable[[Literal["a", "d"]], str]


def record_edits(
    store: Store, moment: Moment, journal: Journal, report: Report, noticed: Noticed, free_id: FreeId
) -> None:
    """Add the edits, plans and copies that were found to the next group, and report each. `free_id` names new
    questions."""
    for edit in noticed.edits:
        record_edit(store, moment, journal, report, edit, partial(free_id, "d"))
    if noticed.back is not None:
        _ask_whether_back(store, journal, report, noticed.back, free_id("a"))
    for path, text in noticed.plans.items():
        adopted, file = Plan(text), folder_of_agent(path) + TODO
        splices = (Splice(0, 0, text), *adopted.identify(moment.agents[path].highest_id))
        journal.add(
            PlanChanged(
                agent=path,
                plan=splices,
                outline=adopted.outline(),
                by="person",
                person=store.trace(file).by,
                why="written before the run began",
            )
        )
        report.add("found", f"a plan of {len(adopted.tasks)} items in {file}")


def _ask_whether_back(store: Store, journal: Journal, report: Report, asked: ApprovalAsked, id: str) -> None:
    assert asked.back is not None
    kept = blobs.keep(store, bytes(asked.back.data), journal.generation)
    back = msgspec.structs.replace(asked.back, data=kept.result, blob=kept.blob)
    journal.add(msgspec.structs.replace(asked, id=id, back=back))
    report.add("wanted", f"{id}: {asked.question}")


def record_edit(
    store: Store, moment: Moment, journal: Journal, report: Report, edit: Edit, free_id: Callable[[], str]
) -> None:
    """One of them. `free_id` names a question that it leads to."""
    made = edit.record
    if made.step is not None and len(made.step.result):
        kept = blobs.keep(store, bytes(made.step.result), journal.generation)  # an edit with a secret was refused
        made = msgspec.structs.replace(
            made, step=msgspec.structs.replace(made.step, result=kept.result, blob=kept.blob)
        )
    if edit.data is not None:
        made = msgspec.structs.replace(made, written=blobs.keep_file(store, edit.data, journal.generation))
    journal.add(made)
    for say in made.says:
        report.add("edited", f"{made.file}: {say}")
    for doubt in edit.doubts:
        known = moment.doubts.values()
        if not any((each.agent, each.scope, each.key) == (doubt.agent, doubt.scope, doubt.key) for each in known):
            journal.add(msgspec.structs.replace(doubt, id=free_id()))
