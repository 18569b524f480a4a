"""Keys that decoding would drop are found, and no others."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, model_validator

from satchel.runtime.agent import Codec


@dataclass
class Leaf:
    count: int = 0
    made: int = field(default=1, init=False)


@dataclass
class Tree:
    leaf: Leaf = field(default_factory=Leaf)
    leaves: list[Leaf] = field(default_factory=list)
    by_name: dict[str, Leaf | None] = field(default_factory=dict)
    any: dict[str, Any] = field(default_factory=dict)


class Typed(TypedDict, total=False):
    count: int


class Packed(msgspec.Struct, tag="packed", rename="camel"):
    the_count: int = 0
    leaf: Leaf | None = None


class Model(BaseModel):
    count: int = Field(0, alias="Count", exclude=True)
    leaf: Leaf = Leaf()
    models: list[Model] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Root(RootModel[dict[str, int]]): ...


class Reads(BaseModel):
    count: int = 0

    @model_validator(mode="before")
    @classmethod
    def old(cls, data: Any) -> Any:
        return {"count": data.get("cuont", 0)}


class Field2(BaseModel):
    leaf: Annotated[Leaf, BeforeValidator(lambda data: {"count": data["cuont"]})] = Leaf()


class Square(msgspec.Struct, tag=True):
    leaf: Leaf


class Circle(msgspec.Struct, tag=True):
    radius: int = 0


class Row(msgspec.Struct, array_like=True, tag="row"):
    number: int
    leaf: Leaf


class Pair(NamedTuple):
    number: int
    leaf: Leaf


class Mixed(enum.Enum):
    """Only pydantic reads it."""

    WORD = "word"
    NUMBER = 3


@dataclass
class Foreign:
    mixed: Mixed = Mixed.WORD
    leaf: Leaf = field(default_factory=Leaf)
    leaves: dict[str, list[Leaf]] = field(default_factory=dict)


class Either(BaseModel):
    leaf: Leaf | str = ""


SLIP = {"cuont": 7}


@pytest.mark.parametrize(
    ("kind", "given", "path"),
    [
        (Leaf, SLIP, "cuont"),
        (Typed, SLIP, "cuont"),
        (Packed, SLIP, "cuont"),
        (Packed, {"leaf": SLIP}, "leaf/cuont"),
        (Model, SLIP, "cuont"),
        (Model, {"leaf": SLIP}, "leaf/cuont"),
        (Model, {"models": [{}, SLIP]}, "models/1/cuont"),
        (Tree, {"leaf": SLIP}, "leaf/cuont"),
        (Tree, {"leaves": [{}, SLIP]}, "leaves/1/cuont"),
        (Tree, {"by_name": {"a": SLIP}}, "by_name/a/cuont"),
        (tuple[Leaf, ...] | None, [SLIP], "0/cuont"),
        (Leaf | str, SLIP, "cuont"),
        (Leaf | list[Leaf], SLIP, "cuont"),
        (Leaf | list[Leaf], [{}, SLIP], "1/cuont"),
        (Square | Circle | None, {"type": "Circle", **SLIP}, "cuont"),
        (Square | Circle, {"type": "Square", "leaf": SLIP}, "leaf/cuont"),
        (Either, {"leaf": SLIP}, "leaf/cuont"),
        (tuple[int, Leaf], [7, SLIP], "1/cuont"),
        (Pair, [7, SLIP], "1/cuont"),
        (Row, ["row", 7, SLIP], "2/cuont"),
        (Row | str, ["row", 7, SLIP], "2/cuont"),
        (Foreign, SLIP, "cuont"),
        (Foreign, {"leaf": SLIP}, "leaf/cuont"),
        (Foreign, {"leaves": {"a": [{}, SLIP]}}, "leaves/a/1/cuont"),
        (dict[str, list[Foreign]], {"a": [SLIP]}, "a/0/cuont"),
    ],
)
def test_a_dropped_key_is_not_found(kind: Any, given: Any, path: str) -> None:
    (found,) = Codec(kind, "it").unknown_keys(given)
    assert "/".join(map(str, found.path)) == path


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Leaf, {"count": 1, "made": 2}),
        (Packed, {"type": "packed", "theCount": 1}),
        (Model, {"count": 1}),
        (Tree, {"any": SLIP}),
        (Open, SLIP),
        (Root, SLIP),
        (Reads, SLIP),
        (Field2, {"leaf": SLIP}),
        (Leaf | dict[str, int], SLIP),
        (Any, SLIP),
        (dict[str, int], SLIP),
        (Leaf, Leaf()),
        (Square | Circle, {"type": "Circle", "radius": 7}),
        (Row, ["row", 7, {}, SLIP]),
        (Foreign, {"mixed": 3}),
    ],
)
def test_a_key_that_something_reads_is_found(kind: Any, given: Any) -> None:
    assert [*Codec(kind, "it").unknown_keys(given)] == []
