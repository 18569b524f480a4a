"""Workspaces with hostile files: whatever is in them, no command ends in a traceback, hangs, or leaves its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from properties import ROUNDS, seed

from . import bases
from .bases import Files
from .play import Player, remembering

FEW, MANY, PARTS = 10, 500 * ROUNDS, 4


@pytest.fixture(scope="module")
def workspaces() -> list[Files]:
    return bases.build()


def play(tmp_path: Path, workspaces: list[Files], seed: int, count: int) -> None:
    player = Player(seed, tmp_path / "case", workspaces)
    again = f"cd tests/robustness && PYTHONPATH=.. python -m fuzz {player.seed} 1 N"
    print(f"seed {player.seed}: `{again}` plays the case N again")
    with remembering():
        for number in range(count):
            found = player.play(number)
            assert not found, "\n".join(map(str, found))


def test_a_few_hostile_workspaces_are_refused_or_harmless(tmp_path: Path, workspaces: list[Files]) -> None:
    play(tmp_path, workspaces, 1, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_hostile_workspaces_are_refused_or_harmless(tmp_path: Path, workspaces: list[Files], part: int) -> None:
    play(tmp_path, workspaces, seed() + part, MANY // PARTS)
