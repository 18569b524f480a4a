"""Structs as JSON by their types alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from satchel.workspace.journal import Key, Line, StepCompleted
from satchel.workspace.plan import Plan
from satchel.workspace.state.encoding import shape_of
from satchel.workspace.state.scope_state import Unkept

STEP = StepCompleted(scope="1", no=1, step="s", args="0" * 16, n=0, result=Raw(b'{"a": 1}'))
LINE = Line(1, 1, "2026-11-01T00:00:00.000Z", 1, STEP)


class Inner(Struct, omit_defaults=True):
    calls: dict[Key, StepCompleted] = {}
    several: dict[Key, list[int]] = {}
    some: set[Key] = set()
    not_kept: Unkept[list[Line]] = []


class Outer(Struct):
    name: str
    inner: dict[str, Inner] = {}
    first: Inner = field(default_factory=Inner)
    plan: Plan = field(default_factory=Plan)
    added: dict[Key, int] = {}


def written(value: Outer) -> bytes:
    pack = shape_of(Outer).pack
    assert pack is not None
    return msgspec.json.encode(pack(value))


def read(data: bytes) -> Any:
    shape = shape_of(Outer)
    assert shape.unpack is not None
    return shape.unpack(msgspec.json.decode(data, type=shape.kind))


def is_same(found: Outer, made: Outer) -> bool:
    """Plans by what they say: a Plan has no `==` of its own."""
    plans = [(each.plan.text, each.plan.outline()) for each in (found, made)]
    return plans[0] == plans[1] and replace(found, plan=made.plan) == made


def test_what_was_written_is_read_as_something_else() -> None:
    inner = Inner({STEP.key: STEP}, {STEP.key: [1, 2]}, {("t", "1", 0), STEP.key}, [LINE])
    made = Outer("ü", {"1": inner, "0": Inner()}, inner, Plan("- [ ] words\n"), {STEP.key: 3})
    found = read(written(made))
    assert found.inner["1"].calls[STEP.key].result == STEP.result and [*found.inner] == ["1", "0"]
    found.inner["1"].calls = found.first.calls = inner.calls  # two of what `Raw` holds are never equal
    inner.not_kept = []
    assert is_same(found, made)


def test_the_same_struct_is_other_bytes_the_next_time() -> None:
    keys = [(name, "0" * 16, 0) for name in "abcdefgh"]
    made = [Outer("a", first=Inner(some=set(order))) for order in (keys, keys[::-1])]
    assert written(made[0]) == written(made[1])


def test_what_was_written_before_a_struct_got_a_field_is_refused() -> None:
    assert is_same(read(b'{"name": "a", "inner": {"1": {}}}'), Outer("a", {"1": Inner()}))


def test_an_empty_struct_is_written_at_length() -> None:
    plan = b'"plan":{"text":"","outline":[]}'
    data = b'{"name":"a","inner":{"1":{}},"first":{},%s,"added":[]}' % plan
    assert written(Outer("a", {"1": Inner()})) == data


@pytest.mark.parametrize(
    "data", [b"{}", b'{"name": 1}', b'{"name": "a", "added": {"a": 1}}', b'{"name": "a", "plan": 1}']
)
def test_what_does_not_fit_the_types_is_read(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(data)
