"""pause.yaml as a format: what it may say, and what stays of a person's file when it is filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satchel.schemas import problems, schema
from satchel.workspace import pausefile
from satchel.workspace.errors import InvalidFile
from satchel.workspace.pausefile import PauseFile
from satchel.workspace.record import PauseRequested

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**12), st.floats(allow_nan=False), st.text(max_size=3),
    st.sampled_from(["paused", "resume", "emergency", "continue"]), st.lists(st.text(max_size=2), max_size=2),
    st.dictionaries(
        st.sampled_from(["seq", "file", "verified", "item", "steps_done", "waiting_for", "else"]),
        st.one_of(st.none(), st.booleans(), st.integers(-1, 9), st.floats(allow_nan=False), st.lists(st.just("d1"))),
        max_size=3,
    ),
)  # fmt: skip
FACTS = {"status": "paused", "reason": "maintenance", "requested_at": "2026-01-01T00:00:00Z"}


def test_the_wish_of_a_file_is_not_what_is_recorded() -> None:
    said = b"reason: a\nby: b\nmode: drain\nresume: restart_step\nexpected_until: 2030-01-01T00:00:00Z\n"
    wish = pausefile.parse(said)
    assert wish.request("c") == PauseRequested(
        reason="a", by="b", mode="drain", resume="restart_step", until="2030-01-01T00:00:00.000Z"
    )


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"# a remark\n", b"---\n", b"reason:\nstatus: null\n", b"x-mine: [1, 2]\n"]
)
def test_a_file_that_says_nothing_is_no_wish(data: bytes) -> None:
    assert pausefile.parse(data) == PauseFile()
    assert pausefile.parse(data).request("ann") == PauseRequested(reason="manual", by="ann", mode="drain")


@pytest.mark.parametrize(
    "data", [b"status: gone", b"mode: 1", b"[]", b"reason: [a]", b"expected_until: soon", b"{", b"\xff\xfe\x00"]
)
def test_what_can_not_be_understood_is_read_as_something_else(data: bytes) -> None:
    with pytest.raises(InvalidFile):
        pausefile.parse(data)


def test_a_line_of_a_person_is_changed_when_the_file_is_filled_in() -> None:
    mine = "# first\r\nx-ticket:   OPS-1   # why\r\n\r\nreason: disk # the big one\r\nx-list:\r\n  - a\r\n# last\r\n"
    filled = pausefile.filled(mine.encode(), FACTS).decode()
    for line in mine.split("\r\n"):
        assert line.replace("disk", "maintenance") in filled
    assert pausefile.filled(filled.encode(), FACTS) == filled.encode(), "filled in twice it is the same"
    assert pausefile.parse(filled.encode()) == PauseFile(
        status="paused", reason="maintenance", requested_at="2026-01-01T00:00:00Z"
    )  # fmt: skip


def test_a_new_file_does_not_say_how_to_go_on() -> None:
    made = pausefile.new(FACTS)
    assert b"status: resume" in made and pausefile.parse(made).status == "paused"


@given(st.dictionaries(st.sampled_from([*schema("pause")["properties"], "x-mine", "else"]), VALUES, max_size=4))
def test_what_is_taken_without_asking_the_schema_breaks_it(said: dict[str, object]) -> None:
    assert not pausefile._is_plainly_valid(said) or not problems("pause", said)


def test_the_schema_is_asked_about_what_the_runtime_writes_itself() -> None:
    facts = {
        **FACTS, "by": "a", "mode": "drain", "resume": "continue", "paused_at": "2026-01-01T00:00:00Z",
        "checkpoint": {"seq": 3, "file": "checkpoints/3.json", "sha256": "0", "verified": True}, "forced": False,
        "position": {"item": None, "steps_done": 1, "waiting_for": ["d1"]}, "config": {"python": "3.11"},
        "references": ["a"],
    }  # fmt: skip
    assert pausefile._is_plainly_valid(facts) and not problems("pause", facts)
