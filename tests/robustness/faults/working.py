"""An agent whose every act is counted, and the machines that run it over one workspace in a bucket."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from servers import BUCKET, SECRET, Server
from waits import PATIENCE

from faults.proxy import Proxy
from satchel import Agent, Item, NotDone, Partial, Run, agent, effect, run_async, step
from satchel.workspace import journal
from satchel.workspace.base.errors import LeaseHeld, SatchelError, StorageFailed
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.load import look
from satchel.workspace.store import Store
from satchel.workspace.store.bucket import BucketStore

DEFINITION = b"format: 1\nrun_id: faulty-1\nagent: agent.py:main\n"
ITEMS = ["one", "two", "three"]
TEXT = "what the model says, token by token, until it has said all"


@dataclass
class World:
    """What the agents of one workspace have done, in whatever process."""

    executed: Counter[str] = field(default_factory=Counter)  # steps that were begun
    done: Counter[str] = field(default_factory=Counter)  # effects that have happened
    acknowledged: set[str] = field(default_factory=set)  # what had returned to an agent
    repeated: list[str] = field(default_factory=list)  # though it was acknowledged

    def begin(self, name: str) -> None:
        if name in self.acknowledged:
            self.repeated.append(name)

    def agent(self, midway: Any = None) -> Agent:
        """`midway` is called in the middle of the second item, between its effect and its end."""

        @step
        async def look_up(what: str) -> str:
            self.begin(f"look up {what}")
            self.executed[what] += 1
            return what.upper()

        @step
        async def tell(what: str, out: Partial) -> str:
            self.begin(f"tell {what}")
            done = len((out.recovered or "").split())
            for word in TEXT.split()[done:]:
                await out.write(word + " ")
            return out.text

        async def was_sent(what: str) -> str:
            if not self.done[what]:
                raise NotDone
            return f"sent {what}"

        @effect(verify=was_sent)
        async def send(what: str) -> str:
            self.begin(f"send {what}")
            self.done[what] += 1
            return f"sent {what}"

        async def work(run: Run[Any], item: Item) -> None:
            found = []
            for each in range(3):
                found.append(await look_up(f"{item.text}.{each}"))
                self.acknowledged.add(f"look up {item.text}.{each}")
            found.append(await tell(item.text))
            self.acknowledged.add(f"tell {item.text}")
            found.append(await send(item.text))
            self.acknowledged.add(f"send {item.text}")
            if midway is not None and item.text == "two":
                await midway()
                found.append(await send("two, after all"))
            run.state[item.text] = found

        @agent
        async def main(run: Run[Any]) -> None:
            if not run.todo.items:
                await run.plan("Work", ITEMS)
            await run.todo.each(work)

        return main


class Midway:
    """Where an agent waits until the test lets it go on."""

    def __init__(self) -> None:
        self._is_reached, self._goes_on = threading.Event(), threading.Event()

    async def __call__(self) -> None:
        self._is_reached.set()
        await asyncio.to_thread(self._goes_on.wait, 60)

    def await_reached(self) -> None:
        assert self._is_reached.wait(PATIENCE)

    def go_on(self) -> None:
        self._goes_on.set()


@dataclass
class Machine:
    """One that runs agents, with a network of its own."""

    proxy: Proxy
    store: Store
    outcome: Any = None
    error: BaseException | None = None
    thread: threading.Thread | None = None

    def run(self, agent: Agent) -> None:
        self.outcome = self.error = None
        try:
            self.outcome = asyncio.run(run_async(self.store, agent))
            self.error = self.outcome.error
        except SatchelError as error:
            self.error = error

    def start(self, agent: Agent) -> None:
        self.thread = threading.Thread(target=self.run, args=(agent,), daemon=True)
        self.thread.start()

    def wait(self) -> None:
        assert self.thread
        self.thread.join(60)
        assert not self.thread.is_alive()

    @property
    def is_completed(self) -> bool:
        return self.outcome is not None and self.outcome.status == "completed"


def opened(server: Server, endpoint: str, prefix: str, patience: float = 15) -> Store:
    """`patience` is for a machine that is busy elsewhere: no test of a fault that passes waits for its end."""
    options = {**server.storage_options(endpoint), "config_kwargs": {"read_timeout": 0.5}}
    return BucketStore(BUCKET, prefix, options, patience=patience)


def undisturbed(server: Server, prefix: str) -> Store:
    """The workspace past every proxy, with all the patience that users get: a busy machine is not what is tested."""
    return BucketStore(BUCKET, prefix, server.storage_options())


def check(server: Server, prefix: str, world: World, sent: list[str]) -> None:
    """It has ended right: one history, every effect once, the state and the plan as they are to be."""
    store = undisturbed(server, prefix)
    seen = look(store)
    assert seen.moment.status == "completed"
    assert world.done == dict.fromkeys(sent, 1)
    assert not world.repeated
    assert list(seen.moment.root.data) == ITEMS
    for item in ITEMS:
        expected = [*(f"{item}.{each}".upper() for each in range(3)), TEXT + " ", f"sent {item}"]
        assert seen.moment.root.data[item][:5] == expected
    assert store.read("todo.md").data.count(b"- [x]") == len(ITEMS)
    assert store.version(lease.PATH) is None, "nobody has to wait for a process that has ended"
    lines = journal.read(store, after=0).lines
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    epochs = [line.epoch for line in lines]
    assert epochs == sorted(epochs)


def tell_clearly(machine: Machine) -> None:
    """If it could not go on it said why, and what to do."""
    if machine.is_completed:
        return
    assert isinstance(machine.error, StorageFailed | LeaseHeld), (machine.error, machine.outcome)
    assert machine.error.why and machine.error.remedy and SECRET not in str(machine.error)
