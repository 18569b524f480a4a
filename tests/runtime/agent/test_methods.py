"""Methods as steps and effects: the object is not an argument."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from satchel import Key, NotDone, Partial, Run, agent, effect, run, step


class Mailbox:
    kind = "mailbox"

    def __init__(self, host: str, calls: list[Any]):
        self.host, self.calls = host, calls

    @step
    async def read(self, number: int) -> str:
        self.calls.append(("read", self.host, number))
        return f"{self.host} {number}"

    @step
    def count(self) -> int:
        self.calls.append(("count", self.host))
        return len(self.calls)

    @step
    async def tell(self, out: Partial, text: str) -> str:
        await out.write(f"{self.host}: {text}")
        return out.text

    def was_sent(self, text: str, key: str) -> str:
        self.calls.append(("was_sent", self.host, text, len(key)))
        raise NotDone

    @effect(verify=was_sent)
    async def send(self, key: Key, text: str) -> str:
        self.calls.append(("send", self.host, text))
        if len([each for each in self.calls if each[0] == "send"]) == 1:
            raise TimeoutError
        return f"{text} {len(key)}"

    @staticmethod
    @step
    async def parse(text: str) -> int:
        return int(text)

    @step
    @staticmethod
    async def parsed(text: str) -> int:
        return int(text)

    @classmethod
    @step
    async def newest(cls, number: int) -> str:
        return f"{cls.kind} {number}"

    @step
    @classmethod
    async def oldest(cls, number: int) -> str:
        return f"{cls.kind} {number}"


class Spool(Mailbox):
    kind = "spool"


def test_methods_are_steps_whose_object_is_not_recorded(workspace: Path, crash: Any) -> None:
    calls: list[Any] = []

    @agent
    async def main(run: Run) -> list[Any]:
        box = Mailbox("here", calls)
        found = [await box.read(1), await box.read(number=2), await Mailbox.read(box, 3), await box.count()]
        if run.attempt == 1:
            raise crash
        return [*found, await box.tell("hello")]

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["here 1", "here 2", "here 3", 4, "here: hello"]
    assert calls == [("read", "here", 1), ("read", "here", 2), ("read", "here", 3), ("count", "here")]
    records = [json.loads(line) for line in (workspace / "journal/000000000001.jsonl").read_text().splitlines()]
    assert [each["call"] for each in records if each.get("step") == "read"] == [f'("number":{n})' for n in (1, 2, 3)]


def test_equal_calls_of_two_objects_are_told_apart_by_their_order(workspace: Path) -> None:
    calls: list[Any] = []

    @agent
    async def main(run: Run) -> list[str]:
        boxes = [Mailbox("a", calls), Mailbox("b", calls)]
        found = [await each.read(1) for each in (boxes if run.attempt == 1 else reversed(boxes))]
        if run.attempt == 1:
            raise ValueError
        return found

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == ["a 1", "b 1"]


def test_the_verify_of_a_method_gets_the_object_too(workspace: Path) -> None:
    calls: list[Any] = []

    @agent
    async def main(run: Run) -> str:
        box = Mailbox("here", calls)
        if run.attempt == 1:
            with pytest.raises(TimeoutError):
                await box.send("hello")
            raise ValueError
        return await box.send("hello")

    run(workspace, main)
    assert run(workspace, main).result == "hello 32"
    assert calls == [("send", "here", "hello"), ("was_sent", "here", "hello", 32), ("send", "here", "hello")]


def test_static_and_class_methods_are_steps_in_both_orders(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> list[Any]:
        box = Spool("here", [])
        return [
            await box.parse("1"),
            await Mailbox.parse("2"),
            await box.parsed("3"),
            await Mailbox.parsed("4"),
            await box.newest(5),
            await Mailbox.newest(6),
            await box.oldest(7),
            await Mailbox.oldest(8),
        ]

    assert run(workspace, main).result == [1, 2, 3, 4, "spool 5", "mailbox 6", "spool 7", "mailbox 8"]


def test_a_class_method_that_python_binds_itself_gets_its_class(workspace: Path) -> None:
    """From Python 3.13 on a class method binds what it wraps without asking it."""
    calling = Mailbox.__dict__["oldest"]

    @step
    @classmethod
    async def unused(cls: type, number: int) -> str:
        return ""

    @agent
    async def main(run: Run) -> str:
        found: str = await calling(Spool, 9)
        return found

    assert run(workspace, main).result == "spool 9"
    assert unused.name == "unused"


def test_a_bound_method_a_partial_and_a_closure_are_steps(workspace: Path) -> None:
    calls: list[Any] = []

    def greeting(word: str) -> Any:
        @step
        async def greet(name: str) -> str:
            return f"{word} {name}"

        return greet

    async def add(a: int, b: int) -> int:
        return a + b

    @agent
    async def main(run: Run) -> list[Any]:
        read = step(Mailbox("here", calls).read.function)
        return [await read(1), await step(name="add one")(partial(add, 1))(2), await greeting("Dear")("Ada")]

    assert run(workspace, main).result == ["here 1", 3, "Dear Ada"]


def test_a_method_outside_a_run_is_a_plain_method() -> None:
    calls: list[Any] = []
    assert Mailbox("here", calls).count() == 1  # type: ignore[comparison-overlap]
    assert repr(Mailbox.count) == repr(Mailbox("", calls).count) == "<step count>"
