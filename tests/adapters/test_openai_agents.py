"""An agent of the OpenAI Agents SDK in a run: what is answered, what runs again, what people are asked."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest
import warm
from agents import Agent, ModelSettings, RunConfig
from agents.models.interface import Model, ModelProvider
from openai import APIConnectionError
from openai_models import Answering, Items, begun, called, outputs, rounds, serving
from properties import pairs
from pydantic import BaseModel
from stopping import Stop, completed, interrupted, records
from waits import PATIENCE

import satchel
from satchel import Key, NotDone, Retry, Run, agent, run
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, durable_tool
from satchel.runtime.engine import performing


@pytest.fixture(autouse=True)
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    agents.set_tracing_disabled(True)


def helper_of(model: Model, *tools: Any, **options: Any) -> Agent[Any]:
    return Agent("helper", model=SatchelModel(model), tools=[*tools], **options)


def entered(helper: Agent[Any], prompt: Any = "Go", **options: Any) -> satchel.Agent[Any]:
    @agent
    async def main(run: Run) -> Any:
        return (await SatchelRunner.run(helper, prompt, wait_for=0, **options)).final_output

    return main


def test_after_a_crash_only_what_was_under_way_runs_again(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    crashes = True

    @durable_tool
    async def look(at: str) -> str:
        log.append(f"look {at}")
        if at == "b" and crashes:
            await others_recorded.wait()
            raise Stop
        return at.upper()

    others_recorded, kept = asyncio.Event(), [0]
    keep = performing.keep

    async def counted(*args: Any, **kwargs: Any) -> Any:
        found = await keep(*args, **kwargs)
        kept[0] += 1
        if kept[0] == 3:  # the model's answer, and two results
            others_recorded.set()
        return found

    monkeypatch.setattr(performing, "keep", counted)
    helper = helper_of(Answering(rounds([("look", {"at": at}) for at in "abc"]), log), look)
    interrupted(workspace, entered(helper))
    assert log == ["model 0", "look a", "look b", "look c"]
    log.clear()
    crashes = False
    assert completed(run(workspace, entered(helper))) == '["A", "B", "C"]'
    assert log == ["look b", "model 3"]


def test_outside_a_run_agents_and_tools_are_ordinary_ones() -> None:
    @durable_tool
    def look(context: agents.RunContextWrapper[str], at: str) -> str:
        """Look there."""
        return f"{context.context} {at}"

    @durable_tool(effect=True)
    async def send(key: Key, to: str) -> str:
        return f"{to} {len(key)}"

    assert (look.name, look.description) == ("look", "Look there.")
    assert [*look.params_json_schema["properties"]] == ["at"]
    helper = helper_of(Answering(rounds([("look", {"at": "a"}), ("send", {"to": "ann"})])), look, send)
    told: list[str] = []
    for options in ({}, {"on_event": lambda event: told.append(event.type)}):
        result = asyncio.run(SatchelRunner.run(helper, "Go", context="here", **options))
        assert result.final_output == '["here a", "ann 32"]'
    assert "run_item_stream_event" in told


def test_a_changed_prompt_is_asked_again_and_an_equal_call_of_it_is_answered(workspace: Path) -> None:
    log: list[str] = []
    prompts = ["first", "second"]

    @durable_tool
    def look(at: str) -> str:
        log.append(f"look {at}")
        return at

    helper = helper_of(Answering(rounds([("look", {"at": "a"})]), log), look)

    @agent
    async def main(run: Run) -> str:
        answer = await SatchelRunner.run(helper, prompts[0])
        if len(prompts) == 2:
            raise Stop
        return str(answer.final_output)

    interrupted(workspace, main)
    assert log == ["model 0", "look a", "model 1"]
    log.clear()
    prompts.pop(0)
    assert completed(run(workspace, main)) == '["a"]'
    assert log == ["model 0", "model 1"]


_OVER_HTTP = """
import os, signal, sys
from agents import Agent, RunConfig, set_tracing_disabled, OpenAIProvider
from satchel import Run, agent, run
from satchel.adapters.openai_agents import SatchelRunner, durable_tool

set_tracing_disabled(True)
folder, url, api, how, dies = sys.argv[1:]
shown = []

@durable_tool
def look(at: str) -> str:
    return at.upper()

def show(event):
    shown.append(getattr(getattr(event, "data", None), "delta", ""))
    if dies == "early" and "two" in "".join(map(str, shown)):
        os.kill(os.getpid(), signal.SIGKILL)

helper = Agent("helper", model="m", tools=[look])

@agent
async def main(run):
    provider = OpenAIProvider(api_key="none", base_url=url, use_responses=api == "responses")
    options = {"on_event": show} if how == "streamed" else {}
    answer = await SatchelRunner.run(helper, "Go", run_config=RunConfig(model_provider=provider), **options)
    if dies == "late":
        os.kill(os.getpid(), signal.SIGKILL)
    return answer.final_output

print(run(folder, main).result)
"""


@pytest.mark.parametrize(
    ("api", "how"),
    [
        ("responses", "whole"),
        pytest.param("chat", "streamed", marks=pytest.mark.slow),
        pytest.param("responses", "streamed", marks=pytest.mark.soak),
        pytest.param("chat", "whole", marks=pytest.mark.soak),
    ],
)
def test_a_killed_run_asks_a_server_three_times_and_then_never(workspace: Path, api: str, how: str) -> None:
    bodies: list[dict[str, Any]] = []
    with serving(rounds([("look", {"at": "a"})], [("look", {"at": "b"})]), bodies.append) as url:
        words = [sys.executable, "-c", _OVER_HTTP, str(workspace), url, api, how]
        assert warm.run([*words, "late"], timeout=120, check=False).returncode == -signal.SIGKILL
        assert len(bodies) == 3
        done = warm.run([*words, "no"], timeout=120, check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ['["A", "B"]'], done.stderr
    assert len(bodies) == 3
    sent = [item for item in bodies[-1].get("input", ()) if isinstance(item, dict)]
    assert not [item for item in sent if None in item.values()], "no field is sent that the answer did not have"
    assert json.loads((workspace / "state.json").read_text())["usage"]["tokens"] == 30


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_stream_of_a_server_that_a_kill_cuts_off_is_continued(workspace: Path, api: str) -> None:
    bodies: list[dict[str, Any]] = []
    with serving(lambda items: "one two three four", bodies.append) as url:
        words = [sys.executable, "-c", _OVER_HTTP, str(workspace), url, api, "streamed"]
        assert warm.run([*words, "early"], timeout=120, check=False).returncode == -signal.SIGKILL
        done = warm.run([*words, "no"], timeout=120, check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["one two three four"], done.stderr
    assert len(bodies) == 2


_CUT_OFF = """
import asyncio, os, signal, sys
from pathlib import Path
from agents import Agent, set_tracing_disabled
import openai_models
from satchel import agent, run
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner

set_tracing_disabled(True)
partials = Path(sys.argv[1], "partials")

class Answering(openai_models.Answering):  # the same name, since it belongs to the step
    async def stream_response(self, *asked, **more):
        async for event in super().stream_response(*asked, **more):
            if getattr(event, "delta", "") == "four ":
                while not any("three" in path.read_text() for path in partials.rglob("*.md")):
                    await asyncio.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)
            yield event

helper = Agent("helper", model=SatchelModel(Answering(lambda items: "one two three four five six")))

@agent
async def main(run):
    return (await SatchelRunner.run(helper, "Count", on_event=lambda event: None)).final_output

run(sys.argv[1], main)
"""


def test_a_streamed_answer_that_a_kill_cuts_off_is_kept_and_continued(workspace: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{_CUT_OFF}"
    dead = warm.run([sys.executable, "-c", code, str(workspace)], timeout=120, check=False)
    assert dead.returncode == -signal.SIGKILL
    [partial] = (workspace / "partials").rglob("*.md")
    kept = "one two three "
    assert kept in partial.read_text() and "four" not in partial.read_text()
    model, told = Answering(lambda items: "one two three four five six"), []
    helper = helper_of(model)

    def tell(event: Any) -> None:
        told.append(getattr(getattr(event, "data", None), "delta", ""))

    assert completed(run(workspace, entered(helper, "Count", on_event=tell))) == "one two three four five six"
    assert [begun(items) for items in model.asked] == [kept]
    assert "".join(told) == "four five six"
    assert not [*(workspace / "partials").rglob("*.md")]
    assert len(model.asked) == 1


def until(holds: Callable[[], object]) -> None:
    """What a process notices, and files for people, come a moment later."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_answer_is_streamed_for_who_does_not_stream_if_the_model_says_so(workspace: Path) -> None:
    class Seen(Answering):
        async def stream_response(self, *asked: Any, **more: Any) -> Any:
            async for event in super().stream_response(*asked, **more):
                yield event
                if getattr(event, "delta", "") == "two ":
                    await asyncio.to_thread(until, lambda: "one two" in shown())

    def shown() -> str:
        return "".join(path.read_text() for path in (workspace / "partials").rglob("*.md"))

    helper = Agent("helper", model=SatchelModel(Seen(lambda items: "one two three"), stream=True))
    assert completed(run(workspace, entered(helper))) == "one two three"


@pytest.mark.parametrize("ending", ["incomplete", "failed", "error", "nothing"])
def test_a_stream_without_an_answer_is_an_error_and_asked_again(workspace: Path, ending: str) -> None:
    class Broken(Answering):
        async def stream_response(self, *asked: Any, **more: Any) -> Any:
            async for event in super().stream_response(*asked, **more):
                if event.type == "response.completed" and len(self.asked) == 1:
                    if ending != "nothing":
                        kind = "error" if ending == "error" else f"response.{ending}"
                        yield event.model_copy(update={"type": kind})
                    return
                yield event

    model = Broken(lambda items: "one two")
    helper = helper_of(model)
    first = run(workspace, entered(helper, on_event=lambda event: None))
    assert first.status == "failed" and "answer" in str(first.error)
    assert completed(run(workspace, entered(helper, on_event=lambda event: None))) == "one two"
    assert len(model.asked) == 2


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

    @durable_tool(effect=True, verify=was_sent)
    async def send(context: agents.RunContextWrapper[str], key: Key, to: str) -> str:
        """Send it."""
        assert context.context == "here"
        if to == "ann" or has_happened or not crashes:
            sent[key] = to
        if to == "bob" and crashes:
            raise Stop
        return f"sent to {to}"

    assert [*send.params_json_schema["properties"]] == ["to"]
    helper = helper_of(Answering(rounds([("send", {"to": "ann"}), ("send", {"to": "bob"})])), send)
    main = entered(helper, context="here")
    interrupted(workspace, main)
    crashes = False
    assert completed(run(workspace, main)) == '["sent to ann", "sent to bob"]'
    assert sorted(sent.values()) == ["ann", "bob"]
    assert len(set(keys)) >= 1 and len(sent) == 2


def test_an_effect_in_doubt_that_nothing_verifies_is_asked_about_and_no_model_hears_of_it(workspace: Path) -> None:
    log: list[str] = []
    crashes = True

    @durable_tool(effect=True)
    async def pay(to: str) -> str:
        log.append(f"pay {to}")
        if crashes:
            raise Stop
        return f"paid {to}"

    model = Answering(rounds([("pay", {"to": "ann"})]), log)
    main = entered(helper_of(model, pay))
    interrupted(workspace, main)
    crashes = False
    log.clear()
    for _ in range(2):
        outcome = run(workspace, main)
        assert outcome.status == "waiting" and log == []
    [doubt] = outcome.doubts
    satchel.open(workspace).answer("done", doubt.id, result="paid, says the bank")
    assert completed(run(workspace, main)) == '["paid, says the bank"]'
    assert log == ["model 1"]


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("behaviour", ["run_llm_again", "stop_on_first_tool"])
def test_an_effect_whose_exception_tells_nothing_stops_the_run_and_not_the_tool_beside_it(
    workspace: Path, streamed: bool, behaviour: Any
) -> None:
    """The SDK makes a text for the model of a cancellation, and cancels the tools beside it. Neither may happen."""
    log: list[str] = []

    @durable_tool(effect=True)
    async def pay(to: str) -> str:
        if to == "bob":
            raise TimeoutError("no answer of the bank")
        await asyncio.sleep(0.3)
        log.append(f"paid {to}")
        return f"paid {to}"

    model = Answering(rounds([("pay", {"to": "ann"}), ("pay", {"to": "bob"})]))
    helper, after = helper_of(model, pay, tool_use_behavior=behaviour), []
    options: dict[str, Any] = {"on_event": lambda event: None} if streamed else {}

    @agent
    async def main(run: Run) -> Any:
        answer = await SatchelRunner.run(helper, "Go", **options)
        after.append(answer.final_output)
        return answer.final_output

    outcome = run(workspace, main)
    assert outcome.status == "waiting", outcome.error
    assert log == ["paid ann"] and after == [] and len(model.asked) == 1
    assert [each["type"] for each in records(workspace)].count("doubt") == 1


@pytest.mark.parametrize(("kind", "decision"), pairs(["plain", "durable", "streamed"], ["approve", "deny"], every=2))
def test_a_call_that_needs_approval_is_a_question_and_the_answer_goes_back_to_the_model(
    workspace: Path, decision: str, kind: str
) -> None:
    """With a context, with which the SDK once forgot approvals (its issue 4244)."""
    log: list[str] = []

    @durable_tool
    def look(at: str) -> str:
        log.append(at)
        return at

    def drop(context: agents.RunContextWrapper[Any], table: str) -> str:
        log.append(f"{context.context['who']} drops {table}")
        return f"dropped {table}"

    if kind == "plain":
        tool: Any = agents.function_tool(drop, needs_approval=True)
    else:
        tool = durable_tool(drop, effect=True, needs_approval=True)
    model = Answering(rounds([("drop", {"table": "t"}), ("look", {"at": "a"}), ("drop", {"table": "u"})]), log)
    options: dict[str, Any] = {"on_event": lambda event: None} if kind == "streamed" else {}
    main = entered(helper_of(model, look, tool), context={"who": "ann"}, **options)
    outcome = run(workspace, main)
    assert outcome.status == "waiting", outcome.error
    assert [each.question for each in outcome.approvals] == ["May helper call drop?"] * 2
    assert log == ["model 0", "a"]
    for each, choice in zip(outcome.approvals, (decision, "deny"), strict=True):
        assert "table:" in (workspace / "approvals" / f"{each.id}.yaml").read_text()
        satchel.open(workspace).answer(choice, each.id, note="not on a Monday" if choice == "deny" else "")
    answers = json.loads(completed(run(workspace, main)))
    denied = "A person has denied this call. not on a Monday"
    assert sorted(answers) == sorted(["dropped t" if decision == "approve" else denied, "a", denied])
    assert log == ["model 0", "a", *(["ann drops t"] if decision == "approve" else []), "model 3"]


_WAITING = """
import sys
from agents import Agent, set_tracing_disabled
from openai_models import Answering, rounds
from satchel import Key, agent, run
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, durable_tool

set_tracing_disabled(True)

@durable_tool(effect=True, needs_approval=True)
def pay(key: Key, to: str) -> str:
    return f"paid {to}"

model = Answering(rounds([("pay", {"to": "ann"})]))
helper = Agent("helper", model=SatchelModel(model), tools=[pay])

@agent
async def main(run):
    return (await SatchelRunner.run(helper, "Go", wait_for=120)).final_output

outcome = run(sys.argv[1], main)
print(outcome.result, len(model.asked))
"""


def test_an_approval_is_asked_by_a_process_that_is_killed_and_given_elsewhere(workspace: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n{_WAITING}"]
    first = warm.Popen([*words, str(workspace)])
    end = time.monotonic() + PATIENCE
    while not (workspace / "approvals" / "a1.yaml").exists() and time.monotonic() < end:
        time.sleep(0.05)
    first.kill()
    assert first.wait() == -signal.SIGKILL
    moved = tmp_path / "elsewhere"
    satchel.open(workspace).move(moved)
    satchel.open(moved).answer("approve", "a1")
    second = warm.run([*words, str(moved)], timeout=120, capture_output=True, text=True, check=False)
    assert second.stdout == '["paid ann"] 1\n', second.stderr


def paying(items: Items) -> Any:
    """Pays what a person has approved, if that is something else."""
    if not called(items):
        return [("pay", {"to": "ann", "cents": 900})]
    said = outputs(items)[-1]
    if "other arguments" in said:
        return [("pay", json.loads(said[said.index("{") : said.index("}") + 1]))]
    return said


@pytest.mark.parametrize("kind", [agents.function_tool, durable_tool])
def test_other_arguments_that_a_person_has_approved_are_what_runs_and_are_not_asked_about_again(
    workspace: Path, kind: Any
) -> None:
    paid: list[int] = []

    @kind(needs_approval=True)
    def pay(to: str, cents: int) -> str:
        paid.append(cents)
        return f"paid {cents}"

    main = entered(helper_of(Answering(paying), pay))
    [asked] = run(workspace, main).approvals
    with pytest.raises(satchel.SatchelError):
        satchel.open(workspace).answer("approve", asked.id, arguments={"cents": "many"})
    satchel.open(workspace).answer("approve", asked.id, arguments={"cents": 450})
    assert completed(run(workspace, main)) == "paid 450"
    assert paid == [450]


def test_arguments_that_are_no_json_can_be_denied_and_not_changed(workspace: Path) -> None:
    class Wrong(Answering):
        def _output(self, input: Any) -> list[dict[str, Any]]:
            output = super()._output(input)
            return [{**each, "arguments": "{no json"} if "arguments" in each else each for each in output]

    @durable_tool(needs_approval=True)
    def pay(to: str) -> str:
        return to

    main = entered(helper_of(Wrong(rounds([("pay", {"to": "ann"})])), pay))
    [asked] = run(workspace, main).approvals
    assert "{no json" in (workspace / "approvals" / f"{asked.id}.yaml").read_text()
    satchel.open(workspace).answer("deny", asked.id)
    assert completed(run(workspace, main)) == '["A person has denied this call."]'


def test_an_approval_of_all_later_calls_counts_for_the_tool(workspace: Path) -> None:
    @durable_tool(needs_approval=True)
    def pay(to: str) -> str:
        return f"paid {to}"

    main = entered(helper_of(Answering(rounds([("pay", {"to": "ann"})], [("pay", {"to": "bob"})])), pay))
    [asked] = run(workspace, main).approvals
    satchel.open(workspace).answer("approve", asked.id, standing=True)
    assert completed(run(workspace, main)) == '["paid ann", "paid bob"]'


def test_an_agent_that_is_a_tool_and_one_that_takes_over_are_durable_too(workspace: Path) -> None:
    log: list[str] = []
    crashes = True

    @durable_tool(needs_approval=True)
    async def look(at: str) -> str:
        log.append(f"look {at}")
        return at

    reader = Agent("reader", model="reader", tools=[look])
    writer = Agent("writer", model="writer")

    models = {
        "helper": Answering(rounds([("read", {"input": "a"})], [("transfer_to_writer", {})]), log),
        "reader": Answering(rounds([("look", {"at": "a"})]), log),
        "writer": Answering(lambda items: "written", log),
    }

    class Named(ModelProvider):
        def get_model(self, model_name: str | None) -> Model:
            return models[str(model_name)]

    helper = Agent("helper", model="helper", tools=[reader.as_tool("read", "Reads.")], handoffs=[writer])

    @agent
    async def main(run: Run) -> Any:
        options: Any = {"run_config": RunConfig(model_provider=Named()), "wait_for": 0}
        answer = await SatchelRunner.run(helper, "Go", **options)
        if crashes:
            raise Stop
        return answer.final_output

    [asked] = run(workspace, main).approvals
    assert asked.question == "May reader call look?"
    satchel.open(workspace).answer("approve", asked.id)
    interrupted(workspace, main)
    assert log == ["model 0", "model 0", "look a", "model 1", "model 1", "model 2"]
    crashes = False
    log.clear()
    assert completed(run(workspace, main)) == "written"
    assert log == []


def test_a_model_that_is_an_object_is_refused_by_the_name_of_its_agent(workspace: Path) -> None:
    model = Answering(lambda items: "hello")
    outcome = run(workspace, entered(Agent("helper", model=model)))
    assert outcome.status == "failed" and "the agent helper is an object" in str(outcome.error)
    assert "SatchelModel" in str(outcome.error) and not model.asked


def test_a_model_of_the_run_config_and_its_filter_are_used(workspace: Path) -> None:
    model = Answering(lambda items: str(items[-1]["content"]))

    async def louder(data: Any) -> Any:
        data.model_data.input[-1]["content"] += "!"
        return data.model_data

    config = RunConfig(model=model, call_model_input_filter=louder)
    main = entered(Agent("helper", model=Answering(lambda items: "never")), run_config=config)
    assert completed(run(workspace, main)) == "Go!"


def test_an_overloaded_model_is_asked_again_and_its_tokens_count(workspace: Path) -> None:
    import httpx

    class Overloaded(Answering):
        async def get_response(self, *asked: Any, **more: Any) -> Any:
            answer = await super().get_response(*asked, **more)
            if len(self.asked) == 1:
                raise APIConnectionError(request=httpx.Request("POST", "http://localhost"))
            return answer

    model = Overloaded(lambda items: "hello")
    helper = Agent("helper", model=SatchelModel(model, retry=Retry(first=0.01)))
    assert completed(run(workspace, entered(helper))) == "hello"
    assert len(model.asked) == 2
    assert json.loads((workspace / "state.json").read_text())["usage"]["tokens"] == 10


def test_what_a_tool_raises_is_told_to_the_model_after_its_record(workspace: Path) -> None:
    """The catch of the SDK is outside: the record says that the tool has failed, and a later start says so again."""
    log: list[str] = []

    @durable_tool(effect=True, not_done=(ValueError,))
    def send(to: str) -> str:
        log.append(to)
        raise ValueError(f"{to} is no address")

    @durable_tool(failure_error_function=lambda context, error: f"sorry: {error}")
    async def look(at: str) -> str:
        log.append(at)
        raise LookupError(at)

    crashes = True
    helper = helper_of(Answering(rounds([("send", {"to": "ann"}), ("look", {"at": "a"})])), send, look)

    @agent
    async def main(run: Run) -> Any:
        answer = await SatchelRunner.run(helper, "Go")
        if crashes:
            raise Stop
        return answer.final_output

    interrupted(workspace, main)
    crashes = False
    told = json.loads(completed(run(workspace, main)))
    assert told[0].startswith("An error occurred") and told[1] == "sorry: a"
    assert "step.completed" not in [each["type"] for each in records(workspace) if each.get("step") in ("send", "look")]
    assert sorted(log) == ["a", "ann"]


def test_a_tool_that_may_fail_ends_the_run_and_is_called_again(workspace: Path) -> None:
    broken = [True]

    @durable_tool(failure_error_function=None)
    def look(at: str) -> str:
        if broken:
            raise LookupError(at)
        return at

    main = entered(helper_of(Answering(rounds([("look", {"at": "a"})])), look))
    assert run(workspace, main).status == "failed"
    broken.clear()
    assert completed(run(workspace, main)) == '["a"]'


@pytest.mark.parametrize("value", ["NaN", "1e400", "[" * 80 + "]" * 80])
def test_a_run_survives_arguments_that_a_model_wrote(workspace: Path, value: str) -> None:
    class Odd(Answering):
        def _output(self, input: Any) -> list[dict[str, Any]]:
            output = super()._output(input)
            return [{**each, "arguments": f'{{"at": {value}}}'} if "arguments" in each else each for each in output]

    seen: list[Any] = []

    @durable_tool(strict_mode=False)
    def look(at: Any) -> str:
        seen.append(at)
        return "seen"

    [told] = json.loads(completed(run(workspace, entered(helper_of(Odd(rounds([("look", {})])), look)))))
    assert told.startswith("An error occurred while running the tool") and not seen


def test_a_result_that_no_record_can_hold_is_an_error_of_the_program(workspace: Path) -> None:
    @durable_tool
    def look(at: str) -> float:
        return math.nan

    outcome = run(workspace, entered(helper_of(Answering(rounds([("look", {"at": "a"})])), look)))
    assert outcome.status == "failed" and "look" in str(outcome.error)


def test_a_tool_that_fails_lets_the_effects_next_to_it_finish(workspace: Path) -> None:
    """The SDK cancels them, which would leave them in doubt."""
    log: list[str] = []
    broken = [True]

    @durable_tool(failure_error_function=None)
    async def look(at: str) -> str:
        if broken:
            raise LookupError(at)
        return at

    @durable_tool(effect=True)
    async def pay(to: str) -> str:
        await asyncio.sleep(0.3)
        log.append(to)
        return f"paid {to}"

    main = entered(helper_of(Answering(rounds([("look", {"at": "a"}), ("pay", {"to": "ann"})])), look, pay))
    assert run(workspace, main).status == "failed"
    broken.clear()
    assert completed(run(workspace, main)) == '["a", "paid ann"]'
    assert log == ["ann"]


def test_an_agent_that_came_to_its_last_turn_continues_with_more_turns(workspace: Path) -> None:
    """In the SDK what was done is lost then (its issue 844)."""
    log: list[str] = []

    @durable_tool
    def look(at: str) -> str:
        log.append(at)
        return at

    helper = helper_of(Answering(rounds([("look", {"at": "a"})], [("look", {"at": "b"})]), log), look)
    first = run(workspace, entered(helper, max_turns=2))
    assert first.status == "failed" and "turns" in str(first.error).lower()
    assert log == ["model 0", "a", "model 1", "b"]
    log.clear()
    assert completed(run(workspace, entered(helper, max_turns=5))) == '["a", "b"]'
    assert log == ["model 2"]


def test_conversations_at_once_are_answered_after_a_crash(workspace: Path) -> None:
    log: list[str] = []
    crashes = True

    @durable_tool
    async def look(at: str) -> str:
        log.append(f"look {at}")
        await asyncio.sleep(0.02 if at == "a" else 0.05)
        return at.upper()

    def answer(items: Items) -> Any:
        at = str(items[0]["content"])
        return [("look", {"at": at})] if not called(items) else f"{at} is {outputs(items)[0]}"

    helper = helper_of(Answering(answer, log), look)

    @agent
    async def main(run: Run) -> Any:
        answers = await asyncio.gather(*(SatchelRunner.run(helper, at) for at in "abc"))
        if crashes:
            raise Stop
        return [each.final_output for each in answers]

    interrupted(workspace, main)
    log.clear()
    crashes = False
    assert completed(run(workspace, main)) == ["a is A", "b is B", "c is C"]
    assert log == []


def test_an_effect_that_runs_out_of_time_is_in_doubt_and_the_model_is_not_asked_before_that_is_settled(
    workspace: Path,
) -> None:
    @durable_tool(effect=True, timeout=0.2)
    async def pay(to: str) -> str:
        await asyncio.sleep(30)
        return f"paid {to}"

    model = Answering(rounds([("pay", {"to": "ann"})]))
    main = entered(helper_of(model, pay))
    outcome = run(workspace, main)
    assert outcome.status == "waiting" and len(model.asked) == 1
    satchel.open(workspace).answer("done", result="paid after all")
    assert completed(run(workspace, main)) == '["paid after all"]'


def test_a_step_that_runs_out_of_time_is_told_to_the_model_and_again_after_a_crash(workspace: Path) -> None:
    log: list[str] = []
    crashes = True

    @durable_tool(timeout=0.2)
    async def look(at: str) -> str:
        log.append(at)
        await asyncio.sleep(30)
        return at

    helper = helper_of(Answering(rounds([("look", {"at": "a"})]), log), look)

    @agent
    async def main(run: Run) -> Any:
        answer = await SatchelRunner.run(helper, "Go")
        if crashes:
            raise Stop
        return answer.final_output

    interrupted(workspace, main)
    assert log == ["model 0", "a", "model 1"]
    crashes = False
    assert "timed out" in completed(run(workspace, main))
    assert log == ["model 0", "a", "model 1"]


def test_what_only_an_effect_takes_is_refused_for_a_step() -> None:
    def look(at: str) -> str:
        return at

    for options in ({"verify": look}, {"idempotent": True}, {"not_done": (ValueError,)}):
        with pytest.raises(satchel.UsageError, match="the tool look is a step"):
            durable_tool(look, **options)


def test_a_method_is_a_tool(workspace: Path) -> None:
    class Shelf:
        def __init__(self, books: list[str]):
            self.books = books

        async def find(self, number: int) -> str:
            """Find a book."""
            return self.books[number]

    find = durable_tool(Shelf(["Emma"]).find)
    assert (find.name, find.description, [*find.params_json_schema["properties"]]) == (
        "find",
        "Find a book.",
        ["number"],
    )
    main = entered(helper_of(Answering(rounds([("find", {"number": 0})])), find))
    assert completed(run(workspace, main)) == '["Emma"]'


class Order(BaseModel):
    number: str
    cents: int


def test_values_keep_their_types_after_a_crash(workspace: Path) -> None:
    crashes = True

    @durable_tool
    def order(like: Order) -> Order:
        assert isinstance(like, Order)
        return Order(number=like.number, cents=5)

    helper = helper_of(Answering(rounds([("order", {"like": {"number": "1", "cents": 2}})])), order)

    @agent
    async def main(run: Run) -> Any:
        answer = await SatchelRunner.run(helper, "Go")
        if crashes:
            raise Stop
        return answer.final_output

    interrupted(workspace, main)
    crashes = False
    assert completed(run(workspace, main)) == json.dumps([str(Order(number="1", cents=5))])


def test_an_object_as_the_answer_is_not_continued(workspace: Path) -> None:
    cut = [True]

    class Cut(Answering):
        async def stream_response(self, *asked: Any, **more: Any) -> Any:
            async for event in super().stream_response(*asked, **more):
                yield event
                if cut:
                    raise Stop

    model = Cut(lambda items: '{"number": "1", "cents": 2}')
    main = entered(helper_of(model, output_type=Order), on_event=lambda event: None)
    interrupted(workspace, main)
    cut.clear()
    assert completed(run(workspace, main)) == {"number": "1", "cents": 2}
    assert [begun(items) for items in model.asked] == ["", ""]


def test_a_pause_lets_the_tools_that_run_finish_and_nothing_is_in_doubt(workspace: Path) -> None:
    log: list[str] = []

    @durable_tool(effect=True)
    async def pay(to: str) -> str:
        if to == "bob":
            satchel.open(workspace).pause()
            await asyncio.to_thread(until, is_noticed)
        log.append(to)
        return f"paid {to}"

    @durable_tool
    async def look(at: str) -> str:
        await asyncio.to_thread(until, is_noticed)
        return await late(at)

    def is_noticed() -> object:
        return [*satchel.open(workspace).history.log(type="pause.requested")]

    @satchel.step
    async def late(at: str) -> str:
        return at

    helper = helper_of(
        Answering(rounds([("pay", {"to": "bob"}), ("look", {"at": "a"}), ("pay", {"to": "ann"})])), pay, look
    )
    main = entered(helper)
    assert run(workspace, main).status == "paused"
    assert sorted(log) == ["ann", "bob"]
    (workspace / "pause.yaml").write_text("status: resume\n")
    assert completed(run(workspace, main)) == '["paid bob", "a", "paid ann"]'
    assert sorted(log) == ["ann", "bob"]


def test_settings_that_no_model_sees_identify_no_request(workspace: Path) -> None:
    log: list[str] = []
    model, number = Answering(lambda items: "hello", log), iter(range(9))

    @agent
    async def main(run: Run) -> Any:
        headers = {"x-trace": str(next(number))}
        helper = helper_of(model, model_settings=ModelSettings(extra_headers=headers, temperature=0.5))
        answer = await SatchelRunner.run(helper, "Go")
        if len(log) == 1 and next(number) < 2:
            raise Stop
        return answer.final_output

    interrupted(workspace, main)
    assert completed(run(workspace, main)) == "hello"
    assert log == ["model 0"]


def test_an_event_handler_that_fails_ends_the_agent(workspace: Path) -> None:
    """The SDK continues an agent that nothing listens to any more (its issue 574)."""
    log: list[str] = []

    @durable_tool(effect=True)
    async def pay(to: str) -> str:
        log.append(to)
        return to

    def fail(event: Any) -> None:
        raise LookupError("no screen")

    outcome = run(workspace, entered(helper_of(Answering(rounds([("pay", {"to": "ann"})])), pay), on_event=fail))
    assert outcome.status == "failed" and "no screen" in str(outcome.error)
    assert log == []
