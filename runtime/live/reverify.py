"""Whether recorded facts still hold, because the world may have changed, and the questions about effects.

Outputs are verified at every start by size, version and hash, effects after a pause by `verify`. The time is limited,
so that a start stays cheap. A person is asked about effects whose end is not known. The outputs that the agents of a
run write now are known here, too.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from ...workspace.base import SatchelError
from ...workspace.inbound import find_question, rejection
from ...workspace.journal import Doubt, Key, Output, StepCompleted
from ...workspace.lifecycle import Workspace
from ...workspace.state import AgentMoment, Moment
from ...workspace.store import Store

if TYPE_CHECKING:
    from .stopping import Place, StopRequests

EACH, IN_ALL = 10.0, 60.0
"""Seconds for the verification of one effect, and for all after one pause."""

BRIEF = 2.0
"""Seconds for reading outputs that probably have not changed: at a start without a pause, and in `status`."""

ALL = "~"
"""After every time."""

_LIMIT = 1 << 32


def outputs_at_rest(moment: Moment) -> dict[str, Output]:
    """The outputs, by path, of the agents without an open scope. In an open scope an agent may have written them again
    without a commit."""
    busy = [agent.folder for agent in moment.agents.values() if len(agent.scopes) > 1]
    mine = {f"{folder}outputs/" for folder in busy}
    return {path: output for path, output in moment.outputs.items() if not any(map(path.startswith, mine))}


def wrong_outputs(
    store: Store, made: Mapping[str, Output], *, reads_all: bool = False, seconds: float | None = None
) -> list[str]:
    """What is wrong with outputs that the agents have `made`, in words. An output with the recorded size and version is
    not read, unless `reads_all`. After so many `seconds` (as many as effects get) the rest is not read, and one line
    says so."""
    complaints = []
    ends, unread = time.monotonic() + (IN_ALL if seconds is None else seconds), 0
    folders = dict.fromkeys(os.path.dirname(path) for path in made)
    sizes = {entry.path: entry.size for folder in folders for entry in store.list(folder)}
    for path, output in sorted(made.items()):
        if path not in sizes:
            complaints.append(f"{path} is missing; the run made it ({output.bytes:,} bytes)")
        elif sizes[path] != output.bytes:
            complaints.append(f"{path} is not what the run made: {_of(sizes[path], output)}")
        elif reads_all or not output.is_in(store.version(path)):
            if time.monotonic() > ends:
                unread += 1
            elif (wrong := _wrong(store, path, output)) is not None:
                complaints.append(wrong)
    if unread:
        complaints.append(f"outputs that were not compared with their hashes, because that took too long: {unread}")
    return complaints


def _wrong(store: Store, path: str, output: Output) -> str | None:
    try:
        data = store.read(path, limit=_LIMIT).data
    except (SatchelError, OSError) as error:
        return f"{path} can't be read: {error}"
    if hashlib.sha256(data).hexdigest() == output.sha256:
        return None
    return f"{path} is not what the run made: {_of(len(data), output)}"


def _of(size: int, output: Output) -> str:
    if size == output.bytes:
        return f"{size:,} bytes as the run wrote, but not the same"
    return f"{size:,} bytes, but the run wrote {output.bytes:,}"


class Rechecks:
    """The finished effects to verify when they are reached: those of the open scopes that were recorded `up_to` a time,
    and those that a person is still asked about because `verify` has contradicted the record."""

    def __init__(self, moment: Moment, *, up_to: str = ""):
        self.verified = 0
        self.unknown: list[str] = []  # why some could not be verified, in words
        self.left_over: list[str] = []  # those for which no time was left, in words
        self.seconds_left = IN_ALL
        self._wanted: set[Place] = set()
        if not (up_to or moment.doubts):
            return
        for agent in moment.agents.values():
            for key, scope in agent.scopes.items():
                asked = {each.key for each in moment.doubts.values() if (each.agent, each.scope) == (agent.path, key)}
                if not scope.when and not asked:
                    continue  # no effect is on record as done there, and its results may have to be fetched
                effects = [each for each in scope.done.values() if is_of_its_own(each)]
                self._wanted |= {
                    (agent.path, key, each.key)
                    for each in effects
                    if (up_to and scope.when.get(each.key, "") <= up_to) or each.key in asked
                }

    def take(self, place: Place) -> bool:
        """Whether to verify this effect. True only the first time."""
        if place not in self._wanted:
            return False
        self._wanted.discard(place)
        return True

    def told(self) -> list[str]:
        """The results, in words."""
        told = [f"effects recorded as done that were verified again: {self.verified}"] if self.verified else []
        told += [f"could not be verified again and counts as done: {text}" for text in self.unknown]
        if self.left_over:
            told.append(
                f"effects that count as done and were not verified again, because {IN_ALL:.0f} s were used up: "
                f"{len(self.left_over)}, the first {self.left_over[0]}"
            )
        return told

    def put_back(self, place: Place) -> None:
        """Its record was contradicted, so an equal call must be verified again."""
        self._wanted.add(place)


def is_of_its_own(done: StepCompleted) -> bool:
    """Whether the effect itself has reported its result. The word of a person is not doubted."""
    return done.effect and done.how in ("returned", "verified")


class Doubts:
    """Effects that earlier processes left in doubt, and questions about effects. For one opening. `rechecks` are the
    effects to verify again, `cut_off_by` says why an effect began and did not end."""

    def __init__(self, workspace: Workspace, stopping: StopRequests, rechecks: Rechecks, cut_off_by: str):
        self._workspace, self._stopping = workspace, stopping
        self.rechecks, self.cut_off_by = rechecks, cut_off_by
        self.agents: list[str] = []  # sub-agents with effects that an earlier process left in doubt
        self._asks: set[str] = set()  # the questions that the agent has reached since it was entered

    def begin(self) -> None:
        """The agent is entered."""
        self._asks.clear()
        self.agents = [
            path
            for path, agent in self._workspace.moment.agents.items()
            if path and any(scope.started for scope in agent.scopes.values())
        ]

    def ask(
        self,
        identity: dict[str, Any],
        why: Literal["unknown_outcome", "unclaimed", "unreached", "uncalled", "lost"],
        cause: str = "",
        others: tuple[Key, ...] = (),
        needs_person: bool = False,
    ) -> None:
        """Ask about a recorded effect, unless the question is already there. From now on every call unwinds: a person
        is needed."""
        doubt = Doubt(**identity, id="", why=why, cause=cause, others=others, needs_person=needs_person)
        self._stopping.has_asked = True
        open_ones = self._workspace.moment.doubts.items()
        known = next((id for id, asked in open_ones if self._is_same_question(doubt, asked)), None)
        if known is None:
            known = self._workspace.desk.free_id("d")
            self._workspace.journal.add(replace(doubt, id=known))
            self._workspace.journal.flush()
            put_question(self._workspace, known)
        self._asks.add(known)
        self._stopping.wait_for_person()

    def _is_same_question(self, doubt: Doubt, asked: Doubt) -> bool:
        """Ask about one unclaimed call of an effect at a time, because the answer may resolve the others. A question
        that this attempt does not ask is over."""
        if (doubt.agent, doubt.scope, doubt.step) != (asked.agent, asked.scope, asked.step):
            return False
        if doubt.why == asked.why == "unclaimed":
            return asked.id in self._asks or (doubt.key, doubt.others) == (asked.key, asked.others)
        return doubt.key == asked.key


def put_question(workspace: Workspace, id: str) -> None:
    """Write the file of a recorded question."""
    question = find_question(workspace.moment, id)
    assert question is not None
    workspace.desk.write_question(question)
    for files in workspace.files.values():
        workspace.projector.want(files.state)


class Outputs:
    """For one opened workspace."""

    def __init__(self, workspace: Workspace):
        self._workspace = workspace
        self._made: dict[str, Output] = {}  # since it was opened, by path; they are on record once their scope commits

    def write(self, agent: AgentMoment, name: str, path: str, data: bytes) -> Output:
        """Write `outputs/NAME` of an agent to `path`. LeaseHeld if another process has the workspace."""
        workspace = self._workspace
        last = self._made.get(path) or agent.outputs.get(name)
        check_owner = partial(workspace.owned.check_has_it, workspace.store)
        output, kept = rejection.write_output(workspace.store, path, data, last, check_owner)
        self._made[path] = output
        if kept:
            workspace.report.add_late(
                "found",
                f"{path} was changed after the run wrote it; that version is kept as {kept}, and the file is restored",
            )
            workspace.save_report()
        return output
