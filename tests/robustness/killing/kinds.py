"""Kinds of use of Pydantic AI, each an agent that is killed. All that happens outside is noted in a file."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial as bind
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ImageUrl,
    ModelHTTPError,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    NativeOutput,
    RunContext,
    TextOutput,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UsageLimitExceeded,
    UsageLimits,
    UserPromptPart,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.toolsets import DynamicToolset

import killing
import satchel
from satchel import Key, NotDone, Retry, Run, agent, effect
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key
from satchel.runtime.agent import code

code.of(__file__)  # searches all installed packages once, and not in each fork


class World:
    """What is outside: a log of calls, and what effects have sent."""

    def __init__(self, outside: Path):
        self.log, self.sent = outside.with_suffix(".log"), outside.with_suffix(".sent")
        self.folder = outside.parent / "run"

    def note(self, what: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{what}\n")
        killing.tick()

    def send(self, what: str, key: str) -> str:
        self.note("send")
        with self.sent.open("a") as file:
            file.write(f"{what} {key}\n")
        killing.tick()
        return f"sent {what}"

    def was_sent(self, to: str, key: str) -> str:
        if f"{to} {key}" not in lines(self.sent):
            raise NotDone
        return f"sent {to}"


Kind = Callable[[World], Awaitable[Any]]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    def put(function: Kind) -> Kind:
        KINDS[name] = function
        return function

    return put


Answer = ModelResponse | Callable[[list[ModelMessage]], ModelResponse] | Exception


def asking(world: World, *answers: Answer) -> FunctionModel:
    """A model that gives these answers, one a turn. The last one may be left out: then it says what tools returned."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        world.note("model")
        turn = sum(isinstance(each, ModelResponse) for each in messages)
        given = answers[turn] if turn < len(answers) else text(json.dumps(returned(messages)))
        if isinstance(given, Exception):
            raise given
        killing.tick()
        return given if isinstance(given, ModelResponse) else given(messages)

    return FunctionModel(answer, model_name="asking", profile={"supports_json_schema_output": True})


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]


def text(said: str) -> ModelResponse:
    return ModelResponse([TextPart(said)])


def calls(*tools: str, **args: Any) -> ModelResponse:
    """Calls of tools, `name argument` each."""
    pairs = [tool.split(" ") for tool in tools]
    return ModelResponse([ToolCallPart(name, args or {"of": of}, f"{name}-{of}") for name, of in pairs])


def durable(model: FunctionModel | FallbackModel, *more: Any, **options: Any) -> Agent[Any, Any]:
    stream = bool(options.pop("stream", False))
    handler = options.pop("event_stream_handler", None)
    capability: SatchelDurability[Any] = SatchelDurability(
        stream=stream,
        event_stream_handler=handler,
        retry=Retry(attempts=2, first=0.001, on=(ConnectionError,)),
        wait_for=60,
    )
    return Agent(model, name="helper", capabilities=[capability, *more], **options)


def looking(world: World, helper: Agent[Any, Any]) -> Agent[Any, Any]:
    """The agent with a tool `look`."""

    @helper.tool_plain
    async def look(of: str) -> str:
        world.note("look")
        return of.upper()

    return helper


class City(BaseModel):
    name: str
    size: int


ROME = {"name": "Rome", "size": 3}


@kind("plain output")
async def plain(world: World) -> Any:
    helper = durable(asking(world, text("hello")))
    return [(await helper.run(prompt)).output for prompt in ("one", "two")]


@kind("structured output")
async def structured(world: World) -> Any:
    helper = durable(asking(world, calls("final_result x", **ROME)), output_type=City)
    return (await helper.run("Go")).output.name


@kind("native output")
async def native(world: World) -> Any:
    helper = durable(asking(world, text(json.dumps(ROME))), output_type=NativeOutput(City))
    return (await helper.run("Go")).output.size


@kind("output function")
async def output_function(world: World) -> Any:
    def book(name: str, size: int) -> City:
        world.note("book")
        return City(name=name, size=size)

    def shout(said: str) -> str:
        world.note("shout")
        return said.upper()

    helper = durable(asking(world, calls("final_result x", **ROME)), output_type=book)
    other = durable(asking(world, text("quiet")), output_type=TextOutput(shout))
    return [(await helper.run("Go")).output.name, (await other.run("Go")).output]


@kind("output function that is an effect")
async def output_effect(world: World) -> Any:
    @effect(verify=world.was_sent)
    async def send(key: Key, to: str) -> str:
        return world.send(to, key)

    helper = durable(asking(world, calls("final_result x", to="ann")), output_type=send)
    return (await helper.run("Go")).output


@kind("tools in turns")
async def tools(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a"), calls("look b"), calls("look a"))))
    return (await helper.run("Go")).output


@kind("tools in parallel, in threads too")
async def parallel(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a", "read b", "look c", "read d"), calls("look a"))))

    @helper.tool_plain
    def read(of: str) -> str:
        world.note("read")
        return of * 2

    return (await helper.run("Go")).output


@kind("tools that are effects")
async def effects(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("send ann", "look a", "send bob"), calls("send cid"))))

    def was_sent(of: str, key: str) -> str:
        return world.was_sent(of, key)

    @helper.tool(metadata=as_effect(verify=was_sent))
    def send(ctx: RunContext[None], of: str) -> str:
        return world.send(of, idempotency_key())

    return (await helper.run("Go")).output


STORY = "".join(f"word{number} " for number in range(8))


def telling(world: World) -> FunctionModel:
    """Calls `look` first, then tells a story, and continues one that was cut off."""

    async def tell(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        world.note("model")
        if not returned(messages):
            yield {0: DeltaToolCall("look", '{"of": "a"}', tool_call_id="c1")}
            return
        made = [each for each in messages if isinstance(each, ModelResponse)][-1]
        begun = "".join(part.content for part in made.parts if isinstance(part, TextPart))
        for word in STORY.removeprefix(begun).split(" ")[:-1]:
            yield f"{word} "
            killing.tick()

    return FunctionModel(stream_function=tell, model_name="telling")


@kind("streamed text")
async def streamed(world: World) -> Any:
    async with looking(world, durable(telling(world))).run_stream("Go") as answer:
        return await answer.get_output()


@kind("always streamed")
async def always_streamed(world: World) -> Any:
    return (await looking(world, durable(telling(world), stream=True)).run("Go")).output


@kind("streamed events")
async def events(world: World) -> Any:
    async def hear(ctx: RunContext[None], stream: Any) -> None:
        async for event in stream:
            if event.event_kind.startswith("function_tool"):
                world.note("again:heard")

    return (await looking(world, durable(telling(world), event_stream_handler=hear)).run("Go")).output


@kind("iter over nodes")
async def nodes(world: World) -> Any:
    helper, seen = looking(world, durable(asking(world, calls("look a")))), []
    async with helper.iter("Go") as progress:
        async for node in progress:
            seen.append(type(node).__name__)
    assert progress.result is not None
    return [*seen, progress.result.output]


@dataclass
class Deps:
    user: str
    client: World


@kind("dependencies")
async def dependencies(world: World) -> Any:
    helper = durable(asking(world, calls("greet x")), deps_type=Deps)

    @helper.tool
    async def greet(ctx: RunContext[Deps], of: str) -> str:
        ctx.deps.client.note("greet")
        return f"{of} {ctx.deps.user}"

    return (await helper.run("Go", deps=Deps("ann", world))).output


@kind("ModelRetry of a tool")
async def retried(world: World) -> Any:
    helper = durable(asking(world, calls("try a"), calls("try b")), retries=2)

    @helper.tool_plain(name="try")
    async def try_it(of: str) -> str:
        world.note("try")
        if of == "a":
            raise ModelRetry("not a")
        return of

    return (await helper.run("Go")).output


@kind("arguments that do not fit, and validators")
async def validated(world: World) -> Any:
    helper = durable(
        asking(world, calls("add x", to="no number"), calls("add x", to=-1), calls("add x", to=1)), retries=3
    )

    def positive(ctx: RunContext[None], to: int) -> None:
        world.note("again:positive")
        if to < 0:
            raise ModelRetry("positive, please")

    @helper.tool_plain(args_validator=positive)
    async def add(to: int) -> int:
        world.note("add")
        return to + 1

    return (await helper.run("Go")).output


@kind("output validator")
async def output_validator(world: World) -> Any:
    helper = durable(asking(world, text("no"), text("yes")), retries=2)

    @helper.output_validator
    def check(said: str) -> str:
        world.note("again:check")
        if said == "no":
            raise ModelRetry("say yes")
        return said

    return (await helper.run("Go")).output


@kind("toolsets, prefixed and filtered")
async def toolsets(world: World) -> Any:
    def where(of: str) -> str:
        world.note("where")
        return f"{of} is here"

    mine: FunctionToolset[Any] = FunctionToolset([where], id="mine")
    filtered = mine.prefixed("my").filtered(lambda ctx, tool: tool.name == "my_where")
    return (await durable(asking(world, calls("my_where a", "my_where b")), toolsets=[filtered]).run("Go")).output


@kind("dynamic toolset")
async def dynamic(world: World) -> Any:
    def where(of: str) -> str:
        world.note("where")
        return f"{of} is here"

    made: DynamicToolset[Any] = DynamicToolset(lambda ctx: FunctionToolset([where]), id="made")
    return (await durable(asking(world, calls("where a"), calls("where b")), toolsets=[made]).run("Go")).output


@kind("approval by a person")
async def approved(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a", "send ann"), calls("look b"))))

    def was_sent(of: str, key: str) -> str:
        return world.was_sent(of, key)

    @helper.tool_plain(requires_approval=True, metadata=as_effect(verify=was_sent))
    def send(of: str) -> str:
        return world.send(of, idempotency_key())

    def answer() -> None:
        while not answered.wait(0.01):
            if any((world.folder / "approvals").glob("*.yaml")):
                for each in satchel.open(world.folder).status().questions:
                    satchel.open(world.folder).answer("approve", each.id)

    answered = threading.Event()
    person = threading.Thread(target=answer, daemon=True)
    person.start()
    try:
        return (await helper.run("Go")).output
    finally:
        answered.set()


@kind("calls that are executed elsewhere")
async def deferred(world: World) -> Any:
    helper = durable(asking(world, calls("later a")), output_type=[str, DeferredToolRequests])

    @helper.tool_plain
    async def later(of: str) -> str:
        world.note("later")
        raise CallDeferred

    first = await helper.run("Go")
    results = DeferredToolResults(calls={each.tool_call_id: "done elsewhere" for each in first.output.calls})
    return (await helper.run(message_history=first.all_messages(), deferred_tool_results=results)).output


@kind("message history")
async def history(world: World) -> Any:
    def again(messages: list[ModelMessage]) -> ModelResponse:
        prompts = [part.content for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
        return text(f"you said {prompts}")

    helper = looking(world, durable(asking(world, calls("look a"), text("first"), again)))
    first = await helper.run("one")
    return (await helper.run("two", message_history=first.all_messages())).output


@kind("history that is processed")
async def processed(world: World) -> Any:
    def shorter(messages: list[ModelMessage]) -> list[ModelMessage]:
        world.note("again:shorter")
        return [ModelRequest([UserPromptPart("Shortened")]), *messages[1:]]

    def again(messages: list[ModelMessage]) -> ModelResponse:
        return text(str(messages[0].parts[0].content))  # type: ignore[union-attr]

    helper = looking(world, durable(asking(world, calls("look a"), again), ProcessHistory(shorter)))
    return (await helper.run("Go")).output


@kind("another agent in a tool")
async def delegated(world: World) -> Any:
    inner = looking(world, durable(asking(world, calls("look a"))))
    outer = durable(asking(world, calls("delegate x"), calls("delegate y")))

    @outer.tool(metadata={"satchel": False})
    async def delegate(ctx: RunContext[None], of: str) -> str:
        return (await inner.run(f"Find {of}", usage=ctx.usage)).output  # type: ignore[no-any-return]

    done = await outer.run("Go")
    return [done.output, done.usage.requests]


@kind("several agents at once")
async def at_once(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a"), calls("look b"))))
    return [each.output for each in await asyncio.gather(*map(helper.run, ("one", "two")))]


@kind("images and files as input")
async def multimodal(world: World) -> Any:
    def sees(messages: list[ModelMessage]) -> ModelResponse:
        [prompt] = (part.content for part in messages[0].parts if isinstance(part, UserPromptPart))
        return text(str([type(each).__name__ for each in prompt]))

    helper = durable(asking(world, sees))
    image = BinaryContent(bytes(range(256)), media_type="image/png")
    return (await helper.run(["Look", image, ImageUrl("https://example.org/a.png")])).output


@kind("instructions that are computed")
async def instructions(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a")), instructions="Be brief.", deps_type=str))

    @helper.instructions
    def name(ctx: RunContext[str]) -> str:
        world.note("again:instructions")
        return f"Call me {ctx.deps}."

    return (await helper.run("Go", deps="Ann")).output


@kind("fallback model")
async def fallback(world: World) -> Any:
    broken = asking(world, ModelHTTPError(503, "broken"), ModelHTTPError(503, "broken"))
    helper = looking(world, durable(FallbackModel(broken, asking(world, calls("look a")))))
    return (await helper.run("Go")).output


@kind("model that is asked again")
async def overloaded(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a"), flaky(world))))
    return (await helper.run("Go")).output


def flaky(world: World) -> Callable[[list[ModelMessage]], ModelResponse]:
    """Fails once in each process."""
    failed: list[str] = []

    def answer(messages: list[ModelMessage]) -> ModelResponse:
        if not failed:
            failed.append("once")
            raise ConnectionError("no network")
        return text("at last")

    return answer


@kind("usage limits")
async def limited(world: World) -> Any:
    helper = looking(world, durable(asking(world, calls("look a"), calls("look b"), calls("look c"))))
    try:
        await helper.run("Go", usage_limits=UsageLimits(request_limit=2))
    except UsageLimitExceeded as error:
        return str(error)
    raise AssertionError


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def make_agent(name: str, outside: Path) -> Any:
    @agent
    async def main(run: Run[Any]) -> None:
        async def work() -> Any:
            run.state["found"] = await KINDS[name](World(outside))

        await run.scope("work", work)

    return main


def result(folder: Path, outside: Path) -> dict[str, Any]:
    state = json.loads((folder / "state.json").read_text())
    sent = [line.split() for line in lines(World(outside).sent)]
    assert len({key for _, key in sent}) == len(sent)
    return {
        "found": state["data"]["found"],
        "status": state["status"],
        "sent": sorted(name for name, _ in sent),
        "left over": [str(path) for name in ("partials", "steps") for path in (folder / name).rglob("*")],
    }


def wrong(folder: Path, outside: Path) -> str:
    """Whether the last process has called something again that was on record when it started."""
    whole = outside.parents[1] / "whole/outside.log"
    if outside.with_suffix(".log") == whole:
        return ""
    log, before = lines(outside.with_suffix(".log")), outside.with_suffix(".before")
    seen, done = json.loads(before.read_text()) if before.exists() else (0, {})
    before.parent.mkdir(exist_ok=True)
    before.write_text(json.dumps([len(log), recorded(folder)]))
    again = Counter(counted(log[seen:])) - (Counter(counted(lines(whole))) - Counter(done))
    return f"called again although it was on record, or twice in one process: {dict(again)}" if again else ""


def counted(log: list[str]) -> list[str]:
    """Without what is repeated at every start."""
    return [line for line in log if not line.startswith("again:")]


def recorded(folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in sorted((folder / "journal").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # torn by the kill
            if record["type"] == "step.completed":
                found["model" if "request" in record["step"] else record["step"].rpartition(".")[2]] += 1
    return found


SUBJECTS = {name: killing.Subject(bind(make_agent, name), result, wrong=wrong) for name in KINDS}
