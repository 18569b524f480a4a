"""A person corrects messages.jsonl between the turns of a runtime that is killed at any moment: each correction is made
once, whatever a process had taken of it when it died, and every other message stays as it was said."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from crash import memory
from crash.memory import ROOT, Memory
from crash.steady import new_process, steady
from properties import ROUNDS

from satchel import Item, Run, agent, run
from satchel.workspace.store import DiskStore

from .machine import _left_by, _without_folders
from .tree import records

NAME = "messages.jsonl"
ITEMS = 24


class Conversation:
    """What the person has made of it. `touched`: the messages that are no longer as they were said."""

    def __init__(self, rng: random.Random):
        self.rng, self.number = rng, 0
        self.tree: dict[str, bytes] = {"workspace.yaml": b"format: 1\nrun_id: talk\nagent: agent.py:main\n"}
        self.gone: set[int] = set()
        self.changed: dict[int, str] = {}
        self.added: set[str] = set()
        self.is_clean = False

    def turn(self, items: int, crash: tuple[int, str] | None) -> None:
        """A process that does so many items and then pauses; or is killed on its way."""
        new_process()
        left = [items]

        async def talk(run: Run[Any], item: Item) -> None:
            left[0] -= 1
            if left[0] < 0:
                await run.pause("enough")
            run.messages.add("user", item.text)
            run.messages.add("assistant", f"{item.text} after {len(run.messages)}")

        @agent
        async def main(run: Run[Any]) -> None:
            if not run.todo.items:
                await run.plan(None, [f"item {number}" for number in range(ITEMS)])
            await run.todo.each(talk)

        system = Memory(memory.planted(self.tree))
        outcome = run(DiskStore(ROOT, system), main)
        assert outcome.status in ("paused", "completed"), outcome
        self.is_clean = crash is None
        if crash is None:
            self.tree = _without_folders(memory.files(system.nodes))
            self.check()
        else:
            self.tree = _left_by(system, len(system.log) * crash[0] // 1000, crash[1])
        if pause := self.tree.get("pause.yaml"):
            self.tree["pause.yaml"] = re.sub(rb"status: \w+", b"status: resume", pause)

    def edit(self) -> None:
        """Of what the person sees: a line that a crash has torn, and lines without a number yet, stay as they are."""
        rng, lines = self.rng, self.tree.get(NAME, b"").split(b"\n")
        numbered = [place for place, line in enumerate(lines) if _seq(line) and _seq(line) not in self.gone]
        if len(numbered) < 4 or len(lines) - 1 - numbered[-1] > 1:
            return
        how, place = rng.choice(["change", "remove", "insert", "insert", "first", "cut"]), rng.choice(numbered[:-1])
        found = json.loads(lines[place])
        self.number += 1
        text = f"correction {self.number}"
        new = json.dumps({"role": "system", "content": text}).encode()
        if how == "change":
            lines[place] = json.dumps(found | {"content": text}).encode()
            if found["content"] in self.added:
                self.added = self.added - {found["content"]} | {text}
            else:
                self.changed[found["seq"]] = text
        elif how == "remove":
            del lines[place]
            self.gone.add(found["seq"])
            self.added.discard(found["content"])
        elif how == "insert":
            lines.insert(place + 1, new)
            self.added.add(text)
        elif how == "first":
            lines.insert(0, new)
            self.added.add(text)
        elif self.is_clean and not any(_seq(line) is None for line in lines if line):
            for line in lines[place + 1 :]:
                if seq := _seq(line):
                    self.gone.add(seq)
                    self.added.discard(json.loads(line)["content"])
            lines = [*lines[: place + 1], b'{"cut": true}', b""]
        self.tree[NAME] = b"\n".join(lines)

    def check(self) -> None:
        """The file says what was said, with all corrections, and nothing twice."""
        said = [json.loads(line) for line in self.tree.get(NAME, b"").splitlines()]
        found = {line["seq"]: line["content"] for line in said}
        assert len(found) == len(said)
        committed = _committed(self.tree)
        expected = {seq: self.changed.get(seq, text) for seq, text in committed.items() if seq not in self.gone}
        others = [line["content"] for line in said if line["seq"] not in committed]
        assert {seq: text for seq, text in found.items() if seq in committed} == expected
        assert [seq for seq in found if seq in committed] == sorted(expected)
        assert sorted(others) == sorted(self.added)


def _seq(line: bytes) -> int | None:
    try:
        return json.loads(line).get("seq")
    except ValueError:
        return None


def _committed(tree: dict[str, bytes]) -> dict[int, str]:
    """By number, the messages whose scope has committed with them."""
    waiting: dict[str, list[dict[str, Any]]] = {}
    found = {}
    for record in records(tree):
        if record["type"] == "message":
            waiting.setdefault(record["scope"], []).append(record)
        elif record["type"] == "scope.committed":
            for each in waiting.pop(record["scope"], ()):
                if each.get("commit", each["seq"]) == record.get("commit", record["seq"]):
                    found[each["seq"]] = each["content"]
        elif record["type"] == "scope.failed":
            waiting.pop(record["scope"], None)
    return found


def _take_turns(seed: int) -> None:
    rng = random.Random(seed)
    talk = Conversation(rng)
    with steady():
        talk.turn(3, None)
        for _ in range(8):
            if rng.random() < 0.8:
                talk.edit()
            how = rng.choice(["kill", "torn", "power", None])
            talk.turn(rng.randrange(3), (rng.randrange(1000), how) if how else None)
        talk.turn(ITEMS, None)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("part", range(6))
def test_every_correction_is_made_once(part: int) -> None:
    print(f"seed {part}")
    _take_turns(part)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12 * ROUNDS))
def test_every_correction_of_many_is_made_once(part: int) -> None:
    print(f"seed {1000 + part}")
    _take_turns(1000 + part)
