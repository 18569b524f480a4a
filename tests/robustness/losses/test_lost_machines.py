"""100 machines are lost: at most the last second is repeated, and no effect happens twice without a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from properties import seed
from servers import Server
from waits import PATIENCE

from losses import Loss, lose

MACHINES = 100
_IN_A_BUCKET = 10  # of 100: each process needs seconds to load the client of S3
_OLDEST = 10.0
"""Seconds. On a machine that is not busy, the oldest repeated step is less than one second old."""


def check(losses: list[Loss]) -> None:
    print(
        f"{len(losses)} machines: {sum(each.repeated for each in losses)} steps repeated, the oldest "
        f"{max(each.age for each in losses):.2f} s old; {sum(each.questions for each in losses)} questions, of "
        f"{sum(each.was_certain for each in losses)} the effect had happened"
    )
    assert max(each.age for each in losses) < min(_OLDEST, PATIENCE)


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD", "")


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_machine_repeats_an_effect(tmp_path: Path) -> None:
    first = seed()
    check([lose(tmp_path / str(number), str(tmp_path / f"backup-{number}"), first + number, {}) for number in range(4)])


@pytest.mark.slow
@pytest.mark.soak
def test_a_hundred_lost_machines_repeat_an_effect(
    tmp_path: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, losses = seed(), []
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    for number in range(MACHINES):
        place = seaweedfs.place() if number % _IN_A_BUCKET == 0 else str(tmp_path / f"backup-{number}")
        losses.append(lose(tmp_path / str(number), place, first + number, seaweedfs.environment()))
        print(number, first + number, losses[-1], flush=True)
    check(losses)
