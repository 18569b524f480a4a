"""JSON Patch: against plain equality, and against a library that knows the whole of RFC 6902."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.state import json_patch

keys = st.sampled_from(["", "a", "b", "a/b", "m~n", "~1", "~0", "~01", "/", "~", "0", "1", "-", "ü", "__proto__", " "])
values = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, 1.5, 2**53, "", "a", "1", "True"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)


def is_same(one: Any, other: Any) -> bool:
    """As JSON text tells them apart: `True`, `1` and `1.0` are three values; the order of keys is none."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(values, values)
def test_a_difference_applied_gives_the_new_value(old: Any, new: Any) -> None:
    found = json_patch.apply(copy.deepcopy(old), copy.deepcopy(json_patch.diff(old, new)))
    assert is_same(found, new)


@given(values, values)
def test_an_ordered_difference_gives_back_the_order_of_keys_too(old: Any, new: Any) -> None:
    found = json_patch.apply(copy.deepcopy(old), json_patch.diff(old, new, ordered=True))
    assert json.dumps(found) == json.dumps(new)
    assert (json_patch.diff(old, new, ordered=True) == []) == (json.dumps(old) == json.dumps(new))


@given(st.permutations("abcdef"), st.permutations("cdefgh"))
def test_an_ordered_difference_of_the_same_keys_moves_those_that_have_moved(old: list[str], new: list[str]) -> None:
    was, now = dict.fromkeys(old, 1), dict.fromkeys(new, 1)
    assert [*json_patch.apply(was, json_patch.diff(was, now, ordered=True))] == new
    assert [*was] == old, "a patch changes nothing in place"


def test_a_key_that_is_put_behind_the_others_takes_only_itself_along() -> None:
    was: dict[str, Any] = {"x": [1] * 9, "y": 2, "z": 3}
    now = {"y": 2, "z": 3, "x": was["x"]}
    changes = json_patch.diff(was, now, ordered=True)
    assert changes == [{"op": "remove", "path": "/x"}, {"op": "add", "path": "/x", "value": was["x"]}]


@given(values, values)
def test_no_difference_is_made_of_equal_values_only(old: Any, new: Any) -> None:
    assert (json_patch.diff(old, new) == []) == is_same(old, new) == json_patch.same(old, new)
    assert json_patch.diff(old, copy.deepcopy(old)) == []


@given(values, values)
def test_another_reader_of_the_standard_gets_the_same_value(old: Any, new: Any) -> None:
    found = jsonpatch.apply_patch(copy.deepcopy(old), copy.deepcopy(json_patch.diff(old, new)))
    assert is_same(found, new)


@given(values, values)
def test_the_difference_leaves_both_values_as_they_were(old: Any, new: Any) -> None:
    before = json.dumps([old, new])
    json_patch.diff(old, new)
    assert json.dumps([old, new]) == before


@given(values, st.data())
def test_a_patch_of_another_library_is_applied_as_it_would(old: Any, data: st.DataObject) -> None:
    new = data.draw(values)
    changes = jsonpatch.make_patch(old, new).patch
    if all(change["op"] in ("add", "remove", "replace") for change in changes):
        # Libraries that follow Python take 1 for True; only what they get is to be compared.
        expected = jsonpatch.apply_patch(copy.deepcopy(old), copy.deepcopy(changes))
        assert is_same(json_patch.apply(copy.deepcopy(old), copy.deepcopy(changes)), expected)


@given(st.lists(values, max_size=6), st.lists(values, min_size=1, max_size=4))
def test_an_append_costs_what_was_appended(old: list[Any], more: list[Any]) -> None:
    changes = json_patch.diff({"log": old}, {"log": old + more})
    assert [change["op"] for change in changes] == ["add"] * len(more)
    assert is_same([change["value"] for change in changes], more)


def test_an_append_to_a_long_list_is_one_small_change() -> None:
    old = [{"n": n} for n in range(10_000)]
    assert json_patch.diff(old, [*old, {"n": 10_000}]) == [{"op": "add", "path": "/-", "value": {"n": 10_000}}]


def test_removing_one_of_many_is_one_change() -> None:
    old = [*range(1000)]
    assert json_patch.diff(old, old[:500] + old[501:]) == [{"op": "remove", "path": "/500"}]
    assert json_patch.diff(old, old[1:]) == [{"op": "remove", "path": "/0"}]


def test_a_deep_change_names_its_path_with_escapes() -> None:
    old = {"a/b": {"m~n": [1, 2]}}
    assert json_patch.diff(old, {"a/b": {"m~n": [1, 3]}}) == [{"op": "replace", "path": "/a~1b/m~0n/1", "value": 3}]


@pytest.mark.parametrize(
    ("one", "other"), [(True, 1), (False, 0), (1, 1.0), (0.0, -0.0), (None, False), ("1", 1), ([], {}), ([True], [1])]
)
def test_values_that_python_takes_for_equal_are_told_apart(one: Any, other: Any) -> None:
    assert is_same(json_patch.apply(copy.deepcopy({"k": one}), json_patch.diff({"k": one}, {"k": other})), {"k": other})
    assert json_patch.diff({"k": one}, {"k": other}) and not json_patch.same(one, other)


@pytest.mark.parametrize(
    "changes",
    [
        [{"op": "remove", "path": "/no"}],
        [{"op": "replace", "path": "/no", "value": 1}],
        [{"op": "add", "path": "/no/deeper", "value": 1}],
        [{"op": "add", "path": "/list/7", "value": 1}],
        [{"op": "add", "path": "/list/-1", "value": 1}],
        [{"op": "replace", "path": "/list/-1", "value": 1}],
        [{"op": "remove", "path": "/list/-1"}],
        [{"op": "replace", "path": "/list/2", "value": 1}],
        [{"op": "replace", "path": "/list/-", "value": 1}],
        [{"op": "remove", "path": "/list/-"}],
        [{"op": "add", "path": "/list/x", "value": 1}],
        [{"op": "add", "path": "/list/-1/x", "value": 1}],
        [{"op": "add", "path": "/list/ 1", "value": 1}],
        [{"op": "add", "path": "/list/1_0", "value": 1}],
        [{"op": "add", "path": "/number/x", "value": 1}],
        [{"op": "add", "path": "/text/0", "value": 1}],
        [{"op": "remove", "path": "/text/0"}],
        [{"op": "replace", "path": "/nothing/0", "value": 1}],
        [{"op": "move", "path": "/a", "from": "/text"}],
        [{"op": "test", "path": "/text", "value": "other"}],
        [{"op": "add", "path": "text", "value": 1}],
        [{"op": "add", "path": "/a"}],
        [{"op": "replace", "path": ""}],
        [{"path": "/text", "value": 1}],
        [{"op": "add", "value": 1}],
        [{"op": ["add"], "path": "/a", "value": 1}],
        [{"op": "add", "path": 7, "value": 1}],
        [{"op": "add", "path": None, "value": 1}],
    ],
)
def test_a_patch_that_was_not_made_for_the_value_is_an_error(changes: Any) -> None:
    with pytest.raises((LookupError, ValueError, TypeError)):
        json_patch.apply({"list": [1, 2], "text": "abc", "number": 5, "nothing": None}, changes)


def test_a_name_of_pythons_own_is_a_key_like_any_other() -> None:
    found = json_patch.apply(
        {}, [{"op": "add", "path": "/__proto__", "value": 1}, {"op": "add", "path": "/__class__", "value": 2}]
    )
    assert found == {"__proto__": 1, "__class__": 2} and type(found) is dict
