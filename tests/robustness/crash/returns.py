"""A workload in which a run goes back to an earlier record, does an item again, and undoes that by another return.

Whatever crashes, and if the run then goes back with an effect in doubt: a return that a person was told of counts, one
that was cut off has happened or not, the run comes to its end, and every effect has acted once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

from msgspec import Raw

from satchel import Item, Run, agent, effect, run, step
from satchel.runtime.api import Handle
from satchel.workspace import journal
from satchel.workspace.base import UsageError
from satchel.workspace.inspect import load
from satchel.workspace.journal import Edited, Resolved, Rewound, blobs
from satchel.workspace.store import DiskStore

from .checker import Violation
from .edited import Judge
from .memory import ROOT, Memory
from .play import playing
from .witness import Witness

DEFINITION = b"format: 1\nrun_id: returns\nagent: agent.py:main\n"
_ITEMS = ("a", "b", "c")
_MUCH = 40
"""Characters of the state for each item."""

_INLINE_BYTES = 200
"""So the second return does not fit into a record."""


class Did(NamedTuple):
    """An effect has acted on the world."""

    name: str


class Told(NamedTuple):
    """A person was told that the run returned to this record, or does this item again."""

    what: int | str


def _agent(system: Memory) -> Any:
    @step
    async def read(text: str) -> str:
        return text * _MUCH

    @effect
    async def send(text: str) -> str:
        system.acknowledge(Did(text))
        return f"sent {text}"

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        run.state[item.text] = await read(item.text)
        await send(item.text)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, _ITEMS)
        await run.todo.each(work)

    return main


class Returning:
    """In the shape of the workloads with edits: it has a judge of its own."""

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return Judge(self.files(), self.files(), lambda tree: None)

    def live(self, system: Memory) -> None:
        handle = Handle(DiskStore(ROOT, system), ROOT)
        _to_its_end(system, [])
        handle.history.rewind(to="^2")
        system.acknowledge(Told(_returns(system)[-1]))
        _to_its_end(system, [])
        before = load.look(handle.store).moment.seq
        handle.history.redo("^1")
        system.acknowledge(Told("1"))
        with mock.patch.object(blobs, "INLINE_BYTES", _INLINE_BYTES):
            handle.history.rewind(to=before)
        system.acknowledge(Told(before))
        _to_its_end(system, [])

    def finish(self, system: Memory, witness: Witness) -> None:
        told = [fact.what for fact in witness.others if isinstance(fact, Told)]
        if (done := _returns(system))[: len(told)] != told:
            raise Violation(f"a person was told of the returns {told}, and the journal has {done}", "journal")
        if not done:
            with suppress(UsageError):  # it has not come so far
                Handle(DiskStore(ROOT, system), ROOT).history.rewind(to="^2")
        _to_its_end(system, [fact.name for fact in witness.others if isinstance(fact, Did)])


def _returns(system: Memory) -> list[int | str]:
    found: list[int | str] = []
    for line in journal.read(DiskStore(ROOT, Memory(dict(system.nodes))), after=0).lines:
        if isinstance(line.record, Rewound):
            found.append(line.record.to)
        elif isinstance(line.record, Edited):
            found += line.record.redone
    return found


def _to_its_end(system: Memory, before: list[str]) -> None:
    """Run it until it is done, a person answering its questions truthfully. Violation if a promise breaks."""
    store = DiskStore(ROOT, system)

    def did() -> list[str]:
        return before + [each.call.fact.name for each in system.log if isinstance(each.call.fact, Did)]

    for _ in range(2 * len(_ITEMS)):
        outcome = run(store, _agent(system))
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the run ended as {outcome.status}: {outcome.error!r}")
        with playing(system, "answer") as play:
            for asked in outcome.doubts:
                text = play.moment.root.scopes[asked.scope].title
                sent = Raw(f'"sent {text}"'.encode())
                done = Resolved(id=asked.id, outcome="done", by="a person", result=sent)
                play.journal.add(done if text in did() else Resolved(id=asked.id, outcome="not_done", by="a person"))
            play.journal.flush()
            play.workspace.close()
    else:
        raise Violation("the run does not come to its end")
    data = load.look(store).moment.root.data
    if data != {text: text * _MUCH for text in _ITEMS}:
        raise Violation(f"the run ended with {[*data]}", "state.json")
    if sorted(did()) != [*_ITEMS]:
        raise Violation(f"every effect is due once, and these have acted: {sorted(did())}")
