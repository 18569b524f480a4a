"""Workloads of a real agent, run by the runtime; and what a person and the world outside do about its crashes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgspec import Raw

from satchel import Item, Partial, Retry, Run, agent, effect, run, step
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Resolved
from satchel.workspace.store import DiskStore

from .checker import Violation
from .memory import ROOT, Memory, files
from .play import playing
from .witness import Fact, Streamed, Witness

ITEMS = ("Collect", "Draft", "Send")
_LONG = 70_000
"""Characters of a result that goes to a blob."""


class Watcher:
    """Is told of a commit after it is durable, as a person at the terminal is."""

    def __init__(self, system: Memory):
        self._system = system
        self.about_to_commit: dict[str, list[Fact]] = {}  # by the text of the item

    def opened(self, report: Report) -> None: ...
    def agent_begun(self, agent: str) -> None: ...
    def agent_ended(self, agent: str) -> None: ...
    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def step_begun(self, agent: str, name: str) -> None: ...
    def streamed(self, agent: str, name: str, characters: int) -> None: ...
    def noticed(self, kind: str, text: str) -> None: ...

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        for fact in (*self.about_to_commit.pop(text, ()), Fact("tick", text)):
            self._system.acknowledge(fact)


def _agent(system: Memory, watcher: Watcher, saved: dict[str, int], parallel: int) -> Any:
    """An agent that tells the witness what its calls have returned. `saved` is how far its scopes' steps have come.
    Of `parallel` items each contradicts the others."""

    def tell(kind: Any, key: Any, value: Any = None) -> None:
        system.acknowledge(Fact(kind, key, value))

    @step
    async def read(scope: str, what: str, size: int = 30) -> str:
        tell("ran", (scope, "read", what))
        return (f"{what} " * size)[:size]

    @step
    async def draft(scope: str, out: Partial) -> str:
        attempt = out.marker.attempt + 1 if out.marker else 1
        tell("ran", (scope, "draft", ""))
        for number in range(3):
            piece = f"{attempt}.{number} and so on\n" * 30
            system.acknowledge(Streamed(scope, "draft", attempt, out.text + piece, False))
            await out.write(piece)
            system.acknowledge(Streamed(scope, "draft", attempt, out.text, True))
        return "drafted"

    @step(retry=Retry(attempts=2, first=0.0, longest=0.0))
    async def flaky(scope: str, out: Partial) -> str:
        """Its first attempt breaks off, and the second goes on from what there is."""
        attempt = out.marker.attempt + 1 if out.marker else 1
        text = f"so far {attempt}\n" * 20
        system.acknowledge(Streamed(scope, "flaky", attempt, out.text + text, False))
        await out.write(text)
        system.acknowledge(Streamed(scope, "flaky", attempt, out.text, True))
        if attempt == 1:
            raise ConnectionError("the model hung up")
        return "settled"

    @step
    async def long(scope: str, run: Run[dict[str, Any]]) -> int:
        """Saves how far it has come; it never falls back behind what it has saved."""
        came = run.saved_progress or 0
        if came < saved.get(scope, 0):
            raise Violation(f"progress {saved[scope]} was saved, and {came} is remembered")
        for number in range(came + 1, 4):
            await run.progress(number)
            saved[scope] = number
            tell("progress", scope, number)
        return 3

    @effect
    async def send(scope: str) -> str:
        tell("outside", (scope, "send"))
        return f"sent {scope}"

    async def work(run: Run[dict[str, Any]], item: Item) -> str:
        scope, before = item.id, run.state.get("count", 0)
        if item.text == "Draft":
            await draft(scope)
            tell("step", (scope, "draft"), "drafted")
        if item.text == "Send":
            await flaky(scope)
            tell("step", (scope, "flaky"), "settled")
            await run.checkpoint()
            await long(scope)
            tell("step", (scope, "long"), 3)
        found = await read(scope, "mail", _LONG if item.text == "Collect" else 30)
        tell("stepped", (scope, "read", "mail"))
        for part in await asyncio.gather(read(scope, "left"), read(scope, "right")):
            tell("stepped", (scope, "read", part.split()[0]))
        await send(scope)
        tell("step", (scope, "send"), f"sent {scope}")
        path = await run.output(f"{item.text}.md", found * 20 if len(found) < 100 else found)
        run.messages.add("user", f"about {scope}")
        run.state.setdefault("items", {})[scope] = item.text
        run.state["count"] = before + 1
        watcher.about_to_commit[item.text] = [
            Fact("result", scope, f"did {item.text}"),
            Fact("data", scope, item.text),
            Fact("output", path),
            Fact("message", f"about {scope}", 1),
        ]
        return f"did {item.text}"

    @agent
    async def working(run: Run[dict[str, Any]]) -> str:
        if not run.todo.items:
            await run.plan("Work", ITEMS)
            for text in ITEMS:
                tell("plan", text)
        await run.todo.each(work, parallel=parallel)
        return "all done"

    return working


def live(system: Memory, parallel: int = 1) -> None:
    """Run the agent once, from the beginning to the end."""
    watcher = Watcher(system)
    outcome = run(DiskStore(ROOT, system), _agent(system, watcher, {}, parallel), watch=watcher)
    if outcome.status != "completed":
        raise outcome.error or AssertionError(outcome.status)


def finish(system: Memory, witness: Witness, parallel: int = 1) -> None:
    """Run the agent until it is done, a person answering its questions truthfully. Violation if a promise breaks."""
    done = {fact.key for fact in witness.facts if fact.kind == "stepped"}
    saved = {fact.key: fact.value for fact in witness.facts if fact.kind == "progress"}
    for _ in range(2 * len(ITEMS)):
        watcher = Watcher(system)
        outcome = run(DiskStore(ROOT, system), _agent(system, watcher, saved, parallel), watch=watcher)
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the agent ended as {outcome.status}: {outcome.error!r}")
        with playing(system, "answer") as play:
            for question in outcome.doubts:
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
    for step_ in system.log:
        fact = step_.call.fact
        if isinstance(fact, Fact) and fact.kind == "ran" and fact.key in done:
            raise Violation(f"a finished step was done again: {fact.key}")
    count = json.loads(files(system.nodes)["state.json"])["data"]["count"]
    if count != len(ITEMS):
        raise Violation(f"every item counts once, and the count is {count}")
    acted = _acted(system, witness)
    if len(acted) != len(set(acted)) or len(acted) < len(ITEMS):
        raise Violation(f"every effect is due once, and these were done: {sorted(acted)}")


def _acted(system: Memory, witness: Witness) -> list[tuple[str, str]]:
    """The effects that have acted on the world."""
    heard = [*witness.facts, *(each.call.fact for each in system.log)]
    return [fact.key for fact in heard if isinstance(fact, Fact) and fact.kind == "outside"]
