"""The schema of a type takes all that the type writes, and no key that the type would drop."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, RootModel, with_config
from typing_extensions import TypedDict

from satchel import schemas
from satchel.runtime.agent import Codec
from satchel.runtime.agent.codec import encode


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


class Cat(msgspec.Struct, tag="cat", rename="camel"):
    the_count: int = 0


class Dog(msgspec.Struct, tag="dog"):
    leaf: Leaf | None = None


class Pair(NamedTuple):
    left: Leaf
    right: int = 0


class Node(BaseModel):
    count: int = pydantic.Field(0, alias="Count")
    leaf: Leaf = Leaf()
    nodes: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    node: Node = Node()


class Shut(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Root(RootModel[dict[str, int]]): ...


class Reads(BaseModel):
    count: int = 0

    @pydantic.model_validator(mode="before")
    @classmethod
    def old(cls, data: Any) -> Any:
        return {"count": data.get("cuont", 0)}


class Written(BaseModel):
    """A serializer gives the first node another form, and the second is shared with others."""

    one: Annotated[Leaf, BeforeValidator(lambda data: {"count": data["cuont"]} if isinstance(data, dict) else data)] = (
        Leaf()
    )
    text: Annotated[int, PlainSerializer(lambda n: f"<{n}>"), BeforeValidator(lambda t: int(str(t).strip("<>")))] = 0


@dataclass
class Mixed:
    """What msgspec reads, with models of pydantic in it."""

    node: Node = field(default_factory=Node)
    more: Open = field(default_factory=Open)


@with_config(ConfigDict(extra="allow"))
class OpenTyped(TypedDict, total=False):
    count: int


SLIP = {"cuont": 7}

REFUSED: list[tuple[Any, Any, str]] = [
    (Leaf, SLIP, "cuont"),
    (Typed, SLIP, "cuont"),
    (Cat, {"type": "cat", **SLIP}, "cuont"),
    (Cat | Dog, {"type": "dog", "leaf": SLIP}, "leaf.cuont"),
    (Pair, [SLIP, 1], "[0].cuont"),
    (Tree, {"leaf": SLIP}, "leaf.cuont"),
    (Tree, {"leaves": [{}, SLIP]}, "leaves[1].cuont"),
    (Tree, {"by_name": {"a": SLIP}}, "by_name.a.cuont"),
    (tuple[Leaf, ...] | None, [SLIP], "[0].cuont"),
    (Node, SLIP, "cuont"),
    (Node, {"Count": 1}, "Count"),
    (Node, {"leaf": SLIP}, "leaf.cuont"),
    (Node, {"nodes": [{}, {"nodes": [SLIP]}]}, "nodes[1].nodes[0].cuont"),
    (Open, {"node": SLIP}, "node.cuont"),
    (Shut, SLIP, "cuont"),
    (list[Node], [{}, SLIP], "[1].cuont"),
    (Node | Leaf, {"nodes": [SLIP]}, "nodes[0].cuont"),
    (Mixed, SLIP, "cuont"),
    (Mixed, {"node": {"nodes": [SLIP]}}, "node.nodes[0].cuont"),
    (Mixed, {"more": {"node": SLIP}}, "more.node.cuont"),
]


@pytest.mark.parametrize(("kind", "given", "place"), REFUSED)
def test_a_key_that_is_dropped_is_accepted(kind: Any, given: Any, place: str) -> None:
    codec = Codec(kind, "it")
    assert [problem.place for problem in schemas.against(codec.schema(), given)] == [place]
    if kind is not Shut:
        assert schemas.against(codec.schema("no"), given) == []


@pytest.mark.parametrize("kind", [Typed, list[Typed], pydantic.create_model("Of", typed=(Typed, {}))])
def test_a_typed_dict_does_not_keep_what_it_does_not_name(kind: Any) -> None:
    """As a result of a step. A class does not."""
    given: Any = {"typed": SLIP} if isinstance(kind, type) and issubclass(kind, BaseModel) else SLIP
    given = [given] if kind == list[Typed] else given
    assert schemas.against(Codec(kind, "it").schema(), given)
    assert schemas.against(Codec(kind, "it").schema("classes"), given) == []
    assert schemas.against(Codec(Leaf, "it").schema("classes"), SLIP)


TAKEN: list[tuple[Any, Any]] = [
    (Leaf, {"count": 1, "made": 2}),
    (Cat, {"type": "cat", "theCount": 1}),
    (Tree, {"any": SLIP}),
    (Node, {"count": 1}),
    (Open, SLIP),
    (Mixed, {"more": SLIP}),
    (Root, SLIP),
    (Reads, SLIP),
    (list[Reads], [SLIP]),
    (Written, {"one": SLIP}),
    (Written, {"text": "<7>"}),
    (OpenTyped, SLIP),
    (Leaf | dict[str, int], SLIP),
    (dict[str, Any], SLIP),
    (Any, SLIP),
]


@pytest.mark.parametrize(("kind", "given"), TAKEN)
def test_a_key_that_something_reads_is_refused(kind: Any, given: Any) -> None:
    assert schemas.against(Codec(kind, "it").schema(), given) == []


VALUES: list[Callable[[], Any]] = [Leaf, Tree, Cat, Dog, Node, Open, Shut, Reads, Written, Mixed]


@pytest.mark.parametrize("make", VALUES)
def test_what_the_type_writes_is_refused(make: Callable[[], Any]) -> None:
    written = json.loads(encode(make(), "it"))
    assert schemas.against(Codec(make, "it").schema(), written) == []


def test_a_schema_is_made_for_every_call() -> None:
    assert Codec(list[Node], "it").schema() is Codec(list[Node], "another").schema()


def test_two_models_of_one_name_are_mixed_up() -> None:
    def of(field: str) -> Any:
        return pydantic.create_model("Twin", **{field: (int, 0)})

    left, right = of("left"), of("right")

    @dataclass
    class Both:
        one: left  # type: ignore[valid-type]
        two: right  # type: ignore[valid-type]

    Both.__annotations__ = {"one": left, "two": right}
    given = {"one": {"right": 1}, "two": {"left": 1}}
    found = schemas.against(Codec(Both, "it").schema(), given)
    assert [problem.place for problem in found] == ["one.right", "two.left"]
