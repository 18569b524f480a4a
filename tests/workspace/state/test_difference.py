"""The difference of two JSON texts: against the difference of the values, which reads both as a whole, and against what
reading costs."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from properties import examples

from satchel.workspace.journal import Patch
from satchel.workspace.state import json_patch
from satchel.workspace.state.json_patch import KnownText

keys = st.sampled_from(["", "a", "b", "a/b", "m~n", "0", "ü", 'q"', 'a","b', "back\\", "[", "]", "{x", ",", "c", "d"])
texts = st.sampled_from(["", "a", '"', "\\", ",", "],[", '","', "[1,2]", '{"a":1}', "\n", '\\"', "x" * 1100])
leaves = st.none() | st.booleans() | st.sampled_from([0, 1, 12, 21, 2, -1, 0.0, -0.0, 1.0, 1.5]) | texts
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
)


def plain(changes: Patch) -> Patch:
    return [
        {name: msgspec.json.decode(said) if isinstance(said, Raw) else said for name, said in change.items()}
        for change in changes
    ]


@st.composite
def changed(draw: st.DrawFn, value: Any) -> Any:
    """The value as an agent may have left it: something was added, taken away, moved or replaced somewhere."""
    if not isinstance(value, list | dict) or not value or draw(st.integers(0, 9)) == 0:
        return draw(values)
    kind = draw(st.sampled_from(["add", "remove", "move", "inside", "inside", "two"]))
    if kind == "two":
        return draw(changed(draw(changed(value))))
    if isinstance(value, list):
        at, now = draw(st.integers(0, len(value) - 1)), [*value]
        if kind == "add":
            now.insert(draw(st.sampled_from([0, len(now), at])), draw(values))
        elif kind == "inside":
            now[at] = draw(changed(now[at]))
        else:
            taken = now.pop(draw(st.sampled_from([0, -1, at])))
            now += [taken] if kind == "move" else []
        return now
    key, known = draw(st.sampled_from([*value])), {**value}
    if kind == "add":
        known[draw(keys)] = draw(values)
    elif kind == "inside":
        known[key] = draw(changed(known[key]))
    else:
        taken = known.pop(key)
        known |= {key: taken} if kind == "move" else {}
    return known


@pytest.mark.parametrize("large", [1, 1024])
@given(data=st.data())
@examples(150)
def test_a_difference_of_texts_is_not_that_of_the_values(large: int, data: st.DataObject) -> None:
    """Also of what was compared before: where parts begin is remembered from one text to the next."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_patch, "_LARGE", large)
        was = data.draw(values)
        known = KnownText(msgspec.json.encode(was))
        for _ in range(4):
            now = data.draw(changed(was))
            changes = plain(known.change_to(msgspec.json.encode(now)))
            assert json.dumps(changes) == json.dumps(json_patch.diff(was, now, ordered=True))
            assert json.dumps(json_patch.apply(was, changes)) == json.dumps(now)
            was = now


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('{"a": [1, 2], "b": 1}', '{"a":[1,3],"b":1}'),
        ('{"a":[1,2],"b":1}', '{"a":[1,\n3],"b":1}'),
        ('{"a":1,"b":2,"a":3}', '{"a":3,"b":2,"c":4}'),
        ('{"a":3,"b":2}', '{"b":1,"a":3,"b":2}'),
        ('{"k":{"a":1,"b":2,"a":3}}', '{"k":{"a":1,"b":2,"a":4}}'),
    ],
)
def test_a_text_in_other_words_than_msgspecs_has_no_difference(
    was: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state with raw JSON in it, or with the keys 1 and "1"."""
    monkeypatch.setattr(json_patch, "_LARGE", 1)
    known = KnownText(was.encode())
    for text in (now, '{"a":0}'):
        value = json.loads(was)
        changes = plain(known.change_to(text.encode()))
        assert json.dumps(json_patch.apply(value, changes)) == json.dumps(json.loads(text))
        was = text


@pytest.mark.parametrize(
    "turns",
    [
        ([1], [12], [1, 2]),
        ([1], [21], [2, 1]),
        ([1, 1], [1], [1, 1, 1], []),
        ({"a": 5}, {"a": 6, "b": 7}, {"a": 67}),
        ({"a": [1]}, {"a": [1, 2], "b": [3]}, {"a": [1], "b": [3]}),
        ({"a": [1, 2]}, {"a": [1], "b": 3}),
        ({"a": {"q": 1, "b": {"z": 0}}}, {"a": {"q": 2}, "b": {"z": 0}}),
        (
            {"a": {"x": {"y": 0}, "z": 333}, "b": 12345678},
            {"a": {"x": {"y": 1}, "z": 333}, "b": 12345678},
            {"a": {"x": {"y": 1}, "b": 5}, "b": 7},
        ),
        ({"a": ["x"], "b": 1}, {"a": ["x", ',"b":'], "b": "]"}),
        ({"a": "x", "b": 1}, {"a": 'x","b":1', "b": 2}),
        ([["x"]], [["x", 1], ["y"]]),
        ([["x"]], [["y", "x"], ["x"]]),
        ([[[1], [2]], [[3]]], [[[1], [2]], [[3, 4]]], [[0], [[1], [2]], [[3, 4]]], [[0], [[1], [2, 2]], [[3, 4]]]),
        ({"a": {"a": {"a": "x"}}}, {"a": {"a": {"a": "x"}, "b": {}}, "c": {"a": {}}}),
        ({"a": [1], "b": 2, "c": [3]}, {"a": [1, 1], "b": 3, "c": [3]}, {"a": [1], "b": 3, "c": [3, 3]}),
    ],
)
def test_a_part_ends_where_it_seems_to(turns: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_patch, "_LARGE", 1)
    known = KnownText(msgspec.json.encode(turns[0]))
    for was, now in pairwise(turns):
        changes = plain(known.change_to(msgspec.json.encode(now)))
        assert changes == json_patch.diff(was, now, ordered=True) and json_patch.apply(was, changes) == now


class Reader:
    """A decoder that counts."""

    def __init__(self, decoder: Any):
        self._decoder = decoder
        self.bytes = 0

    def decode(self, text: bytes) -> Any:
        self.bytes += len(text)
        return self._decoder.decode(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda state, n: state["seen"].append({"n": n, "text": "y" * 180}),
        lambda state, n: state["seen"].__setitem__(2500, {"n": -n, "text": "y" * 180}),
        lambda state, n: state["seen"][2500].update(text="z" * (n + 200)),
        lambda state, n: state["seen"].pop(100),
        lambda state, n: (state["seen"].append({"n": n}), state.update(count=n)),
        lambda state, n: state["by"]["name 77"].append("more"),
        lambda state, n: state["by"].update({f"another {n}": ["more"]}),
        lambda state, n: state.update(note=f"another {n}"),
        lambda state, n: state["groups"].insert(0, []) if n == 2 else state["groups"][-1].append(n),
    ],
    ids=["append", "replace", "inside", "remove", "two", "deep", "key", "small", "moved"],
)
def test_a_change_costs_reading_the_state(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {
        "count": 10,
        "seen": [{"n": n, "text": "x" * 180} for n in range(5000)],
        "note": "",
        "by": {f"name {n}": ["x" * 20] for n in range(5000)},
        "groups": [["x" * 180] * 100],
    }
    known = KnownText(msgspec.json.encode(state))
    for number in (1, 2, 3):  # at first it is looked where the parts begin
        readers = {name: Reader(getattr(json_patch, name)) for name in ("_value", "_any", "_list", "_object")}
        with monkeypatch.context() as patched:
            for name, reader in readers.items():
                patched.setattr(json_patch, name, reader)
            change(state, number)
            changes = known.change_to(msgspec.json.encode(state))
        assert 1 <= len(changes) <= 2
    assert 0 < sum(reader.bytes for reader in readers.values()) < 2000 < len(known.text) / 500
