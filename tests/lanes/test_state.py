"""What several items at once make of one state: what some serial order of them gives, too."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from satchel import Item, Run, run

from .work import Together, data_of, make


@dataclass
class Part:
    a: int = 0
    b: int = 0
    by: dict[str, int] = field(default_factory=dict)


@dataclass
class Plain:
    part: Part = field(default_factory=Part)
    by: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)


class ModelPart(BaseModel):
    a: int = 0
    b: int = 0
    by: dict[str, int] = {}


class Model(BaseModel):
    part: ModelPart = ModelPart()
    by: dict[str, Any] = {}
    said: list[str] = []


class RenamedPart(msgspec.Struct, rename="camel"):
    a: int = 0
    b: int = 0
    by: dict[str, int] = {}


class Renamed(msgspec.Struct, rename={"by": "sorted-by"}):
    part: RenamedPart = msgspec.field(default_factory=RenamedPart)
    by: dict[str, Any] = {}
    said: list[str] = []


STATES = [Plain, Model, Renamed]


@pytest.mark.parametrize("state", STATES)
def test_two_new_dicts_over_an_old_one_are_joined(workspace: Path, state: Any) -> None:
    together, attempts = Together(2), Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        run.state.by = {item.text: 1}

    assert run(workspace, make(work, "one", "two", state=state)).error is None
    found = data_of(workspace)
    assert len(found.get("by", found.get("sorted-by"))) == 1, "no order of the two gives both"
    assert sorted(attempts.values()) == [1, 2]


def test_a_new_dict_with_the_old_keys_in_it_is_joined(workspace: Path) -> None:
    together, attempts = Together(2), Counter[str]()

    def begin(run: Run[Any]) -> None:
        run.state["a"] = {"b": {"kept": 1}, "c": 0}

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        run.state["a"]["b"] = {"kept": 1, item.text: 1}

    assert run(workspace, make(work, "one", "two", begin=begin)).error is None
    assert data_of(workspace)["a"] in ({"b": {"kept": 1, last: 1}, "c": 0} for last in ("one", "two"))
    assert sorted(attempts.values()) == [1, 2]


def test_a_new_list_with_the_old_elements_in_it_is_joined(workspace: Path) -> None:
    """In the serial order each sees what the other has put there."""
    together, attempts = Together(2), Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        run.state.said = [*run.state.said, f"{item.text} of {len(run.state.said)}"]

    assert run(workspace, make(work, "one", "two", state=Plain)).error is None
    assert data_of(workspace)["said"] in (["one of 0", "two of 1"], ["two of 0", "one of 1"])
    assert sorted(attempts.values()) == [1, 2]


@pytest.mark.parametrize("state", STATES)
def test_changes_inside_containers_contradict(workspace: Path, state: Any) -> None:
    together, attempts = Together(3), Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        run.state.by[item.text] = {"of": item.text}
        run.state.said += [item.text]
        run.state.part.by[item.text] = 1
        if item.text in "ab":
            setattr(run.state.part, item.text, 7)

    assert run(workspace, make(work, "a", "b", "c", state=state)).error is None
    found = data_of(workspace)
    part = found["part"]
    assert sorted(found["said"]) == sorted(found.get("by", found.get("sorted-by"))) == sorted(part["by"]) == [*"abc"]
    assert (part["a"], part["b"]) == (7, 7) and attempts.total() == 3


@pytest.mark.parametrize("state", STATES)
def test_an_object_that_replaces_another_is_joined_with_a_change_inside_it(workspace: Path, state: Any) -> None:
    together, attempts = Together(2), Counter[str]()

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        if item.text == "inside":
            run.state.part.a = 1
        else:
            run.state.part = type(run.state.part)(a=run.state.part.a, b=run.state.part.a + 1)

    assert run(workspace, make(work, "inside", "replaces", state=state)).error is None
    part = data_of(workspace)["part"]
    assert (part["a"], part["b"]) in ((1, 2), (1, 1)), "replaced before or after the change inside"


def test_a_container_that_was_moved_is_joined(workspace: Path) -> None:
    together = Together(2)

    def begin(run: Run[Any]) -> None:
        run.state.update(old={"n": 1}, new={"n": 1})

    async def work(run: Run[Any], item: Item) -> None:
        await together.meet()
        if item.text == "moves":
            run.state["new"] = run.state["old"]
            run.state["old"] = {}
            run.state["new"]["moved"] = True
        else:
            run.state["new"]["late"] = True

    assert run(workspace, make(work, "moves", "late", begin=begin)).error is None
    assert data_of(workspace)["new"] in ({"n": 1, "moved": True}, {"n": 1, "moved": True, "late": True})


def test_what_is_put_back_as_it_was_is_a_change(workspace: Path) -> None:
    """An element that an item appends and takes away again, a key that it sets and removes: nothing to contradict."""
    together, attempts = Together(3), Counter[str]()

    def begin(run: Run[Any]) -> None:
        run.state.update(n=1, said=["before"], by={"old": 1})

    async def work(run: Run[Any], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        if item.text == "changes":
            run.state["said"].append("more")
            run.state["by"]["more"] = run.state["n"] = 2
            return
        run.state["said"].append("mine")
        run.state["by"]["mine"] = 1
        run.state["n"] += 1
        run.state["n"] -= 1
        del run.state["by"]["mine"]
        run.state["said"].pop()

    assert run(workspace, make(work, "changes", "one", "two", begin=begin)).error is None
    assert data_of(workspace) == {"n": 2, "said": ["before", "more"], "by": {"old": 1, "more": 2}}
    assert attempts.total() == 3
