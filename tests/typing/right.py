"""Calls that are right: `make lint` has mypy --strict and pyright find no mistake in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, assert_type

from satchel import (
    Agent,
    Effect,
    Handle,
    Item,
    Key,
    NotDone,
    Outcome,
    Partial,
    Pool,
    Resource,
    Retry,
    Run,
    Sealed,
    Step,
    agent,
    effect,
    new_async,
    run,
    run_async,
    step,
)
from satchel.errors import AgentError
from satchel.results import (
    EditResult,
    ForkResult,
    LogRow,
    PauseResult,
    RedoResult,
    RunFiles,
    RunHistory,
    RunResult,
    ServeEvent,
    Watch,
)


@dataclass
class State:
    sent: dict[str, str] = field(default_factory=dict)
    token: Sealed = field(default_factory=lambda: Sealed("none"))


@step
async def look_up(name: str, times: int = 1) -> list[str]:
    return [name] * times


@step
def double(number: int) -> int:
    return 2 * number


@step(name="halved", retry=Retry.tool())
async def halve(number: int) -> float:
    return number / 2


@step(retry=Retry.model(), fallback=["small"])
async def write(out: Partial, name: str, *, model: str = "large") -> str:
    await out.write(f"{model}: {name}")
    return out.text


@step
async def write_with_run(out: Partial, run: Run[State], name: str) -> str:
    return out.text


@step
async def tell(out: Partial, name: str) -> AsyncIterator[str]:
    yield name


@step(on_partial="restart")
async def tell_again(name: str) -> AsyncIterator[str]:
    yield name


@step
async def anything(value: Any, more: dict[str, Any]) -> None: ...


@effect
async def send(key: Key, address: str, letter: str = "") -> str:
    return key


@effect(verify=lambda address: address, not_done=(NotDone,))
def post(key: Key, run: Run[State], address: str) -> str:
    return address


NO_KEY = Key("")


@effect
async def plainly(address: str, *, key: Key = NO_KEY) -> str:
    return address


class Mailbox:
    def __init__(self, host: str):
        self.host = host

    @step
    async def read(self, number: int) -> str:
        return str(number)

    @step
    async def summarise(self, out: Partial, number: int) -> str:
        return out.text

    @effect(idempotent=True)
    async def delete(self, key: Key, number: int) -> bool:
        return True

    @staticmethod
    @step
    async def parse(text: str) -> int:
        return int(text)

    @classmethod
    @step
    async def newest(cls, number: int) -> str:
        return cls.__name__


async def work(run: Run[State], item: Item) -> str:
    names = assert_type(await look_up(item.text), list[str])
    run.state.token = Sealed(assert_type(run.state.token.value, str) + "+")
    run.state.sent[names[0]] = assert_type(await send("ada@example.org", letter="Dear Ada"), str)
    return names[0]


async def work_without_a_type(run: Run, item: Item) -> None:
    run.state[item.text] = await double(1)


@agent
async def reader(run: Run, path: str, times: int = 1) -> list[str]:
    return [path] * times


@agent(state=State, resources=[Resource("mailbox", lambda: Mailbox("localhost"))])
async def main(run: Run[State]) -> int:
    await run.todo.each(work)
    mailbox: Mailbox = run.resources["mailbox"]
    assert_type(await look_up("Ada", times=2), list[str])
    assert_type(await double(number=2), int)
    assert_type(await halve(3), float)
    assert_type(await write("Ada", model="small"), str)
    assert_type(await write_with_run(name="Ada"), str)
    assert_type(await tell("Ada"), str)
    assert_type(await tell_again(name="Ada"), str)
    await anything(1, {"more": 2})
    assert_type(await post("ada@example.org"), str)
    assert_type(await plainly("ada@example.org"), str)
    assert_type(await send.named("weekly")("ada@example.org"), str)
    assert_type(await mailbox.read(1), str)
    assert_type(await mailbox.summarise(number=1), str)
    assert_type(await mailbox.delete(1), bool)
    assert_type(await mailbox.parse("1"), int)
    assert_type(await Mailbox.parse("1"), int)
    assert_type(await Mailbox.newest(1), str)
    assert_type(await mailbox.newest(1), str)
    await step(double.function, name="doubled")(2)
    found = await asyncio.gather(double(1), look_up("Ada"))
    assert_type(found, tuple[int, list[str]])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(double(4))
    assert_type(task.result(), int)
    paths = assert_type(await run.spawn(reader, "reader", "a.txt", times=2), list[str])
    return len(paths)


def program(folder: str, watch: Watch) -> int | None:
    outcome = run(folder, main, watch=watch)
    assert_type(outcome, Outcome[int])
    if isinstance(outcome.error, AgentError):
        raise outcome.error
    return outcome.result


async def program_async(folder: str) -> Outcome[list[str]]:
    return await run_async(folder, reader)


async def server(root: str) -> list[str]:
    failed: list[ServeEvent] = []
    made = await new_async("digest", f"{root}/one", input={"topic": "tides"}, run_id="request-7")
    async with Pool(root, at_most=20, tell=failed.append) as pool:
        going = assert_type(await pool.start(made.folder), asyncio.Future[Outcome[Any]])
        await pool.wait()
        assert (await going).status == "completed"
    async with Pool(root, reader) as again:
        await again.run(made.folder)
    return [event.text for event in failed]


async def handle(handle: Handle) -> str:
    assert_type(handle.pause(reason="lunch", until="45m"), PauseResult)
    assert_type(await handle.pause_async(reason="lunch", until="45m"), PauseResult)
    assert_type(handle.run(reader, "a.txt", input=None), RunResult)
    assert_type(await handle.run_async(reader, "a.txt", adopt=True), RunResult)
    assert_type(Handle.wait(handle), PauseResult)
    await handle.move_async("elsewhere", by="me")
    assert_type(handle.history, RunHistory)
    assert_type([*handle.history.log(last=1)], list[LogRow])
    assert_type(handle.history.redo("^1", dry_run=True), RedoResult)
    assert_type(await handle.history.fork_async("elsewhere", at="^1"), ForkResult)
    assert_type(handle.files, RunFiles)
    assert_type([each.path for each in handle.files.list()], list[str])
    assert_type(await handle.files.edit_async("todo.md", "", version=""), EditResult)
    return assert_type(await handle.end_other_async(), str)


def declarations(one: Step, two: Effect, three: Agent, four: Outcome) -> Callable[[int], Coroutine[Any, Any, int]]:
    return double
