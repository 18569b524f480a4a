"""The stamp: that it survives what it should, and that nothing else in a file is taken for it."""

from __future__ import annotations

from collections.abc import Callable

import growth
import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.workspace.base import stamp

OF = "run-1/"
SEQS, EPOCHS = st.integers(0, 10**12 - 1), st.integers(0, 10**9 - 1)


@given(st.binary(max_size=200), SEQS, EPOCHS)
def test_any_markdown_comes_back_whole_and_untouched(body: bytes, seq: int, epoch: int) -> None:
    found = stamp.read_markdown(stamp.sign_markdown(body, seq, epoch, OF), OF)
    assert found.body == body and found.untouched and found.stamp is not None and found.stamp[:2] == (seq, epoch)


@given(st.binary(max_size=100), st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_of_markdown_is_never_untouched(body: bytes, at: int, flip: int) -> None:
    data = bytearray(stamp.sign_markdown(body, 7, 1, OF))
    at %= len(data) - 1
    data[at] ^= flip
    found = stamp.read_markdown(bytes(data), OF)
    assert not found.untouched or (found.body == body and found.stamp is not None)


def test_another_runs_or_agents_file_is_not_untouched() -> None:
    signed = stamp.sign_markdown(b"- [ ] a\n", 7, 1, OF)
    assert stamp.read_markdown(signed, OF).untouched
    for of in ("", "run-1", "run-2/", "run-1/reader"):
        assert not stamp.read_markdown(signed, of).untouched


def test_a_stamp_is_only_a_whole_line_and_untouched_only_the_last() -> None:
    signed = stamp.sign_markdown(b"- [ ] a\n", 7, 1, OF)
    appended = stamp.read_markdown(signed + b"- [ ] b\n", OF)
    assert appended.stamp is not None and appended.stamp.seq == 7, "it still tells where the file stood"
    assert appended.body == b"- [ ] a\n- [ ] b\n" and not appended.untouched
    assert stamp.read_markdown(b"text " + signed.split(b"\n")[-2] + b"\n", OF).stamp is None
    assert stamp.read_markdown(signed.rstrip(b"\n"), OF).untouched, "an editor took the last line break"
    assert stamp.read_markdown(signed + b"\n  \n", OF).untouched, "an editor added one"


def test_of_two_stamps_the_last_counts_and_the_first_is_text() -> None:
    inner = stamp.sign_markdown(b"a", 3, 1, OF)
    found = stamp.read_markdown(stamp.sign_markdown(inner, 9, 2, OF), OF)
    assert found.stamp is not None and found.stamp.seq == 9 and found.body == inner and found.untouched


def json_file(rest: bytes = b"1", seq: int = 7) -> bytes:
    return stamp.sign_json(b'{\n  "at": {"seq": %d, "epoch": 1, "sha": "00000000"},\n  "x": %s\n}\n' % (seq, rest))


def test_any_change_of_json_is_seen_also_of_the_position() -> None:
    data = json_file()
    assert stamp.read_json(data).untouched
    for at in range(len(data)):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert not stamp.read_json(changed).untouched, at
    assert not stamp.read_json(data + b"\n").untouched


def test_the_agents_own_data_are_not_taken_for_the_stamp() -> None:
    found = stamp.read_json(json_file(b'{"at": {"seq": 9, "epoch": 9, "sha": "12345678"}}'))
    assert found.stamp is not None and found.stamp.seq == 7 and found.untouched


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"at": 5}', b'{"at": {"seq": 1e3, "epoch": 1, "sha": "00000000"}}', b"\xff\0"]
)
def test_a_file_without_a_stamp_has_none_and_is_not_untouched(data: bytes) -> None:
    for found in (stamp.read_json(data), stamp.read_markdown(data)):
        assert found == stamp.Stamped(None, data, False)


@pytest.mark.parametrize(
    "filler",
    [
        b"<!-- satchel 1.",
        b"\n",
        b" ",
        b"<!-- satchel 1.1.00000000 -->",
        b"<!-- satchel 1.1.00000000 -->\n",
        b'"at": {',
        b'"at": {"seq": 1,' + b" " * 20,
    ],
)
def test_looking_for_a_stamp_takes_no_more_than_moments(filler: bytes) -> None:
    def of(size: int) -> Callable[[], object]:
        data = filler * (size // len(filler)) + b"x"
        return lambda: (stamp.read_markdown(data), stamp.read_json(data))

    growth.stays_linear(of, 10_000)
