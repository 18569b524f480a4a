"""What `assert_survives` finds, and where it crashes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Item, Partial, Run, agent, effect, step
from satchel.testing import assert_survives
from satchel.workspace.base.errors import UsageError

WORDS = "once upon a time there was a king"
THINK = f'think("text":"{WORDS}")'
SEND = """send("text":"a") of 'a'"""


def streaming(think: Any) -> satchel.Agent:
    @agent
    async def main(run: Run) -> None:
        await think(WORDS)

    return main


def continuing(*, doubles: bool) -> satchel.Agent:
    @step
    async def think(text: str, out: Partial) -> str:
        done = "" if doubles and out.recovered is not None else out.recovered or ""
        for word in text[len(done) :].split(" "):
            await out.write(f"{word} ")
        return out.text.strip()

    return streaming(think)


def sending(sent: list[str], verify: Any = None, **options: Any) -> satchel.Agent:
    @effect(verify=verify, **options)
    async def send(text: str) -> str:
        sent.append(text)
        return f"sent {text}"

    async def work(run: Run, item: Item) -> None:
        run.state[item.text] = await send(item.text)

    @agent
    async def main(run: Run) -> int:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)
        return len(run.state)

    return main


def test_a_doubled_answer_is_found_and_its_crash_can_be_repeated_alone() -> None:
    main = continuing(doubles=True)
    with pytest.raises(
        AssertionError, match=r"the answer of think: 'once upon once upon a time .*, but without"
    ) as found:
        assert_survives(main, crash=f"token 2 of {THINK}")
    assert str(found.value).startswith(f"after a crash at token 2 of {THINK}:\n")
    with pytest.raises(AssertionError, match="the answer of think") as found:
        assert_survives(main)
    named = re.search(r"crash='(.*)'\)", str(found.value))
    assert named is not None
    with pytest.raises(AssertionError, match="the answer of think"):
        assert_survives(main, crash=named[1])


def test_each_write_of_a_streamed_answer_is_a_point() -> None:
    main = continuing(doubles=False)
    survived = assert_survives(main)
    assert survived.crashes == 5 + 8 and not survived.missed
    with pytest.raises(UsageError, match=r"does not come to 'token 99 .*nearest of its points is 'token \d"):
        assert_survives(main, crash=f"token 99 of {THINK}")


def test_a_sample_of_many_points() -> None:
    survived = assert_survives(continuing(doubles=False), at_most=2, seed=7)
    assert survived.crashes == 4 and survived.left_out > 6 and survived.missed == ()
    with pytest.raises(UsageError, match=r"can't try 0 points.* Give 1 or more"):
        assert_survives(continuing(doubles=False), at_most=0)


def test_a_verify_that_denies_what_has_happened() -> None:
    sent: list[str] = []

    def never(text: str) -> str:
        raise satchel.NotDone

    with pytest.raises(AssertionError) as found:
        assert_survives(sending(sent, never), crash=f"return 1 of {SEND}")
    assert f"{SEND}: it had returned, but its verify raises NotDone" in str(found.value)
    assert "the effect send: 3 times, but without a crash 2 times" in str(found.value)


def test_an_effect_that_is_repeated_under_its_key_has_happened_once() -> None:
    sent: list[str] = []
    survived = assert_survives(sending(sent, idempotent=True), crash=f"return 1 of {SEND}")
    assert survived.crashes == 1 and sent == ["a", "b", "a", "a", "b"]


def test_crashes_in_a_sleep_and_at_a_question() -> None:
    @agent
    async def main(run: Run) -> str:
        await run.sleep(0.01)
        return str(await run.ask("Go on?", choices=["yes", "no"]))

    assert assert_survives(main, crash="sleep 1").crashes == 1
    assert assert_survives(main, crash="question 1").crashes == 1
    assert assert_survives(main).missed == ()


# Changed code


def test_a_renamed_effect_asks_and_happens_once() -> None:
    sent: list[str] = []
    told: list[str] = []

    @effect
    async def notify(text: str) -> str:
        told.append(text)
        return f"sent {text}"

    async def work(run: Run, item: Item) -> None:
        run.state[item.text] = await notify(item.text)

    @agent
    async def changed(run: Run) -> int:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)
        return len(run.state)

    survived = assert_survives(sending(sent), changes=[changed])
    assert survived.asked > 0 and survived.crashes > 10


def test_changed_code_must_end_with_its_own_result() -> None:
    def returning(value: int) -> satchel.Agent:
        @step
        async def count() -> int:
            return value

        @agent
        async def main(run: Run) -> int:
            return await count()

        return main

    assert assert_survives(returning(1), changes=[returning(1)]).crashes > 2
    with pytest.raises(AssertionError, match=r"resumed by changes\[0\]:\nthe result: 1, but without a crash 2"):
        assert_survives(returning(1), changes=[returning(2)])


def test_an_effect_that_changed_code_does_again_without_a_question() -> None:
    @effect
    async def send(text: str) -> str:
        return f"sent {text}"

    def sending_in(scope: str) -> satchel.Agent:
        @agent
        async def main(run: Run) -> str:
            return await run.scope(scope, lambda: send("a"))

        return main

    assert assert_survives(sending_in("one"), changes=[sending_in("one")]).asked == 0
    with pytest.raises(
        AssertionError, match=r"send has happened 2 times with equal arguments, and no person was asked"
    ):
        assert_survives(sending_in("one"), changes=[sending_in("two")])


def test_a_wrong_call_of_assert_survives_is_an_error_of_another_module(tmp_path: Path) -> None:
    main = continuing(doubles=False)
    with pytest.raises(UsageError, match=r"is one agent. Give a list: `changes=\[new_agent\]`"):
        assert_survives(main, changes=main)  # type: ignore[arg-type]
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(UsageError, match=r"is not a workspace: it has no workspace\.yaml"):
            assert_survives(main, folder)
