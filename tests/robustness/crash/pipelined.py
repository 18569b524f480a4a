"""A workload of an agent whose steps do not wait for their records: what can be seen never depends on one that is lost.

Nothing is flushed by time here, so that every record waits until something must not go ahead of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from msgspec import Raw

from satchel import Item, Partial, Run, agent, effect, run, step
from satchel.runtime.engine import context
from satchel.workspace.journal import Resolved
from satchel.workspace.store import DiskStore

from . import memory
from .agents import Watcher
from .checker import Violation
from .memory import ROOT, Memory
from .play import playing
from .witness import Fact, Streamed, Witness

ITEMS = ("First", "Second")


@contextmanager
def never_in_time() -> Iterator[None]:
    with mock.patch.object(context, "time", SimpleNamespace(monotonic=lambda: -1000.0)):
        yield


def _agent(system: Memory, watcher: Watcher) -> Any:
    def tell(kind: Any, key: Any, value: Any = None) -> None:
        system.acknowledge(Fact(kind, key, value))

    def reading(name: str) -> Any:
        async def read(run: Run[Any], scope: str) -> str:
            return f"{name} of {scope} by attempt {run.attempt}"  # another one whenever it is done again

        return step(name=name)(read)

    one, two, three, four = map(reading, ("one", "two", "three", "four"))

    @step
    async def draft(scope: str, out: Partial) -> str:
        attempt = out.marker.attempt + 1 if out.marker else 1
        piece = f"{attempt} and so on\n" * 30
        system.acknowledge(Streamed(scope, "draft", attempt, out.text + piece, False))
        await out.write(piece)
        system.acknowledge(Streamed(scope, "draft", attempt, out.text, True))
        return "drafted"

    @step
    async def long(run: Run[Any], scope: str) -> int:
        if not run.saved_progress:
            await run.progress(1)
        return 3

    @effect
    async def send(scope: str, first: str, second: str) -> str:
        tell("step", (scope, "one"), first)  # the world sees them from here on
        tell("step", (scope, "two"), second)
        tell("outside", (scope, "send"))
        return f"sent {scope}"

    async def work(run: Run[dict[str, Any]], item: Item) -> str:
        scope = item.id
        first, second = await one(scope=scope), await two(scope=scope)
        await send(scope, first, second)
        await draft(scope)
        found = await three(scope=scope)
        path = await run.output(f"{item.text}.md", found)
        tell("step", (scope, "three"), found)
        last = await four(scope=scope)
        await long(scope=scope)
        tell("step", (scope, "four"), last)
        watcher.about_to_commit[item.text] = [Fact("result", scope, last), Fact("output", path)]
        return str(last)

    @agent(durability="pipelined")
    async def working(run: Run[dict[str, Any]]) -> str:
        if not run.todo.items:
            await run.plan("Work", ITEMS)
        await run.todo.each(work)
        return "all done"

    return working


def live(system: Memory) -> None:
    """Run the agent once, from the beginning to the end."""
    watcher = Watcher(system)
    with never_in_time():
        outcome = run(DiskStore(ROOT, system), _agent(system, watcher), watch=watcher)
    if outcome.status != "completed":
        raise outcome.error or AssertionError(outcome.status)


def finish(system: Memory, witness: Witness) -> None:
    """Run the agent until it is done, a person answering its questions truthfully. Violation if a promise breaks."""
    for _ in range(2 * len(ITEMS)):
        watcher = Watcher(system)
        with never_in_time():
            outcome = run(DiskStore(ROOT, system), _agent(system, watcher), watch=watcher)
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the agent ended as {outcome.status}: {outcome.error!r}")
        with playing(system, "answer") as play:
            for question in outcome.doubts:
                if question.why != "unknown_outcome":
                    raise Violation(f"an effect was made of what was lost: {question}")
                acted = (question.scope, question.step) in _acted(system, witness)
                answer = Raw(f'"sent {question.scope}"'.encode())
                play.journal.add(
                    Resolved(id=question.id, outcome="done", by="a person", result=answer)
                    if acted
                    else Resolved(id=question.id, outcome="not_done", by="a person")
                )
            play.journal.flush()
            play.workspace.close()
    else:
        raise Violation("the agent asks again and again")
    acted = _acted(system, witness)
    if len(acted) != len(set(acted)) or len(acted) < len(ITEMS):
        raise Violation(f"every effect is due once, and these were done: {sorted(acted)}")
    files = memory.files(system.nodes)
    for path, versions in witness.outputs.items():
        if versions - {files[path]}:
            raise Violation(f"{path} was made of a step that was lost: {versions} became {files[path]!r}", path)


def _acted(system: Memory, witness: Witness) -> list[tuple[str, str]]:
    """The effects that have acted on the world."""
    heard = [*witness.facts, *(each.call.fact for each in system.log)]
    return [fact.key for fact in heard if isinstance(fact, Fact) and fact.kind == "outside"]
