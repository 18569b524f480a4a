"""What is said of a pause that is over."""

from __future__ import annotations

from pathlib import Path

from satchel.workspace.lifecycle import pausing
from satchel.workspace.state import checkpoint
from satchel.workspace.state.run_state import Moment, Pause
from satchel.workspace.store import DiskStore


def test_the_length_of_a_pause_and_the_age_of_its_checkpoint_are_told() -> None:
    pause = Pause(
        reason="maintenance",
        by="you@laptop",
        requested_at="2026-11-22T08:00:00.000Z",
        paused_at="2026-11-22T08:00:10.000Z",
        until="2026-11-22T10:00:00.000Z",
    )
    found = pausing.finished(pause, "2026-11-22T08:00:09.000Z", "2026-11-22T10:05:10.000Z")
    assert found.says == (
        "the pause was 2 h 5 min long (maintenance, by you@laptop)",
        "the checkpoint is 2 h 5 min old",
        "it was expected to end 5 min 10 s ago",
    )
    assert (found.seconds, found.checkpoint_age) == (7500.0, 7501.0)
    assert pausing.finished(pause, "", "2026-11-22T08:00:10.000Z").says == (
        "the pause was 0 s long (maintenance, by you@laptop)",
    )


def test_the_newest_checkpoint_tells_when_it_was_written(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    assert pausing.newest_checkpoint_at(store) == ""
    checkpoint.write(store, Moment(run_id="a", seq=3), {})
    assert pausing.newest_checkpoint_at(store).startswith("20")
