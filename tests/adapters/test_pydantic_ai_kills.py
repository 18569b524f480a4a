"""SIGKILL at any moment of an agent of Pydantic AI: at most one call more of what was under way, every result in its
place, every effect once."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import warm
from killing import explore
from properties import ROUNDS, seed
from servers import BUCKET, Server

from satchel import run

SUBJECTS = ("conversing", "one_by_one")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_killed_conversation_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), 2, needs="pydantic_ai")


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_conversation_killed_at_many_moments_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), 5 * ROUNDS, needs="pydantic_ai")


_CHILD = """
import json, os, signal, sys, pydantic_ai
sys.path[:0] = [sys.argv[1], f"{sys.argv[1]}/robustness"]
import killing
from killing import conversing, one_by_one
from pathlib import Path
from satchel import run

moment, count = int(sys.argv[4]), 0

def tick():
    global count
    count += 1
    if count == moment:
        os.kill(os.getpid(), signal.SIGKILL)

killing.tick = tick
outcome = run(sys.argv[2], conversing.make_agent(getattr(conversing, sys.argv[5]), Path(sys.argv[3])))
print(json.dumps([outcome.status, str(outcome.error), outcome.result, count]))
"""


def _child(server: Server, place: str, outside: Path, moment: int, turns: str) -> Any:
    """What a process says at its end, or None if it was killed at `moment`."""
    words = [sys.executable, "-c", _CHILD, str(Path(__file__).parents[1]), place, str(outside), str(moment), turns]
    environment = {**os.environ, **server.environment()}
    done = warm.run(words, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _killed_in_a_bucket(server: Server, tmp_path: Path, turns: str, rounds: int) -> None:
    from killing import conversing

    chance, plan = random.Random(number := seed()), getattr(conversing, turns)
    print(f"seed {number}")
    expected, calls = conversing.expected(plan), conversing.calls(plan)
    moments = 0
    for n in range(rounds + 1):
        place, outside = server.place(), tmp_path / f"outside{n}"
        key = f"{place.removeprefix('s3://').partition('/')[2]}/workspace.yaml"
        server.client.put_object(Bucket=BUCKET, Key=key, Body=b"format: 1\nrun_id: killed-1\nagent: agent.py:main\n")
        kills = 0
        for moment in sorted(chance.randint(1, moments) for _ in range(chance.choice((1, 2)))) if moments else ():
            kills += _child(server, place, outside, moment, turns) is None
        status, error, found, count = _child(server, place, outside, 0, turns)
        moments = moments or count
        assert status == "completed", error
        assert found == expected
        more = Counter(outside.with_suffix(".log").read_text().splitlines()) - calls
        assert all(again <= kills * calls[what] for what, again in more.items()), more
        effects = [line.split() for line in outside.read_text().splitlines()]
        assert sorted(name for name, _ in effects) == ["ann", "bob", "cid"]


@pytest.mark.slow
@pytest.mark.parametrize("turns", ["TOGETHER", "TURNS"])
@pytest.mark.parametrize("kind", ["seaweedfs", pytest.param("moto", marks=pytest.mark.soak)])
def test_a_conversation_in_a_bucket_killed_at_many_moments_ends_as_an_uninterrupted_one(
    kind: str, turns: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    _killed_in_a_bucket(request.getfixturevalue(kind), tmp_path, turns, ROUNDS)


def test_a_call_that_was_on_record_and_is_made_again_is_seen(tmp_path: Path) -> None:
    """What the kills are checked with has teeth."""
    from killing import conversing

    folder, outside = tmp_path / "run", tmp_path / "outside"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: r-1\nagent: agent.py:main\n")
    log = outside.with_suffix(".log")
    run(folder, conversing.make_agent(conversing.TOGETHER, outside))
    assert conversing.wrong(conversing.TOGETHER, folder, outside) == ""
    log.write_text(log.read_text() + "look c\n")
    assert "look c" in conversing.wrong(conversing.TOGETHER, folder, outside)
    log.write_text(log.read_text() + "model 1\n")
    assert "model 1" in conversing.wrong(conversing.TOGETHER, folder, outside)
