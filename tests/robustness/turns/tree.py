"""The agents whose run is taken turns over: a root, two children at once, a grandchild; and the world they act on."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from crash import memory
from crash.memory import Memory
from msgspec import Raw

from satchel import Item, NotDone, Run, agent, effect, step
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import NOTHING, Doubt, Resolved
from satchel.workspace.lifecycle.workspace import Workspace

PLANS = {
    "": ("Pack", "Ask", "Leave"),
    "left": ("Read", "Deep", "Write"),
    "right": ("Cook", "Eat"),
    "left/deep": ("Dig", "Dive"),
}
SPAWNING = {("", "Ask"): ("left", "right"), ("left", "Deep"): ("left/deep",)}
"""By agent and the first word of an item: the agents that it spawns."""


def folder_of(path: str) -> str:
    return "".join(f"agents/{name}/" for name in path.split("/")) if path else ""


class Acted(NamedTuple):
    """An effect has changed the world. `attempt` counts its intents in the journal."""

    agent: str
    scope: str
    effect: str
    key: str
    attempt: int


class Committed(NamedTuple):
    """The person at the terminal has seen that an item was done."""

    agent: str
    name: str
    scope: str
    data: str
    message: str


class Process:
    """One process that runs the tree, over a file system that can say later how far it had come at any moment."""

    def __init__(self, system: Memory, world: list[Acted], breaks_at: int | None = None):
        """`breaks_at`: the agent's code raises when it has done so many items but for their commits."""
        self.system, self._before = system, world
        self.breaks_in = -1 if breaks_at is None else breaks_at
        self._about_to_commit: defaultdict[tuple[str, str], deque[Committed]] = defaultdict(deque)  # by agent and text

    @property
    def world(self) -> list[Acted]:
        told = (each.call.fact for each in self.system.log if each.call.name == "acknowledge")
        return [*self._before, *(fact for fact in told if isinstance(fact, Acted))]

    def act(self, agent: str, scope: str, effect: str, key: str) -> None:
        intents = count_intents(memory.files(self.system.nodes), key)
        assert intents, f"{effect} of {agent}:{scope} has begun without an intent"
        self.system.acknowledge(Acted(agent, scope, effect, key, intents))

    def may_break(self) -> None:
        self.breaks_in -= 1
        if self.breaks_in == 0:
            raise TypeError("a mistake in the agent's code")

    def will_commit(self, text: str, fact: Committed) -> None:
        """The person hears of it when it is durable. By then later items may be about to commit, too."""
        facts = self._about_to_commit[fact.agent, text]
        if facts and facts[-1].scope == fact.scope:
            facts.pop()  # the item is tried again
        facts.append(fact)

    # As a watch

    def opened(self, report: Report) -> None: ...
    def agent_begun(self, agent: str) -> None: ...
    def agent_ended(self, agent: str) -> None: ...
    def item_begun(self, agent: str, text: str, finished: int, of: int) -> None: ...
    def step_begun(self, agent: str, name: str) -> None: ...
    def streamed(self, agent: str, name: str, characters: int) -> None: ...
    def noticed(self, kind: str, text: str) -> None: ...

    def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
        self.system.acknowledge(self._about_to_commit[agent, text].popleft())


def count_intents(tree: dict[str, bytes], key: str) -> int:
    """How often the journal says that the effect with this key was about to begin."""
    return sum(record["type"] == "step.started" and record["idempotency_key"] == key for record in records(tree))


def was_done(doubt: Doubt, tree: dict[str, bytes], world: list[Acted]) -> bool:
    """What the world says to a question."""
    if doubt.why == "unclaimed":
        return any(each[:3] == (doubt.agent, doubt.scope, doubt.step) for each in world)
    keys = [each["idempotency_key"] for each in records(tree) if each["type"] == "step.started" and _is_of(each, doubt)]
    return any((each.key, each.attempt) == (keys[-1], keys.count(keys[-1])) for each in world)


def answer(workspace: Workspace, doubt: str, *, is_done: bool) -> None:
    """What `satchel answer` does."""
    if doubt in workspace.moment.doubts:
        result = Raw(b'"done, says a person"') if is_done else NOTHING
        other = next(iter(workspace.moment.doubts[doubt].others), None)
        outcome: Literal["done", "not_done"] = "done" if is_done else "not_done"
        workspace.journal.add(Resolved(id=doubt, by="a person", outcome=outcome, other=other, result=result))
        workspace.journal.flush()


def _is_of(record: dict[str, Any], doubt: Doubt) -> bool:
    return (record.get("agent", ""), record["scope"], record["step"], record["args"], record["n"]) == (
        doubt.agent,
        doubt.scope,
        doubt.step,
        doubt.args,
        doubt.n,
    )


def records(tree: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Those that are whole, each once: what was merged may lie there twice, if a power failure takes a removal back."""
    last = 0
    for path in sorted(path for path in tree if path.startswith("journal/") and path.endswith(".jsonl")):
        for line in tree[path].splitlines():
            record = _parsed(line)
            if record is None:
                return
            if record["seq"] > last:
                last = record["seq"]
                yield record


@lru_cache(1 << 14)
def _parsed(line: bytes) -> dict[str, Any] | None:
    """The record, which nobody may change, or None if the line is not whole."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found


def make(process: Process, durability: Literal["strict", "pipelined"] = "strict", parallel: int = 1) -> Any:
    @step
    async def look(agent: str, scope: str) -> str:
        await asyncio.sleep(0)
        return f"looked at {agent}:{scope}"

    @step
    async def weigh(found: str) -> str:
        return f"weighed {found}"

    @effect
    async def send(agent: str, scope: str, text: str, *, key: str) -> str:
        process.act(agent, scope, "send", key)
        await asyncio.sleep(0)
        return f"sent {text}"

    async def was_booked(agent: str, scope: str, key: str) -> str:
        attempt = count_intents(memory.files(process.system.nodes), key)
        if not any((acted.key, acted.attempt) == (key, attempt) for acted in process.world):
            raise NotDone
        return "booked"

    @effect(verify=was_booked)
    async def book(agent: str, scope: str, *, key: str) -> str:
        process.act(agent, scope, "book", key)
        return "booked"

    async def work(run: Run[dict[str, Any]], item: Item) -> str:
        name = (item.text.split() or [""])[0]  # a plan that was cut short may be taken as it is
        children = SPAWNING.get((run.agent, name), ())
        await asyncio.gather(*(run.spawn(child, path.rpartition("/")[2]) for path in children))
        weight = await weigh(await look(run.agent, item.id))
        await send(run.agent, item.id, item.text)
        await book(run.agent, item.id)
        process.may_break()
        run.state[f"did-{name}"] = weight
        run.state.setdefault("log", []).append(name)
        message = f"{name} is done ({len(run.state['log'])})"
        run.messages.add("user", message)
        process.will_commit(item.text, Committed(run.agent, name, item.id, weight, message))
        return weight

    @agent(durability=durability)
    async def child(run: Run[dict[str, Any]]) -> str:
        if not run.todo.items:
            await run.plan(None, PLANS[run.agent])
        await run.todo.each(work, parallel=parallel)
        return "done"

    @agent(durability=durability)
    async def main(run: Run[dict[str, Any]]) -> str:
        if not run.todo.items:
            await run.plan("A journey", PLANS[""])
        await run.todo.each(work, parallel=parallel)
        return "all done"

    return main
