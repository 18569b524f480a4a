"""An agent of Pydantic AI in a run: what is answered, what runs again, what people are asked."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelHTTPError,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    durable_exec,
)
from pydantic_ai.capabilities import SetToolMetadata
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import DynamicToolset
from pydantic_ai.usage import RequestUsage
from pydantic_core import core_schema

import satchel
from satchel import NotDone, Outcome, Retry, Run, agent, run
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key
from satchel.errors import NotSerializable
from satchel.runtime.engine import performing

Call = tuple[str, dict[str, Any]]


class Stop(BaseException):
    """Leaves the workspace unclosed, as a kill does."""


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


def entered(helper: Agent[Any, Any], prompt: str = "Go", **options: Any) -> satchel.Agent[Any]:
    @agent
    async def main(run: Run) -> Any:
        return (await helper.run(prompt, **options)).output

    return main


def interrupted(workspace: Path, main: satchel.Agent[Any]) -> None:
    with pytest.raises(Stop):
        run(workspace, main)


def completed(outcome: Outcome) -> Any:
    assert outcome.status == "completed", outcome.error
    return outcome.result


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
    [step] = (line for line in lines(workspace) if line["type"] == "step.started")
    assert step["step"] == "helper.found.send" and step["call"] == '("to":"ann")'


def lines(workspace: Path) -> list[dict[str, Any]]:
    found = [line for path in sorted((workspace / "journal").iterdir()) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in found]


def test_a_toolset_that_a_run_brings_is_refused(workspace: Path) -> None:
    """It was not there when the agent was made, so its calls would not be recorded."""
    helper = Agent(TestModel(), name="helper", capabilities=[SatchelDurability()])
    tools: FunctionToolset[None] = FunctionToolset(id="late")
    outcome = run(workspace, entered(helper, toolsets=[tools]))
    assert outcome.status == "failed" and "Satchel" in str(outcome.error)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("missing", ["pydantic_ai", "pydantic_ai.durable_exec"])
def test_without_pydantic_ai_the_error_names_the_extra(missing: str) -> None:
    code = (
        f"import sys, satchel; sys.modules[{missing!r}] = None\n"
        "try:\n    import satchel.adapters.pydantic_ai\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'satchel[pydantic-ai]'" in done.stdout


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


# What comes from outside


HALF = "a\ud800b"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


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


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize(
    "args, told",
    [
        ({"what": math.nan}, "nan is not JSON"),
        ('{"what": NaN}', "nan is not JSON"),
        ('{"what": 1e400}', "inf is not JSON"),
        ({"what": [1e400]}, "what[0] can't be kept: inf is not JSON"),
        ({"what": deep(100)}, "nested more than 90 deep"),
        (json.dumps({"what": deep(100)}), "nested more than 90 deep"),
        ({"what": deep(300)}, "recursion limit"),
        (json.dumps({"what": deep(300)}), "recursion limit"),
        ({"what": HALF}, "Invalid JSON"),
        ({"what": {HALF: 1}}, "Invalid JSON"),
        (json.dumps({"what": HALF}), "Invalid JSON"),
        ({"what": deep(80)}, "looked at " + str(deep(80))),
        ('{"what": "' + HALF + '"}', "looked at a\ufffdb"),
    ],
    ids=lambda each: ascii(each)[:20],
)
@pytest.mark.parametrize("metadata", [{}, as_effect()], ids=["step", "effect"])
def test_a_run_dies_of_arguments_that_a_model_wrote(
    workspace: Path, args: Any, told: str, metadata: dict[str, Any]
) -> None:
    """Arguments that can't be recorded are an error for the model, as those that do not fit the tool."""
    log: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        log.append(turns(messages))
        usage = RequestUsage(input_tokens=1)  # else the model looks into the arguments to estimate it
        if not turns(messages):
            return ModelResponse([ToolCallPart("look", args, "c1")], usage=usage)
        (said,) = messages[-1].parts
        return ModelResponse([TextPart(str(getattr(said, "content", None)))], usage=usage)

    helper = Agent(FunctionModel(answer), name="helper", capabilities=[SatchelDurability(retry=None)])

    @helper.tool_plain(metadata=metadata)
    def look(what: Any) -> str:
        log.append("look")
        return f"looked at {what}"

    assert told in survives(workspace, helper, log)
    assert log == [0, "look", 1] if told.startswith("looked") else log == [0, 1]


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
    assert answered.endswith("a\ufffdb") and "['a\ufffdb', None, [" in answered
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
