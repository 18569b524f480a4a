"""Code that changes between two starts: no effect is done twice or forgotten without a word."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import satchel
from satchel import Effect, NotDone, Run, UsageError, agent, effect, run, step
from satchel.runtime.cli.group import group
from satchel.runtime.execution.running import Outcome

Work = Callable[[], Awaitable[Any]]


class Start:
    """One start of an agent with one item, whose code is given; the first one dies at the end of the item."""

    def __init__(self, workspace: Path, crash: type[BaseException]):
        self.workspace, self._crash, self._has_died = workspace, crash, False
        self.done: list[str] = []

    def __call__(self, function: Work, **options: Any) -> Outcome:
        async def work(run: Run[Any], item: Any) -> Any:
            found = await function()
            if not self._has_died:
                self._has_died = True
                raise self._crash
            return found

        @agent(**options)
        async def main(run: Run[Any]) -> Any:
            if not run.todo.items:
                await run.plan(None, ["mail ada"])
            await run.todo.each(work)
            return run.todo.result("mail ada")

        return run(self.workspace, main)

    def first(self, function: Work) -> None:
        with pytest.raises(self._crash):
            self(function)

    def effect(self, name: str, *parameters: str, **options: Any) -> Effect[..., str]:
        async def act(**given: str) -> str:
            self.done.append(name)
            return f"receipt of {name}"

        async def one(to: str) -> str:
            return await act(to=to)

        async def other(address: str) -> str:
            return await act(address=address)

        return effect(other if "address" in parameters else one, name=name, **options)

    def answer(self, decision: str) -> None:
        (question,) = self.questions
        satchel.open(str(self.workspace)).answer(decision, question.id, by="tester")

    @property
    def questions(self) -> list[Any]:
        return list(satchel.open(str(self.workspace)).questions())


@pytest.fixture
def start(workspace: Path, crash: type[BaseException]) -> Start:
    return Start(workspace, crash)


def test_a_renamed_effect_acts_again(start: Start) -> None:
    send, notify = start.effect("send"), start.effect("notify")
    start.first(lambda: send("ada"))
    assert start(lambda: notify("ada")).status == "waiting"
    assert start.done == ["send"]
    (question,) = start.questions
    assert 'notify("to":"ada") of \'mail ada\' would begin' in question.text
    assert 'has called send("to":"ada"), which returned "receipt of send". Is it the same action?' in question.text
    assert "@effect(formerly='send')" in question.text
    start.answer("done")
    outcome = start(lambda: notify("ada"))
    assert (outcome.status, outcome.result, start.done) == ("completed", "receipt of send", ["send"])


def test_a_renamed_parameter_gets_the_hint_that_helps(start: Start) -> None:
    send, now = start.effect("send"), start.effect("send", "address")
    start.first(lambda: send("ada"))
    assert start(lambda: now("ada")).status == "waiting"
    (question,) = start.questions
    assert "its parameter, say so there: @effect(formerly={'to': 'address'})" in question.text


def test_an_answer_is_forgotten_when_its_call_comes_to_nothing(start: Start) -> None:
    """The person has said that it is another action; then its start fails for certain."""
    tries: list[int] = []

    async def notify(to: str) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise NotDone("the line is dead")
        return "told"

    send, told = start.effect("send"), effect(notify)
    start.first(lambda: send("ada"))
    start(lambda: told("ada"))
    start.answer("new")
    outcome = start(lambda: told("ada"))
    assert (outcome.status, outcome.result, len(tries)) == ("completed", "told", 2)


def test_an_effect_that_is_another_action_stays_undone(start: Start) -> None:
    send, notify = start.effect("send"), start.effect("notify")
    start.first(lambda: send("ada"))
    start(lambda: notify("ada"))
    start.answer("new")
    outcome = start(lambda: notify("ada"))
    assert (outcome.status, outcome.result, start.done) == ("completed", "receipt of notify", ["send", "notify"])
    assert "send" in outcome.noticed[-1] and "not called again" in outcome.noticed[-1]


@pytest.mark.parametrize("verified", ["it has happened", "it has not happened: no such mail", "failed: OSError"])
def test_the_question_about_a_renamed_effect_hides_what_verify_says(start: Start, verified: str) -> None:
    async def was_sent(to: str) -> str:
        if "OSError" in verified:
            raise OSError("offline")
        if "not" in verified:
            raise NotDone("no such mail")
        return "receipt"

    send, notify = start.effect("send"), start.effect("notify", verify=was_sent)
    start.first(lambda: send("ada"))
    start(lambda: notify("ada"))
    (question,) = start.questions
    assert "verify of notify says" in question.text and verified in question.text


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["effect", "step"])
@pytest.mark.parametrize(
    ("now", "formerly"),
    [
        (("notify",), "send"),
        (("notify",), ["mail", "send"]),
        (("send", "address"), {"to": "address"}),
        (("notify", "address"), ["send", {"to": "address"}]),
    ],
)
def test_formerly_does_not_find_the_record(start: Start, kind: str, now: tuple[str, ...], formerly: Any) -> None:
    if kind == "step":

        async def before(to: str) -> str:
            start.done.append("send")
            return "receipt of send"

        async def after(to: str) -> str:
            start.done.append("again")
            return ""

        async def other(address: str) -> str:
            start.done.append("again")
            return ""

        first: Any = step(before, name="send")
        second: Any = step(other if "address" in now else after, name=now[0], formerly=formerly)
    else:
        first, second = start.effect("send"), start.effect(*now, formerly=formerly)
    start.first(lambda: first("ada"))
    outcome = start(lambda: second("ada"))
    assert (outcome.status, outcome.result, start.done) == ("completed", "receipt of send", ["send"])
    assert not outcome.noticed


def test_formerly_does_not_find_an_effect_in_doubt(
    workspace: Path, calls: list[str], crash: type[BaseException]
) -> None:
    async def send(to: str, *, key: str) -> str:
        calls.append(key)
        if len(calls) == 1:
            raise crash
        return "sent"

    async def enter(made: Any) -> Any:
        return await made("ada")

    @agent
    async def main(run: Run[Any]) -> Any:
        name = "send" if run.attempt == 1 else "notify"
        return await enter(effect(send, name=name, idempotent=True, formerly=() if name == "send" else "send"))

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "sent"
    assert len(calls) == 2 and calls[0] == calls[1], "the same key"


def test_a_step_inside_a_renamed_step_runs_again(workspace: Path, calls: list[str], crash: type[BaseException]) -> None:
    @step
    async def inner(to: str) -> str:
        calls.append(to)
        return to

    async def outer(to: str) -> str:
        found = await inner(to)
        if len(calls) == 1 and not has_died:
            has_died.append(True)
            raise crash
        return found

    has_died: list[bool] = []

    @agent
    async def main(run: Run[Any]) -> str:
        if run.attempt == 1:
            return await step(outer)("ada")
        return await step(outer, name="renamed", formerly="outer")("ada")

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "ada"
    assert calls == ["ada"]


@pytest.mark.parametrize("formerly", ["", [""], 5, [5], {"to": "nobody"}])
def test_a_wrong_formerly_is_found_at_the_first_call(formerly: Any) -> None:
    async def send(address: str) -> str:
        return address

    with pytest.raises(UsageError, match="formerly"):
        step(send, formerly=formerly)


def test_an_effect_that_is_called_no_more_is_forgotten_without_a_word(start: Start) -> None:
    send = start.effect("send")
    start.first(lambda: send("ada"))

    async def nothing() -> str:
        return "done"

    outcome = start(nothing)
    assert outcome.status == "completed"
    assert outcome.noticed == ['effects of \'mail ada\' were done before and not called again: send("to":"ada")']
    told = 'effects were done and not called again: send("to":"ada") of \'mail ada\''
    assert told in CliRunner().invoke(group, ["status", str(start.workspace)]).output
    assert (
        "effects done before and not called again: send"
        in CliRunner().invoke(group, ["log", str(start.workspace)]).output
    )


def test_a_strict_agent_commits_without_an_effect_that_is_called_no_more(start: Start) -> None:
    send = start.effect("send")
    start.first(lambda: send("ada"))

    async def nothing() -> str:
        return "done"

    assert start(nothing, effects="strict").status == "waiting"
    (question,) = start.questions
    assert "was done by an earlier attempt and returned" in question.text and "Does it stay done?" in question.text
    start.answer("done")
    outcome = start(nothing, effects="strict")
    assert (outcome.status, outcome.result, start.done) == ("completed", "done", ["send"])


def test_a_strict_root_ends_without_an_effect_that_is_called_no_more(
    workspace: Path, crash: type[BaseException]
) -> None:
    @effect
    async def send(to: str) -> str:
        return to

    @agent(effects="strict")
    async def main(run: Run[Any]) -> None:
        if run.attempt == 1:
            await send("ada")
            raise crash

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "waiting"
    satchel.open(str(workspace)).answer("done", "d1", by="tester")
    assert run(workspace, main).status == "completed"


def told_of(workspace: Path) -> tuple[str, str]:
    """What status and log say."""
    status, log = (CliRunner().invoke(group, [name, str(workspace)]).output for name in ("status", "log"))
    return status, log


@pytest.fixture
def mailed(workspace: Path, crash: type[BaseException]) -> Effect[..., str]:
    """A run whose agent has mailed ada by itself, and bob in an item, and has died in that item."""

    @effect
    async def send(to: str) -> str:
        return f"receipt of {to}"

    async def work(run: Run[Any], item: Any) -> None:
        await send("bob")
        raise crash

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["mail bob", "mail eve"])
        await send("ada")
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    return send


def test_effects_of_items_that_stay_open_are_forgotten_when_the_agent_returns(
    workspace: Path, mailed: Effect[..., str]
) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        pass

    outcome = run(workspace, main)
    assert (outcome.status, outcome.open_items) == ("completed", 2)
    assert outcome.noticed == [
        'effects were done before and not called again: send("to":"ada")',
        'effects of \'mail bob\' were done before and not called again: send("to":"bob")',
    ]
    status, log = told_of(workspace)
    assert (
        'effects were done and not called again: send("to":"ada") of the agent, send("to":"bob") of \'mail bob\''
        in (" ".join(status.split()))
    )
    assert "left open   the agent  effects done before and not called again: send" in log
    assert "left open   ^1  effects done before and not called again: send" in log


def test_an_effect_is_called_uncalled_that_an_open_scope_has_called_again(
    workspace: Path, crash: type[BaseException]
) -> None:
    """The scope fails behind it, and the agent returns all the same."""

    @effect
    async def send(to: str) -> str:
        return f"receipt of {to}"

    async def work() -> None:
        await send("bob")
        raise ValueError

    @agent
    async def main(run: Run[Any]) -> None:
        with contextlib.suppress(ValueError):
            await run.scope("mail bob", work)
        if run.attempt == 1:
            raise crash

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "completed" and not outcome.noticed
    assert "not called again" not in "".join(told_of(workspace))


def test_effects_of_an_item_that_the_code_drops_are_forgotten(workspace: Path, mailed: Effect[..., str]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await mailed("ada")
        for text in ("mail bob", "mail eve"):
            await run.todo.cancel(text)

    outcome = run(workspace, main)
    assert outcome.status == "completed"
    assert outcome.noticed == ['effects of \'mail bob\' were done before and not called again: send("to":"bob")']
    status, log = told_of(workspace)
    assert 'effects were done and not called again: send("to":"bob") of \'mail bob\'' in status
    assert "no longer to do, effects done before and not called again: send" in log


def test_what_is_called_again_at_a_later_start_stays_uncalled(workspace: Path, mailed: Effect[..., str]) -> None:
    @agent
    async def nothing(run: Run[Any]) -> None:
        pass

    async def work(run: Run[Any], item: Any) -> None:
        if item.text == "mail bob":
            await mailed("bob")

    @agent
    async def main(run: Run[Any]) -> None:
        await mailed("ada")
        await run.todo.each(work)

    run(workspace, nothing)
    outcome = run(workspace, main)
    assert outcome.status == "completed" and not outcome.noticed
    assert "not called again" not in told_of(workspace)[0]


def test_a_strict_agent_returns_over_open_items_without_their_effects(
    workspace: Path, mailed: Effect[..., str]
) -> None:
    @agent(effects="strict")
    async def main(run: Run[Any]) -> None:
        await mailed("ada")

    assert run(workspace, main).status == "waiting"
    (question,) = satchel.open(str(workspace)).questions()
    assert "Does it stay done?" in question.text and "mail bob" in question.text
    satchel.open(str(workspace)).answer("done", question.id, by="tester")
    assert run(workspace, main).status == "completed"


def test_effects_in_a_gather_are_asked_about_without_need(start: Start) -> None:
    """The second one claims its record after some turns of the loop and a short wait."""
    send, notify = start.effect("send"), start.effect("notify")

    async def later() -> str:
        for _ in range(100):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        return await send("ada")

    start.first(later)

    async def both() -> list[str]:
        return await asyncio.gather(notify("bob"), later())

    outcome = start(both)
    assert (outcome.status, outcome.result) == ("completed", ["receipt of notify", "receipt of send"])


def test_two_new_effects_wait_for_each_other(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for the claims of the other; then the run asks."""
    monkeypatch.setattr("satchel.runtime.engine.effects._PATIENCE", 0.05)
    send, notify, call = start.effect("send"), start.effect("notify"), start.effect("call")
    start.first(lambda: send("ada"))

    async def both() -> Any:
        return await asyncio.gather(notify("bob"), call("bob"))

    assert start(both).status == "waiting"
    assert start.done == ["send"]


def test_a_task_that_waits_for_ever_holds_back_the_question(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.effects._PATIENCE", 0.05)
    send, notify = start.effect("send"), start.effect("notify")
    start.first(lambda: send("ada"))

    async def both() -> Any:
        signal = asyncio.Event()

        async def waits_for_it() -> None:
            await signal.wait()

        async def gives_it() -> None:
            await notify("bob")
            signal.set()

        return await asyncio.gather(waits_for_it(), gives_it())

    assert start(both).status == "waiting"


def test_an_answer_of_a_person_counts_as_an_effect_that_was_not_called_again(workspace: Path) -> None:
    @effect
    async def send(to: str) -> str:
        return to

    async def work(run: Run[Any]) -> str:
        if run.attempt == 1:
            await run.ask("Now?", wait_for=0)
        return await send("ada")

    @agent
    async def main(run: Run[Any]) -> str:
        return await run.scope("work", work, run)

    assert run(workspace, main).status == "waiting"
    satchel.open(str(workspace)).answer("yes", "a1", by="tester")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.noticed) == ("completed", [])


@pytest.mark.parametrize(("kind", "again"), [("step", True), ("effect", False)])
def test_a_recorded_result_of_another_type_leaves_people_without_a_way_on(start: Start, kind: str, again: bool) -> None:
    """The code has given the result another type. The error names the file that has it, and what may be written."""

    async def before(name: str) -> int:
        return 7

    async def now(name: str) -> str:
        return "eight"

    decorate: Any = step if kind == "step" else effect
    measure, spelled = decorate(before, name="measure"), decorate(now, name="measure")
    start.first(lambda: measure("ada"))
    outcome = start(lambda: spelled("ada"))
    assert outcome.status == "failed" and isinstance(outcome.error, UsageError)
    text = str(outcome.error)
    assert 'the recorded result of measure("name":"ada") does not fit its type: Expected `str`, got `int`' in text
    assert ('add `"redo": true`' in text) == again
    path = start.workspace / text.split(": ")[0]
    assert path.exists(), text
    path.write_text(path.read_text().replace('"result": 7', '"result": "seven"'))
    assert start(lambda: spelled("ada")).result == "seven"
