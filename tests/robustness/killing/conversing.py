"""An agent of Pydantic AI: five tool calls at once, two more, and a streamed answer that holds what they returned.

Each call of a tool or a model is noted outside, so that a repetition shows. `one_by_one` makes the same calls in turns
of their own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial as bind
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, TextPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

import killing
from satchel import NotDone, Run, agent
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key
from satchel.runtime.agent import code

Call = tuple[str, str]
TOGETHER: list[list[Call]] = [
    [("look", "a"), ("look", "b"), ("send", "ann"), ("look", "b"), ("send", "bob")],
    [("look", "c"), ("send", "cid")],
]
TURNS = [[call] for calls in TOGETHER for call in calls]
code.of(__file__)  # searches all installed packages once, and not in each fork
STORY = "".join(f"word{number} " for number in range(12))


def make_agent(turns: list[list[Call]], outside: Path) -> Any:
    def note(what: str) -> None:
        with outside.with_suffix(".log").open("a") as file:
            file.write(f"{what}\n")
        killing.tick()

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        made = [each for each in messages if isinstance(each, ModelResponse)]
        begun = [part.content for part in made[-1].parts if isinstance(part, TextPart)] if made else []
        turn = len(made) - len(begun)
        note(f"model {turn}")
        if turn < len(turns):
            for n, (tool, argument) in enumerate(turns[turn]):
                yield {n: DeltaToolCall(tool, json.dumps({"of": argument}), tool_call_id=f"call-{turn}-{n}")}
                killing.tick()
            return
        for word in STORY.removeprefix("".join(begun)).split(" ")[:-1]:
            yield f"{word} "
            killing.tick()

    durable: SatchelDurability[None] = SatchelDurability(stream=True)
    helper = Agent(FunctionModel(stream_function=answer, model_name="m"), name="helper", capabilities=[durable])

    @helper.tool_plain
    async def look(of: str) -> str:
        note(f"look {of}")
        return of.upper()

    def was_sent(of: str, key: str) -> str:
        if f"{of} {key}" not in (outside.read_text().splitlines() if outside.exists() else []):
            raise NotDone
        return f"sent {of}"

    @helper.tool(metadata=as_effect(verify=was_sent))
    def send(ctx: RunContext[None], of: str) -> str:
        note(f"send {of}")
        with outside.open("a") as file:
            file.write(f"{of} {idempotency_key()}\n")
        killing.tick()
        return f"sent {of}"

    async def talk(run: Run[Any]) -> dict[str, Any]:
        done = await helper.run("Look and send")
        parts = [part for message in done.all_messages() for part in message.parts]
        returned = {part.tool_call_id: part.content for part in parts if isinstance(part, ToolReturnPart)}
        run.state["found"] = {"answer": done.output, "returned": returned}
        return run.state["found"]  # type: ignore[no-any-return]

    @agent
    async def main(run: Run[Any]) -> dict[str, Any]:
        return await run.scope("talk", talk, run)

    return main


def expected(turns: list[list[Call]]) -> dict[str, Any]:
    """What a run must have found."""
    values = {"look": str.upper, "send": "sent {}".format}
    returned = {
        f"call-{t}-{n}": values[tool](of) for t, calls in enumerate(turns) for n, (tool, of) in enumerate(calls)
    }
    return {"answer": STORY, "returned": returned}


def calls(turns: list[list[Call]]) -> Counter[str]:
    """How often an uninterrupted run calls what."""
    tools = [f"{tool} {of}" for calls in turns for tool, of in calls]
    return Counter([*tools, *(f"model {turn}" for turn in range(len(turns) + 1))])


def result(folder: Path, outside: Path) -> dict[str, Any]:
    state = json.loads((folder / "state.json").read_text())
    effects = [line.split() for line in outside.read_text().splitlines()]
    assert len({key for _, key in effects}) == len(effects)
    return {
        "found": state["data"]["found"],
        "status": state["status"],
        "effects": sorted(name for name, _ in effects),
        "left over": [str(path) for name in ("partials", "steps") for path in (folder / name).rglob("*")],
    }


def wrong(turns: list[list[Call]], folder: Path, outside: Path) -> str:
    """Whether the last process has called something again that was on record when it started."""
    log, before = outside.with_suffix(".log"), outside.with_suffix(".before")
    lines = log.read_text().splitlines() if log.exists() else []
    seen, done = json.loads(before.read_text()) if before.exists() else (0, {})
    now = _recorded(folder)
    before.parent.mkdir(exist_ok=True)
    before.write_text(json.dumps([len(lines), now]))
    left = calls(turns) - Counter(done)
    again = Counter(lines[seen:]) - left
    return f"called again although it was on record, or twice in one process: {dict(again)}" if again else ""


def _recorded(folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in sorted((folder / "journal").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # torn by the kill
            if record["type"] == "step.completed" and "request" in record["step"]:
                found[f"model {sum(each.startswith('model') for each in found)}"] += 1
            elif record["type"] == "step.completed":
                [of] = json.loads(f"{{{record['call'][1:-1]}}}").values()
                found[f"{record['step'].removeprefix('helper.')} {of}"] += 1
    return found


def subject(turns: list[list[Call]]) -> killing.Subject:
    return killing.Subject(bind(make_agent, turns), result, wrong=bind(wrong, turns))


SUBJECT = subject(TOGETHER)
