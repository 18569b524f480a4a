"""Results that earlier code has recorded with keys that the type does not have: nothing of them is lost in silence."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

import satchel
from satchel import Agent, Run, SatchelError, agent, effect, run, step
from satchel.runtime.agent import Codec, encode


@dataclass
class Plain:
    text: str = ""
    rating: int = 0


class Model(BaseModel):
    text: str = ""
    rating: int = 0


class Struct(msgspec.Struct):
    text: str = ""
    rating: int = 0


class Keys(TypedDict):
    text: str


@dataclass
class Scored:
    """As the code was when the results were recorded."""

    text: str = ""
    score: int = 0


@dataclass
class Around:
    inner: list[Keys] = field(default_factory=list)
    by_name: dict[str, Keys] = field(default_factory=dict)


def returning(kind: Any, value: Any, how: str, **options: Any) -> Agent[..., Any]:
    """An agent whose `brief` returns a value of this type."""

    async def brief() -> Any:
        return value

    brief.__annotations__["return"] = kind
    call = {"step": step, "effect": effect}.get(how, lambda function: function)(brief)

    @agent
    async def below(run: Run[Any]) -> Any:
        return value

    below.function.__annotations__["return"] = kind

    @agent(**options)
    async def main(run: Run[Any]) -> None:
        if how == "scope":
            found = await run.scope("brief", brief)
        elif how == "agent":
            found = await run.spawn(msgspec.structs.replace(below, unknown=main.unknown), "brief")
        else:
            found = await call()
        seen.append(found)
        await run.ask("Go on?", wait_for=0)

    return main


seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


HOW = ("step", "effect", "scope", "agent")


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", [Plain, Model, Struct, list[Plain]])
def test_a_key_that_was_renamed_is_a_default_now(workspace: Path, kind: Any, how: str) -> None:
    was: Any = [Scored("a", 5)] if kind == list[Plain] else Scored("a", 5)
    assert run(workspace, returning(Any, was, how)).status == "waiting"
    with pytest.raises(SatchelError, match="found the unknown key `score`") as failed:
        run(workspace, returning(kind, None, how), wake=True).raise_for_status()
    assert "does not fit its type" in str(failed.value)
    if how in ("step", "effect"):
        assert "steps/_agent/01-brief.json" in str(failed.value)
    assert len(seen) == 1
    assert run(workspace, returning(kind, None, how, unknown="keep"), wake=True).status == "waiting"
    (found,) = seen[1] if kind == list[Plain] else (seen[1],)
    assert (found.text, found.rating) == ("a", 0)
    assert run(workspace, returning(Any, None, how), wake=True).status == "waiting"
    assert "score" in json.dumps(seen[2]), "it is still on record, for a return to the older code"


@pytest.mark.parametrize("how", HOW)
def test_a_result_of_a_subclass_fails_at_every_later_start(workspace: Path, how: str) -> None:
    @dataclass
    class More(Plain):
        more: int = 0

    for _ in range(2):
        assert run(workspace, returning(Plain, More("a", 1, 2), how), wake=True).status == "waiting"
        assert seen.pop() == Plain("a", 1)


class Computing(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    side: int = Field(0, serialization_alias="theSide")

    @computed_field
    def area(self) -> int:
        return self.side**2


class Shape(msgspec.Struct, rename="camel", tag_field="kind", tag="shape", omit_defaults=True):
    its_side: int = 0


@dataclass
class Counted:
    side: int = 0
    times: int = field(default=1, init=False)


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("value", [Computing(side=2), Shape(2), Counted(2)], ids=lambda value: type(value).__name__)
def test_what_a_type_writes_and_does_not_read_fails_at_every_later_start(workspace: Path, how: str, value: Any) -> None:
    for kind in (type(value), list[type(value)]):
        whole = value if kind is type(value) else [value]
        place = workspace / str(kind is type(value))
        place.mkdir()
        (place / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text())
        for _ in range(2):
            assert run(place, returning(kind, whole, how), wake=True).status == "waiting"
        assert seen[-1] == seen[-2]
        data = msgspec.json.format(encode(whole, "it"))  # as a person's editor may leave it
        assert Codec(kind, "it").recorded(data) == whole


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("place", [("inner", 0), ("by_name", "b")])
def test_a_typed_dict_loses_keys_that_it_does_not_name(workspace: Path, how: str, place: tuple[str, Any]) -> None:
    """A model or a server may answer with more than its type says."""
    given: Any = {"text": "a", "id": 7, "more": {"deep": [1]}}
    whole = Around([given], {"b": given})
    for _ in range(2):
        assert run(workspace, returning(Around, whole, how), wake=True).status == "waiting"
        assert getattr(seen.pop(), place[0])[place[1]] == given


def test_a_file_of_a_step_that_a_person_has_corrected_is_read_in_part(workspace: Path) -> None:
    assert run(workspace, returning(Plain, Plain("a", 1), "step")).status == "waiting"
    file = next((workspace / "steps").rglob("*.json"))
    file.write_text(file.read_text().replace('"rating": 1', '"rated": 2'))
    with pytest.raises(SatchelError, match="found the unknown key `rated`"):
        run(workspace, returning(Plain, None, "step"), wake=True).raise_for_status()
    assert satchel.open(workspace).status().state == "waiting", "nothing has counted"
    assert run(workspace, returning(Plain, None, "step"), wake=True).status == "waiting"
