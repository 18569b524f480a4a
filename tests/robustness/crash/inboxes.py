"""A workload of an agent that takes tasks and messages from its inbox: whatever a crash does, each is done once."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from satchel import InboxTask, Run, agent, effect, run
from satchel.workspace.inbound import inbox
from satchel.workspace.journal import Resolved
from satchel.workspace.store import DiskStore

from .checker import Violation
from .memory import ROOT, Memory, files
from .play import playing
from .witness import Fact, Witness

TASKS = {"a.md": b"Call Ada", "b.yaml": b"customer: 7\n", "c.md": b"Call Grace"}
FILES = {f"inbox/{name}": data for name, data in TASKS.items()} | {"inbox/m.yaml": inbox.message("hurry")}


def _agent(system: Memory) -> Any:
    @effect
    async def act(name: str) -> str:
        system.acknowledge(Fact("outside", (f"_inbox-{ids[name]}", "act")))
        return name

    ids: dict[str, str] = {}

    async def work(run: Run[dict[str, Any]], task: InboxTask) -> None:
        heard = [each.text for each in await run.inbox.take("message")]
        ids[task.name] = task.id
        await act(task.name)
        run.state.setdefault("done", []).append(task.name)
        run.state.setdefault("heard", []).extend(heard)

    @agent
    async def working(run: Run[dict[str, Any]]) -> None:
        await run.inbox.each(work)

    return working


def live(system: Memory) -> None:
    outcome = run(DiskStore(ROOT, system), _agent(system))
    if outcome.status != "completed":
        raise outcome.error or AssertionError(outcome.status)


def finish(system: Memory, witness: Witness) -> None:
    """Run the agent until it is done, a person answering its questions truthfully."""
    for _ in range(3 * len(TASKS)):
        outcome = run(DiskStore(ROOT, system), _agent(system))
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the agent ended as {outcome.status}: {outcome.error!r}")
        with playing(system, "answer") as play:
            for question in outcome.doubts:
                acted = (question.scope, question.step) in _acted(system, witness)
                play.journal.add(
                    Resolved(id=question.id, outcome="done", by="a person", result=Raw(b'"done"'))
                    if acted
                    else Resolved(id=question.id, outcome="not_done", by="a person")
                )
            play.journal.flush()
            play.workspace.close()
    else:
        raise Violation("the agent asks again and again")
    acted = _acted(system, witness)
    if sorted(acted) != [(f"_inbox-t{number}", "act") for number in (1, 3, 4)]:  # t2 is the message
        raise Violation(f"every task is due once, and these were done: {sorted(acted)}")
    with playing(system, "recover") as play:
        data = play.moment.root.data
        if data != {"done": sorted(TASKS), "heard": ["hurry"]}:
            raise Violation(f"each task is due once, and the state says {data}")
        play.workspace.close()
    tree = files(system.nodes)
    if left := [path for path in tree if path.startswith("inbox/") and path.count("/") == 1]:
        raise Violation(f"{left} were done and lie there still", left[0])
    if gone := [path for path, was in FILES.items() if tree.get(f"inbox/done/{path[6:]}") != was]:
        raise Violation(f"{gone} were done and are gone")


def _acted(system: Memory, witness: Witness) -> list[tuple[str, str]]:
    heard = [*witness.facts, *(each.call.fact for each in system.log)]
    return [fact.key for fact in heard if isinstance(fact, Fact) and fact.kind == "outside"]
