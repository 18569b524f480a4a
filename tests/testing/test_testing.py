"""`satchel.testing`, used as the tests of an agent would use it; and what it must find."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Item, Key, Partial, Run, agent, effect, step
from satchel.testing import MemoryPartial, assert_survives, call, crash_after, fake_run
from satchel.workspace.base.errors import UsageError

ROOT = Path(__file__).parents[2]


@step
async def shout(text: str) -> str:
    return text.upper()


@step
async def think(text: str, out: Partial) -> str:
    for word in text.split():
        await out.write(f"{word} ")
    return out.text


@step
async def ask(text: str, run: Run) -> str:
    return f"{text} {run.state}"


class Post:
    """What the effects act on: letters by key."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    @property
    def doubled(self) -> list[tuple[str, str]]:
        return [letter for letter, count in Counter(self.sent).items() if count > 1]


def mailing(post: Post, verify: Any = None) -> satchel.Agent:
    @effect(verify=verify)
    async def send(text: str, *, key: str) -> str:
        post.sent.append((key, text))
        return f"sent {text}"

    async def work(run: Run, item: Item) -> None:
        text = await shout(item.text)
        await think(text)
        run.state[item.text] = await send(text)
        await run.output(f"{item.text}.txt", text)

    @agent
    async def main(run: Run) -> int:
        if not run.todo.items:
            await run.plan("Letters", ["a", "b"])
        await run.todo.each(work)
        return len(run.state)

    return main


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def call(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return call


# Calls


@in_loop
async def test_parts_that_satchel_fills_in_are_made() -> None:
    @effect
    def send(text: str, key: Key) -> str:
        return f"{text} under {key}"

    assert await call(shout, "a") == "A"
    assert await call(send, "a") == "a under test-key"
    assert await call(send, "a", key="k1") == "a under k1"
    assert await call(think, text="a b") == "a b "


@in_loop
async def test_a_streamed_step_continues_what_the_test_gives_it() -> None:
    @step
    async def go_on(text: str, out: Partial) -> str:
        assert out.recovered == "once "
        await out.write(text)
        return out.text

    out = MemoryPartial(recovered="once ")
    assert await call(go_on, "upon a", out=out) == "once upon a"
    assert out.pieces == ["upon a"] and out.has_new and not out.has_restarted


def test_the_rest_of_an_answer_is_asked_for_in_ones_own_words() -> None:
    said, asked = (out := MemoryPartial(recovered="once ")).continuation
    assert said == {"role": "assistant", "content": "once "}
    assert asked["role"] == "user" and asked["content"].startswith("Your answer was cut off. Continue with its next")
    assert not out.has_restarted and MemoryPartial().continuation == MemoryPartial(recovered="").continuation == []


@in_loop
async def test_a_streamed_step_that_ignores_the_recovered_text_doubles_it() -> None:
    out = MemoryPartial(recovered="upon ")
    assert await call(think, "upon a", out=out) == "upon a "
    assert out.has_restarted


@in_loop
async def test_a_call_that_can_not_be_made() -> None:
    with pytest.raises(UsageError, match=r"ask needs a run.*call\(ask, \.\.\., run=run\)"):
        await call(ask, "a")
    with pytest.raises(UsageError, match="len is neither a step nor an effect"):
        await call(len, [])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"shout\(\): missing a required argument"):
        await call(shout)


# A run for a test


@in_loop
async def test_a_run_for_a_function_that_takes_one(tmp_path: Path) -> None:
    async def work(run: Run, item: Item) -> None:
        run.state[item.text] = await shout(item.text)

    async with fake_run(["a", "b"], folder=tmp_path) as run:
        assert await call(ask, "it is", run=run) == "it is {}"
        await run.todo.each(work)
        assert run.state == {"a": "A", "b": "B"}
    assert satchel.open(tmp_path).status().state == "completed"
    assert "- [x] a ^1" in (tmp_path / "todo.md").read_text()


@in_loop
async def test_a_run_in_a_temporary_folder_has_the_state_of_its_agent() -> None:
    @agent(state=dict[str, int])
    async def counting(run: Run[dict[str, int]]) -> None:
        raise AssertionError("it is not called")

    async with fake_run(agent=counting) as run:
        await run.scope("count", lambda: run.state.update(n=1))
        assert run.state == {"n": 1}


@in_loop
async def test_errors_of_the_body_and_of_the_run_are_raised() -> None:
    with pytest.raises(KeyError, match="body"):
        async with fake_run() as run:
            raise KeyError("body")
    with pytest.raises(satchel.SatchelError, match="changed outside a scope"):
        async with fake_run() as run:
            run.state["n"] = 1


# Crashes


def test_each_crash_is_resumed_where_it_was(tmp_path: Path) -> None:
    post = Post()
    for records in (1, 4, 7, 12):
        folder = tmp_path / f"{records}"
        folder.mkdir()
        (folder / "workspace.yaml").write_text("format: 1\nrun_id: test\nagent: agent.py:main\n")
        outcome = crash_after(records, folder, mailing(post))
        assert outcome.status in ("completed", "waiting")
        assert not post.doubled


def test_a_crash_that_does_not_come(satchel_folder: Path) -> None:
    with pytest.raises(UsageError, match="the run stopped before its record 1000"):
        crash_after(1000, satchel_folder, mailing(Post()))
    with pytest.raises(UsageError, match="Give 1 or more"):
        crash_after(0, satchel_folder, mailing(Post()))


@pytest.fixture
def satchel_folder(tmp_path: Path) -> Path:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: test\nagent: agent.py:main\n")
    return tmp_path


def test_an_agent_that_survives_everything(satchel_folder: Path) -> None:
    post = Post()
    before = sorted(satchel_folder.rglob("*"))
    survived = assert_survives(mailing(post), satchel_folder)
    assert survived.crashes > 12 and survived.answered >= 2
    assert not post.doubled and len(post.sent) > 20
    assert sorted(satchel_folder.rglob("*")) == before


def test_an_effect_that_can_be_verified_needs_no_person() -> None:
    post = Post()

    def look(text: str, *, key: str) -> str:
        if (key, text) not in post.sent:
            raise satchel.NotDone
        return f"sent {text}"

    assert assert_survives(mailing(post, look)).answered == 0
    assert not post.doubled


def test_an_agent_that_keeps_something_outside_of_the_run() -> None:
    seen: list[str] = []

    async def work(run: Run, item: Item) -> None:
        seen.append(await shout(item.text))
        run.state[item.text] = len(seen)

    @agent
    async def main(run: Run) -> None:
        seen.clear()
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)

    with pytest.raises(AssertionError, match=r"after a crash at record \d+:\nthe data in state.json: .*'b': 1"):
        assert_survives(main)


def test_an_agent_whose_verify_is_wrong() -> None:
    post = Post()

    def wrong(text: str, *, key: str) -> str:
        return "nothing was sent"

    with pytest.raises(AssertionError, match="nothing was sent"):
        assert_survives(mailing(post, wrong))


def test_an_agent_that_fails_without_a_crash_too() -> None:
    @agent
    async def main(run: Run) -> None:
        await shout("a")
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        assert_survives(main)


@in_loop
async def test_in_a_running_loop_it_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"crash_after.. can't be called where .*asyncio.to_thread"):
        crash_after(1, "nowhere", mailing(Post()))
    with pytest.raises(UsageError, match=r"assert_survives.. can't be called where .*asyncio.to_thread"):
        assert_survives(mailing(Post()))

    @agent
    async def main(run: Run) -> str:
        return await shout("a")

    assert (await asyncio.to_thread(assert_survives, main)).crashes > 2


# The plugin

TESTS = """
import pytest
from satchel import agent, step

@step
async def shout(text: str) -> str:
    return text.upper()

async def work(run, item):
    run.state[item.text] = await shout(item.text)

def test_with_a_run(satchel_run, satchel_workspace):
    import asyncio

    async def body():
        async with satchel_run(["a"]) as run:
            await run.todo.each(work)
            assert run.state == {"a": "A"}

    asyncio.run(body())
    assert "- [x] a" in (satchel_workspace / "todo.md").read_text()
"""


def test_the_fixtures_of_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "test_agent.py").write_text(TESTS)
    plugin = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]["satchel"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_agent.py"]
    installed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "fixture 'satchel_run' not found" in installed.stdout:  # an editable copy older than the entry point
        installed = subprocess.run([*command, "-p", plugin], cwd=tmp_path, capture_output=True, text=True)
    assert "1 passed" in installed.stdout, installed.stdout
