"""Random types, and random changes of values of them: each is refused with a place, or comes back equal."""

from __future__ import annotations

import copy
import datetime
import enum
import tempfile
import uuid
from dataclasses import field, make_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec import Raw
from properties import examples

from satchel import Run, agent, run, step
from satchel.runtime.agent import Codec, canonical, encode
from satchel.runtime.live.data import LiveState
from satchel.workspace.base.errors import NotSerializable, SatchelError, UsageError
from satchel.workspace.state import json_patch


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Word(enum.StrEnum):
    YES = "yes"


class Kind(NamedTuple):
    """A type, and its values."""

    type: Any
    values: st.SearchStrategy[Any]


texts = st.sampled_from(["", "a", "b", "7", "1", "red", "yes", "a/b", "~", "x" * 1100, "2026-01-02"])
numbers = st.integers(-3, 9)
days = st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 1, 3))
LEAVES = [
    Kind(int, numbers),
    Kind(str, texts),
    Kind(float, st.sampled_from([0.5, -0.0, 1.0, 1e300])),
    Kind(bool, st.booleans()),
    Kind(type(None), st.none()),
    Kind(datetime.date, days),
    Kind(Decimal, st.sampled_from([Decimal("1.50"), Decimal("7")])),
    Kind(uuid.UUID, st.sampled_from([uuid.UUID(int=1), uuid.UUID(int=7)])),
    Kind(Color, st.sampled_from(Color)),
    Kind(bytes, st.sampled_from([b"", b"a"])),
]
KEYS = [Kind(str, texts), Kind(int, numbers), Kind(datetime.date, days), Kind(Color, st.sampled_from(Color))]

anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of([leaf.values for leaf in LEAVES]) | st.sampled_from([Word.YES, float("nan"), float("inf"), 2**70]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.one_of([key.values for key in KEYS]), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Also what no untyped place takes."""

plain: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.sampled_from([0.5, 1.0]) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
KINDS = [*LEAVES, Kind(Any, plain)]


HOWS = ["dataclass", "model", "struct", "typed dict"]  # in a model only the first two


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2, hows: int = 4) -> Kind:
    how = draw(st.sampled_from(["leaf", "list", "dict", "optional", "union", "tuple", "fields"] if depth else ["leaf"]))
    if how == "leaf":
        return draw(st.sampled_from(KINDS))
    if how == "union":
        return Kind(int | str, numbers | texts)
    if how == "fields":
        return draw(objects(depth - 1, hows))
    inner = draw(kinds(depth - 1, hows))
    if how == "list":
        return Kind(list[inner.type], st.lists(inner.values, max_size=4))  # type: ignore[name-defined]
    if how == "optional":
        return Kind(inner.type | None, st.none() | inner.values)
    if how == "tuple":
        return Kind(tuple[inner.type, int], st.tuples(inner.values, numbers))  # type: ignore[name-defined]
    key = draw(st.sampled_from(KEYS))
    pairs = st.dictionaries(key.values, inner.values, max_size=4)
    return Kind(dict[key.type, inner.type], pairs)  # type: ignore[name-defined]


@st.composite
def objects(draw: st.DrawFn, depth: int = 2, hows: int = 4) -> Kind:
    how = draw(st.sampled_from(HOWS[:hows]))
    inner = {
        name: draw(kinds(depth, 2 if how == "model" else hows)) for name in draw(st.sampled_from(["a", "ab", "abc"]))
    }
    parts = st.fixed_dictionaries({name: kind.values for name, kind in inner.items()})
    types = {name: kind.type for name, kind in inner.items()}
    if how == "typed dict":
        return Kind(TypedDict("Made", types), parts)  # type: ignore[operator]
    if how == "struct":
        made: Any = msgspec.defstruct("Made", [*types.items()])
    elif how == "model":
        fields = {name: (kind, ...) for name, kind in types.items()}
        made = pydantic.create_model("Made", **fields)  # type: ignore[call-overload]
    else:
        made = make_dataclass("Made", [(name, kind, field(default=None)) for name, kind in types.items()])
    return Kind(made, parts.map(lambda given: made(**given)))


@st.composite
def change(draw: st.DrawFn, value: Any) -> Any:
    """Change something inside the value, in place or anew, to what may or may not fit."""
    named = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", None)
    named = named or getattr(type(value), "model_fields", None)
    if isinstance(value, dict):
        inside = [*value]
        key = (
            draw(st.sampled_from(inside))
            if inside and draw(st.booleans())
            else draw(st.one_of([k.values for k in KEYS]))
        )
        if key in value and draw(st.integers(0, 3)) == 0:
            del value[key]
        else:
            value[key] = draw(change(value[key])) if key in value else draw(anything)
    elif isinstance(value, list):
        if value and draw(st.booleans()):
            at = draw(st.integers(0, len(value) - 1))
            value[at] = draw(change(value[at]))
        elif value and draw(st.booleans()):
            value.pop(draw(st.integers(0, len(value) - 1)))
        else:
            more = [copy.deepcopy(draw(st.sampled_from(value)))] if value and draw(st.booleans()) else [draw(anything)]
            at = draw(st.sampled_from([0, len(value)]))
            value[at:at] = more
    elif named is not None:
        name = draw(st.sampled_from([*named]))
        object.__setattr__(value, name, draw(change(getattr(value, name)))) if not isinstance(
            value, msgspec.Struct
        ) else setattr(value, name, draw(change(getattr(value, name))))
    else:
        return draw(anything)
    return value


def said(value: Any) -> str:
    """All of a value with its types, and no difference between 1 and 1.0 where the type is the other."""
    if isinstance(value, dict):
        return f"{type(value).__name__}{{{', '.join(f'{key!r}: {said(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(map(said, value))}]"
    if type(value).__name__ == "Made":
        names = getattr(value, "__struct_fields__", None) or [*vars(value)]
        return f"Made({', '.join(f'{name}={said(getattr(value, name))}' for name in sorted(names))})"
    return f"{value!r}"


def same(value: Any, back: Any) -> bool:
    """A value replaced by another with the same JSON is no change that a commit sees: 1 by 1.0, b"" by ""."""
    one, other = (said(each).replace(".0", "").replace("b''", "''") for each in (value, back))
    return one == other


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("large", [1, 1024])
@given(data=st.data())
@examples(400)
def test_a_state_does_not_come_back_as_it_was_committed(large: int, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_patch, "_LARGE", large)
        kind = data.draw(objects() | st.just(Kind(dict[str, Any], st.dictionaries(texts, plain, max_size=4))))
        first = data.draw(kind.values)
        codec = Codec(kind.type, "the state")
        recorded = msgspec.json.decode(encode(first, "first"))
        live = LiveState(codec)
        live.restore(recorded, "state.json")
        for _ in range(4):
            data.draw(change(live.value))
            try:
                found = live.change()
            except (NotSerializable, UsageError) as error:
                assert str(error).startswith("run.state"), error
                event("refused")
                live.restore(recorded, "state.json")
                continue
            event("committed")
            patch = [
                {**each, "value": msgspec.json.decode(each["value"])} if isinstance(each.get("value"), Raw) else each
                for each in found.patch
            ]
            recorded = json_patch.apply(recorded, patch)
            live.committed(found)
            again = LiveState(codec)
            again.restore(recorded, "state.json")
            if found.patch:
                assert same(live.value, again.value), (live.value, again.value)


@given(kind=kinds(), data=st.data())
@examples(300)
def test_an_argument_or_a_result_does_not_come_back_by_its_annotation(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(kind.values)
    codec = Codec(kind.type, "it")
    for form in (encode, canonical):
        back = codec.decode(form(value, "it"))
        assert same(value, back) or form is canonical
        assert canonical(back, "it") == canonical(value, "it"), "a result is the argument of the next call"


@given(value=anything)
@examples(300)
def test_what_is_no_json_loses_something_without_a_place(value: Any) -> None:
    """Without an annotation: refused with a place, or the same text for ever, with all its keys."""
    for form in (encode, canonical):
        try:
            text = form({"in": value}, "it")
        except NotSerializable as error:
            assert str(error).startswith("it.in"), error
            continue
        assert len(msgspec.json.encode(msgspec.json.decode(text))) == len(text), "no key comes twice"
        assert form(msgspec.json.decode(text), "it") == text


@given(value=anything, other=anything)
@examples(20)
def test_a_run_with_any_value_can_not_be_started_again(value: Any, other: Any) -> None:
    """Whatever is put into the state, given to a step and returned: the next start reads what there is."""

    @step
    async def echo(given: Any) -> Any:
        return given

    @agent
    async def main(run: Run[dict[str, Any]]) -> Any:
        async def work() -> Any:
            run.state["value"] = value
            return await echo(other)

        await run.scope("work", work)
        return run.state

    @agent
    async def after(run: Run[dict[str, Any]]) -> Any:
        return {**run.state}

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "workspace.yaml").write_text("format: 1\nrun_id: test-1\nagent: agent.py:main\n")
        first = run(folder, main)
        second = run(folder, after)
        if first.status == "completed":
            assert same(first.result, {"value": value})
        else:
            assert isinstance(first.error, SatchelError), first.error
            assert second.raise_for_status().result == {}
