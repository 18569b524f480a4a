"""Merging a person's `data` with the run's: rule by rule, then what holds for any three values."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.inbound.json_edits import Conflict, merge
from satchel.workspace.state import ABSENT
from satchel.workspace.state.json_patch import same

keys = st.sampled_from(["a", "b", "c", "x.txt", ""])
values = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, "", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=8,
)
mappings = st.dictionaries(keys, values, max_size=4)
ANY = values | mappings
BASES = st.just(ABSENT) | ANY
Side = Literal["ours", "theirs"]
SIDES: list[Side] = ["ours", "theirs"]


def dumped(value: Any) -> str:
    return json.dumps(value, default=str)


# With a base


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 2}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}),
        ({}, {"a": 1}, {"b": 2}, {"b": 2, "a": 1}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 2}, {"b": 3}),
        ({"a": 1, "b": 2}, {"b": 2}, {"b": 3, "a": 1}, {"b": 3}),
        ({"a": 1}, {}, {}, {}),
        ({"a": 1}, {"a": True}, {"a": 1}, {"a": True}),
        ({}, {"s": {"x": 1}}, {"s": {"y": 2}}, {"s": {"y": 2, "x": 1}}),
        ([1], [1, 2], [1, 3], [1, 2, 3]),
        ([], [2], [3, 4], [2, 3, 4]),
        ([1], [1, 2, 3], [1, 3], [1, 2, 3]),
        ({"a": [1]}, {"a": [1, 2]}, {"a": [0]}, None),
        ({"a": 1}, {"a": 2}, {"a": 3}, None),
        ({"a": 1}, {"a": 2}, {}, None),
        ({"a": 1}, {}, {"a": 2}, None),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"y": 1}}, None),
        ({}, {"a": [1]}, {"a": [2]}, None),
    ],
)
def test_what_one_side_changed_is_taken_from_it(base: Any, ours: Any, theirs: Any, merged: Any) -> None:
    found = merge(base, ours, theirs)
    if merged is None:
        (conflict,) = found.conflicts
        assert (conflict.place, conflict.why) == ("data.a", "both_changed")
        assert same(found.value, ours)
    else:
        assert found.conflicts == ()
        assert dumped(found.value) == dumped(merged)


def test_keys_stand_as_in_the_file_and_the_runs_new_ones_below() -> None:
    merged = merge({"a": 1, "b": 1}, {"new": 0, "a": 1, "b": 2}, {"b": 1, "mine": 5, "a": 1}).value
    assert list(merged) == ["b", "mine", "a", "new"]


def test_one_conflict_leaves_the_rest_of_a_preference_merged() -> None:
    base, ours, theirs = {"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 2, "c": 1}, {"a": 3, "b": 1, "c": 4}
    assert merge(base, ours, theirs, prefer="ours") == ({"a": 2, "b": 2, "c": 4}, ())
    assert merge(base, ours, theirs, prefer="theirs") == ({"a": 3, "b": 2, "c": 4}, ())


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "said"),
    [
        (
            {"s": {"a": 1}},
            {"s": {"a": 2}},
            {"s": {"a": 3}},
            "data.s.a: it was 1; the run has set it to 2, the file says 3",
        ),
        ({"a.b": 1}, {}, {"a.b": 3}, 'data["a.b"]: it was 1; the run has removed it, the file says 3'),
        ({"a": 1}, {"a": "x"}, {}, 'data.a: it was 1; the run has set it to "x", the file no longer has it'),
        ({}, {"a": 1}, {"a": None}, "data.a: it was not there; the run has set it to 1, the file says nothing (null)"),
        (
            ABSENT,
            {"a": 1},
            {"b": 2},
            "data.a: the run has 1; the file no longer has it, and what it was before is not known",
        ),
    ],
)
def test_a_conflict_says_what_is_at_stake(base: Any, ours: Any, theirs: Any, said: str) -> None:
    (conflict,) = merge(base, ours, theirs).conflicts
    assert str(conflict) == said


def test_absence_is_one_thing_in_every_process() -> None:
    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT  # noqa: S301
    assert str(ABSENT) == "nothing"
    conflict = Conflict("data", ABSENT, 1, 2, "both_changed")
    assert pickle.loads(pickle.dumps(conflict)) == conflict  # noqa: S301


# Without a base


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"a": 1}, {"a": 2, "b": 3}),
        ({"a": "long"}, {"a": "s"}),
        ({"a": 1}, {"a": None}),
        ({"a": []}, {"a": None}),
        ({"a": {}}, {"a": 0}),
        ({"a": [1, 2]}, {"a": [0, 1, 2, 3]}),
        ({"a": {"x": 1}}, {"a": {"x": {"y": 1}}}),
        ({}, {"a": {}}),
        (1, {"a": 1}),
    ],
)
def test_without_a_base_what_is_added_or_changed_is_taken(ours: Any, theirs: Any) -> None:
    assert merge(ABSENT, ours, theirs) == (theirs, ())


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [
        ({"a": 1, "b": 1}, {"a": 2}, "data.b"),
        ({"s": {"a": 1}}, {"s": {"b": 1}}, "data.s.a"),
        ({"s": {"a": 1}}, {"s": {}}, "data.s"),
        ({"s": {"a": 1}}, {"s": None}, "data.s"),
        ({"s": {"a": 1}}, {"s": "a"}, "data.s"),
        ({"s": "text"}, {"s": ""}, "data.s"),
        ({"s": "text"}, {"s": None}, "data.s"),
        ({"s": "text"}, {"s": []}, "data.s"),
        ({"s": [1, 2]}, {"s": [1]}, "data.s"),
        ({"s": [1, 2]}, {"s": [2, 1]}, "data.s"),
        ({"s": [1, 2]}, {"s": [1, 3, 4]}, "data.s"),
        ({"s": [1]}, {"s": [True]}, "data.s"),
        ({"s": [1]}, {"s": {"a": 1}}, "data.s"),
        ({"a": 1}, ABSENT, "data"),
    ],
)
def test_without_a_base_nothing_is_removed_unasked(ours: Any, theirs: Any, place: str) -> None:
    (conflict,) = merge(ABSENT, ours, theirs).conflicts
    assert (conflict.place, conflict.why, conflict.base) == (place, "removed_without_base", ABSENT)
    assert merge(ABSENT, ours, theirs, prefer="theirs") == (theirs, ())


# Whatever the values


@given(BASES, ANY)
def test_a_file_that_was_not_edited_changes_nothing(base: Any, ours: Any) -> None:
    assert merge(base, ours, copy.deepcopy(ours)).conflicts == ()
    assert same(merge(base, ours, copy.deepcopy(base)).value, ours) or base is ABSENT


@given(ANY, ANY)
def test_an_edit_alone_is_taken_as_it_is(base: Any, theirs: Any) -> None:
    found = merge(base, copy.deepcopy(base), theirs)
    assert found.conflicts == ()
    assert dumped(found.value) == dumped(theirs) or same(base, theirs)


@given(BASES, ANY, ANY)
def test_the_same_edit_merged_twice_is_merged_once(base: Any, ours: Any, theirs: Any) -> None:
    found = merge(base, ours, theirs)
    if not found.conflicts:
        again = merge(base, found.value, theirs)
        assert again.conflicts == ()
        assert same(again.value, found.value)


@given(BASES, ANY, ANY, st.sampled_from(SIDES))
def test_a_preference_leaves_no_conflict(base: Any, ours: Any, theirs: Any, prefer: Side) -> None:
    found = merge(base, ours, theirs)
    settled = merge(base, ours, theirs, prefer=prefer)
    assert settled.conflicts == ()
    if not found.conflicts:
        assert same(settled.value, found.value)


@given(BASES, ANY, ANY, st.sampled_from([None, *SIDES]))
def test_no_argument_is_changed(base: Any, ours: Any, theirs: Any, prefer: Side | None) -> None:
    before = dumped([base, ours, theirs])
    merge(base, ours, theirs, prefer=prefer)
    assert dumped([base, ours, theirs]) == before


@given(BASES, mappings, mappings)
def test_nothing_is_lost_without_being_said(base: Any, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Each value at the top comes from a side that changed it, or is in a conflict."""
    found = merge(base, ours, theirs)
    before = base if isinstance(base, dict) else {}
    for key, value in theirs.items():
        told = any(conflict.place.startswith("data") for conflict in found.conflicts)
        if not same(value, before.get(key, ABSENT)) and not told and not isinstance(value, dict | list):
            assert same(found.value[key], value)


@given(mappings, mappings)
def test_without_a_base_every_key_of_ours_survives(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    found = merge(ABSENT, ours, theirs)
    assert set(found.value) >= set(ours)
    if not found.conflicts:
        assert same(found.value, theirs)
