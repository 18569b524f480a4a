"""pause.yaml as a format: what it may say, and what stays of a person's file when it is filled in."""

from __future__ import annotations

import pytest

from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.formats import PauseFile, pause_file
from satchel.workspace.inspect import lease
from satchel.workspace.journal import PauseRequested

FACTS = {"status": "paused", "reason": "maintenance", "requested_at": "2026-01-01T00:00:00Z"}


def test_the_wish_of_a_file_is_not_what_is_recorded() -> None:
    said = b"reason: a\nby: b\nmode: drain\nresume: restart_step\nexpected_until: 2030-01-01T00:00:00Z\n"
    wish = pause_file.parse(said)
    assert lease.pause_request(wish, "c") == PauseRequested(
        reason="a", by="b", mode="drain", resume="restart_step", until="2030-01-01T00:00:00.000Z"
    )


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"# a remark\n", b"---\n", b"reason:\nstatus: null\n", b"x-mine: [1, 2]\n"]
)
def test_a_file_that_says_nothing_is_no_wish(data: bytes) -> None:
    assert pause_file.parse(data) == PauseFile()
    assert lease.pause_request(pause_file.parse(data), "ann") == PauseRequested(reason="manual", by="ann", mode="drain")


@pytest.mark.parametrize(
    "data", [b"status: gone", b"mode: 1", b"[]", b"reason: [a]", b"expected_until: soon", b"{", b"\xff\xfe\x00"]
)
def test_what_can_not_be_understood_is_read_as_something_else(data: bytes) -> None:
    with pytest.raises(InvalidFile):
        pause_file.parse(data)


def test_a_line_of_a_person_is_changed_when_the_file_is_filled_in() -> None:
    mine = "# first\r\nx-ticket:   OPS-1   # why\r\n\r\nreason: disk # the big one\r\nx-list:\r\n  - a\r\n# last\r\n"
    filled = pause_file.filled(mine.encode(), FACTS).decode()
    for line in mine.split("\r\n"):
        assert line.replace("disk", "maintenance") in filled
    assert pause_file.filled(filled.encode(), FACTS) == filled.encode(), "filled in twice it is the same"
    assert pause_file.parse(filled.encode()) == PauseFile(
        status="paused", reason="maintenance", requested_at="2026-01-01T00:00:00Z"
    )


def test_a_new_file_does_not_say_how_to_go_on() -> None:
    made = pause_file.new(FACTS)
    assert b"status: resume" in made and pause_file.parse(made).status == "paused"
