"""Sessions of the OpenAI Agents SDK in folders: what the SDK asks of one, also after a kill and by several processes.

The first part is the contract that the SDK's own tests set for its SQLiteSession, apart from what is SQLite's own.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import httpx
import pytest
import warm
from agents import Agent, ModelSettings, RunConfig, Runner, Session, SessionSettings
from openai import APIConnectionError
from openai_models import Answering, rounds
from servers import Server
from stopping import Stop, interrupted

import satchel
from satchel import Run, agent, run
from satchel.adapters.openai_agents import SatchelModel, SatchelRunner, SatchelSession, durable_tool, sessions

METHODS = ("run", "run_sync", "run_streamed")
KINDS = ("function_call", "function_call_output")
HELLO: list[Any] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}]


@pytest.fixture(autouse=True)
def untraced() -> None:
    agents.set_tracing_disabled(True)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., SatchelSession]:
    return lambda name="chat", **options: SatchelSession(name, tmp_path / "sessions", **options)


def done(work: Any) -> Any:
    return asyncio.run(work)


def said(items: list[Any]) -> list[str]:
    return [each["content"] if isinstance(each["content"], str) else each["content"][0]["text"] for each in items]


def talked(method: str, helper: Agent[Any], prompt: Any, **options: Any) -> Any:
    async def streamed() -> Any:
        result = Runner.run_streamed(helper, prompt, **options)
        async for _ in result.stream_events():
            pass
        return result

    if method == "run_sync":
        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            try:
                return Runner.run_sync(helper, prompt, **options).final_output
            finally:
                asyncio.set_event_loop(None)
    work = streamed() if method == "run_streamed" else Runner.run(helper, prompt, **options)
    return done(work).final_output  # type: ignore[arg-type]


def answering(*texts: str) -> tuple[Agent[Any], Answering]:
    left = [*texts]
    model = Answering(lambda items: left.pop(0))
    return Agent("helper", model=model), model


def test_it_is_a_session_of_the_sdk(made: Any) -> None:
    assert isinstance(made(), Session)


@pytest.mark.parametrize("method", METHODS)
def test_a_later_turn_gets_what_was_said_before(made: Any, method: str) -> None:
    helper, model = answering("San Francisco", "California")
    assert talked(method, helper, "Where is the bridge?", session=made()) == "San Francisco"
    assert talked(method, helper, "In which state?", session=made()) == "California"
    assert said(model.asked[-1]) == ["Where is the bridge?", "San Francisco", "In which state?"]
    assert said(done(made().get_items())) == ["Where is the bridge?", "San Francisco", "In which state?", "California"]


@pytest.mark.parametrize("method", METHODS)
def test_two_sessions_know_nothing_of_each_other(made: Any, method: str) -> None:
    helper, model = answering("cats", "dogs", "you like cats")
    talked(method, helper, "I like cats", session=made("one"))
    talked(method, helper, "I like dogs", session=made("two"))
    talked(method, helper, "What do I like?", session=made("one"))
    assert said(model.asked[-1]) == ["I like cats", "cats", "What do I like?"]


def test_items_are_added_popped_and_cleared(made: Any) -> None:
    async def use() -> None:
        session = made()
        assert await session.pop_item() is None and await session.get_items() == []
        await session.add_items([])
        await session.add_items([*HELLO, {"role": "user", "content": "How are you?"}])
        assert (await session.pop_item())["content"] == "How are you?"
        assert await session.get_items() == HELLO
        await session.add_items([{"role": "user", "content": "Again"}])
        assert said(await session.get_items()) == ["Hello", "Hi there!", "Again"]
        assert [(await session.pop_item())["content"] for _ in range(3)] == ["Again", "Hi there!", "Hello"]
        assert await session.pop_item() is None
        await session.add_items(HELLO)
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.add_items(HELLO[:1])
        assert await session.get_items() == HELLO[:1]

    done(use())


def test_only_the_newest_items_are_asked_for(made: Any) -> None:
    async def use() -> None:
        session = made()
        await session.add_items([{"role": "user", "content": str(number)} for number in range(40)])
        for limit, expected in ((0, 0), (1, 1), (3, 3), (40, 40), (99, 40), (None, 40)):
            found = said(await session.get_items(limit))
            assert found == [str(number) for number in range(40 - expected, 40)]
        for _ in range(20):
            await session.pop_item()
        assert said(await session.get_items(3)) == ["17", "18", "19"]
        limited = made(session_settings={"limit": 2})
        assert said(await limited.get_items()) == ["18", "19"]
        assert said(await limited.get_items(limit=1)) == ["19"]
        await session.clear_session()
        await session.add_items(HELLO)
        assert await session.get_items(9) == HELLO

    done(use())


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_run_limit_the_history(made: Any, method: str) -> None:
    helper, model = answering("1", "2", "3")
    for prompt in ("a", "b"):
        talked(method, helper, prompt, session=made())
    talked(method, helper, "c", session=made(), run_config=RunConfig(session_settings=SessionSettings(limit=2)))
    assert said(model.asked[-1]) == ["b", "2", "c"]


def test_a_list_is_appended_and_a_callback_decides(made: Any) -> None:
    helper, model = answering("1", "2")
    talked("run", helper, "a", session=made())
    config = RunConfig(session_input_callback=lambda history, new: [*history[:1], *new])
    talked("run", helper, [{"role": "user", "content": "b"}], session=made(), run_config=config)
    assert said(model.asked[-1]) == ["a", "b"]
    assert said(done(made().get_items())) == ["a", "1", "b", "2"]


@pytest.mark.parametrize(
    "text",
    ["Привет 世界 🚀", "O'Reilly; DROP TABLE agent_messages;--", '"quoted" \\ {"a": 1}', "a\nb\r\n\x00\u2028", ""],
)
def test_any_text_comes_back_as_it_was(made: Any, text: str) -> None:
    items = [{"role": "user", "content": text}, {"type": "function_call_output", "call_id": "1", "output": text}]
    done(made().add_items(items))
    assert done(made().get_items()) == items


def test_items_that_are_no_messages_come_back_as_they_were(made: Any) -> None:
    items: list[Any] = [
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": []}]},
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "abc"},
        {"role": "session", "content": "clear"},
        {"role": "session", "content": "pop"},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
    ]
    done(made().add_items(items))
    assert done(made().get_items()) == items


@pytest.mark.parametrize("name", ["a/b", "..", ".", "", "é" * 300, "A", "a b", "x" * 300, "\ud800"])
def test_any_text_is_a_session_id(made: Any, tmp_path: Path, name: str) -> None:
    async def use() -> None:
        await made(name).add_items(HELLO)
        await made(f"{name}!").add_items(HELLO[:1])
        assert await made(name).get_items() == HELLO

    done(use())
    assert len([*(tmp_path / "sessions").iterdir()]) == 2


def test_many_tasks_and_threads_lose_nothing(made: Any) -> None:
    async def use() -> list[Any]:
        def in_thread(number: int) -> None:
            done(made().add_items([{"role": "user", "content": f"thread {number}"}]))

        tasks = [made().add_items([{"role": "user", "content": f"task {number}"}]) for number in range(10)]
        await asyncio.gather(*tasks, *(asyncio.to_thread(in_thread, number) for number in range(10)))
        popped = await asyncio.gather(*(made().pop_item() for _ in range(5)))
        return [*await made().get_items(), *popped]

    found = said(done(use()))
    assert len(found) == len({*found}) == 20


@pytest.mark.parametrize("method", METHODS)
def test_a_request_that_is_tried_again_keeps_the_prompt(made: Any, method: str) -> None:
    """The SDK once took the prompt back for good then (its issue 3852)."""

    class Overloaded(Answering):
        def _output(self, input: Any) -> Any:
            found = super()._output(input)
            if len(self.asked) == 1:
                raise APIConnectionError(request=httpx.Request("POST", "http://localhost"))
            return found

    again = ModelSettings(retry={"max_retries": 2, "backoff": {"initial_delay": 0.01}, "policy": lambda context: True})
    helper = Agent("helper", model=Overloaded(lambda items: "hello"), model_settings=again)
    assert talked(method, helper, "Go", session=made()) == "hello"
    assert said(done(made().get_items())) == ["Go", "hello"]


def test_an_error_of_the_storage_ends_the_agent(made: Any, tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "chat").write_text("a file in the way")
    helper, _ = answering("1", "1")
    for method in ("run", "run_streamed"):
        with pytest.raises(Exception, match="chat"):
            talked(method, helper, "a", session=made())


def test_what_is_cancelled_while_it_is_written_has_ended_when_that_is_told(made: Any) -> None:
    async def use() -> None:
        task = asyncio.create_task(made().add_items(HELLO))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await made().add_items([{"role": "user", "content": "later"}])
        assert said(await made().get_items())[-3:] in (["Hello", "Hi there!", "later"], ["later"])

    done(use())


def test_a_session_that_is_made_for_each_turn_does_not_wait_for_itself(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_IDLE", 60.0)
    held = []
    for _ in range(3):
        session = made()
        done(session.add_items(HELLO))
        held.append(id(session._use(lambda held: held)))
        del session
        gc.collect()
    assert len({*held}) == 1, "another one would wait until this process has left the folder to others"
    assert len(done(made().get_items())) == 6


def test_a_fork_has_a_session_of_its_own(made: Any, tmp_path: Path) -> None:
    words = [sys.executable, "-c", _FORKING, str(tmp_path / "sessions")]
    forked = warm.run(words, timeout=120, capture_output=True, text=True)
    assert forked.returncode == 0, forked.stderr
    assert sorted(said(done(made().get_items()))) == ["child", "parent", "parent"]


def test_a_session_that_is_closed_is_left_to_others_at_once(made: Any, tmp_path: Path) -> None:
    done(made().add_items(HELLO))
    made().close()
    with satchel.hold(tmp_path / "sessions" / "chat", kind="openai-agents.session") as held:
        assert len(held.rows()) == 2
    assert done(made().get_items()) == HELLO


# In folders


_FORKING = """
import asyncio, os, sys
from satchel.adapters.openai_agents import SatchelSession

session = SatchelSession("chat", sys.argv[1])
say = lambda who: asyncio.run(session.add_items([{"role": "user", "content": who}]))
say("parent")
if (child := os.fork()) == 0:
    say("child")
    os._exit(0)
say("parent")
sys.exit(os.waitpid(child, 0)[1])
"""


_OTHER = """
import asyncio, sys
from satchel.adapters.openai_agents import SatchelSession

async def main():
    session = SatchelSession("chat", sys.argv[1], storage_options=OPTIONS)
    await session.add_items([{"role": "user", "content": sys.argv[2]}])
    print(len(await session.get_items()))

asyncio.run(main())
"""


@pytest.mark.slow
def test_several_processes_use_a_session_one_after_the_other(made: Any, tmp_path: Path) -> None:
    for number in range(3):
        done(made().add_items([{"role": "user", "content": f"here {number}"}]))
        words = [sys.executable, "-c", _OTHER.replace("OPTIONS", "None"), str(tmp_path / "sessions"), f"there {number}"]
        other = warm.run(words, timeout=120, capture_output=True, text=True)
        assert other.stdout == f"{2 * number + 2}\n", other.stderr
    assert len(done(made().get_items())) == 6


def test_a_person_reads_the_conversation_and_corrects_it(made: Any, tmp_path: Path) -> None:
    done(made().add_items([*HELLO, {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}]))
    folder = tmp_path / "sessions" / "chat"
    assert [row.value["role"] for row in satchel.open(folder).rows()] == ["user", "assistant", "function_call"]
    made().close()
    file = folder / "messages.jsonl"
    file.write_text(file.read_text().replace("Hi there!", "Good morning!"))
    assert said(done(made().get_items(3))[:2]) == ["Hello", "Good morning!"]


def test_a_person_who_removes_the_line_of_an_item_that_was_taken_back_loses_another_one(
    made: Any, tmp_path: Path
) -> None:
    done(made().add_items([*HELLO, {"role": "user", "content": "Never mind"}]))
    assert done(made().pop_item())["content"] == "Never mind"
    made().close()
    file = tmp_path / "sessions" / "chat" / "messages.jsonl"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "Never mind" not in line))
    assert done(made().get_items()) == done(made().get_items(2)) == HELLO


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["seaweedfs", pytest.param("moto", marks=pytest.mark.soak)])
def test_a_session_in_a_bucket(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    server: Server = request.getfixturevalue(kind)
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    root = server.place()
    helper, model = answering("cats", "you like cats")
    talked("run", helper, "I like cats", session=SatchelSession("one", root))
    SatchelSession("one", root).close()
    code = _OTHER.replace('"chat"', '"one"').replace("OPTIONS", repr(server.storage_options()))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "FSSPEC_"))}
    other = warm.run([sys.executable, "-c", code, root, "there"], capture_output=True, text=True, env=environment)
    assert other.stdout == "3\n", other.stderr
    talked("run_streamed", helper, "What do I like?", session=SatchelSession("one", root))
    assert said(model.asked[-1]) == ["I like cats", "cats", "there", "What do I like?"]


# In a run


def test_in_a_run_a_killed_turn_that_is_started_again_has_the_prompt_once(made: Any, workspace: Path) -> None:
    log: list[str] = []
    stops = ["before", "look", "after"]

    def stop(at: str) -> None:
        if stops and stops[0] == at:
            stops.pop(0)
            raise Stop

    @durable_tool
    async def look(at: str) -> str:
        log.append(f"look {at}")
        stop("look")
        return at

    class Stopping(Answering):
        async def get_response(self, *asked: Any, **more: Any) -> Any:
            stop("before")
            return await super().get_response(*asked, **more)

    model = Stopping(lambda items: rounds([("look", {"at": "a"})])(items) if len(items) < 9 else "again", log)
    helper = Agent("helper", model=SatchelModel(model), tools=[look])

    @agent
    async def main(run: Run) -> Any:
        await SatchelRunner.run(helper, "Go", session=made())
        stop("after")
        return (await SatchelRunner.run(helper, "And now?", session=made())).final_output

    done(made().add_items(HELLO))
    for _ in range(3):
        interrupted(workspace, main)
    done(made().add_items([{"role": "user", "content": "from elsewhere"}]))
    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    assert log[:4] == ["model 0", "look a", "look a", "model 1"]
    items = done(made().get_items())
    prompts = [each["content"] for each in items if each.get("role") == "user"]
    assert prompts == ["Hello", "Go", "from elsewhere", "And now?"]
    calls, results = ([each["call_id"] for each in items if each.get("type") == kind] for kind in KINDS)
    assert calls == results == ["c0"]


def test_in_a_run_items_are_popped_and_cleared_once(made: Any, workspace: Path) -> None:
    stops = [True]

    @agent
    async def main(run: Run) -> Any:
        session = made()
        await session.add_items([{"role": "user", "content": str(number)} for number in range(4)])
        popped = [await session.pop_item(), await session.pop_item()]
        if stops:
            raise Stop
        return said([*popped, *await session.get_items()])

    interrupted(workspace, main)
    stops.clear()
    assert run(workspace, main).result == ["3", "2", "0", "1"]
    assert said(done(made().get_items())) == ["0", "1"]


def test_in_a_run_a_message_that_a_person_inserts_above_others_is_not_seen(
    made: Any, workspace: Path, tmp_path: Path
) -> None:
    done(made().add_items(HELLO))
    made().close()
    file = tmp_path / "sessions" / "chat" / "messages.jsonl"
    file.write_text('{"role": "system", "content": "Be brief."}\n' + file.read_text())

    @agent
    async def main(run: Run) -> Any:
        return said(await made().get_items()), said(await made().get_items(2))

    assert run(workspace, main).result == [["Be brief.", "Hello", "Hi there!"], ["Hello", "Hi there!"]]


def test_in_a_run_equal_words_after_a_cut_are_dropped(made: Any, workspace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sessions" / "chat"

    async def say() -> None:
        await made().add_items(HELLO[:1])

    @agent
    async def main(run: Run) -> Any:
        await run.scope("before", say)
        made().close()
        await satchel.open(folder).files.cut_messages_async(0)
        await run.scope("after", say)
        return said(await made().get_items())

    assert run(workspace, main).result == ["Hello"]


def test_in_a_run_equal_words_at_once_are_dropped_or_added_again_after_a_crash(made: Any, workspace: Path) -> None:
    stops = [True]

    @agent
    async def main(run: Run) -> Any:
        both = asyncio.Barrier(2)

        async def say(run: Run, item: Any) -> None:
            await asyncio.gather(made().add_items(HELLO[:1]), made().add_items(HELLO[:1]))
            if stops:
                await both.wait()
                if item.text == "one":
                    raise Stop

        if not run.todo.items:
            await run.plan("Say it", ["one", "two"])
        await run.todo.each(say, parallel=2)
        return said(await made().get_items())

    interrupted(workspace, main)
    stops.clear()
    assert run(workspace, main).result == ["Hello"] * 4


@pytest.mark.parametrize("options", [{}, {"on_event": lambda event: None}], ids=["whole", "streamed"])
def test_an_approval_that_comes_later_leaves_no_call_without_its_result(
    made: Any, workspace: Path, options: dict[str, Any]
) -> None:
    """The SDK once lost the result of an approved tool in a session, and doubled its call (its issues 4125, 4615)."""

    @durable_tool(effect=True, needs_approval=True)
    def pay(to: str) -> str:
        return f"paid {to}"

    helper = Agent("helper", model=SatchelModel(Answering(rounds([("pay", {"to": "ann"})]))), tools=[pay])

    @agent
    async def main(run: Run) -> Any:
        return (await SatchelRunner.run(helper, "Pay", session=made(), wait_for=0, **options)).final_output

    assert run(workspace, main).status == "waiting"
    satchel.open(workspace).answer("approve")
    assert run(workspace, main).result == '["paid ann"]'
    items = done(made().get_items())
    assert [each.get("type", each.get("role")) for each in items] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]


def test_an_ordinary_session_doubles_the_prompt(workspace: Path, tmp_path: Path) -> None:
    """What `SatchelSession` is for."""

    stops = [True]
    model = Answering(lambda items: "done")
    helper = Agent("helper", model=SatchelModel(model))

    @agent
    async def main(run: Run) -> Any:
        session = agents.SQLiteSession("chat", tmp_path / "chat.db")
        try:
            await SatchelRunner.run(helper, "Go", session=session)
            if stops:
                raise Stop
            return said(await session.get_items())
        finally:
            session.close()

    interrupted(workspace, main)
    stops.clear()
    assert run(workspace, main).result.count("Go") == 2
