"""An agent of Pydantic AI in a run: what is answered, what runs again, what people are asked."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelHTTPError,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    NativeOutput,
    RunContext,
    TextOutput,
    TextPart,
    ToolCallPart,
    ToolOutput,
    ToolReturn,
    ToolReturnPart,
    durable_exec,
)
from pydantic_ai.capabilities import SetToolMetadata
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import DynamicToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import core_schema
from stopping import Stop, completed, interrupted, records

import satchel
from satchel import NotDone, Retry, Run, agent, run
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key
from satchel.errors import NotSerializable
from satchel.runtime.engine import performing

Call = tuple[str, dict[str, Any]]


def turns(messages: list[ModelMessage]) -> int:
    return sum(isinstance(each, ModelResponse) for each in messages)


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]


def calling(*rounds: list[Call], log: list[str] | None = None) -> FunctionModel:
    """A model that makes these calls, a list a turn, and then says what the tools have returned."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = turns(messages)
        if log is not None:
            log.append(f"model {turn}")
        if turn < len(rounds):
            parts = [ToolCallPart(name, args, f"c{turn}-{n}") for n, (name, args) in enumerate(rounds[turn])]
            return ModelResponse(parts)
        return ModelResponse([TextPart(json.dumps(returned(messages)))])

    return FunctionModel(answer, model_name="calling")


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def entered(helper: Agent[Any, Any], prompt: str = "Go", **options: Any) -> satchel.Agent[Any]:
    @agent
    async def main(run: Run) -> Any:
        return (await helper.run(prompt, **options)).output

    return main


def test_after_a_crash_only_what_was_under_way_runs_again(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    helper = Agent(
        calling([("look", {"at": "a"}), ("look", {"at": "b"}), ("look", {"at": "c"})], log=log),
        name="helper",
        capabilities=[SatchelDurability()],
    )
    crashes = True

    @helper.tool_plain
    async def look(at: str) -> str:
        log.append(f"look {at}")
        if at == "b" and crashes:
            await others_recorded.wait()
            raise Stop
        return at.upper()

    others_recorded = asyncio.Event()
    completed_others = [0]
    keep = performing.keep

    async def counted(*args: Any, **kwargs: Any) -> Any:
        kept = await keep(*args, **kwargs)
        completed_others[0] += 1
        if completed_others[0] == 3:  # the model's answer, and two results
            others_recorded.set()
        return kept

    monkeypatch.setattr(performing, "keep", counted)
    interrupted(workspace, entered(helper))
    assert log == ["model 0", "look a", "look b", "look c"]
    log.clear()
    crashes = False
    assert completed(run(workspace, entered(helper))) == '["A", "B", "C"]'
    assert log == ["look b", "model 1"]


def test_outside_a_run_the_agent_is_an_ordinary_one() -> None:
    helper = Agent(TestModel(custom_output_text="hello"), name="helper", capabilities=[SatchelDurability(stream=True)])
    assert asyncio.run(helper.run("Go")).output == "hello"
    with pytest.raises(RuntimeError, match="as_effect"):
        idempotency_key()


def test_a_changed_prompt_is_asked_again_and_an_equal_call_of_it_is_answered(workspace: Path) -> None:
    log: list[str] = []
    prompts = ["first", "second"]
    helper = Agent(calling([("look", {"at": "a"})], log=log), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain
    def look(at: str) -> str:
        log.append(f"look {at}")
        return at

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run(prompts[0])
        if len(prompts) == 2:
            raise Stop
        return answer.output

    interrupted(workspace, main)
    assert log == ["model 0", "look a", "model 1"]
    log.clear()
    prompts.pop(0)
    assert completed(run(workspace, main)) == '["a"]'
    assert log == ["model 0", "model 1"]


def test_a_later_process_asks_nothing_again_for_times_and_ids_that_differ(workspace: Path) -> None:
    """Messages have timestamps and the id of the attempt: neither is content."""
    log: list[str] = []
    helper = Agent(calling([("look", {"at": "a"})], log=log), name="helper", capabilities=[SatchelDurability()])

    @helper.tool
    def look(ctx: RunContext[None], at: str) -> str:
        assert ctx.run_id
        return at

    stops = True

    @agent
    async def main(run: Run) -> str:
        answers = [await helper.run("one"), await helper.run("two"), await helper.run("one")]
        if stops:
            raise Stop
        return " ".join(each.output for each in answers)

    interrupted(workspace, main)
    assert len(log) == 6
    stops = False
    assert completed(run(workspace, main)) == '["a"] ["a"] ["a"]'
    assert len(log) == 6


@pytest.mark.parametrize("has_happened", [True, False])
def test_an_effect_in_doubt_is_verified(workspace: Path, has_happened: bool) -> None:
    sent: dict[str, str] = {}
    keys: list[str] = []
    crashes = True

    def was_sent(to: str, key: str) -> str:
        keys.append(key)
        if key not in sent:
            raise NotDone
        return f"sent to {to}"

    helper = Agent(
        calling([("send", {"to": "ann"}), ("send", {"to": "bob"})]), name="helper", capabilities=[SatchelDurability()]
    )

    @helper.tool(metadata=as_effect(verify=was_sent))
    async def send(ctx: RunContext[None], to: str) -> str:
        keys.append(idempotency_key())
        if not crashes or has_happened or to == "bob":
            sent[idempotency_key()] = to
        if crashes and to == "ann":
            raise Stop
        return f"sent to {to}"

    interrupted(workspace, entered(helper))
    crashes = False
    assert completed(run(workspace, entered(helper))) == '["sent to ann", "sent to bob"]'
    assert sorted(sent.values()) == ["ann", "bob"]
    assert len(set(keys)) == 2


def test_an_effect_is_verified_by_an_object_that_has_no_hash(workspace: Path) -> None:
    @dataclass
    class Sent:
        to: list[str]

        def __call__(self, to: str) -> str:
            return f"sent to {to}, of {len(self.to)}"

    sent = Sent([])
    helper = Agent(calling([("send", {"to": "ann"})]), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain(metadata=as_effect(verify=sent))
    def send(to: str) -> str:
        sent.to.append(to)
        raise Stop

    interrupted(workspace, entered(helper))
    assert completed(run(workspace, entered(helper))) == '["sent to ann, of 1"]'


def test_an_effect_in_doubt_without_verify_is_asked_about_while_others_run(workspace: Path) -> None:
    """A stop comes out of one of several tasks that Pydantic AI has made for the calls."""
    log: list[str] = []
    helper = Agent(
        calling([("look", {"at": "a"}), ("send", {"to": "ann"}), ("look", {"at": "b"})]),
        name="helper",
        capabilities=[SatchelDurability()],
    )

    @helper.tool_plain
    async def look(at: str) -> str:
        await asyncio.sleep(0.01)
        log.append(at)
        return at

    @helper.tool_plain(metadata=as_effect())
    async def send(to: str) -> str:
        log.append(to)
        raise ConnectionError("who knows")

    outcome = run(workspace, entered(helper))
    assert outcome.status == "waiting", outcome
    [doubt] = outcome.doubts
    assert "helper.send" in str(doubt) and "ann" in (workspace / "approvals" / f"{doubt.id}.yaml").read_text()
    satchel.open(workspace).answer("done", result="sent to ann")
    log.clear()
    assert completed(run(workspace, entered(helper))) == '["a", "sent to ann", "b"]'
    assert "ann" not in log and len(log) <= 2


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_a_call_that_needs_approval_is_a_question_and_the_answer_goes_back_to_the_model(
    workspace: Path, decision: str
) -> None:
    log: list[str] = []
    helper = Agent(
        calling([("drop", {"table": "t"}), ("look", {"at": "a"}), ("drop", {"table": "u"})], log=log),
        name="helper",
        capabilities=[SatchelDurability(wait_for=0)],
    )

    @helper.tool_plain
    def look(at: str) -> str:
        log.append(at)
        return at

    @helper.tool_plain(requires_approval=True, metadata=as_effect())
    def drop(table: str) -> str:
        log.append(table)
        return f"dropped {table}"

    main = entered(helper)
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert [each.question for each in outcome.approvals] == ["May helper call drop?"] * 2
    assert log == ["model 0", "a"]
    for each, choice in zip(outcome.approvals, (decision, "deny"), strict=True):
        file = workspace / "approvals" / f"{each.id}.yaml"
        assert "table:" in file.read_text()
        satchel.open(workspace).answer(choice, each.id, note="not on a Monday" if choice == "deny" else "")
    answers = json.loads(completed(run(workspace, main)))
    denied = "A person has denied this call. not on a Monday"
    assert answers == ["dropped t" if decision == "approve" else denied, "a", denied]
    assert log == ["model 0", "a", *(["t"] if decision == "approve" else []), "model 1"]


STORY = [f"word{number} " for number in range(60)]


def telling(log: list[str], stop_at: int | None = None) -> FunctionModel:
    """A model that streams a story, continues one that was cut off, and dies at a word."""

    async def tell(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        begun = ""
        if isinstance(messages[-2] if len(messages) > 1 else None, ModelResponse):
            begun = "".join(part.content for part in messages[-2].parts if isinstance(part, TextPart))
            log.append(f"{messages[-1].parts[0].content}")  # type: ignore[union-attr]
        log.append(begun)
        rest = "".join(STORY).removeprefix(begun).split(" ")
        for number, word in enumerate(rest[:-1]):
            if number == stop_at:
                raise Stop
            yield f"{word} "

    return FunctionModel(stream_function=tell, model_name="telling")


@pytest.mark.parametrize("how", ["stream", "handler", "run_stream"])
def test_an_answer_that_was_cut_off_is_continued(workspace: Path, how: str) -> None:
    log: list[str] = []
    heard: list[str] = []

    async def hear(ctx: RunContext[None], events: Any) -> None:
        async for event in events:
            heard.append(event.event_kind)
            if len(heard) > 5:
                return  # the rest must arrive all the same

    def made(stop_at: int | None) -> satchel.Agent[Any]:
        durable = SatchelDurability(stream=how == "stream", event_stream_handler=hear if how == "handler" else None)
        helper: Agent[None, str] = Agent(telling(log, stop_at), name="helper", capabilities=[durable])
        if how != "run_stream":
            return entered(helper)

        @agent
        async def main(run: Run) -> str:
            async with helper.run_stream("Go") as answer:
                return await answer.get_output()

        return main

    interrupted(workspace, made(40))
    [partial] = (workspace / "partials").rglob("*.md")
    written = partial.read_text().split("---\n", 2)[2]
    assert "".join(STORY).startswith(written) and written
    outcome = run(workspace, made(None))
    assert completed(outcome) == "".join(STORY)
    assert log[0] == "" and log[2] == written and "cut off" in log[1]
    assert outcome.recovered == len(written)
    assert bool(heard) == (how == "handler")
    assert not list((workspace / "partials").rglob("*.md"))


def test_an_answer_that_was_cut_off_twice_grows(workspace: Path) -> None:
    log: list[str] = []

    def main(stop_at: int | None) -> satchel.Agent[Any]:
        return entered(Agent(telling(log, stop_at), name="helper", capabilities=[SatchelDurability(stream=True)]))

    interrupted(workspace, main(20))
    interrupted(workspace, main(20))
    assert completed(run(workspace, main(None))) == "".join(STORY)
    assert "" == log[0] < log[2] < log[4]


def test_a_tool_that_fails_ends_the_run_and_is_called_again(workspace: Path) -> None:
    log: list[str] = []
    helper = Agent(calling([("look", {"at": "a"}), ("try_it", {})]), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain
    def look(at: str) -> str:
        log.append("look")
        return at

    @helper.tool_plain
    def try_it() -> str:
        log.append("try")
        if log.count("try") == 1:
            raise ConnectionError("no network")
        return "done"

    outcome = run(workspace, entered(helper))
    assert outcome.status == "failed" and "no network" in str(outcome.error)
    assert completed(run(workspace, entered(helper))) == '["a", "done"]'
    assert log.count("try") == 2


def test_what_a_tool_says_to_the_model_is_a_result(workspace: Path) -> None:
    """`ModelRetry` of an effect is its answer, and not a doubt."""
    log: list[str] = []
    helper = Agent(
        calling([("send", {"to": "ann"})], [("send", {"to": "ann"})], log=log),
        name="helper",
        capabilities=[SatchelDurability()],
    )

    @helper.tool_plain(retries=2, metadata=as_effect())
    def send(to: str) -> str:
        log.append(f"send {to}")
        if log.count("send ann") == 1:
            raise ModelRetry("not today")
        return "sent"

    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run("Go")
        if stops:
            raise Stop
        return answer.output

    interrupted(workspace, main)
    before = [*log]
    stops = False
    assert completed(run(workspace, main)) == '["not today", "sent"]'
    assert log == before == ["model 0", "send ann", "model 1", "send ann", "model 2"]


def test_an_overloaded_model_is_asked_again_and_what_it_costs_counts(workspace: Path) -> None:
    log: list[str] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        log.append("model")
        if len(log) < 3:
            raise ModelHTTPError(503, "busy")
        return ModelResponse([TextPart("at last")])

    durable: SatchelDurability[None] = SatchelDurability(retry=Retry(attempts=3, first=0.001, on=(ModelHTTPError,)))
    helper = Agent(FunctionModel(answer), name="helper", capabilities=[durable])
    assert completed(run(workspace, entered(helper))) == "at last"
    assert len(log) == 3
    assert json.loads((workspace / "state.json").read_text())["usage"]["tokens"] > 0


def test_an_answer_without_its_usage_has_no_price(workspace: Path) -> None:
    """Pydantic AI refuses to calculate it, with a ValueError."""
    usage = RequestUsage(output_tokens=3, unmeasured_requests=1)
    model = FunctionModel(lambda messages, info: ModelResponse([TextPart("hi")], usage=usage), model_name="gpt-4o")
    helper = Agent(model, name="helper", capabilities=[SatchelDurability()])
    assert completed(run(workspace, entered(helper))) == "hi"
    assert json.loads((workspace / "state.json").read_text())["usage"]["tokens"] == 3


def test_a_tool_outside_a_step_may_hold_another_agent_with_effects(workspace: Path) -> None:
    log: list[str] = []
    inner = Agent(calling([("send", {"to": "ann"})]), name="inner", capabilities=[SatchelDurability()])

    @inner.tool_plain(metadata=as_effect())
    def send(to: str) -> str:
        log.append(f"send {to}")
        return "sent"

    outer = Agent(calling([("delegate", {})]), name="outer", capabilities=[SatchelDurability()])
    stops = True

    @outer.tool_plain(metadata={"satchel": False})
    async def delegate() -> str:
        answer = await inner.run("Go")
        if stops:
            raise Stop
        return answer.output

    interrupted(workspace, entered(outer))
    stops = False
    assert completed(run(workspace, entered(outer))) == json.dumps(['["sent"]'])
    assert log == ["send ann"]


def test_metadata_that_is_not_of_as_effect_is_refused(workspace: Path) -> None:
    helper = Agent(calling([("look", {})]), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain(metadata={"satchel": {"effect": True}})
    def look() -> str:
        raise AssertionError

    outcome = run(workspace, entered(helper))
    assert outcome.status == "failed" and "`as_effect`" in str(outcome.error)


def test_a_tool_of_a_dynamic_toolset_is_made_an_effect_from_outside(workspace: Path) -> None:
    def send(to: str) -> str:
        return f"{to} {len(idempotency_key())}"

    helper = Agent(
        calling([("send", {"to": "ann"})]),
        name="helper",
        toolsets=[DynamicToolset(lambda ctx: FunctionToolset([send], id="inner"), id="found")],
        capabilities=[SatchelDurability(), SetToolMetadata(tools=["send"], **as_effect())],
    )
    assert completed(run(workspace, entered(helper))) == '["ann 32"]'
    [step] = (line for line in records(workspace) if line["type"] == "step.started")
    assert step["step"] == "helper.found.send" and step["call"] == '("to":"ann")'


def test_a_toolset_that_a_run_brings_is_refused(workspace: Path) -> None:
    """It was not there when the agent was made, so its calls would not be recorded."""
    helper = Agent(TestModel(), name="helper", capabilities=[SatchelDurability()])
    tools: FunctionToolset[None] = FunctionToolset(id="late")
    outcome = run(workspace, entered(helper, toolsets=[tools]))
    assert outcome.status == "failed" and "Satchel" in str(outcome.error)


def test_two_toolsets_with_equal_tools_do_not_exchange_results(workspace: Path) -> None:
    def serving(side: str) -> FunctionToolset[None]:
        def where(at: str) -> str:
            return f"{at} on the {side}"

        return FunctionToolset([where], id=side)

    helper = Agent(
        calling([("l_where", {"at": "top"}), ("r_where", {"at": "top"})]),
        name="helper",
        toolsets=[serving("left").prefixed("l"), serving("right").prefixed("r")],
        capabilities=[SatchelDurability()],
    )
    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run("Go")
        if stops:
            raise Stop
        return answer.output

    interrupted(workspace, main)
    stops = False
    assert completed(run(workspace, main)) == '["top on the left", "top on the right"]'


def test_conversations_at_once_are_answered_in_any_order(workspace: Path) -> None:
    """After a crash they reach their calls in another order than before it."""
    log: list[str] = []
    helper = Agent(
        calling([("look", {"at": "a"}), ("look", {"at": "b"})], log=log),
        name="helper",
        capabilities=[SatchelDurability()],
    )

    @helper.tool_plain
    async def look(at: str) -> str:
        log.append(f"look {at}")
        return at.upper()

    stops = True

    @agent
    async def main(run: Run) -> list[str]:
        prompts = ["one", "two", "one"] if stops else ["one", "one", "two"]
        answers = await asyncio.gather(*map(helper.run, prompts))
        if stops:
            raise Stop
        return [each.output for each in answers]

    interrupted(workspace, main)
    before = [*log]
    stops = False
    assert completed(run(workspace, main)) == ['["A", "B"]'] * 3
    assert log == before and len(log) == 12


def test_a_pause_in_a_conversation_loses_nothing(workspace: Path) -> None:
    """A stop comes out of Pydantic AI at the next call, and what runs ends."""
    log: list[str] = []
    helper = Agent(
        calling([("look", {"at": "a"}), ("ask_to_pause", {})], [("look", {"at": "b"})], log=log),
        name="helper",
        capabilities=[SatchelDurability()],
    )

    @helper.tool_plain
    async def look(at: str) -> str:
        log.append(f"look {at}")
        return at

    @helper.tool_plain(metadata={"satchel": False})
    async def ask_to_pause() -> str:
        current = Run.current()
        assert current is not None
        await current.pause("a look at it")
        return "continued"

    main = entered(helper)
    assert run(workspace, main).status == "paused"
    assert log == ["model 0", "look a"]
    assert completed(satchel.open(workspace).resume(main)) == '["a", "continued", "b"]'
    assert log == ["model 0", "look a", "model 1", "look b", "model 2"]


def test_an_event_that_a_handler_has_heard_is_not_told_again(workspace: Path) -> None:
    heard: list[str] = []

    async def hear(ctx: RunContext[None], events: Any) -> None:
        heard.extend([event.event_kind async for event in events if event.event_kind.startswith("function_tool")])

    async def tell(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if turns(messages):
            yield "done"
        else:
            yield {n: DeltaToolCall("look", json.dumps({"at": at}), tool_call_id=at) for n, at in enumerate("ab")}

    helper = Agent(
        FunctionModel(stream_function=tell), name="helper", capabilities=[SatchelDurability(event_stream_handler=hear)]
    )

    @helper.tool_plain
    async def look(at: str) -> str:
        return at

    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run("Go")
        if stops:
            raise Stop
        return answer.output

    interrupted(workspace, main)
    stops = False
    assert completed(run(workspace, main)) == "done"
    assert sorted(heard) == ["function_tool_call"] * 2 + ["function_tool_result"] * 2


def test_spans_of_what_is_answered_from_the_record_are_not_told_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pydantic AI drops a span whose steps were all answered. It has to be told which were."""
    told: list[bool] = []
    monkeypatch.setattr(durable_exec, "record_durable_unit", lambda *, executed: told.append(executed))
    helper = Agent(calling([("look", {"at": "a"})]), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain
    def look(at: str) -> str:
        return at

    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run("Go")
        if stops:
            raise Stop
        return answer.output

    interrupted(workspace, main)
    assert told == [True] * 3
    stops = False
    assert completed(run(workspace, main)) == '["a"]'
    assert told == [True] * 3 + [False] * 3


# Dependencies, output functions, results that are no JSON


@dataclass
class Deps:
    found: list[str]
    client: object = None
    level: float = math.nan


class PlainDeps:
    def __init__(self, found: list[str]):
        self.found = found


@pytest.mark.parametrize("metadata", [{}, as_effect()], ids=["step", "effect"])
@pytest.mark.parametrize("make", [Deps, PlainDeps, list, lambda found: {"found": found}])
def test_a_tool_changes_the_dependencies_unseen(workspace: Path, make: Any, metadata: dict[str, Any]) -> None:
    """After a crash the result comes from the record, and the change would be missing."""
    helper: Agent[Any, str] = Agent(calling([("look", {"at": "a"})]), name="helper", capabilities=[SatchelDurability()])
    changes = True

    @helper.tool(metadata=metadata)
    async def look(ctx: RunContext[Any], at: str) -> str:
        found = getattr(ctx.deps, "found", ctx.deps)
        if changes:
            (found["found"] if isinstance(found, dict) else found).append(at)
        return at

    deps = make(["earlier"])
    assert asyncio.run(helper.run("Go", deps=deps)).output == '["a"]'  # outside a run nothing is lost
    outcome = run(workspace, entered(helper, deps=deps))
    assert outcome.status == "failed"
    assert "ctx.deps has changed while a tool ran" in str(outcome.error) and "Return what" in str(outcome.error)
    changes = False
    assert completed(run(workspace, entered(helper, deps=make(["earlier"])))) == '["a"]'


def test_dependencies_that_are_not_data_or_change_outside_a_step_are_refused(workspace: Path) -> None:
    """A client counts its requests. A tool outside a step runs again at each start, and so does its change."""

    class Client:
        used = 0

        def use(self) -> None:
            self.used += 1

    model = calling([("look", {})], [("note", {})], [("look", {})])
    helper: Agent[Deps, str] = Agent(model, name="helper", capabilities=[SatchelDurability()])

    @helper.tool
    async def look(ctx: RunContext[Deps]) -> str:
        assert isinstance(ctx.deps.client, Client)
        ctx.deps.client.use()
        return "looked"

    @helper.tool(metadata={"satchel": False})
    async def note(ctx: RunContext[Deps]) -> str:
        ctx.deps.found.append("noted")
        return "noted"

    deps = Deps([], Client())
    assert completed(run(workspace, entered(helper, deps=deps))) == '["looked", "noted", "looked"]'
    assert deps.found == ["noted"]


def test_dependencies_are_used_up_or_end_the_run_when_they_are_compared(workspace: Path) -> None:
    helper: Agent[Any, str] = Agent(calling([("look", {})]), name="helper", capabilities=[SatchelDurability()])

    @helper.tool
    async def look(ctx: RunContext[Any]) -> str:
        return "looked"

    itself = Deps([], None)
    itself.client = itself
    for number, odd in enumerate((itself, Deps([], (each for each in "ab")), Deps([], itself), object(), "text")):
        place = workspace.parent / f"run{number}"
        shutil.copytree(workspace, place)
        assert completed(run(place, entered(helper, deps=odd))) == '["looked"]'
        if number == 1:
            assert [*odd.client] == ["a", "b"]


class Booking(BaseModel):
    city: str
    at: int


def said(*answers: ModelResponse) -> FunctionModel:
    """A model that gives these answers, one a turn."""
    return FunctionModel(lambda messages, info: answers[turns(messages)], model_name="said")


def ending(helper: Agent[Any, Any], **options: Any) -> tuple[satchel.Agent[Any], list[Any]]:
    """An agent that is stopped after the whole conversation once, and what it has answered."""
    answers: list[Any] = []

    @agent
    async def main(run: Run) -> None:
        answers.append((await helper.run("Go", **options)).output)
        if len(answers) == 1:
            raise Stop

    return main, answers


FINAL = ToolCallPart("final_result", {"city": "Rome", "at": 7})


@pytest.mark.parametrize("how", ["tool", "named tool", "text", "native", "union", "async", "context"])
def test_an_output_function_runs_again_after_a_crash(workspace: Path, how: str) -> None:
    booked: list[str] = []

    def book(city: str, at: int) -> Booking:
        booked.append(city)
        return Booking(city=city, at=at)

    def book_text(text: str) -> Booking:
        booked.append(text)
        return Booking(city=text, at=7)

    async def book_async(city: str, at: int) -> Booking:
        return book(city, at)

    def book_context(ctx: RunContext[None], city: str, at: int) -> Booking:
        assert ctx.run_id
        return book(city, at)

    def other(name: str) -> str:
        raise AssertionError

    kinds: dict[str, tuple[Any, Any]] = {
        "tool": (book, FINAL),
        "named tool": (ToolOutput(book, name="done"), ToolCallPart("done", FINAL.args)),
        "text": (TextOutput(book_text), TextPart("Rome")),
        "native": (NativeOutput(book), TextPart('{"city": "Rome", "at": 7}')),
        "union": ([book, other], ToolCallPart("final_result_book", FINAL.args)),
        "async": (book_async, FINAL),
        "context": (book_context, FINAL),
    }
    output, part = kinds[how]
    model = said(ModelResponse([part]))
    model._profile = {"supports_json_schema_output": True}  # type: ignore[assignment]
    helper = Agent(model, name="helper", output_type=output, capabilities=[SatchelDurability()])
    assert asyncio.run(helper.run("Go")).output == Booking(city="Rome", at=7)
    booked.clear()
    main, answers = ending(helper)
    interrupted(workspace, main)
    completed(run(workspace, main))
    assert answers == [Booking(city="Rome", at=7)] * 2
    assert booked == ["Rome"]


def test_an_output_function_of_a_streamed_answer_runs_for_each_part_of_it(workspace: Path) -> None:
    shouted: list[str] = []

    def shout(text: str) -> str:
        shouted.append(text)
        return text.upper()

    async def tell(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            yield word

    helper = Agent(
        FunctionModel(stream_function=tell),
        name="helper",
        output_type=TextOutput(shout),
        capabilities=[SatchelDurability()],
    )
    stops = True

    @agent
    async def main(run: Run) -> str:
        async with helper.run_stream("Go") as answer:
            said = await answer.get_output()
        if stops:
            raise Stop
        return said

    interrupted(workspace, main)
    stops = False
    assert completed(run(workspace, main)) == "ONE TWO THREE"
    assert shouted == ["one two three"]


def test_an_output_function_changes_the_type_of_its_result(workspace: Path) -> None:
    """Satchel finds the types of the functions that the agent has, and not of those that one run gets."""

    def book(city: str, at: int) -> Booking:
        return Booking(city=city, at=at)

    def pair(city: str, at: int):  # type: ignore[no-untyped-def]
        return city, at

    def plain(city: str, at: int):  # type: ignore[no-untyped-def]
        return [city, {"at": at}]

    helper: Agent[None, Any] = Agent(said(ModelResponse([FINAL])), name="helper", capabilities=[SatchelDurability()])
    for number, function in enumerate((book, pair)):
        place = workspace.parent / f"run{number}"
        shutil.copytree(workspace, place)
        outcome = run(place, entered(helper, output_type=function))
        assert outcome.status == "failed"
        assert "annotate what it returns" in str(outcome.error).lower()
    assert completed(run(workspace, entered(helper, output_type=plain))) == ["Rome", {"at": 7}]


def test_an_output_function_that_is_an_effect_is_in_a_step(workspace: Path) -> None:
    booked: list[str] = []

    @satchel.effect(verify=lambda city, at, key: f"{city} at {at}")
    async def book(key: satchel.Key, city: str, at: int) -> str:
        booked.append(key)
        raise Stop

    helper = Agent(said(ModelResponse([FINAL])), name="helper", output_type=book, capabilities=[SatchelDurability()])
    main = entered(helper)
    interrupted(workspace, main)
    assert completed(run(workspace, main)) == "Rome at 7"
    assert len(booked) == 1


@pytest.mark.parametrize("text", [False, True])
def test_what_an_output_function_and_a_validator_refuse_is_refused_anew(workspace: Path, text: bool) -> None:
    """`ModelRetry` goes back to the model, also from the record."""
    log: list[str] = []

    def book(city: str) -> str:
        log.append(f"book {city}")
        if city == "Oslo":
            raise ModelRetry("not Oslo")
        return city

    cities = ["Oslo", "Bern", "Rome"]
    parts = [TextPart(city) if text else ToolCallPart("final_result", {"city": city}) for city in cities]
    model, output = said(*(ModelResponse([part]) for part in parts)), TextOutput(book) if text else book
    helper: Agent[None, str] = Agent(
        model, name="helper", output_type=output, retries=3, capabilities=[SatchelDurability()]
    )

    @helper.output_validator
    def check(city: str) -> str:
        log.append(f"check {city}")
        if city == "Bern":
            raise ModelRetry("not Bern")
        return city

    main, answers = ending(helper)
    interrupted(workspace, main)
    completed(run(workspace, main))
    assert answers == ["Rome"] * 2
    assert log == ["book Oslo", "book Bern", "check Bern", "book Rome", "check Rome"]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf, "a"], {"b": deep(80)}, {"satchel:json": "["}, {"satchel:json": math.nan}, 10**30],
    ids=str,
)
def test_a_result_that_is_no_json_becomes_none(workspace: Path, value: Any, wrapped: bool) -> None:
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(returned(messages))
        return ModelResponse([TextPart("seen") if turns(messages) else ToolCallPart("look", {})])

    helper = Agent(FunctionModel(answer), name="helper", capabilities=[SatchelDurability()])

    @helper.tool_plain
    def look() -> Any:
        return ToolReturn(value, content="more") if wrapped else value

    main, _ = ending(helper)
    asyncio.run(helper.run("Go"))
    interrupted(workspace, main)
    completed(run(workspace, main))
    assert repr(seen) == repr([value] * 2)  # without Satchel, and in the run; the second start asks no model


# What comes from outside


HALF = "a\ud800b"


def survives(workspace: Path, helper: Agent[Any, Any], log: list[Any]) -> Any:
    """What the agent answers. It runs twice, the second time from the record alone."""
    stops = True

    @agent
    async def main(run: Run) -> str:
        answer = await helper.run(f"Go {HALF}")
        if stops:
            raise Stop
        return str(answer.output)

    interrupted(workspace, main)
    before = [*log]
    stops = False
    answer = completed(run(workspace, main))
    assert log == before, "something was done again"
    return answer


def asked(args: Any, kind: Any, capabilities: list[Any], metadata: Any = None) -> tuple[Agent[Any, Any], list[Any]]:
    """An agent whose model calls `look` with `args`, and what the tool gets and the model sees."""
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=1)  # else the model looks into the arguments to estimate it
        if not turns(messages):
            return ModelResponse([ToolCallPart("look", args, "c1")], usage=usage)
        seen.append([getattr(part, "args", None) for part in messages[1].parts])
        seen.append([getattr(part, "content", None) for part in messages[2].parts])
        return ModelResponse([TextPart("seen")], usage=usage)

    def look(what: Any) -> str:
        seen.append(what)
        return f"looked at {what!a}"

    look.__annotations__["what"] = kind
    helper = Agent(FunctionModel(answer), name="helper", capabilities=capabilities)
    helper.tool_plain(metadata=metadata)(look)
    return helper, seen


OUTLANDISH: list[Any] = [
    {"what": math.nan},
    '{"what": NaN}',
    '{"what": 1e400}',
    '{"what": -Infinity}',
    {"what": [1e400]},
    {"what": deep(80)},
    {"what": deep(100)},
    json.dumps({"what": deep(100)}),
    json.dumps({"what": deep(300)}),
    {"what": HALF},
    {"what": {HALF: 1}},
    json.dumps({"what": HALF}),
    {"what": 10**30},
    '{"what": 1000000000000000000000000000000}',
    {"what": {"satchel:json": "[1]"}},
    {"satchel:json": "{"},
    {"satchel:json": "[1]"},
    '{"satchel:json": "[1]"}',
    '{"what": 1',
    "none",
    "",
]


@pytest.mark.sampled(every=15)
@pytest.mark.parametrize("kind", [Any, float, str, list[Any]], ids=str)
@pytest.mark.parametrize("args", OUTLANDISH, ids=lambda each: ascii(each)[:20])
def test_arguments_that_a_model_wrote_go_another_way_than_without_satchel(
    workspace: Path, args: Any, kind: Any
) -> None:
    """The tool gets the same, and the model sees the same: its own arguments, and what comes of them."""
    bare, expected = asked(args, kind, [])
    try:
        asyncio.run(bare.run(f"Go {HALF}"))
    except ValueError:
        return  # Pydantic AI fails with this itself
    helper, seen = asked(args, kind, [SatchelDurability(retry=None)])
    assert survives(workspace, helper, seen) == "seen"
    assert repr(seen) == repr(expected)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize(
    "args, told",
    [
        ({"what": math.nan}, "nan is not JSON"),
        ('{"what": 1e400}', "inf is not JSON"),
        ({"what": deep(100)}, "nested more than 90 deep"),
        ({"what": HALF}, "half of a surrogate pair"),
        (json.dumps({"what": deep(300)}), "recursion limit"),
        ({"what": deep(80)}, "looked at " + str(deep(80))),
        ('{"what": "' + HALF + '"}', r"looked at 'a\ufffdb'"),
    ],
    ids=lambda each: ascii(each)[:20],
)
def test_an_effect_begins_with_arguments_that_its_record_can_not_hold(workspace: Path, args: Any, told: str) -> None:
    """They are an error for the model: `verify` and people would get other ones."""
    helper, seen = asked(args, Any, [SatchelDurability(retry=None)], as_effect())
    assert survives(workspace, helper, seen) == "seen"
    assert told in str(seen[-1][0])
    assert len(seen) == (3 if told.startswith("looked") else 2)
    if isinstance(args, dict):
        assert repr(seen[-2]) == repr([args])


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("streams", [False, True])
def test_a_run_dies_of_text_that_a_model_or_a_tool_says(workspace: Path, streams: bool) -> None:
    log: list[Any] = []
    call = {0: DeltaToolCall(name="look", json_args="{}", tool_call_id="c1")}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        log.append(turns(messages))
        if not turns(messages):
            return ModelResponse([TextPart(f"First I look. {HALF}"), ToolCallPart("look", {}, "c1")])
        return ModelResponse([TextPart(f"{returned(messages)} {HALF}")])

    async def tell(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        log.append(turns(messages))
        if not turns(messages):
            yield call
        else:
            for piece in (str(returned(messages)), " a", "\ud800", "b"):
                yield piece

    model = FunctionModel(stream_function=tell) if streams else FunctionModel(answer)
    helper = Agent(model, name="helper", capabilities=[SatchelDurability(retry=None, stream=streams)])

    @helper.tool_plain
    def look() -> Any:
        log.append("look")
        return {HALF: [HALF, math.nan, deep(70)]}

    answered = survives(workspace, helper, log)
    assert answered.endswith("a\ufffdb") and f"['a\ufffdb', nan, {deep(70)}]" in answered
    assert log == [0, "look", 1]


def test_an_argument_of_the_agents_own_that_is_no_json_is_told_to_the_model(workspace: Path) -> None:
    """It is a mistake of the program, which another call would not mend."""

    class Own:
        def __init__(self, value: int):
            self.value = value

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return core_schema.no_info_after_validator_function(cls, core_schema.int_schema())

    helper = Agent(calling([("look", {"what": 5})]), name="helper", capabilities=[SatchelDurability(retry=None)])

    def look(what: Any) -> str:
        raise AssertionError

    look.__annotations__["what"] = Own
    helper.tool_plain(look)
    outcome = run(workspace, entered(helper))
    assert isinstance(outcome.error, NotSerializable) and "Own" in str(outcome.error)
