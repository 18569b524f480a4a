"""A workload in which a run is paused, gone on with, paused again with a person's words in the
file, and brought to its end.

Whatever crashes: an agent is never entered while a pause is durable that nobody has lifted, and pause.yaml is never
torn.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from satchel import Item, Run, agent, run, step
from satchel.workspace.formats import pause_file
from satchel.workspace.inspect import load
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle import pausing
from satchel.workspace.store import DiskStore

from . import memory
from .checker import Violation
from .edited import Judge
from .memory import ROOT, Memory
from .witness import Witness

DEFINITION = b"format: 1\nrun_id: pauses\nagent: agent.py:main\n"
_ITEMS = ("Read", "Write", "Send")


class Stepped(NamedTuple):
    """A step has been done."""

    name: str


def _agent(system: Memory, pauses_at: str = "") -> Any:
    """While it is at the item `pauses_at`, a pause is asked for."""

    @step
    async def do(name: str) -> str:
        system.acknowledge(Stepped(name))
        return name

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        run.state[item.text] = await do(item.text)
        if item.text == pauses_at:
            run._session.context.stopping.pause(PauseRequested(reason="enough", by="ann"))
            await do(f"{item.text} more")

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        _check_entered(system)
        if not run.todo.items:
            await run.plan(None, _ITEMS)
        await run.todo.each(work)

    return main


def _check_entered(system: Memory) -> None:
    moment = load.look(DiskStore(ROOT, Memory(dict(system.nodes)))).moment
    if moment.pause is not None:
        raise Violation(f"the agent is entered although the run is paused: {moment.pause}", pause_file.PATH)


class Pausing:
    """In the shape of the workloads with edits: the files and the judge of its own count."""

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return Judge(self.files(), self.files(), lambda tree: None)

    def live(self, system: Memory) -> None:
        store = DiskStore(ROOT, system)
        for item in _ITEMS[:2]:
            if (outcome := run(store, _agent(system, item), wake=True)).status != "paused":
                raise Violation(f"a pause was asked for at {item!r}, and it is {outcome.status}")
            _check_file(system)
        _run_through(system, ("# mine\nx-mine: 1\nreason: two\n",))

    def finish(self, system: Memory, witness: Witness) -> None:
        _check_file(system)
        _run_through(system, ())


def _run_through(system: Memory, wishes: tuple[str, ...]) -> None:
    """To its end. A person writes something into the file of the pause in force, and then that it is to go on."""
    store = DiskStore(ROOT, system)
    for wish in wishes:
        data = memory.files(system.nodes).get(pause_file.PATH, b"")
        store.replace(pause_file.PATH, wish.encode() + data.replace(b"reason: enough\n", b""))
        _check_file(system)
        if (outcome := run(store, _agent(system))).status != "paused":
            raise Violation(f"nobody has lifted the pause, and it is {outcome.status}", pause_file.PATH)
        text = memory.files(system.nodes)[pause_file.PATH].decode()
        for line in wish.splitlines():
            if line not in text:
                raise Violation(f"{line!r} is gone from {text!r}", pause_file.PATH)
        store.replace(pause_file.PATH, text.replace("status: paused", "status: resume").encode())
        _go_on(system, store, wake=False)
    _go_on(system, store, wake=True)


def _go_on(system: Memory, store: DiskStore, *, wake: bool) -> None:
    outcome = run(store, _agent(system), wake=wake)
    if outcome.status != "completed" and not wake:  # the file of a pause in force was lost, and is restored
        outcome = run(store, _agent(system), wake=True)
    if outcome.status != "completed":
        raise Violation(f"it is not gone on with, it is {outcome.status}")
    if pause_file.PATH in memory.files(system.nodes):
        raise Violation("it is over, and pause.yaml is still there", pause_file.PATH)


def _check_file(system: Memory) -> None:
    """It is whole, and says what the journal says."""
    store = DiskStore(ROOT, system)
    data = memory.files(system.nodes).get(pause_file.PATH)
    if data is not None:
        try:
            pause_file.parse(data)
        except Exception as error:
            raise Violation(f"pause.yaml is torn: {error}", pause_file.PATH) from error
    moment = load.look(store).moment
    wanted = pausing.wish(store, moment)
    if moment.pause is not None and (wanted is None or (wanted.is_lifted and not wanted.is_overruling)):
        raise Violation(f"the pause {moment.pause} is recorded, and is not wished for any more", pause_file.PATH)
