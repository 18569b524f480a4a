"""When a commit may follow others that were made since its scope began."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from satchel.workspace.inbound.json_edits import merge
from satchel.workspace.state.json_patch import KnownText, apply, contradiction, diff, same

BASE = {"n": 1, "said": ["a"], "by": {"x": {"deep": [1]}, "y/z": 2}, "gone": None}


def change(path: str, value: Any) -> Any:
    return apply(BASE, [{"op": "add", "path": path, "value": value}])


def places(patch: Any) -> list[str]:
    return [str(change["path"]) for change in patch]


@pytest.mark.parametrize(
    ("ours", "theirs", "place"),
    [
        (change("/n", 2), BASE, None),
        (change("/n", 2), change("/by/x", 3), None),
        (change("/n", 2), change("/n", 2), "/n"),
        (change("/n", 2), change("/n", 1.0), "/n"),
        (change("/new", 1), change("/other", 1), None),
        (change("/new", 1), change("/new", 1), "/new"),
        (change("/by/x/deep", [1, 2]), change("/by/y~1z", 3), None),
        (change("/by/y~1z", 3), change("/by/y~1z", 4), "/by/y~1z"),
        (change("/by/x/deep", [1, 2]), change("/by/x", 3), "/by/x/deep/-"),
        (change("/by/x", 3), change("/by/x/deep", [1, 2]), "/by/x"),
        (change("/said", ["a", "b"]), change("/said", ["a", "b"]), None),
        (change("/said", ["a", "b", "c"]), change("/said", ["a", "d"]), None),
        (change("/said", ["a", "b"]), change("/said", []), "/said/-"),
        (change("/said", ["b"]), change("/said", ["a", "b"]), "/said/0"),
        (change("/said", []), change("/said", ["a", "b"]), "/said/0"),
        (change("/said", ["b", "a"]), change("/said", ["a", "b"]), "/said/0"),
        (change("/said", ["a", "b"]), {key: BASE[key] for key in BASE if key != "said"}, "/said/-"),
    ],
)
def test_a_change_of_both_is_merged(ours: Any, theirs: Any, place: str | None) -> None:
    assert contradiction(places(diff(BASE, ours)), BASE, theirs) == place


def test_elements_of_two_appends_are_dropped_or_their_places_exchanged() -> None:
    ours, theirs = {"said": ["a", "ok", "b"]}, {"said": ["a", "ok"]}
    patch = diff({"said": ["a"]}, ours)
    assert contradiction(places(patch), {"said": ["a"]}, theirs) is None
    assert apply(theirs, patch) == {"said": ["a", "ok", "ok", "b"]}


_values = st.recursive(
    st.integers(0, 2) | st.booleans(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
_objects = st.dictionaries(st.sampled_from("abc"), _values, max_size=3)


@examples(300)
@given(_objects, _objects, _objects)
def test_a_change_of_another_commit_is_undone(base: Any, ours: Any, theirs: Any) -> None:
    """What is no contradiction is no conflict by the rule for edits either, and has the same outcome."""
    patch: Any = msgspec.json.decode(msgspec.json.encode(KnownText(_text(base)).change_to(_text(ours))))
    if contradiction(places(patch), base, theirs) is None:
        merged = merge(base, theirs, ours)
        assert not merged.conflicts and same(apply(theirs, patch), merged.value)


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value)
