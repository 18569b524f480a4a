"""A run notices every save, however quickly they come one after the other."""

from __future__ import annotations

from pathlib import Path

from .quick_saves import lost

SEEDS = 120


def test_a_save_is_never_noticed(tmp_path: Path) -> None:
    """A file that was away for a look was not looked at before the run had written it again, which may be long after.
    And what was put back from a displaced file was forgotten if the next save came before the run had taken it."""
    assert {seed: words for seed in range(SEEDS) if (words := lost(tmp_path / str(seed), seed))} == {}
