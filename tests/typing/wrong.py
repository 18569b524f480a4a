"""Calls that are wrong: `make lint` has mypy --strict and pyright report the lines with `# wrong`, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator

from satchel import Handle, Item, Key, Partial, Retry, Run, agent, effect, run, step


@step
async def look_up(name: str, times: int = 1) -> list[str]:
    return [name] * times


@step(retry=Retry.tool())
def double(number: int) -> int:
    return 2 * number


@step
async def write(out: Partial, name: str) -> str:
    return out.text


@step
async def tell(out: Partial, name: str) -> AsyncIterator[str]:
    yield name


@effect
async def send(key: Key, address: str) -> str:
    return key


@effect(idempotent=True)
async def pay(key: Key, run: Run[dict[str, str]], cents: int) -> int:
    return cents


class Mailbox:
    @step
    async def read(self, number: int) -> str:
        return str(number)

    @effect
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


@agent
async def reader(run: Run, path: str, times: int = 1) -> list[str]:
    return [path] * times


async def work(run: Run, item: Item) -> None:
    look_up(item.text)  # wrong: the await is missing
    await look_up()  # wrong: an argument is missing
    await look_up(1)  # wrong: a number as a name
    await look_up("Ada", "twice")  # wrong: a text as a number
    await look_up("Ada", often=2)  # wrong: no such parameter
    await look_up("Ada", 1, 2)  # wrong: an argument too many
    number: int = await look_up("Ada")  # wrong: the result is a list
    _ = double(2) + 1  # wrong: the await is missing
    await double("2")  # wrong: a text as a number, with options
    _ = (await double(2)).upper()  # wrong: the result is a number
    await write(1)  # wrong: a number as a name, after a Partial
    await write(run, "Ada")  # wrong: Satchel fills in the Partial
    _ = len(await tell(2))  # wrong: an argument of a generator
    lines: list[str] = await tell("Ada")  # wrong: the result of a generator is a text
    await send(Key("1"), "ada@example.org")  # wrong: Satchel fills in the key
    await send(address=1)  # wrong: a number as an address
    await send()  # wrong: an argument is missing
    await send.named("weekly")(1)  # wrong: a number as an address
    await send.named(1)("ada@example.org")  # wrong: a name is a text
    await pay("1")  # wrong: a text as a number, after a key and a run
    mailbox = Mailbox()
    await mailbox.read("1")  # wrong: a text as a number, in a method
    mailbox.read(1)  # wrong: the await of a method is missing
    await mailbox.delete(Key("1"), 1)  # wrong: Satchel fills in the key of a method
    await mailbox.parse(1)  # wrong: a number as a text, in a static method
    await Mailbox.newest("1")  # wrong: a text as a number, in a class method
    await run.spawn(reader, "reader", 1)  # wrong: a number as a path
    await run.spawn(reader, "reader")  # wrong: an argument is missing
    await run.spawn(reader, "reader", "a.txt", often=2)  # wrong: no such parameter
    await run.spawn(work, "reader", "a.txt")  # wrong: not an agent
    path: str = await run.spawn(reader, "reader", "a.txt")  # wrong: the result is a list
    print(number, lines, path)


def program(folder: str) -> None:
    run(folder, work)  # wrong: not an agent
    text: str = run(folder, reader).result  # wrong: the result is a list, or None
    print(text)


@step(retry=3)  # wrong: not a Retry
async def first(name: str) -> str:
    return name


@step(retries=3)  # wrong: no such option
async def second(name: str) -> str:
    return name


async def steer(handle: Handle) -> str:
    handle.pause("lunch")  # wrong: the reason is named
    await handle.pause_async(reasons="lunch")  # wrong: no such parameter
    await handle.pause()  # wrong: it has its result already
    handle.answer()  # wrong: an answer needs a decision
    handle.blame()  # wrong: `history` has it
    handle.files.edit("todo.md", "")  # wrong: an edit needs the version of its draft
    return await handle.wait_async()  # wrong: a PauseResult


@effect(on_partial="restart")  # wrong: effects are not streamed
async def third(name: str) -> str:
    return name


@agent(durability="loose")  # wrong: no such durability
async def fourth(run: Run) -> None: ...


@agent  # wrong: an agent gets a run
async def fifth(name: str) -> None: ...


@agent  # wrong: an agent must be `async def`
def sixth(run: Run) -> str:
    return ""
