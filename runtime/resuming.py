"""What is looked at before a run goes on: drift, the version of its data, and references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..workspace import rewinding
from ..workspace.looking import Look
from ..workspace.moment import Moment
from ..workspace.names import DEFINITION
from ..workspace.opening import Workspace
from ..workspace.record import Configured, PauseRequested
from ..workspace.store import Store
from . import drift, rechecking, references
from .agent import Agent, load
from .codec import Codec
from .context import Context, Suspended
from .imports import Code
from .migration import migrate

Stop = Literal["", "pause", "unclean"]
"""How the run has stopped last: no pause, or one that is over with this start; a clean one, or by force."""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to say before a run goes on."""

    drift: tuple[str, ...]
    complaints: tuple[str, ...]  # of its outputs
    rechecks: rechecking.Rechecks
    offer: str = ""  # after an unclean stop: what it can go back to
    code: Code | None = None  # of the agent, if that was looked at
    is_refused: bool = False  # it had completed, and is not to be gone on with if edits have given it new work

    @property
    def says(self) -> tuple[str, ...]:
        return (*self.drift, *self.complaints)

    def tell(self, workspace: Workspace, *, is_offered: bool = True) -> None:
        """Put it into its report; what an edit of workspace.yaml has been reported as is not told twice."""
        report = workspace.report
        edited = any(each.kind == "edited" and each.text.startswith(f"{DEFINITION}: ") for each in report.remarks)
        told = [each for each in self.says if not (edited and each.startswith(drift.SETTINGS))]
        told += [self.offer] if self.offer and is_offered else []
        for text in told:
            report.add("found", text)
        if told:
            workspace.save_report()


def check(store: Store, seen: Look, agent: Agent | None, *, accepts: bool, stop: Stop) -> Found:
    """What has changed since the run was last run. After a `stop` that was a pause also what has become of its outputs,
    and which effects are to be verified again.

    Raises Refused if the run must not go on with the agent as it is now. Nothing is touched yet: what is refused here
    leaves the workspace as it was. An agent that can't be imported is told of when it is to be called.
    """
    moment, definition = seen.moment, seen.definition
    is_unclean = stop == "unclean"
    complaints: tuple[str, ...] = ()
    up_to = ""
    if is_unclean or definition.recheck == "always":
        if stop:
            complaints = tuple(rechecking.outputs(store, moment, reads_all=is_unclean))
        up_to = rechecking.ALL if stop else moment.resumed_at
    rechecks = rechecking.Rechecks(moment, up_to=up_to)
    offer = _offer(store, moment) if is_unclean else ""
    if moment.seq == 0:
        return Found((), complaints, rechecks, offer)
    try:
        found = agent or load(store, definition.agent)
    except Exception:
        return Found((), complaints, rechecks, offer)
    code = drift.code_of(found)
    differences = drift.differences(moment.config, drift.config(store, definition, found, code))
    is_refused = bool(differences) and definition.on_drift == "refuse" and not accepts
    if moment.is_finished:
        return Found(differences, complaints, rechecks, offer, code, is_refused)
    if is_refused:
        drift.refuse(differences)
    root = moment.root
    if root.has_data and root.data_version != found.version:
        migrate(root.data, root.data_version, found.migrations, Codec(found.state, "the state"))
    return Found(differences, complaints, rechecks, offer, code)


def _offer(store: Store, moment: Moment) -> str:
    """After a stop that was not clean: what the run can go back to, if somebody does not trust what came after."""
    point = rewinding.last_good(store, moment)
    if point is None:
        return ""
    return (
        f"the last known-good checkpoint is of record {point.moment.seq}{f' ({point.at})' if point.at else ''}; "
        "`satchel resume --from-checkpoint` goes back to it"
    )


def record_config(context: Context, agent: Agent, dropped: Sequence[str] = ()) -> None:
    """Put on record what the run works with from here on, if that is anything else than before."""
    moment = context.moment
    named = [each for each in moment.config.get("references", ()) if each not in dropped]
    code = context.code or drift.code_of(agent)
    now = drift.config(context.store, context.workspace.definition, agent, code, named)
    if now != moment.config:
        context.journal.add(Configured(config=now))


async def check_references(context: Context, *, accepts: bool) -> list[str]:
    """Pause the run and raise Suspended if something it refers to is gone; only if it had been run before. Those that
    are gone and may be, if that `accepts`, are returned and told."""
    moment = context.moment
    known = [*context.workspace.definition.references, *moment.config.get("references", ())]
    if moment.attempt < 2 or not known:
        return []
    gone = await references.missing(known, context.store.url)
    if gone and not accepts:
        context.pause(PauseRequested(reason="; ".join(map(str, gone)), by="satchel"))
        raise Suspended
    for each in gone:
        context.workspace.report.add_late("found", str(each))
    shown = {each.reference for each in gone}
    return [each for each in known if references.shown(each) in shown]


def refer(context: Context, reference: str) -> None:
    """Remember that the agent needs what lies there, durably."""
    if reference in context.workspace.definition.references:
        return
    context.journal.flush()  # what it works with may be about to be recorded
    config = context.moment.config
    known = config.get("references", [])
    if reference not in known:
        context.journal.add(Configured(config={**config, "references": [*known, reference]}))
        context.journal.flush()
