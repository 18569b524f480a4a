"""One line of the journal: that it comes back as it was written, and that no other bytes come back at all."""

from __future__ import annotations

import json
import typing
import zlib
from collections.abc import Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from satchel.workspace import journal
from satchel.workspace.base.errors import NewerFormat, SatchelError
from satchel.workspace.journal import AnyRecord, BadLine, Closed, Line, Opened, PlanChanged, StepCompleted

KINDS = get_args(AnyRecord)
AT = "2026-11-01T00:00:00.000Z"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
raws = json_values.map(lambda value: Raw(msgspec.json.encode(value)))


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    origin = get_origin(kind)
    if kind is str:
        return texts
    if kind is int:
        return st.integers(0, 2**60)
    if kind is bool:
        return st.booleans()
    if kind is Raw:
        return raws
    if kind is object:
        return json_values
    if kind is type(None):
        return st.none()
    if origin is Literal:
        return st.sampled_from(get_args(kind))
    if origin is typing.Annotated:
        return of_type(get_args(kind)[0])
    if origin in (list, Sequence):
        return st.lists(of_type(get_args(kind)[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(*map(of_type, get_args(kind)), max_size=2)
    if origin is tuple and get_args(kind)[-1:] == (Ellipsis,):
        return st.lists(of_type(get_args(kind)[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, get_args(kind)))
    if origin is not None:
        return st.one_of(*map(of_type, get_args(kind)))
    hints = typing.get_type_hints(kind)
    names = [*getattr(kind, "__struct_fields__", getattr(kind, "_fields", ()))]
    return st.builds(kind, **{name: of_type(hints[name]) for name in names})


def sensible(found: Any) -> Any:
    """With what the types alone don't tell."""
    facts = {"format": journal.FORMAT, "until": AT, "due": AT, "arguments": Raw(b'{"to":"ada"}')}
    return structs.replace(found, **{name: fact for name, fact in facts.items() if name in found.__struct_fields__})


records = st.one_of(*map(of_type, KINDS)).map(sensible)
lines = st.builds(
    Line,
    seq=st.integers(1, 10**12 - 1),
    commit=st.integers(1, 10**12 - 1),
    at=st.just(AT),
    epoch=st.integers(1, 10**8 - 1),
    record=records,
    prev=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
    opening=st.sampled_from(["", "5be1c07d9c1f03ab"]),
)


def signed(body: str | bytes) -> bytes:
    """A line with a checksum that fits, of `body`, an object."""
    head = (body.encode() if isinstance(body, str) else body)[:-1]
    if b'"prev"' not in head:
        head = head.replace(b",", b',"prev":"00000000",', 1)
    return b'%s,"crc":"%08x"}' % (head, zlib.crc32(head + b"}"))


CRC = "5be1c07d"
SAMPLE = Line(7, 5, "2026-11-01T00:00:00.000Z", 3, Closed(status="failed", reason="ünï"))


@given(lines)
def test_a_line_comes_back_as_it_was_written(line: Line) -> None:
    data = journal.encode(line)
    assert data.endswith(b"\n") and data.count(b"\n") == 1
    assert (
        journal.parse(data[:-1]) == journal.written(line).line == structs.replace(line, crc=journal.crc_of(data[:-1]))
    )


@given(lines)
def test_a_line_is_the_json_that_the_format_says(line: Line) -> None:
    facts = json.loads(journal.encode(line))
    group = ["commit"] if line.commit != line.seq else []
    head = ["seq", "prev", *group, "at", "epoch", *(["opening"] if line.opening else []), "type"]
    assert list(facts)[: len(head)] == head and list(facts)[-1] == "crc"
    assert (facts["seq"], facts["type"]) == (line.seq, type(line.record).__struct_config__.tag)


@given(lines, lines, st.booleans(), st.booleans())
def test_a_line_comes_back_as_it_was_written_behind_another(
    first: Line, second: Line, is_same_time: bool, is_same_group: bool
) -> None:
    """It leaves out what that says."""
    _, first = journal.written(first)
    second = structs.replace(
        second, seq=first.seq + 1, commit=first.commit if is_same_group else first.seq + 1, prev=first.crc
    )
    if is_same_time:
        second = structs.replace(second, at=first.at, epoch=first.epoch, opening=first.opening)
    data, written = journal.written(second, first)
    assert journal.parse(data[:-1], first.before) == written
    assert journal.parse(journal.encode(written)[:-1]) == structs.replace(
        written, crc=journal.crc_of(journal.encode(written)[:-1])
    )
    said = ["seq", "commit" if is_same_group else "prev"]
    assert not is_same_time or list(json.loads(data))[:3] == [*said, "type"]
    whole = json.loads(journal.whole(data[:-1], written))
    assert whole | {"opening": written.opening} == whole
    assert (whole["seq"], whole["prev"], whole["commit"], whole["at"]) == (
        second.seq,
        first.crc,
        second.commit,
        second.at,
    )
    assert list(whole)[6:] == [key for key in json.loads(data) if key not in list(whole)[:6]]


def test_a_line_that_names_no_line_before_it_is_read_behind_that_one_only() -> None:
    """As the `prev` that it leaves out would: two histories never have lines in common once they differ."""
    data = journal.written(structs.replace(SAMPLE, prev=CRC), structs.replace(SAMPLE, crc=CRC)).data[:-1]
    assert b"prev" not in data
    assert journal.parse(data, journal.Before(CRC, SAMPLE.at, 3)).prev == CRC
    for before in (
        journal.Before("5be1c07e", SAMPLE.at, 3),
        journal.Before(at=SAMPLE.at, epoch=3),
        journal.Before("xx"),
    ):
        with pytest.raises(BadLine, match="checksum"):
            journal.parse(data, before)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"seq":1,"at":"2026-11-01T00:00:00.000Z","type":"closed"}', "epoch"),
        ('{"seq":1,"epoch":1,"type":"closed"}', "time"),
    ],
)
def test_the_first_line_of_a_segment_leaves_nothing_out(body: str, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        journal.parse(signed(body))


AT_ONE = '"at":"2026-11-01T00:00:00.000Z"'


@pytest.mark.parametrize(
    "head",
    [
        f'"epoch":4,"seq":1,{AT_ONE},"opening":"ab"',
        f'"seq":1,"prev":"5be1c07d",{AT_ONE},"epoch":4,"opening":"\\u0061b"',
        f'"seq":1,"prev":"5be1c07d",{AT_ONE},"epoch":4,"host":{{"name":"h1"}},"opening":"ab"',
        f'"seq":1,"prev":"5be1c07d",{AT_ONE},"epoch":4,"opening":"ab","host":"h1"',
    ],
)
def test_what_a_newer_version_adds_to_a_line_makes_it_a_torn_one(head: str) -> None:
    """A start would cut it off, and what it records with it."""
    prev = "5be1c07d" if '"prev"' in head else journal.NO_CRC
    before = journal.Before(prev, "2026-10-01T00:00:00.000Z", 3, "cd")
    data = signed(f'{{{head},"type":"closed"}}')
    line = journal.parse(data, before)
    assert (line.seq, line.prev, line.epoch, line.opening, line.at[:7]) == (1, prev, 4, "ab", "2026-11")
    assert journal.is_whole(data, prev)
    newer = signed(f'{{{head},"type":"closed.again"}}')
    with pytest.raises(NewerFormat, match=r"closed\.again"):
        journal.parse(newer, before)


@pytest.mark.parametrize("arguments", ["7", "[1]", '"to"'])
def test_arguments_that_are_no_object_reach_who_shows_a_question(arguments: str) -> None:
    key = '"scope":"^1","no":1,"step":"send","args":"aa","n":0,"idempotency_key":"k"'
    with pytest.raises(BadLine, match="not an object"):
        journal.parse(signed(f'{{"seq":1,{AT_ONE},"epoch":1,"type":"step.started",{key},"arguments":{arguments}}}'))


@pytest.mark.parametrize("head", [f'"seq":1,{AT_ONE},"epoch":100000000', f'"seq":-1,{AT_ONE},"epoch":1'])
def test_a_number_out_of_range_is_taken_from_the_line_before(head: str) -> None:
    with pytest.raises(BadLine):
        journal.parse(signed(f'{{{head},"type":"closed"}}'), journal.Before(CRC, SAMPLE.at, 3, "5be1c07d9c1f03ab"))


def test_a_line_follows_nothing_and_is_taken() -> None:
    body = b'{"seq":1,"at":"2026-11-01T00:00:00.000Z","epoch":1,"type":"closed"'
    with pytest.raises(BadLine, match="follows"):
        journal.parse(b'%s,"crc":"%08x"}' % (body, zlib.crc32(body + b"}")), journal.Before(journal.NO_CRC))


def test_the_checksum_is_of_the_line_without_it() -> None:
    data = journal.encode(SAMPLE)[:-1]
    body, _, tail = data.rpartition(b',"crc":')
    assert tail == b'"%08x"}' % zlib.crc32(body + b"}")


def test_no_byte_of_a_line_can_change_unseen() -> None:
    data = journal.encode(SAMPLE)[:-1]
    for at in range(len(data)):
        for byte in (0, 0x20, 0x30, 0x7D, 0xFF, data[at] ^ 1):
            if byte != data[at]:
                with pytest.raises(BadLine):
                    journal.parse(data[:at] + bytes([byte]) + data[at + 1 :])


def test_no_part_of_a_line_passes_for_a_line() -> None:
    data = journal.encode(SAMPLE)[:-1]
    for at in range(len(data)):
        for part in (data[:at], data[at + 1 :], data[: at + 1] + data):
            with pytest.raises(BadLine):
                journal.parse(part)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_line_are_never_more_than_a_bad_line(data: bytes) -> None:
    with pytest.raises(BadLine):
        journal.parse(data)
    with pytest.raises((BadLine, NewerFormat)):
        journal.parse(signed(data + b"}"))


@given(lines, texts, json_values)
def test_fields_of_a_newer_minor_version_are_ignored(line: Line, name: str, value: object) -> None:
    facts = json.loads(journal.encode(line))
    del facts["crc"]
    facts[f"x-{name}"] = value
    body = msgspec.json.encode(facts)
    assert journal.parse(signed(body)).seq == line.seq


def test_an_unknown_type_is_of_a_newer_satchel_and_not_damage() -> None:
    with pytest.raises(NewerFormat, match=r"(?i)upgrade satchel"):
        journal.parse(signed('{"seq":1,"commit":1,"at":"x","epoch":1,"type":"archived","to":1}'))


@pytest.mark.parametrize(
    "body",
    [
        '{"seq":1}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":5}',
        '{"seq":"1","commit":1,"at":"x","epoch":1,"type":"closed"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":"closed","status":"asleep"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":"closed","status":NaN}',
        '{"seq":1e400,"commit":1,"at":"x","epoch":1,"type":"closed"}',
        '{"seq":1,"commit":1,"at":"x","epoch":-1,"type":"closed"}',
        '{"seq":-1,"commit":1,"at":"x","epoch":1,"type":"closed"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1000000000000,"type":"closed"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":"closed","reason":"\\ud800"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":"plan.changed","plan":[[1]],"by":"agent"}',
        b'{"seq":1,"commit":1,"at":"x","epoch":1,"type":"closed","reason":"\xff"}',
        b'{"seq":1,"commit":1,"at":"x","epoch":1,"type":"\xff"}',
        '{"seq":1,"commit":1,"at":"x","epoch":1,"type":"closed","x":' + "[" * 100_000 + "]" * 100_000 + "}",
        "[]",
        "null",
    ],
)
def test_a_signed_line_that_says_nothing_sensible_is_a_bad_line(body: str | bytes) -> None:
    with pytest.raises(BadLine):
        journal.parse(signed(body))


def test_a_result_with_line_breaks_does_not_become_several_lines() -> None:
    kept = StepCompleted(scope="", no=1, step="s", args="0", n=0, result=Raw(b'{\n  "a": 1\n}'))
    try:
        data = journal.encode(Line(1, 1, "x", 1, kept))
    except SatchelError:
        return
    assert data.count(b"\n") == 1
    assert json.loads(data)["result"] == {"a": 1}


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_splices_of_any_numbers_are_read_as_they_are(line: int, removed: int) -> None:
    change = PlanChanged(plan=((line, removed, "x"),), by="agent")  # type: ignore[arg-type]
    try:
        found = journal.parse(journal.encode(Line(1, 1, "x", 1, change))[:-1]).record
    except BadLine:
        return
    assert isinstance(found, PlanChanged) and tuple(found.plan[0]) == (line, removed, "x")


def test_an_opening_in_a_newer_format_is_refused_and_not_damage() -> None:
    opened = Opened(
        format=journal.FORMAT + 1, run_id="r", satchel="9", python="3", host="h", pid=1, why="run", found="new"
    )
    with pytest.raises(NewerFormat, match="format 2"):
        journal.parse(journal.encode(Line(1, 1, "x", 1, opened))[:-1])


def test_no_record_has_a_field_that_the_line_around_it_has_too() -> None:
    for kind in KINDS:
        assert not {"seq", "commit", "at", "epoch", "type", "crc"} & set(kind.__struct_fields__), kind
