"""One item again with another prompt or setting, in a fork: nothing else is done, and nothing outside happens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make, contents

import satchel
from satchel import Item, Run, agent, effect, step
from satchel.runtime.api import Handle, ReplayResult, typed_changes
from satchel.workspace.base.errors import UsageError
from satchel.workspace.journal import StepCompleted

from .test_forking import data, is_sound

SETTINGS = "settings: {words: 2, models: {writer: small}}\n"


def briefing(calls: list[str], *, parallel: int = 1) -> Any:
    """Sums each item up with a prompt and a model, in a sub-agent for `b`, and mails the sums of `mail`."""

    @step
    async def ask(prompt: str, words: int, model: str) -> str:
        calls.append(f"ask {prompt}")
        return f"{model}: {' '.join(prompt.split()[:words])}"

    @effect
    async def send(text: str) -> str:
        calls.append(f"send {text}")
        return "sent"

    @agent
    async def reader(run: Run[Any], text: str) -> str:
        run.spend(tokens=5)
        return await ask(run.prompt("read", what=text), 9, "reader")

    async def work(run: Run[Any], item: Item) -> str:
        if item.text == "mail":
            return await send(" ".join(run.state.values()))
        words, model = run.settings["words"], run.settings["models"]["writer"]
        text = await run.spawn(reader, "reader", item.text) if item.text == "b" else item.text
        run.spend(tokens=10, usd=0.5)
        run.state[item.text] = await ask(run.prompt("sum", what=text), words, model)
        await run.output(f"{item.text}.txt", run.state[item.text])
        return item.text.upper()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("setup", lambda: calls.append("setup"))
        if not run.todo.items:
            await run.plan("Sums", ["a", "b", "mail"])
        await run.todo.each(work, parallel=parallel)

    return main


def briefed(make: Make, calls: list[str], extra: str = SETTINGS, **options: Any) -> tuple[Handle, Any]:
    """A run that has completed, and its agent."""
    folder = make(extra=extra)
    (folder / "prompts").mkdir()
    (folder / "prompts/sum.md").write_text("Sum up {{what}} well")
    (folder / "prompts/read.md").write_text("Read {{what}} now")
    handle, main = satchel.open(folder), briefing(calls, **options)
    assert handle.run(main).status == "completed"
    calls.clear()
    return handle, main


def there(found: ReplayResult) -> Handle:
    return satchel.open(found.to)


def test_calls_of_a_sub_agent_that_a_return_has_undone_are_compared(make: Make, tmp_path: Path) -> None:
    """The item went on from before them, and has made them again."""
    handle, main = briefed(make, [])
    begun = next(work.begun for work in handle.history.steps().work if work.scope == "2")
    handle.history.rewind(to=begun)
    assert handle.resume(main).status == "completed"
    found = handle.history.replay("^2", tmp_path / "again", agent=main)
    assert found.is_same and found.first.calls == found.second.calls == 2


@pytest.mark.parametrize("parallel", [1, 3])
def test_more_than_the_item_is_done_or_the_first_run_changes(make: Make, tmp_path: Path, parallel: int) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls, parallel=parallel)
    before = contents(Path(handle.url))
    found = handle.history.replay("^1", tmp_path / "again", prompts="Tell me of {{what}}", agent=main)
    assert calls == ["ask Tell me of a"] and contents(Path(handle.url)) == before
    assert (found.end, found.status, found.item, found.title) == ("done", "paused", "^1", "a")
    assert [(change.kind, change.path, change.old, change.new) for change in found.data or ()] == [
        ("changed", "/a", "small: Sum up", "small: Tell me")
    ]
    assert (found.first.result, found.second.result) == ("A", "A") and not found.is_same
    assert (found.first.tokens, found.first.usd, found.second.usd) == (10, 0.5, 0.5)
    assert found.first.outputs.keys() == found.second.outputs.keys() == {"a.txt"}
    (pair,) = found.calls
    assert pair.old and pair.new and pair.old.prompts.keys() == pair.new.prompts.keys() == {"sum"}
    assert found.prompts == pair.new.prompts != pair.old.prompts and not pair.is_same
    fork = there(found)
    assert is_sound(fork) and fork.status().moment.reason == "'a' is replayed"
    ended = fork.resume(main)  # the mail differs from the one that was sent
    assert ended.status == "waiting" and not any(call.startswith("send") for call in calls)


def test_an_item_that_is_replayed_unchanged_differs(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls)
    (Path(handle.url) / "prompts/sum.md").write_text("Another prompt of {{what}}")
    (Path(handle.url) / "prompts/read.md").unlink()
    found = handle.history.replay("2-b", tmp_path / "again", agent=main)
    assert calls == ["ask Read b now", "ask Sum up reader: Read b now well"]
    assert found.is_same and found.data == [] and found.second.tokens == 15
    assert [(pair.agent, pair.is_same) for pair in found.calls] == [("", True), ("reader", True)]


def test_a_replay_does_an_effect(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls)
    same = handle.history.replay("3", tmp_path / "same", agent=main)
    assert same.end == "done" and same.is_same and [pair.kept for pair in same.calls] == [True]
    other = briefing(calls)
    handle.history.rewind(to="^3", forget=True)  # so it is not on record any more
    found = handle.history.replay("^3", tmp_path / "other", agent=other)
    assert calls == [] and (found.end, found.second.state, found.data) == ("effect", "open", None)
    assert "does no effect" in found.reason and 'send("text":"small' in found.reason
    assert there(found).run(other).status == "paused" and calls == []
    assert there(found).resume(other).status == "completed" and len(calls) == 1


def test_a_setting_does_not_count(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls, SETTINGS + "on_drift: refuse\n")
    changed = {"models.writer": "large", "words": 1}
    found = asyncio.run(
        handle.history.replay_async("^1", tmp_path / "again", settings=changed, agent=main, run_id="again")
    )
    assert data(there(found)) == {"a": "large: Sum"} and found.run_id == "again"
    assert any("model settings.models was" in remark.text for remark in found.report)
    assert "settings: {words: 1, models: {writer: large}}" in (tmp_path / "again/workspace.yaml").read_text()


def test_a_run_that_is_held_to_its_prompts_replays_the_old_one(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls, SETTINGS + "prompts: pinned\n")
    text = tmp_path / "new.md"
    text.write_text("New: {{what}}")
    found = handle.history.replay("^2", tmp_path / "again", prompts={"sum": text}, agent=main)
    assert calls == ["ask Read b now", "ask New: reader: Read b now"] and found.end == "done"
    assert there(found).history.prompt("sum", found.prompts["sum"]) == "New: {{what}}"
    there(found).history.redo("^2")
    assert there(found).resume(main).status == "waiting" and "ask New: reader: Read b now" in calls[2:]


def test_what_a_replay_can_not_do_leaves_a_fork(make: Make, tmp_path: Path) -> None:
    handle, main = briefed(make, [])
    to = tmp_path / "again"
    for item, options, says in (
        ("^9", {}, "'^9' has begun"),
        ("^2", {"prompts": "x"}, "it has used read, sum"),
        ("^3", {"prompts": "x"}, "no step of it has used one"),
        ("^1", {"prompts": {"sun": "x"}}, "Did you mean 'prompt.sum'"),
        ("^1", {"prompts": tmp_path / "none.md"}, "none.md"),
        ("^1", {"settings": {"word": 1}}, "there are words, models, prompt.read, prompt.sum"),
        ("^1", {"settings": {"models.reader": 1}}, "no setting 'models.reader'"),
    ):
        with pytest.raises(UsageError, match=says.replace("^", r"\^")):
            handle.history.replay(item, to, agent=main, **options)
        assert not to.exists(), says
    for options, says in (
        ({"agent": "main"}, "'main' is not an agent"),
        ({"watch": object()}, "watch can't be of the type object"),
    ):
        with pytest.raises(UsageError, match=says):
            handle.history.replay("^1", to, **options)
        assert not to.exists(), says
    to.mkdir()
    (to / "mine.txt").touch()
    with pytest.raises(UsageError, match="mine"):
        handle.history.replay("^1", to, agent=main)
    with pytest.raises(UsageError, match="await replay_async"):
        asyncio.run(_called(handle.history.replay, "^1", to))


async def _called(function: Any, *args: Any) -> None:
    function(*args)


def test_a_replay_that_does_not_get_through_looks_done(make: Make, tmp_path: Path) -> None:
    @step(retry=None)
    async def think(how: str) -> str:
        if how == "fails":
            raise TypeError("no")
        return how

    async def work(run: Run[Any], item: Item) -> None:
        how = run.settings["how"]
        if how == "asks":
            await run.ask("Sure?", choices=["yes", "no"], wait_for=0)
        if how == "sleeps":
            await run.sleep(3600)
        run.state[item.text] = await think(how)

    @agent
    async def main(run: Run[Any]) -> None:
        if run.settings["how"] == "misses":
            return
        if run.settings["how"] == "strays":
            await run.scope("other", lambda: None)
        if not run.todo.items:
            await run.plan(None, ["a"])
        await run.todo.each(work)

    handle = satchel.open(make(extra="settings: {how: works}\n"))
    assert handle.run(main).status == "completed"
    other = satchel.open(make(name="other", extra="settings: {how: asks}\n"))
    assert other.run(main).status == "waiting"
    open_ones = other.history.replay("^1", tmp_path / "open", agent=main)
    assert open_ones.first.state == open_ones.second.state == "open" and not open_ones.is_same
    for how, end, reason in (
        ("asks", "waiting", ""),
        ("sleeps", "sleeping", ""),
        ("fails", "failed", "TypeError: no"),
        ("misses", "missed", ""),
        ("strays", "missed", "began 'other' before it"),
    ):
        found = handle.history.replay("^1", tmp_path / how, settings={"how": how}, agent=main)
        assert found.end == end and reason in found.reason and found.data is None, (how, found)
        assert not found.is_same and is_sound(there(found))
        assert [question.id for question in found.questions] == (["a1"] if how == "asks" else [])
        assert (found.failure is not None) == (how == "fails")


def test_only_the_last_time_of_a_redone_item_is_compared(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls)
    prompt = Path(handle.url) / "prompts/sum.md"
    prompt.write_text("Shorten {{what}} well")
    handle.history.redo("^1")
    assert handle.resume(main).status == "completed"
    calls.clear()
    found = handle.history.replay("^1", tmp_path / "again", agent=main, settings={"words": 1})
    assert calls == ["ask Shorten a well"]
    assert [(each.path, each.old, each.new) for each in found.data or ()] == [
        ("/a", "small: Shorten a", "small: Shorten")
    ]
    (pair,) = found.calls
    assert pair.new and (pair.new.result, pair.old and pair.old.result) == ("small: Shorten", "small: Shorten a")


def test_a_named_scope_can_not_be_replayed(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls)
    found = handle.history.replay("_setup", tmp_path / "again", agent=main)
    assert calls == ["setup"] and found.end == "done" and found.is_same
    assert not [row for row in there(found).history.log() if isinstance(row.line.record, StepCompleted)]


def test_words_of_the_command_line_mean_something_else(make: Make, tmp_path: Path) -> None:
    handle, _ = briefed(make, [], "settings: {words: 2, models: {writer: small}, prompt.tone: dry}\n")
    text = tmp_path / "new.md"
    text.write_text("x")
    words = ["words=3", "models.writer=large", "prompt=Be brief", f"prompt.sum=@{text}", "prompt.tone=warm"]
    assert typed_changes(handle, words) == (
        {"words": 3, "models.writer": "large", "prompt.tone": "warm"},
        {"": "Be brief", "sum": text},
    )
    for word, says in (
        ("words", "is not KEY=VALUE"),
        ("prompt=new.md", "@new.md"),
        (f"prompt={text}", "with @"),
        ("prompt.sum=", "@FILE"),
    ):
        with pytest.raises(UsageError, match=says):
            typed_changes(handle, [word])


def test_a_replay_can_not_be_replayed(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = briefed(make, calls)
    first = there(handle.history.replay("^1", tmp_path / "one", agent=main, prompts="One {{what}}"))
    found = first.history.replay("^1", tmp_path / "two", agent=main, prompts="Two {{what}}")
    assert calls == ["ask One a", "ask Two a"] and found.end == "done"
    assert json.loads((tmp_path / "two/state.json").read_text())["data"] == {"a": "small: Two a"}


def mailing(calls: list[str], *, mails: bool = True) -> Any:
    """Each item starts the sub-agent `reader` again, which plans one item and mails what it has read."""

    @step
    async def ask(text: str) -> str:
        return text.upper()

    @effect
    async def send(text: str) -> str:
        calls.append(f"send {text}")
        return "sent"

    async def reading(run: Run[Any], item: Item) -> None:
        run.spend(tokens=1)
        run.state[item.text] = await ask(item.text)
        if mails:
            await send(run.state[item.text])

    @agent
    async def reader(run: Run[Any], text: str) -> str:
        await ask(f"outside {text}")
        if not run.todo.items:
            await run.plan(None, [f"read {text}"])
        else:
            await run.todo.add(f"read {text}")
        await run.todo.each(reading)
        return text

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await run.spawn(reader, "reader", item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)

    return main


@pytest.mark.parametrize("item", ["a", "b"])
def test_the_calls_of_a_sub_agent_that_several_items_start_are_mixed_up(make: Make, tmp_path: Path, item: str) -> None:
    calls: list[str] = []
    handle, main = satchel.open(make()), mailing(calls)
    assert handle.run(main).status == "completed"
    calls.clear()
    found = handle.history.replay("^1" if item == "a" else "^2", tmp_path / "again", agent=main)
    assert [pair.old.call for pair in found.calls if pair.old] == [
        f'("text":"outside {item}")',
        f'("text":"read {item}")',
        f'("text":"READ {item.upper()}")',
    ]
    assert [(pair.is_same, pair.kept) for pair in found.calls] == [(True, False), (True, False), (True, True)]
    assert found.is_same and found.end == "done" and calls == []
    assert (found.first.tokens, found.second.tokens, found.first.calls) == (1, 1, 3)


def test_an_effect_that_a_replay_has_not_called_looks_called(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make())
    assert handle.run(mailing([])).status == "completed"
    found = handle.history.replay("^1", tmp_path / "again", agent=mailing([], mails=False))
    assert found.end == "done" and not found.is_same
    assert [(pair.old.step, pair.new is None, pair.kept) for pair in found.calls if pair.old and not pair.is_same] == [
        ("send", True, False)
    ]


def test_an_item_that_was_undone_is_compared_with_nothing(make: Make, tmp_path: Path) -> None:
    handle, main = satchel.open(make()), mailing([])
    assert handle.run(main).status == "completed"
    handle.history.rewind(to="^1")
    found = handle.history.replay("^2", tmp_path / "again", agent=main)
    assert [(pair.is_same, pair.kept) for pair in found.calls] == [(True, False), (True, False), (True, True)]
    assert found.end == "done" and found.is_same
    assert found.first.state == found.second.state == "committed"
