"""Dicts whose keys are no text: as arguments, results and messages they come back by their annotation, or are refused
with the place."""

from __future__ import annotations

import datetime
import enum
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

from satchel import Run, UsageError, agent, effect, run, step
from satchel.runtime.agent import Codec, canonical, encode
from satchel.runtime.engine.open_scope import digest_of
from satchel.workspace.base.errors import NotSerializable
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore


class Color(enum.Enum):
    RED = "red"


@dataclass
class Holder:
    by: dict[int, str] = field(default_factory=dict)


class Model(pydantic.BaseModel):
    by: dict[int, str] = {}


class Mixed(pydantic.BaseModel):
    by: dict[Any, str] = {}


DAY = datetime.date(2026, 1, 2)
TWICE: list[Any] = [
    ({1: "x", "1": "y"}, ""),
    ({DAY: "x", "2026-01-02": "y"}, ""),
    ({Color.RED: "x", "red": "y"}, ""),
    ({uuid.UUID(int=1): "x", str(uuid.UUID(int=1)): "y"}, ""),
    ({1.5: "x", "1.5": "y"}, ""),
    ([0, {"a": {1: "x", "1": "x"}}], "[1].a"),
    (Holder({1: "x", "1": "y"}), ".by"),  # type: ignore[dict-item]
    (Mixed(by={1: "x", "1": "y"}), ".by"),
    ([Mixed(by={1: "x", "1": "y"})], "[0].by"),
]


@pytest.mark.parametrize(("value", "place"), TWICE)
@pytest.mark.parametrize("form", [encode, canonical])
def test_one_of_two_keys_with_the_same_text_is_lost(form: Any, value: Any, place: str) -> None:
    with pytest.raises(NotSerializable) as caught:
        form(value, "what")
    assert str(caught.value).startswith(f"what{place} can't be kept: the keys ")
    assert "have the same text" in str(caught.value)


@pytest.mark.parametrize("way", ["argument", "result", "effect", "message", "spawn", "question"])
def test_a_run_loses_one_of_two_keys_without_a_word(workspace: Path, way: str) -> None:
    value: Any = {"a": {1: "x", "1": "y"}}

    @step
    async def take(given: Any) -> Any:
        return given

    @step
    async def give() -> Any:
        return value

    @effect
    async def act(given: Any) -> None: ...

    @agent
    async def child(run: Run, given: Any) -> None: ...

    async def work(run: Run) -> None:
        if way == "argument":
            await take(value)
        elif way == "result":
            await give()
        elif way == "effect":
            await act(value)
        elif way == "message":
            run.messages.add("user", value)
        elif way == "spawn":
            await run.spawn(child, "child", value)
        else:
            await run.ask("Go?", context=value, wait_for=0)

    @agent
    async def main(run: Run) -> None:
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable), outcome
    assert ".a can't be kept: the keys 1 and '1' have the same text" in str(outcome.error)


def test_the_result_of_a_step_can_not_be_the_argument_of_the_next(workspace: Path, crash: Any) -> None:
    """It has keys of its annotation, at the first call and after a crash, and the calls are the same ones."""
    made: list[str] = []
    is_first = [True]

    @step
    async def count() -> dict[int, str]:
        made.append("count")
        return {7: "seven", 8: "eight"}

    @step
    async def extend(known: dict[int, str], days: dict[datetime.date, Holder]) -> dict[int, str]:
        made.append("extend")
        return {**known, 9: days[DAY].by[1]}

    @effect
    async def post(known: dict[int, str]) -> dict[int, str]:
        made.append("post")
        return known

    @agent
    async def child(run: Run, known: dict[int, str]) -> dict[int, str]:
        assert all(type(key) is int for key in known)
        return known

    @agent
    async def main(run: Run) -> dict[int, str]:
        async def work() -> dict[int, str]:
            known = await extend(await count(), {DAY: Holder({1: "nine"})})
            known = await post(known)
            if is_first:
                is_first.clear()
                raise crash
            await run.ask("Go?", context=known, wait_for=0) if len(made) > 9 else None
            return await run.spawn(child, "child", known)

        return await run.scope("work", work)

    with pytest.raises(crash):
        run(workspace, main)
    result = run(workspace, main).raise_for_status().result
    assert result == {7: "seven", 8: "eight", 9: "nine"} and made == ["count", "extend", "post"]


def test_an_input_with_other_keys_is_refused(workspace: Path) -> None:
    @agent
    async def main(run: Run, by: dict[int, str], model: Model) -> list[Any]:
        return [{str(type(key).__name__): value for key, value in by.items()}, model.by[3]]

    outcome = run(workspace, main, {7: "a"}, Model(by={3: "b"}))
    assert outcome.raise_for_status().result == [{"int": "a"}, "b"]
    assert run(workspace, main, {7: "a"}, Model(by={3: "b"})).raise_for_status().result == [{"int": "a"}, "b"]


def test_an_input_that_no_start_could_read_is_recorded(workspace: Path) -> None:
    """Its type encodes to what it does not decode."""

    class OneWay(pydantic.BaseModel):
        when: int = 0

        @pydantic.field_serializer("when")
        def said(self, value: int) -> str:
            return f"at {value}"

    @agent
    async def main(run: Run, given: OneWay) -> None: ...

    main.function.__annotations__["given"] = OneWay
    with pytest.raises(UsageError, match="does not fit its type"):
        run(workspace, main, {"when": 1})
    assert look(DiskStore(workspace)).moment.is_new


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [{"d": 1.0, "c": None}]}, b'{"a":[{"c":null,"d":1.0}],"b":1}'),
        ({10: 1, 9: 2}, b'{"10":1,"9":2}'),
        ({"x": Model(by={2: "b", 1: "a"})}, b'{"x":{"by":{"1":"a","2":"b"}}}'),
        (Holder({2: "b", 1: "a"}), b'{"by":{"1":"a","2":"b"}}'),
    ],
)
def test_equal_arguments_have_different_texts(value: Any, text: bytes) -> None:
    """And those with text as keys the same as ever: finished calls keep their results."""
    assert canonical(value, "what") == text
    assert digest_of(canonical({"b": 1, "a": "x"}, "what"), None) == digest_of(b'{"a":"x","b":1}', None)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[int, str], {1: "a"}),
        (dict[float, str], {1.5: "a", 2.0: "b"}),
        (dict[datetime.datetime, int], {datetime.datetime(2026, 1, 1, 12): 1}),
        (dict[Color, dict[uuid.UUID, int]], {Color.RED: {uuid.UUID(int=1): 1}}),
        (dict[bytes, int], {b"a": 1}),
        (list[Holder], [Holder({1: "a"})]),
        (Model, Model(by={1: "a"})),
    ],
)
def test_what_an_annotation_allows_does_not_come_back(kind: Any, value: Any) -> None:
    for form in (encode, canonical):
        assert Codec(kind, "it").decode(form(value, "it")) == value
    assert msgspec.json.decode(encode(value, "it")) == msgspec.json.decode(canonical(value, "it"))
