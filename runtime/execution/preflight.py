"""Checks before a run resumes: drift, the version of its data, and references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct, field

from ...workspace.base import DEFINITION, Refused
from ...workspace.inspect import Look, Report
from ...workspace.journal.records import Configured, PauseRequested
from ...workspace.lifecycle import Workspace, rewind
from ...workspace.people.edits import notice
from ...workspace.state import Moment, prompts
from ...workspace.store import Store
from ...workspace.views import BRIEF
from ..agent import Agent, Code, load, migrate
from ..engine import Stopping, Suspended, reverify
from ..steps import Codec
from . import drift, references
from .start import Start
from .state_check import check_recorded

_REMEDY = "restore what was not changed on purpose, or untick its item in todo.md to make it again"

CONTENTS = "contents"
"""What a `configured` record calls the contents of the references."""

Stop = Literal["", "pause", "unclean"]
"""How the run has stopped last: no pause, or one that ends with this start; clean or forced."""


class Found(Struct, frozen=True):
    """The findings before a run resumes."""

    drift: tuple[str, ...]
    complaints: tuple[str, ...]  # of its outputs; a person is to say what becomes of them
    rechecks: reverify.Rechecks
    offer: str = ""  # after an unclean stop: what it can go back to
    code: Code | None = None  # of the agent, if that was looked at
    is_refused: bool = False  # it had completed, and must not continue if edits have given it new work
    fits: bool = False  # the recorded state is known to fit the agent's code

    @property
    def says(self) -> tuple[str, ...]:
        return (*self.drift, *self.complaints)

    def tell(self, workspace: Workspace, *, is_offered: bool = True) -> None:
        """Put them into the report. Changes of workspace.yaml that were reported as an edit are not repeated."""
        report = workspace.report
        edited = any(each.kind == "edited" and each.text.startswith(f"{DEFINITION}: ") for each in report.remarks)
        told = [each for each in self.drift if not (edited and each.startswith(drift.SETTINGS))]
        told += [self.offer] if self.offer and is_offered else []
        if workspace.definition.prompts == "pinned":
            shelf = prompts.Shelf(workspace.store, workspace.definition.prompts_folder)
            told += prompts.held(shelf, workspace.moment.config)
        for text in told:
            report.add("found", text)
        ask_about(report, self.complaints)
        if told or self.complaints:
            workspace.save_report()


def check(start: Start, seen: Look, *, stop: Stop) -> Found:
    """What has changed since the last run, and what has become of its outputs. After a `stop` that was a pause, also
    which effects to verify again.

    Raises Refused if the run must not continue with the current agent. Nothing is changed yet, so a refusal leaves the
    workspace as it was. An agent that can't be imported is reported when it is called.
    """
    store, moment, definition = start.store, seen.moment, seen.definition
    is_unclean = stop == "unclean"
    complaints: tuple[str, ...] = ()
    up_to = ""
    if is_unclean or definition.recheck == "always":
        complaints = changed_outputs(store, seen, stop)
        up_to = reverify.ALL if stop else moment.resumed_at
    rechecks = reverify.Rechecks(moment, up_to=up_to)
    offer = _offer(store, moment) if is_unclean else ""
    if moment.is_new:
        return Found((), complaints, rechecks, offer)
    try:
        found = start.agent or load(store, definition.agent)
    except Exception:
        return Found((), complaints, rechecks, offer)
    code = drift.code_of(found)
    differences = drift.differences(moment.config, drift.config(store, definition, found, code, moment.config))
    is_refused = bool(differences) and definition.on_drift == "refuse" and not start.accept_drift
    if is_refused and not moment.is_finished:
        drift.refuse(differences)
    root = moment.root
    if root.has_data and root.data_version != found.version and not moment.is_finished:
        migrate(root.data, root.data_version, found.migrations, Codec(found.state, "the state"))
    fits = not start.from_checkpoint and _fits(store, seen, found)
    return Found(differences, complaints, rechecks, offer, code, is_refused, fits)


def _fits(store: Store, seen: Look, agent: Agent) -> bool:
    """Whether the agent's code can read the recorded state and loses nothing of it. Otherwise Refused, unless people
    have changed something: then the opening finds out."""
    try:
        check_recorded(store, agent, seen.moment)
    except Refused:
        if not notice(store, seen.moment, seen.definition, patience=BRIEF).is_anything:
            raise
        return False
    return True


def changed_outputs(store: Store, seen: Look, stop: Stop = "") -> tuple[str, ...]:
    """What is wrong with the outputs, in words."""
    moment = seen.moment
    if stop:
        return tuple(reverify.outputs(store, moment.outputs, reads_all=stop == "unclean"))
    if moment.clean and moment.status in ("waiting", "sleeping"):  # its open scopes have come to rest, as in a pause
        return tuple(reverify.outputs(store, moment.outputs, seconds=reverify.BRIEF))
    return tuple(reverify.outputs(store, reverify.at_rest(moment), seconds=reverify.BRIEF))


def ask_about(report: Report, complaints: Sequence[str]) -> None:
    """Let a person decide about outputs that differ from what the run had made."""
    for text in (*complaints, _REMEDY) if complaints else ():
        report.add("wanted", text)


def _offer(store: Store, moment: Moment) -> str:
    """After a stop that was not clean: the checkpoint that the run can return to."""
    point = rewind.last_good(store, moment)
    if point is None:
        return ""
    return (
        f"the last known-good checkpoint is at record {point.moment.seq}{f' ({point.at})' if point.at else ''}; "
        "`satchel resume --from-checkpoint` goes back to it"
    )


def record_config(workspace: Workspace, agent: Agent, code: Code | None, referred: Referred) -> None:
    """Record what the run works with from here on, if it has changed. `code` is the agent's code, if it was read
    before."""
    moment, redactor = workspace.moment, workspace.redactor
    named = [each for each in moment.config.get("references", ()) if each not in referred.dropped]
    store = workspace.store
    now = drift.config(store, workspace.definition, agent, code or drift.code_of(agent), moment.config, named)
    if workspace.definition.prompts == "pinned" and prompts.PINNED not in now:
        kept = partial(prompts.keep, store, redactor=workspace.redactor)
        files = prompts.Shelf(store, workspace.definition.prompts_folder).files()
        now[prompts.PINNED] = {name: kept(name, data) for name, data in files.items()}
    known = {redactor.text(each) for each in (*workspace.definition.references, *named)}
    if contents := {each: content for each, content in referred.contents.items() if each in known}:
        now[CONTENTS] = contents
    if now != moment.config:
        asked_again = len(moment.taken_back)
        workspace.journal.add(Configured(config=now))
        if len(moment.taken_back) > asked_again:  # other code has been approved
            workspace.journal.flush()
            workspace.desk.lay_out()


class Referred(Struct, frozen=True):
    """What was found at the references of a run."""

    dropped: tuple[str, ...] = ()  # they are missing, and a person accepts that
    contents: dict[str, references.Content] = field(default_factory=dict)


async def check_references(workspace: Workspace, stopping: Stopping, *, accepts: bool) -> Referred:
    """Pause the run and raise Suspended if a reference is missing, or if one has changed under `on_reference: refuse`;
    only if the run had begun before. With `accepts`, report that, and go on."""
    moment, redactor = workspace.moment, workspace.redactor
    named = [*workspace.definition.references, *moment.config.get("references", ())]
    recorded = contents_in(moment.config)
    if moment.attempt < 2 or not named:
        return Referred(contents=recorded)
    known = {each: recorded[redactor.text(each)] for each in named if redactor.text(each) in recorded}
    found = await references.find(named, workspace.store.url, known)
    gone = references.missing(found)
    changes = [references.change(each, known[each], found[each].content) for each in found if each in known]
    changed = [text for text in changes if text]
    bars = [*map(str, gone)]
    if changed and workspace.definition.on_reference == "refuse":
        bars += [
            *changed,
            "`on_reference: refuse` is set: restore it, or accept it with `satchel resume --accept-drift`",
        ]
    if bars and not accepts:
        stopping.pause(PauseRequested(reason="; ".join(bars), by="satchel"))
        raise Suspended
    for text in (*map(str, gone), *changed):
        workspace.report.add_late("found", text)
    now = {redactor.text(each): found[each].content for each in found if found[each].content and not found[each].file}
    return Referred(tuple(each for each in named if found[each].why), {**recorded, **now})


def contents_in(config: Mapping[str, Any]) -> dict[str, references.Content]:
    """What the references held, as a configuration has it."""
    return dict(config.get(CONTENTS, {}))
