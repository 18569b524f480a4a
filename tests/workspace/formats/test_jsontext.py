"""JSON of strangers: what the fast parser would take silently, and what is said about the commonest slips."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import growth
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.base.errors import InvalidFile, NotSerializable
from satchel.workspace.formats.jsontext import DEPTH, dump, load, place_of, scan

TEXT = st.text().filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def refusal(text: str) -> str:
    with pytest.raises(InvalidFile) as caught:
        load(text, "state.json")
    return str(caught.value)


@given(JSON)
def test_a_value_is_read_back_as_another(value: Any) -> None:
    assert load(dump(value), "x.json") == value
    assert list(json.dumps(load(dump(value), "x.json"))) == list(json.dumps(value)), "order and types too"


@given(JSON)
def test_the_slow_scanner_finds_fault_with_what_the_fast_one_takes(value: Any) -> None:
    assert scan(dump(value))[1] == []
    assert scan(json.dumps(value))[1] == []


@given(st.text(alphabet='{}[],:"\\u12dtrufalsen0.eE+-/# \n', max_size=30))
def test_the_two_scanners_disagree(text: str) -> None:
    """Every refusal must come with a reason: the slow scanner has to find what the fast one stumbled over."""
    try:
        load(text, "x.json")
    except InvalidFile as error:
        assert all(problem.place.startswith("line ") for problem in error.problems)
    else:
        assert scan(text)[1] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"a": 1,}',
            "state.json, line 1, column 8: found a comma after the last key, expected no comma before }."
            " Remove the comma",
        ),
        ("[\n 1,\n 2,\n]", "line 3, column 3: found a comma after the last item"),
        ("{'a': 1}", "line 1, column 2: found a key in single quotes"),
        ("{\"a\": 'x'}", "found text in single quotes"),
        ("{a: 1}", 'found the key a without quotes, expected a key in double quotes. Write "a"'),
        ('{"a": 1 // x\n}', "line 1, column 9: found a comment"),
        ("# x\n{}", "found a comment"),
        ('{"a": 1 /* x */}', "found a comment"),
        ('{\n  "a": 1\n  "b": 2\n}', 'line 2, column 9: found no comma before "b"'),
        ('{"a" 1}', "a colon"),
        ('{"a": True}', "found True, expected true"),
        ('{"a": None}', "expected null"),
        ('{"a": NaN}', "found NaN"),
        ("[Infinity]", "found Infinity"),
        ("[-Infinity]", "found -Infinity"),
        ("[1e999]", "the number 1e999, which is too large"),
        ("[-1e999]", "too large"),
        ('{"a": 1,\n "b": {"a": 2},\n "a": 3}', 'line 3, column 2: found the key "a" a second time'),
        ('["\\ud800"]', "half of a surrogate pair"),
        ('["\ud800"]', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        ('["a\nb"]', "not closed in its line"),
        ('["a\tb"]', "a tab inside text"),
        ('["\\q"]', "the unknown escape \\q"),
        ("[01]", "a JSON number"),
        ("[.5]", "a JSON number"),
        ("[+1]", "a JSON number"),
        ("[yes]", 'Put text in double quotes: "yes"'),
        ('{"a": }', "Add the value"),
        ('{"a": [1, 2}', "expected a comma or ]"),
        ('{"a": {\n"b": 1', "line 1, column 7: found a mapping that is never closed"),
        ("", "an empty file"),
        ("\n \n", "line 1, column 1: found an empty file"),
        ('["\x01"]', "line 1, column 3: found the control character U+0001 inside text"),
        ('["a', "not closed in its line"),
        ('["a\\', "the unknown escape \\,"),
        ("{1: 2}", "the key 1 without quotes"),
        ('{"a": 1, [', "found [ where a key belongs"),
        ('{"a"', 'found the end of the file after the key "a"'),
        ('{"a":', "found the end of the file"),
        ("[1, ]", "line 1, column 3: found a comma after the last item"),
        ("[1: 2]", "found :, expected a comma or ]"),
        ("{} {}", "after the end"),
        ("\ufeff{}", "byte order mark"),
        ("\0\0\0", "found NUL bytes, expected JSON. A power failure can leave such a file"),
        ('{"a": "b\0\0', "control character U+0000"),
        ("1" * 5000, "more than 4300 digits"),
        ("[" * (DEPTH + 1) + "]" * (DEPTH + 1), "more than 100 nested levels"),
        ("[" * 200_000, "more than 100 nested levels"),
        ('{"a":' * 200_000, "more than 100 nested levels"),
    ],
)
def test_what_is_refused_is_not_explained(text: str, said: str) -> None:
    assert said in refusal(text)


def test_nesting_up_to_the_limit_is_refused() -> None:
    assert load("[" * DEPTH + "]" * DEPTH, "x.json")
    assert load("[" + ",".join(["[[]]"] * 1000) + "]", "x.json")


def test_a_surrogate_pair_is_taken_for_two_halves() -> None:
    assert load('["\\ud83d\\ude00"]', "x.json") == ["😀"]


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), "\ud800", {"a": object()}, b"x"])
def test_what_json_can_not_say_is_written(bad: Any) -> None:
    with pytest.raises(NotSerializable):
        dump({"data": bad})


def test_a_cycle_hangs_the_writer() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotSerializable):
        dump(ring)


def test_what_is_written_is_not_pleasant_to_read() -> None:
    assert dump({"z": 1, "a": ["é", {}, []]}) == '{\n  "z": 1,\n  "a": [\n    "é",\n    {},\n    []\n  ]\n}\n'


def test_the_wrong_line_is_named() -> None:
    place = place_of('{\n  "a": {\n    "b": [\n      1,\n      {"c": 2}\n    ]\n  },\n  "d":\n 3\n}\n')
    assert place(("a", "b", 1, "c")) == "line 5 (a.b[1].c)"
    assert place(("a", "b", 0)) == "line 4 (a.b[0])"
    assert place(("d",)) == "line 8 (d)"
    assert place(("a", "missing")) == "line 2 (a.missing)"
    assert place(()) == "line 1 (the top level)"


def test_a_large_file_takes_seconds() -> None:
    def of(size: int) -> partial[object]:
        return partial(load, dump({f"k{i}": {"a": [1, 2.5, "x"], "b": None} for i in range(size)}), "x.json")

    growth.stays_linear(of, 500)


@pytest.mark.parametrize("text", ['["{}", nul]', '["{}'])
def test_a_long_text_is_looked_at_character_by_character(text: str) -> None:
    """Found by fuzzing: a state.json of 21 MB held `satchel merge` for seven seconds."""

    def calls(length: int) -> int:
        seen = 0

        def count(*_: object) -> None:
            nonlocal seen
            seen += 1

        sys.setprofile(count)
        try:
            lines, problems = scan(text.format("x\\n" * length))
        finally:
            sys.setprofile(None)
        assert lines and problems
        return seen

    calls(1)  # compiles the patterns
    assert calls(1000) == calls(10)
