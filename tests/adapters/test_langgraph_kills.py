"""SIGKILL at any moment of a graph with durable nodes: no finished call of a model is repeated, no letter sent twice,
and no checkpoint lost that a saver has acknowledged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from killing import explore
from properties import ROUNDS, seed
from servers import Server

from satchel.adapters.langgraph import SatchelSaver

SUBJECTS = ("graph", "graph_saved", "graph_kept")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_killed_graph_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), 2, needs="satchel.adapters.langgraph")


@pytest.mark.soak
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_graph_killed_at_many_moments_ends_as_an_uninterrupted_one(subject: str, tmp_path: Path) -> None:
    explore(subject, tmp_path, "seeded", seed(), 40 * ROUNDS, needs="satchel.adapters.langgraph")


_WRITING = """
import sys
from langgraph.checkpoint.base import empty_checkpoint
from satchel.adapters.langgraph import SatchelSaver
saver = SatchelSaver(sys.argv[1], wait=60)
config = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
last = saver.get_tuple(config)
known = last.checkpoint["channel_values"]["list"] if last else []
config = last.config if last else config
while True:
    known.append(len(known))
    about = {"channel_values": {"list": known}, "channel_versions": {"list": len(known)}}
    config = saver.put(config, empty_checkpoint() | about, {"step": len(known)}, about["channel_versions"])
    saver.put_writes(config, [("list", [len(known)])], "task")
    print(config["configurable"]["checkpoint_id"], len(known), flush=True)
"""


def _killed_while_it_writes(place: str, rounds: int) -> None:
    """Kill a process that writes a thread, again and again. All that it has acknowledged must be there and whole."""
    chance, acknowledged = random.Random(number := seed()), dict[str, int]()
    print(f"seed {number}")
    for _ in range(rounds):
        words = [sys.executable, "-c", _WRITING, place]
        with warm.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            said = [process.stdout.readline() for _ in range(chance.randint(1, 12))]
            time.sleep(chance.uniform(0, 0.05))
            process.kill()
            said += process.stdout.readlines()
        for line in said:
            if line.endswith("\n"):
                id, length = line.split()
                acknowledged[id] = int(length)
        found = {each.config["configurable"]["checkpoint_id"]: each for each in SatchelSaver(place).list(None)}
        assert acknowledged.keys() <= found.keys()
        for id, each in found.items():
            length = acknowledged.get(id, each.metadata["step"])
            assert each.checkpoint["channel_values"] == {"list": [*range(length)]}
            assert each.pending_writes in ([("task", "list", [length])], [] if id not in acknowledged else None)
        lengths = sorted(each.metadata["step"] for each in found.values())
        assert lengths == [*range(1, len(lengths) + 1)], "one follows the other"


def test_a_checkpoint_that_was_acknowledged_is_lost_or_torn(tmp_path: Path) -> None:
    _killed_while_it_writes(str(tmp_path / "threads"), 2)


@pytest.mark.slow
def test_a_checkpoint_in_a_bucket_that_was_acknowledged_is_lost_or_torn(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    _killed_while_it_writes(seaweedfs.place(), 2 * ROUNDS)
