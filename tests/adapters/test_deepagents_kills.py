"""SIGKILL of deep agents and their files: no file is torn, an edit happens once, nothing on record is repeated."""

from __future__ import annotations

import random
import signal
import sys
import time
from pathlib import Path

import pytest
import warm
from deepagents.backends import FilesystemBackend
from killing import explore
from properties import ROUNDS, seed

import satchel

SIZE = 8_000
WRITER = """
import deepagents, sys
from satchel.adapters.deepagents import SatchelBackend

backend, first = SatchelBackend(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + 1_000):
    if number == 0 or number % 3:
        done = backend.write("/a b/all.txt", f"{number:09}\\r\\n" * int(sys.argv[3]))
    else:
        done = backend.edit("/a b/all.txt", f"{number - 1:09}\\n", f"{number:09}\\n", replace_all=True)
    assert not done.error, done
    print(number, flush=True)
"""
ITS_OWN = """
import deepagents, sys
from deepagents.backends import FilesystemBackend

backend, content = FilesystemBackend(sys.argv[1]), "all of it\\r\\n" * int(sys.argv[3])
for number in range(1_000):
    backend.write("/all.txt", content)
    print(number, flush=True)
"""


def killed_writer(code: str, place: Path, first: int, size: int, after: float) -> int:
    """The number of the last write that had returned when its process was killed, `after` seconds after the first."""
    command = [sys.executable, "-c", code, str(place), str(first), str(size)]
    with warm.Popen(command, stdout=-1, text=True) as process:
        assert process.stdout
        last = int(process.stdout.readline())
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        return max(last, *(int(line) for line in process.stdout.read().split("\n")[:-1] or [last]))


def kill_writers(place: Path, chance: random.Random, kills: int) -> None:
    last = -1
    for _ in range(kills):
        last = killed_writer(WRITER, place, last + 1, SIZE, chance.uniform(0, 0.15))
        file = satchel.open(place).held_file("a b/all.txt")
        assert file
        numbers = {*file.text.split("\r\n")[:-1]}
        assert len(numbers) == 1 and len(file.data) == 11 * SIZE, "torn"
        found = int(numbers.pop())
        assert found in (last, last + 1), "an acknowledged write is lost"
        last = found
        if (shown := place / "files/a b/all.txt").exists():  # it is written a moment after the record
            lines = shown.read_bytes().split(b"\r\n")
            assert len(lines) == SIZE + 1 and len({*lines[:-1]}) == 1, "the readable file is torn"


def test_no_file_is_torn_or_lost_by_a_kill(tmp_path: Path) -> None:
    kill_writers(tmp_path / "files", random.Random(seed()), 4)


@pytest.mark.soak
def test_no_file_is_torn_or_lost_by_200_kills(tmp_path: Path) -> None:
    kill_writers(tmp_path / "files", random.Random(seed()), 190 * ROUNDS)


@pytest.mark.soak
def test_files_of_its_own_backend_are_torn(tmp_path: Path) -> None:
    torn = 0
    for number in range(6):
        (tmp_path / str(number)).mkdir()
        killed_writer(ITS_OWN, tmp_path / str(number), 0, 2_000_000, 0.3)
        content = FilesystemBackend(tmp_path / str(number)).download_files(["/all.txt"])[0].content
        torn += content is None or len(content) < 22_000_000
    print(f"{torn} of 6 torn")
    assert torn


def test_a_killed_deep_agent_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    explore("deep", tmp_path, "seeded", seed(), 2, needs="deepagents")


@pytest.mark.slow
def test_a_deep_agent_killed_at_many_moments_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    explore("deep", tmp_path, "seeded", seed(), 5 * ROUNDS, needs="deepagents")
