"""A workload in which people are asked, by an agent and by one that it has spawned, and answer in the files.

One question is approved, the other denied, and a person who has denied tries to change that in the file. Whatever
crashes: behind the approval the effect happens once, behind the denial never.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from satchel import Item, Run, agent, effect, run
from satchel.runtime.execution.running import Outcome
from satchel.workspace.store import DiskStore

from . import memory
from .checker import Violation
from .edited import Judge
from .memory import ROOT, Memory
from .witness import Witness

DEFINITION = b"format: 1\nrun_id: asks\nagent: agent.py:main\n"
_DECISIONS = {"Grant?": "approve", "Delete?": "deny"}
_ROUNDS = 14


class Did(NamedTuple):
    """An effect has acted on the world."""

    name: str


def _agent(system: Memory) -> Any:
    @effect
    async def act(name: str) -> str:
        system.acknowledge(Did(name))
        return name

    async def asked(run: Run[dict[str, Any]], question: str) -> None:
        answer = await run.ask(question, ["approve", "deny"], context={"by": run.agent}, wait_for=0)
        if answer == "approve":
            await act(question)
        run.state[question] = answer.decision

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        if item.text == "Clean":
            await run.spawn(helper, "helper")
        else:
            await asked(run, "Grant?")

    @agent
    async def helper(run: Run[dict[str, Any]]) -> str:
        await run.scope("delete", asked, run, "Delete?")
        return str(run.state["Delete?"])

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["Rights", "Clean"])
        await run.todo.each(work)

    return main


class Answering:
    """The workload, in the shape of those with edits: it has several agents, so their judge counts."""

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return Judge(self.files(), self.files(), lambda tree: None)

    def live(self, system: Memory) -> None:
        _finish(system, [])

    def finish(self, system: Memory, witness: Witness) -> None:
        _finish(system, [fact.name for fact in witness.others if isinstance(fact, Did)])


def _finish(system: Memory, before: list[str]) -> None:
    """Run it to its end, a person answering. Violation if more or less is done than was approved."""
    store = DiskStore(ROOT, system)

    def did() -> list[str]:
        return before + [each.call.fact.name for each in system.log if isinstance(each.call.fact, Did)]

    for _ in range(_ROUNDS):
        outcome = run(store, _agent(system))
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the run ended as {outcome.status}: {outcome.error!r}")
        _answer(system, store, outcome, did())
    else:
        raise Violation("the run does not come to its end")
    if did() != ["Grant?"]:
        raise Violation(f"one effect was approved, and these were done: {did()}")


def _answer(system: Memory, store: DiskStore, outcome: Outcome, did: list[str]) -> None:
    """What a person types into the files."""
    tree = memory.files(system.nodes)
    for asked in (*outcome.approvals, *outcome.doubts):
        if f"approvals/{asked.id}.yaml" not in tree:
            raise Violation(f"{asked.id} is open and has no file", f"approvals/{asked.id}.yaml")
    for path, data in tree.items():
        if not path.startswith("approvals/"):
            continue
        text = data.decode()
        if "\nstatus: open\n" in text:
            said = next((answer for question, answer in _DECISIONS.items() if f'question: "{question}"' in text), "")
            if "/d" in path:
                said = "done" if did else "redo"
            store.replace(path, re.sub("\ndecision:.*", f"\ndecision: {said}", text).encode(), sync="data")
        elif "\ndecision: deny\n" in text:  # too late
            store.replace(path, text.replace("\ndecision: deny\n", "\ndecision: approve\n").encode(), sync="data")
