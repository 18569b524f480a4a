"""Three agents that talk, in processes that are killed by SIGKILL at seeded moments. Started by test_messages.py.

Every answer is made of the slice that the model was shown, so a slice that differs after a kill shows in what is said
from then on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Any

from killing import KillingSyscalls, new_workspace

from satchel import Item, Run, agent, run, step
from satchel.workspace.store import DiskStore

QUESTIONS = 6
FILES = ("", "agents/author/", "agents/author/agents/critic/")


@step
async def ask(prompt: list[dict[str, Any]]) -> dict[str, Any]:
    shown = json.dumps(prompt, sort_keys=True)
    return {"text": blake2b(shown.encode(), digest_size=6).hexdigest(), "shown": len(prompt)}


async def talk(run: Run[Any], item: Item) -> None:
    run.messages.add("user", f"{run.agent or 'root'}: {item.text} " + "x" * 40)
    run.messages.add("assistant", await ask(run.messages.slice(last=5)))
    run.messages.add("assistant", await ask(run.messages.slice(tokens=70)))
    run.messages.add("system", len(run.messages))


async def plan_and_talk(run: Run[Any]) -> None:
    if not run.todo.items:
        await run.plan("Talk", [f"question {number}" for number in range(QUESTIONS)])
    await run.todo.each(talk)


@agent
async def critic(run: Run[Any]) -> int:
    await plan_and_talk(run)
    return len(run.messages)


@agent
async def author(run: Run[Any]) -> int:
    said, _ = await asyncio.gather(run.spawn(critic, "critic"), plan_and_talk(run))
    return said + len(run.messages)


@agent
async def root(run: Run[Any]) -> int:
    said, _ = await asyncio.gather(run.spawn(author, "author"), plan_and_talk(run))
    return said + len(run.messages)


def child(folder: Path, moment: int) -> int:
    """Run in a fork until the end or until the kill; the exit code, or minus the signal."""
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            outcome = run(DiskStore(folder, KillingSyscalls(moment)), root)
            code = 0 if outcome.status == "completed" else 71
            if outcome.error:
                raise outcome.error
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def said(folder: Path) -> list[list[tuple[str, Any]]]:
    """What each agent's file says."""
    files = [(folder / path / "messages.jsonl").read_text() for path in FILES]
    rows = [[json.loads(line) for line in text.splitlines()] for text in files]
    assert all([row["seq"] for row in each] == sorted({row["seq"] for row in each}) for each in rows)
    return [[(row["role"], row["content"]) for row in each] for each in rows]


def main(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        counting = KillingSyscalls(-1)
        outcome = run(DiskStore(new_workspace(base / "whole"), counting), root)
        assert (outcome.status, outcome.result) == ("completed", 3 * 4 * QUESTIONS), outcome
        expected, moments, kills = said(base / "whole"), -1 - counting.left, 0
        for number in range(rounds):
            folder = new_workspace(base / "killed")
            plan = [chance.randint(1, moments) for _ in range(chance.choice((1, 1, 2, 3)))]
            for moment in plan:
                code = child(folder, moment)
                assert code in (-signal.SIGKILL, 0), (number, plan, code)
                kills += code != 0
            code = child(folder, -1)
            if code or said(folder) != expected:
                kept = tempfile.mkdtemp(prefix="satchel-talking-")
                shutil.copytree(folder, f"{kept}/workspace")
                raise SystemExit(f"seed {seed}, round {number}, killed at {plan}: exit code {code}; kept in {kept}")
            shutil.rmtree(folder)
        print(f"{kills} kills in {rounds} rounds at moments 1 to {moments}, seed {seed}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
