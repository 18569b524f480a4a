"""Two programs hold one workspace in turn, and are killed at any moment: nothing that was acknowledged is lost, torn or
doubled, and what people save counts or is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from servers import Server

from .oracle import play

SEED = int(os.environ.get("SATCHEL_SEED") or 1)

# Of eight parts, one in the slow tier, and the others in `make soak`.
of_two_hundred = pytest.mark.parametrize(
    "seed",
    [
        pytest.param(SEED + 100, marks=pytest.mark.slow),
        *(pytest.param(SEED + 100 + number, marks=pytest.mark.soak) for number in range(1, 8)),
    ],
)


@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_kills_lose_tear_and_double_nothing(tmp_path: Path, seed: int) -> None:
    print(play(str(tmp_path / "held"), tmp_path, seed, kills=4, saves_in=tmp_path / "held/files"))


@of_two_hundred
def test_two_hundred_kills_on_a_disk(tmp_path: Path, seed: int) -> None:
    print(play(str(tmp_path / "held"), tmp_path, seed, kills=25, saves_in=tmp_path / "held/files"))


@of_two_hundred
def test_two_hundred_kills_in_a_bucket(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SATCHEL_LEASE_TTL", "1")
    print(play(f"{seaweedfs.place()}/held", tmp_path, seed, kills=25))
