"""Partials and recovered files: any text comes back, and no damaged one passes for whole."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.base.errors import NewerFormat
from satchel.workspace.formats import yamltext
from satchel.workspace.views import partial_files
from satchel.workspace.views.partial_files import PartialHead

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.sampled_from(
    ["", "---\n", "\n---\nformat: 9\n---\n", "\0", "a\0b", "\r\n", "\u2028", "\ufeff", "🎒" * 9]
)
HEAD = PartialHead(
    run_id="r",
    scope="3",
    no=7,
    step="write: it",
    args="0" * 16,
    n=0,
    attempt=2,
    at="2026-11-01T00:00:00.000Z",
    call="('ü\\n')",
)


@given(texts, texts)
def test_any_text_and_any_head_come_back(text: str, call: str) -> None:
    from msgspec.structs import replace

    found = partial_files.parse_partial(partial_files.encode_partial(replace(HEAD, call=call, scope=f"_{call}"), text))
    assert found is not None
    head, body, damaged, edited = found
    assert (body, damaged, edited) == (text, False, False)
    assert (head.key, head.call, head.scope, head.attempt) == (HEAD.key, call, f"_{call}", 2)
    assert head.characters == len(text)


def test_the_head_is_yaml_that_a_person_can_read() -> None:
    data = partial_files.encode_partial(HEAD, "text").decode()
    assert yamltext.load(data.split("---\n")[1], "x").value["step"] == "write: it" and data.endswith("---\ntext")


TEXT = "Erster Satz. Zweiter Satz – mit Strich. 🎒 " * 20
DATA = partial_files.encode_partial(HEAD, TEXT)
BODY = len(DATA) - len(TEXT.encode())


def test_a_partial_cut_anywhere_is_a_prefix_marked_damaged_or_nobodys() -> None:
    for cut in range(len(DATA)):
        found = partial_files.parse_partial(DATA[:cut])
        if cut < BODY:
            assert found is None
        else:
            assert found is not None and found[2] and TEXT.startswith(found[1]) and len(found[1]) >= (cut - BODY) // 4


@given(st.integers(0, len(DATA)), st.integers(1, 5000))
def test_zeroed_pages_leave_a_prefix_marked_damaged_or_nothing(start: int, length: int) -> None:
    broken = DATA[:start] + b"\0" * min(length, len(DATA) - start) + DATA[start + length :]
    found = partial_files.parse_partial(broken)
    if broken == DATA:
        assert found is not None and found[1:] == (TEXT, False, False)
    elif found is not None:
        assert TEXT.startswith(found[1]) and (found[2] or found[1] == TEXT)


@given(st.integers(BODY, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_of_the_text_is_taken_for_what_was_written(at: int, flip: int) -> None:
    found = partial_files.parse_partial(DATA[:at] + bytes([DATA[at] ^ flip]) + DATA[at + 1 :])
    assert found is not None and found.damaged != found.edited


@pytest.mark.parametrize("text", ["short and edited", "SHORT", "short\n\n", "kurz und gut"])
def test_an_edited_text_is_cut_to_what_was_written(text: str) -> None:
    found = partial_files.parse_partial(partial_files.encode_partial(HEAD, "short")[: -len("short")] + text.encode())
    assert found is not None and found[1:] == (text, False, True)


def test_the_last_line_end_of_an_editor_is_an_edit() -> None:
    found = partial_files.parse_partial(partial_files.encode_partial(HEAD, "short") + b"\n")
    assert found is not None and found[1:] == ("short", False, False)


def with_head(**changes: Any) -> bytes:
    facts = {
        "format": 1,
        "run_id": "r",
        "scope": "3",
        "no": 7,
        "step": "s",
        "args": "0",
        "n": 0,
        "attempt": 1,
        "at": "x",
        "characters": 3,
        "crc": f"{zlib.crc32(b'abc'):08x}",
        "call": "",
    } | changes
    rows = "".join(
        f"{key}: {value if isinstance(value, _Raw) else json.dumps(value)}\n" for key, value in facts.items()
    )
    return f"---\n{rows}---\nabc".encode()


class _Raw(str):
    pass


def test_the_helper_makes_good_ones() -> None:
    assert partial_files.parse_partial(with_head()) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"no": "7"},
        {"no": True},
        {"no": 1.0},
        {"scope": None},
        {"scope": 3},
        {"step": ["s"]},
        {"n": {}},
        {"characters": None},
        {"format": "1"},
        {"format": None},
        {"step": "\ud800"},
        {"no": -1},
        {"n": -1},
        {"attempt": -5},
        {"attempt": 10**30},
        {"no": 10**30},
        {"n": 10**30},
        {"attempt": _Raw("9" * 5000)},
        {"call": _Raw("[" * 100_000)},
        {"x": _Raw("[" * 100_000 + "]" * 100_000)},
        {"no": _Raw("NaN")},
        {"attempt": _Raw("Infinity")},
        {"crc": 5},
        {"characters": -1},
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_a_head_that_says_nothing_sensible_is_nobodys(changes: dict[str, Any]) -> None:
    assert partial_files.parse_partial(with_head(**changes)) is None


def test_a_text_that_is_not_utf8_is_damaged_even_if_its_checksum_fits() -> None:
    data = with_head(crc=f"{zlib.crc32(b'ab' + bytes([255])):08x}")[:-3] + b"ab\xff"
    found = partial_files.parse_partial(data)
    assert found is None or (found[1], found[2]) == ("ab", True)


@pytest.mark.parametrize(
    "data", [b"", b"---\n", b"---\n---\n", b"---\nformat: 1\n---\n", b"abc", b"\0" * 99, b"---\n\xff: 1\n---\n"]
)
def test_what_is_no_partial_at_all_is_nobodys(data: bytes) -> None:
    assert partial_files.parse_partial(data) is None and partial_files.parse_recovered(data) is None


def test_a_newer_format_is_refused_and_not_taken_for_damage() -> None:
    with pytest.raises(NewerFormat):
        partial_files.parse_partial(with_head(format=2))


@given(texts, st.booleans())
def test_a_promoted_text_comes_back_without_its_marker(text: str, damaged: bool) -> None:
    data, record = partial_files.promotion(HEAD, text, damaged, "a crash", "recovered/x.md")
    found = partial_files.parse_recovered(data)
    assert found is not None and found[1] == text and found[0].damaged is damaged
    assert (record.characters, record.attempt, record.file, record.key) == (len(text), 2, "recovered/x.md", HEAD.key)


def test_a_recovered_text_never_looks_finished() -> None:
    for text in ("", "All done."):
        data, record = partial_files.promotion(HEAD, text, True, "crash", "recovered/x.md")
        assert "[recovered:" in data.decode().splitlines()[-1]
        marker = partial_files.marker_of(record)
        assert marker.damaged and marker.attempt == 2 and marker.characters == len(text)
    assert "start again" in str(partial_files.marker_of(partial_files.promotion(HEAD, "", False, "crash", "x")[1]))


@given(st.integers(0, len(DATA) + 200))
def test_a_recovered_file_cut_anywhere_is_a_prefix_or_nothing(cut: int) -> None:
    data, _ = partial_files.promotion(HEAD, TEXT, False, "crash", "recovered/x.md")
    found = partial_files.parse_recovered(data[:cut])
    assert found is None or TEXT.startswith(found[1])
