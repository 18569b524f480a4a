"""Graphs of LangGraph with durable nodes in a run: what is answered, what runs again, what stays LangGraph's own."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, Send, StreamWriter, interrupt
from stopping import Stop, interrupted

from satchel import Item, Partial, Run, agent, effect, run, step
from satchel import open as opened
from satchel.adapters.langgraph import SatchelSaver, durable
from satchel.errors import AgentError, UsageError

CONFIG: Any = {"configurable": {"thread_id": "one"}}


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    said: Annotated[list[str], operator.add]


Saver = Callable[[Path], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def without(folder: Path) -> AsyncIterator[None]:
    yield None


@asynccontextmanager
async def in_memory(folder: Path) -> AsyncIterator[Any]:
    yield InMemorySaver()


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncIterator[Any]:
    async with AsyncSqliteSaver.from_conn_string(str(folder / "threads.sqlite")) as saver:
        yield saver


@asynccontextmanager
async def in_folders(folder: Path) -> AsyncIterator[Any]:
    saver = SatchelSaver(folder / "threads")
    try:
        yield saver
    finally:
        saver.close()


SAVERS = pytest.mark.parametrize("saver", [without, in_memory, in_sqlite, in_folders])
CANCELLED = pytest.mark.parametrize("saver", [without, in_memory, in_folders])
"""The SQLite saver leaves its database locked in this process if a stop cancels a write."""


def chain(*nodes: Any, **options: Any) -> StateGraph[Any]:
    """A graph that calls one node after the other. They are called by the letters of the alphabet."""
    builder = StateGraph(State)
    names = "abcdefgh"[: len(nodes)]
    for name, node in zip(names, nodes, strict=True):
        builder.add_node(name, node, **options)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder


def entered(builder: StateGraph[Any], saver: Saver, folder: Path, *, effects: Any = "strict") -> Any:
    """An agent that begins the thread, or continues it. With strict effects a person is asked about each that was done
    and is not called again."""

    @agent(effects=effects)
    async def main(run: Run) -> Any:
        async with saver(folder) as kept:
            has_begun = kept is not None and await kept.aget_tuple(CONFIG) is not None
            given: Any = None if has_begun else {"messages": [HumanMessage("Go")]}
            found = await builder.compile(checkpointer=kept).ainvoke(given, CONFIG)
            return [[message.content for message in found["messages"]], found.get("said", [])]

    return main


@SAVERS
@pytest.mark.parametrize("kind", ["async", "sync", "runnable"])
def test_a_finished_node_runs_again(workspace: Path, tmp_path: Path, saver: Saver, kind: str) -> None:
    calls = list[str]()

    async def first(state: State) -> dict[str, Any]:
        calls.append("first")
        return {"messages": [AIMessage("hello")], "said": ["a"]}

    def first_sync(state: State) -> dict[str, Any]:
        calls.append("first")
        return {"messages": [AIMessage("hello")], "said": ["a"]}

    @durable
    async def second(state: State) -> dict[str, Any]:
        calls.append("second")
        if len(calls) == 2:
            raise Stop
        return {"said": ["b"]}

    node: Any = {"async": first, "sync": first_sync, "runnable": RunnableLambda(first)}[kind]
    main = entered(chain(durable(node), second), saver, tmp_path)
    interrupted(workspace, main)
    assert run(workspace, main).result == [["Go", "hello"], ["a", "b"]]
    assert calls == ["first", "second", "second"]
    assert run(workspace, main).result == [["Go", "hello"], ["a", "b"]] and len(calls) == 3


@SAVERS
def test_a_finished_step_or_effect_of_a_node_is_repeated_or_asked_about(
    workspace: Path, tmp_path: Path, saver: Saver
) -> None:
    """A saver skips the nodes that have finished, so their effects are not called again."""
    calls, sent = list[str](), list[str]()

    @step
    async def think(about: str) -> str:
        calls.append(about)
        return about.upper()

    @effect
    async def send(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    @durable
    async def write(state: State) -> dict[str, Any]:
        to = f"person {len(state.get('said', []))}"
        said = [await think(to), await send(to)]
        if to == "person 2" and calls.count(to) == len(sent) - 1 == 1 and not stopped:
            stopped.append(to)
            raise Stop
        return {"said": [said[1]]}

    @durable
    async def stop_once(state: State) -> dict[str, Any]:
        await think("last")
        await send("boss")
        if not stopped:
            stopped.append("now")
            raise Stop
        return {}

    stopped = list[str]()
    main = entered(chain(write, write, stop_once, write), saver, tmp_path)
    interrupted(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    assert outcome.result[1] == ["sent to person 0", "sent to person 1", "sent to person 2"]
    assert sent == ["person 0", "person 1", "boss", "person 2"] and sorted({*calls}) == sorted(calls)


def test_an_attempt_of_langgraphs_own_is_a_scope_of_its_own(workspace: Path, tmp_path: Path) -> None:
    """A retry policy calls the node again: its finished steps are answered."""
    calls = list[str]()

    @step
    async def think() -> int:
        calls.append("think")
        return len(calls)

    @durable
    async def flaky(state: State) -> dict[str, Any]:
        found = await think()
        calls.append("try")
        if calls.count("try") < 3:
            raise ConnectionError("not now")
        return {"said": [str(found)]}

    policy = RetryPolicy(initial_interval=0.01, max_attempts=5)
    main = entered(chain(flaky, retry_policy=policy), without, tmp_path)
    assert run(workspace, main).result[1] == ["1"] and calls == ["think", "try", "try", "try"]


@pytest.mark.parametrize("saver", [in_sqlite, in_folders])
def test_an_interrupted_node_repeats_its_finished_steps(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    calls = list[str]()

    @effect
    async def reserve(what: str) -> str:
        calls.append(what)
        return f"{what} reserved"

    @durable
    async def book(state: State) -> dict[str, Any]:
        reserved = await reserve("room")
        return {"said": [f"{reserved}, {interrupt('May I?')}"]}

    builder = chain(book)

    @agent(effects="strict")
    async def main(run: Run) -> Any:
        async with saver(tmp_path) as kept:
            graph = builder.compile(checkpointer=kept)
            if await kept.aget_tuple(CONFIG) is None:
                await graph.ainvoke({"messages": [HumanMessage("Go")]}, CONFIG)
                raise Stop
            answer = await run.ask("May I?", ["yes", "no"], wait_for=0)
            return (await graph.ainvoke(Command(resume=answer.decision), CONFIG))["said"]

    interrupted(workspace, main)
    assert run(workspace, main).status == "waiting"
    opened(str(workspace)).answer("yes")
    assert run(workspace, main).result == ["room reserved, yes"] and calls == ["room"]


@pytest.mark.parametrize("saver", [in_sqlite, in_folders])
def test_interrupts_of_two_nodes_at_once_exchange_their_answers(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    calls = list[str]()

    @step
    async def think(about: str) -> str:
        calls.append(about)
        return about

    @durable
    async def one(state: State) -> dict[str, Any]:
        return {"said": [f"{await think('one')}: {interrupt('one?')}"]}

    @durable
    async def two(state: State) -> dict[str, Any]:
        return {"said": [f"{await think('two')}: {interrupt('two?')}"]}

    builder = StateGraph(State)
    for name, node in {"one": one, "two": two}.items():
        builder.add_node(name, node)
        builder.add_edge(START, name)

    @agent(effects="strict")
    async def main(run: Run) -> Any:
        async with saver(tmp_path) as kept:
            graph = builder.compile(checkpointer=kept)
            has_begun = await kept.aget_tuple(CONFIG) is not None
            found = await graph.ainvoke(None if has_begun else {"messages": []}, CONFIG)  # type: ignore[arg-type]
            if run.attempt == 1:
                raise Stop
            answers = {each.id: each.value.upper() for each in found["__interrupt__"]}
            return (await graph.ainvoke(Command(resume=answers), CONFIG))["said"]

    interrupted(workspace, main)
    assert run(workspace, main).result == ["one: ONE?", "two: TWO?"] and sorted(calls) == ["one", "two"]


@CANCELLED
def test_a_question_that_a_node_asks_is_asked_twice(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    calls = list[str]()

    @step
    async def think() -> str:
        calls.append("think")
        return "thought"

    @durable
    async def ask(state: State) -> dict[str, Any]:
        current = Run.current()
        assert current is not None
        answer = await current.ask(f"Is {await think()} right?", ["yes", "no"], wait_for=0)
        return {"said": [answer.decision]}

    main = entered(chain(ask), saver, tmp_path)
    assert run(workspace, main).status == "waiting"
    opened(str(workspace)).answer("yes")
    assert run(workspace, main).result == [["Go"], ["yes"]] and calls == ["think"]


@SAVERS
def test_a_streamed_answer_of_a_node_that_was_cut_off_is_lost(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    recovered = list[str]()

    @step
    async def stream(out: Partial) -> str:
        recovered.append(out.recovered or "")
        for word in ["one ", "two ", "three"][len(recovered[-1].split()) :]:
            if word == "three" and len(recovered) == 1:
                raise Stop
            await out.write(word)
        return out.text

    @durable
    async def write(state: State) -> dict[str, Any]:
        return {"said": [await stream()]}

    main = entered(chain(write), saver, tmp_path)
    interrupted(workspace, main)
    assert run(workspace, main).result == [["Go"], ["one two three"]] and recovered == ["", "one two "]


class Forgetful(InMemorySaver):
    """Loses the writes of a task, as a saver does whose process is killed between two writes: the order of the two is
    not given (LangGraph's issue 8039)."""

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        pass


def test_a_saver_that_has_lost_the_writes_of_a_task_repeats_its_effect(workspace: Path) -> None:
    sent, kept, has_sent = list[str](), Forgetful(), asyncio.Event()

    @effect
    async def send(to: str) -> str:
        sent.append(to)
        return to

    @durable
    async def write(state: State) -> dict[str, Any]:
        said = await send("ada")
        has_sent.set()
        return {"said": [said]}

    async def stop(state: State) -> dict[str, Any]:
        if "stopped" not in sent:
            await has_sent.wait()
            await asyncio.sleep(0.05)
            sent.append("stopped")
            raise Stop
        return {}

    @asynccontextmanager
    async def forgetful(folder: Path) -> AsyncIterator[Any]:
        yield kept

    builder = StateGraph(State)
    builder.add_node("write", write)
    builder.add_node("stop", stop)
    builder.add_edge(START, "write")
    builder.add_edge(START, "stop")
    main = entered(builder, forgetful, workspace)
    interrupted(workspace, main)
    outcome = run(workspace, main)
    assert outcome.result == [["Go"], ["ada"]], outcome.error
    assert sent == ["ada", "stopped"]


@SAVERS
def test_a_finished_task_of_an_entrypoint_runs_again(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    """The other interface of LangGraph: functions in place of a graph."""
    calls = list[str]()

    @task
    @durable
    async def double(text: str, *, times: int = 2) -> str:
        calls.append(text)
        return text * times

    @agent(effects="strict")
    async def main(run: Run) -> Any:
        async with saver(tmp_path) as kept:

            @entrypoint(checkpointer=kept)
            async def workflow(texts: list[str]) -> list[str]:
                found = await asyncio.gather(*(double(text) for text in texts))
                found.append(await double(found[0], times=3))
                if len(calls) == 3:
                    calls.append("stop")
                    raise Stop
                return found

            has_begun = kept is not None and await kept.aget_tuple(CONFIG) is not None
            return await workflow.ainvoke(None if has_begun else ["a", "b"], CONFIG)  # type: ignore[arg-type]

    interrupted(workspace, main)
    assert run(workspace, main).result == ["aa", "bb", "aaaaaa"]
    assert sorted(calls) == ["a", "aa", "b", "stop"]


@SAVERS
def test_tasks_of_one_node_get_each_others_results(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    """Also equal ones, those of a graph inside a graph, and the turns of a loop."""
    calls = list[str]()

    @durable
    async def work(state: dict[str, Any]) -> dict[str, Any]:
        calls.append(state["of"])
        if len(calls) == 9:
            raise Stop
        return {"said": [f"{state['of']} {len(calls)}"]}

    @durable
    async def count(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(str(len(state["said"])))]}

    def fan_out(state: State) -> list[Send]:
        return [Send("work", {"of": of}) for of in ("x", "x", "y")]

    def route(state: State) -> str:
        return END if len(state["said"]) >= 9 else "start"

    inner = StateGraph(State)
    inner.add_node("work", work)
    inner.add_conditional_edges(START, fan_out, ["work"])
    within = inner.compile()

    async def start(state: State) -> dict[str, Any]:
        return {"said": (await within.ainvoke({"said": []}))["said"]}

    outer = StateGraph(State)
    outer.add_node("start", start)
    outer.add_node("count", count)
    outer.add_edge(START, "start")
    outer.add_edge("start", "count")
    outer.add_conditional_edges("count", route, ["start", END])
    main = entered(outer, saver, tmp_path)
    interrupted(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    said = outcome.result[1]
    assert [each[0] for each in said] == [*"xxyxxyxxy"] * (len(said) // 9) and len({*said}) == len(said)
    assert len(calls) == 10, "only the one that was cut off runs again"


def test_an_input_that_is_another_one_gets_an_earlier_result(workspace: Path, tmp_path: Path) -> None:
    calls = list[Any]()
    topics = ["a", "b"]

    @durable
    async def write(state: State) -> dict[str, Any]:
        calls.append(state["messages"][-1].content)
        return {"said": [state["messages"][-1].content.upper()]}

    graph = chain(write).compile()

    @agent
    async def main(run: Run) -> Any:
        found = [await graph.ainvoke({"messages": [("user", topic)]}) for topic in topics]
        if len(topics) == 2:
            raise Stop
        return [each["said"] for each in found]

    interrupted(workspace, main)
    topics[:] = ["b", "c", "a", "a"]
    assert run(workspace, main).result == [["B"], ["C"], ["A"], ["A"]]
    assert calls == ["a", "b", "c", "a"], "an equal one is another one"


def test_two_graphs_at_once_exchange_results(workspace: Path) -> None:
    @step
    async def think(about: str) -> str:
        await asyncio.sleep(0.01)
        return about.upper()

    @durable
    async def write(state: State) -> dict[str, Any]:
        return {"said": [await think(state["messages"][-1].content)]}

    graph = chain(write, write).compile()

    @agent
    async def main(run: Run) -> Any:
        given: list[Any] = [{"messages": [("user", name)]} for name in "abcd"]
        return [each["said"] for each in await asyncio.gather(*map(graph.ainvoke, given))]

    assert run(workspace, main).result == [[name] * 2 for name in "ABCD"]


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    "result",
    [
        {"said": ["x"]},
        {},
        None,
        Command(update={"said": ["x"]}, goto=END),
        {"messages": [AIMessage("x", tool_calls=[{"name": "t", "args": {"n": 1.5}, "id": "1", "type": "tool_call"}])]},
        {"said": [{"deep": [b"bytes", {1, 2}, Point(3), float("inf"), {"$type": [1, 2]}, {3: 4}]}]},
    ],
    ids=["dict", "empty", "none", "command", "message", "types"],
)
def test_a_result_comes_back_as_another_one(workspace: Path, result: Any) -> None:
    seen = list[Any]()

    @durable
    async def make(state: State) -> Any:
        return result

    async def see(state: State) -> dict[str, Any]:
        seen.append({key: value[1:] if key == "messages" else value for key, value in state.items()})
        if len(seen) == 1:
            raise Stop
        return {}

    graph = chain(make, see).compile()

    @agent
    async def main(run: Run) -> None:
        await graph.ainvoke({"messages": [HumanMessage("Go")]})

    interrupted(workspace, main)
    assert run(workspace, main).error is None
    for each in seen:
        for message in each["messages"]:
            message.id = None  # LangGraph draws a new one
    assert seen[0] == seen[1]


def test_a_result_that_cannot_be_kept_fails_where_it_is_made(workspace: Path, tmp_path: Path) -> None:
    @durable
    async def make(state: State) -> Any:
        return {"said": [object()]}

    error = run(workspace, entered(chain(make), without, tmp_path)).error
    assert error is not None and "serializable" in str(error)


class Narrow(TypedDict):
    said: list[str]


def test_what_langgraph_gives_a_node_is_missing(workspace: Path) -> None:
    seen = list[Any]()

    @durable
    async def one(state: Narrow, config: RunnableConfig, runtime: Runtime[Any], writer: StreamWriter) -> dict[str, Any]:
        writer("told")
        seen.append((sorted(state), config["configurable"]["thread_id"], type(runtime)))
        return {}

    @durable
    def two(state: State, config: RunnableConfig) -> dict[str, Any]:
        seen.append((sorted(state), config["configurable"]["thread_id"]))
        return {"said": ["x"]}

    graph = chain(one, two).compile()

    @agent
    async def main(run: Run) -> Any:
        return [part async for part in graph.astream({"said": ["y"]}, CONFIG, stream_mode="custom")]

    assert run(workspace, main).result == ["told"]
    assert seen == [(["said"], "one", Runtime), (["messages", "said"], "one")]


def test_a_graph_outside_a_run_is_another_one() -> None:
    @durable
    def first(state: State) -> dict[str, Any]:
        return {"said": ["a"]}

    @durable
    async def second(state: State) -> dict[str, Any]:
        return {"said": ["b"]}

    given: Any = {"messages": []}
    assert chain(first, first).compile().invoke(given)["said"] == ["a", "a"]
    assert asyncio.run(chain(first, second).compile().ainvoke(given))["said"] == ["a", "b"]


def test_a_graph_that_is_not_awaited_in_a_run_is_not_durable(workspace: Path) -> None:
    @durable
    def first(state: State) -> dict[str, Any]:
        return {}

    graph = chain(first).compile()

    @agent
    async def main(run: Run) -> None:
        await asyncio.to_thread(graph.invoke, {"messages": []})

    error = run(workspace, main).error
    assert isinstance(error, UsageError) and "'first' was called by `invoke` in a run" in str(error)


def test_a_graph_inside_an_item_runs_without_its_scopes(workspace: Path) -> None:
    @durable
    async def write(state: State) -> dict[str, Any]:
        return {}

    graph = chain(write).compile()

    async def work(run: Run, item: Item) -> None:
        await graph.ainvoke({"messages": [("user", item.text)]})

    @agent
    async def main(run: Run) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(work)

    error = run(workspace, main).error
    assert isinstance(error, AgentError) and "inside 'one'" in str(error)


@CANCELLED
def test_a_pause_in_a_node_loses_or_repeats_a_part_of_it(workspace: Path, tmp_path: Path, saver: Saver) -> None:
    calls = list[str]()

    @step
    async def think(about: str) -> str:
        calls.append(about)
        return about

    @durable
    async def write(state: State) -> dict[str, Any]:
        await think("first")
        current = Run.current()
        assert current is not None
        await current.pause()
        return {"said": [await think("second")]}

    main = entered(chain(write), saver, tmp_path)
    assert run(workspace, main).status == "paused"
    assert run(workspace, main, wake=True).result == [["Go"], ["second"]] and calls == ["first", "second"]
