"""The conversation: what was committed, in order, whatever happened; and a slice costs what is in it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Run, agent, run, step
from satchel.workspace.base.errors import UsageError
from satchel.workspace.store import DiskStore, FileContent, Version
from satchel.workspace.views import projector
from satchel.workspace.views.conversation import KEPT, NAME

Work = Callable[[Run[Any]], Awaitable[Any]]


def done(place: Path | DiskStore, main: Work) -> Any:
    outcome = run(place, agent(main))
    if outcome.error:
        raise outcome.error
    assert outcome.status == "completed"
    return outcome.result


def scope_of(name: str, *contents: Any) -> Work:
    """An agent that says so much in one scope, unless it has."""

    async def say(run: Run[Any]) -> None:
        for content in contents:
            run.messages.add("user", content)

    async def main(run: Run[Any]) -> list[Any]:
        await run.scope(name, say, run)
        return [message["content"] for message in run.messages.all()]

    return main


def said(workspace: Path) -> list[Any]:
    return [json.loads(line)["content"] for line in (workspace / NAME).read_text().splitlines()]


def test_a_scope_that_fails_leaves_no_message(workspace: Path) -> None:
    async def fail(run: Run[Any]) -> None:
        run.messages.add("user", "never said")
        assert len(run.messages.all()) == len(run.messages) == 2
        raise ValueError

    async def main(run: Run[Any]) -> None:
        await scope_of("before", "said")(run)
        with pytest.raises(ValueError):
            await run.scope("fails", fail, run)
        assert [message["content"] for message in run.messages.all()] == ["said"] and len(run.messages) == 1
        await scope_of("after", "said again")(run)
        assert [message["content"] for message in run.messages.all()] == ["said", "said again"]

    done(workspace, main)
    assert said(workspace) == ["said", "said again"]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    "change",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole + b'{"seq":7,"at":"2026-01-01T00:00:00Z","ro',
        lambda whole: b"\0" * len(whole),
        None,
    ],
    ids=["emptied", "no end", "cut", "unfinished line", "zeroed", "deleted"],
)
@pytest.mark.parametrize("crashes", [False, True])
def test_a_file_that_lost_its_end_is_restored_and_not_believed(
    workspace: Path, crash: type[BaseException], crashes: bool, change: Any
) -> None:
    contents = [f"number {number}" for number in range(5)]
    shown: list[Any] = []

    async def main(run: Run[Any]) -> None:
        await scope_of("first", *contents)(run)
        shown.append(run.messages.slice(last=3))
        if run.attempt == 1:
            await run.checkpoint()
            raise crash if crashes else ValueError
        await scope_of("second", "more")(run)

    with pytest.raises(crash if crashes else ValueError):
        done(workspace, main)
    whole = (workspace / NAME).read_bytes()
    if change:
        (workspace / NAME).write_bytes(change(whole))
    else:
        (workspace / NAME).unlink()
    done(workspace, main)
    assert shown[0] == shown[1] and said(workspace) == [*contents, "more"]
    assert (workspace / NAME).read_bytes().startswith(whole)
    if change and b"ro" in change(whole)[len(whole) :]:
        assert (workspace / "messages.rejected.jsonl").read_bytes() == change(whole)


# The slice


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize(
    "asked, expected",
    [
        ({}, "abcdef"),
        ({"last": 2}, "ef"),
        ({"last": 0}, ""),
        ({"last": 99}, "abcdef"),
        ({"tokens": 30}, "def"),
        ({"tokens": 29}, "ef"),
        ({"tokens": 10}, "f"),
        ({"tokens": 0}, "f"),
        ({"tokens": 10**9}, "abcdef"),
        ({"tokens": 30, "last": 2}, "ef"),
        ({"tokens": 20, "last": 5}, "ef"),
        ({"tokens": 0, "last": 0}, ""),
    ],
)
@pytest.mark.parametrize("at_work", range(4))
def test_a_slice_is_the_newest_that_fit_oldest_first(
    workspace: Path, asked: dict[str, int], expected: str, at_work: int
) -> None:
    """Wherever the messages are: of the scope at work, committed, in the file."""

    async def work(run: Run[Any]) -> list[Any]:
        for letter in "abcdef"[6 - at_work :]:
            run.messages.add("user", letter)
        return run.messages.slice(**asked, count=lambda text: 10 * len(text))

    async def main(run: Run[Any]) -> list[Any]:
        await scope_of("before", *"abcdef"[: 6 - at_work])(run)
        return await run.scope("work", work, run)

    assert done(workspace, main) == [{"role": "user", "content": letter} for letter in expected]


@pytest.mark.parametrize(
    "content, text, tokens",
    [
        ("x" * 40, "x" * 40, 14),
        ("", "", 4),
        ("x", "x", 5),
        ("\u4e2d\u6587" * 6, "\u4e2d\u6587" * 6, 13),
        ({"a": ["\u00e9", 1]}, '{"a":["\u00e9",1]}', 8),
        (None, "null", 5),
    ],
)
def test_what_a_message_takes_is_counted_of_its_text_or_its_json(
    workspace: Path, content: Any, text: str, tokens: int
) -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return 0

    async def main(run: Run[Any]) -> None:
        await scope_of("said", content, content)(run)
        run.messages.slice(tokens=1, count=count)
        assert len(run.messages.slice(tokens=2 * tokens)) == 2
        assert len(run.messages.slice(tokens=2 * tokens - 1)) == 1

    done(workspace, main)
    assert counted == [text, text]


@pytest.mark.parametrize("asked", [{"last": -1}, {"tokens": -1}])
def test_a_negative_slice_is_refused(workspace: Path, asked: dict[str, int]) -> None:
    async def main(run: Run[Any]) -> None:
        run.messages.slice(**asked)

    with pytest.raises(UsageError, match=next(iter(asked))):
        done(workspace, main)


def test_what_the_agent_does_to_a_slice_is_not_done_to_the_conversation(workspace: Path) -> None:
    async def work(run: Run[Any]) -> None:
        content = {"text": "as it was said"}
        run.messages.add("user", content)
        content["text"] = "changed"
        for _ in range(2):
            (shown,) = run.messages.slice()
            assert shown["content"] == {"text": "as it was said"}
            shown["content"]["text"] = "changed"

    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)
        run.messages.all()[0]["content"].clear()
        assert run.messages.all()[0]["content"] == {"text": "as it was said"}

    done(workspace, main)


def test_a_step_in_a_thread_can_take_a_slice(workspace: Path) -> None:
    @step
    def ask(number: int, run: Run[Any]) -> int:
        shown = run.messages.slice(tokens=10**6)
        assert shown == run.messages.all() and len(shown) == len(run.messages)
        return len(shown)

    async def work(run: Run[Any], number: int) -> int:
        run.messages.add("user", "x" * 1000)
        return await ask(number)

    async def main(run: Run[Any]) -> list[int]:
        return [await run.scope(f"work {number}", work, run, number) for number in range(150)]

    assert done(workspace, main) == list(range(1, 151))


def test_agents_have_conversations_of_their_own(workspace: Path) -> None:
    async def main(run: Run[Any]) -> list[Any]:
        inner = agent(scope_of("inner", "inside"))
        return [await scope_of("outer", "outside")(run), await run.spawn(inner, "inner"), len(run.messages)]

    assert done(workspace, main) == [["outside"], ["inside"], 1]
    assert (said(workspace), said(workspace / "agents/inner")) == (["outside"], ["inside"])


# Lagging, and what it costs


def test_a_slice_is_whole_while_the_file_lags_behind(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projector, "SHARE", 10**9)  # one file is written, and then none until the stop
    lengths = []

    async def main(run: Run[Any]) -> None:
        for number in range(5):
            contents = await scope_of(f"scope {number}", f"number {number}")(run)
            assert contents == [f"number {each}" for each in range(number + 1)]
            lengths.append(len(said(workspace)) if (workspace / NAME).exists() else 0)

    done(workspace, main)
    assert lengths[-1] < 5 and len(said(workspace)) == 5


class Counting(DiskStore):
    """Counts the bytes of messages.jsonl that are read and written."""

    taken = given = 0

    def read(self, path: str, *, limit: int = 1 << 30) -> FileContent:
        found = super().read(path, limit=limit)
        self.taken += len(found.data) * (path == NAME)
        return found

    def tail(self, path: str, size: int) -> bytes:
        found = super().tail(path, size)
        self.taken += len(found) * (path == NAME)
        return found

    def create(self, path: str, data: bytes) -> Version:
        self.given += len(data) * (path == NAME)
        return super().create(path, data)

    def append(self, path: str, data: bytes, **how: Any) -> Version:
        self.given += len(data) * (path == NAME)
        return super().append(path, data, **how)

    def replace(self, path: str, data: bytes, **how: Any) -> Version:
        self.given += len(data) * (path == NAME)
        return super().replace(path, data, **how)


def test_a_slice_costs_what_is_in_it_and_not_the_conversation(workspace: Path) -> None:
    contents = [f"number {number} " + "x" * 100 for number in range(20_000)]
    store = Counting(workspace)

    async def say_all(run: Run[Any]) -> None:
        for content in contents:
            run.messages.add("user", content)

    async def first(run: Run[Any]) -> None:
        await run.scope("long", say_all, run)
        store.taken = 0
        assert [each["content"] for each in run.messages.slice(last=5)] == contents[-5:]
        assert store.taken <= 2 * KEPT
        raise ValueError

    async def second(run: Run[Any]) -> None:
        store.taken = 0
        assert len(run.messages) == 20_000
        assert [each["content"] for each in run.messages.slice(last=5)] == contents[-5:]
        assert store.taken <= KEPT, "the opening does not read a long one, so its end is read now"
        shown = run.messages.slice(last=3000)
        assert [each["content"] for each in shown] == contents[-3000:]
        assert 0 < store.taken < 4 * 180 * 3000
        store.taken = 0
        for number in range(20):
            await run.scope(f"more {number}", lambda: run.messages.add("user", f"more {number}"))  # noqa: B023
            assert run.messages.slice(last=1)[0]["content"] == f"more {number}"
            assert len(run.messages.slice(last=3000)) == 3000
        assert store.taken == 0, "what is added is known, and what was read is not read again"

    with pytest.raises(ValueError):
        done(store, first)
    written = store.given
    assert written == (workspace / NAME).stat().st_size
    done(store, second)
    assert store.given == (workspace / NAME).stat().st_size, "it is only ever appended to"
