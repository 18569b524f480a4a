"""Killed in the middle of a summary, and resumed: nothing is missing, doubled, or done again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import satchel

from . import folder

KILLS = 2


@pytest.fixture
def expected(tmp_path: Path, documents: Path) -> Path:
    """A run that nothing has interrupted."""
    path = folder.make(tmp_path / "expected", sources=str(documents), words_per_second=0)
    assert satchel.run(path).status == "completed"
    return path


def die_at(path: Path, item: int, share: float, whole: str) -> str:
    """Kill the run when this share of an item's summary has been written. Returns what is in the folder then."""
    folder.run_until_it_dies(path, item, max(1, int(share * len(whole))))
    left = folder.partial_of(path, item)
    assert len(left) < len(whole)
    assert whole.startswith(left)
    return left


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))])
def test_a_resumed_brief_is_byte_for_byte_that_of_an_undisturbed_run(
    seed: int, tmp_path: Path, documents: Path, expected: Path
) -> None:
    chance = random.Random(seed)
    wholes = list(folder.summaries(expected).values())
    path = folder.make(tmp_path / "run", sources=str(documents), words_per_second=300)
    # Sorted, as a run never comes back to what it has finished.
    moments = sorted((chance.randrange(len(wholes)), chance.uniform(0.0, 0.9)) for _ in range(KILLS))
    left = ""
    for number, share in moments:
        left = die_at(path, number + 1, share, wholes[number])
    outcome = folder.run_to_end(path)
    assert outcome == {"status": "completed", "error": "None", "recovered": len(left)}
    assert (path / "outputs" / "brief.md").read_bytes() == (expected / "outputs" / "brief.md").read_bytes()
    assert folder.summaries(path) == folder.summaries(expected)
    assert folder.calls_done_twice(path) == []


def test_a_summary_that_is_cut_off_again_and_again_is_begun_anew_and_still_the_same(
    tmp_path: Path, documents: Path, expected: Path
) -> None:
    whole = folder.summaries(expected)["1-bridges.md"]
    path = folder.make(tmp_path / "run", sources=str(documents), words_per_second=300)
    for share in (0.3, 0.6, 0.9):
        die_at(path, 2, share, whole)
    outcome = folder.run_to_end(path)
    assert (outcome["status"], outcome["recovered"]) == ("completed", 0)
    assert folder.brief(path) == folder.brief(expected)
    assert folder.calls_done_twice(path) == []


def test_what_was_cut_off_is_kept_marked_as_not_finished_and_continued(
    tmp_path: Path, documents: Path, expected: Path
) -> None:
    whole = folder.summaries(expected)["0-rivers.md"]
    path = folder.make(tmp_path / "run", sources=str(documents), words_per_second=5)
    folder.run_and_kill(path, lambda: len(folder.partial_of(path, 1)) >= 30)
    left = folder.partial_of(path, 1)
    assert 30 <= len(left) < len(whole)
    folder.change(path, words_per_second=0)
    assert folder.run_to_end(path)["recovered"] == len(left)
    (recovered,) = path.glob("recovered/1-*/*.md")
    text = recovered.read_text()
    assert f"---\n{left}\n\n[recovered: the answer of attempt 1 was cut off after {len(left)} characters" in text
    assert text.endswith("it is not finished]\n")
    assert folder.summaries(path)["0-rivers.md"] == whole
