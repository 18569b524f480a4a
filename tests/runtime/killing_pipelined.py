"""Runs a pipelined agent in child processes that are killed by SIGKILL at seeded moments. Started by test_pipelined.py.

Every step returns something else whenever it runs, so what was made of a lost one can be told from the record.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from killing import KillingSyscalls, new_workspace

from satchel import Item, NotDone, Run, agent, effect, run, step
from satchel.workspace.store import DiskStore

ITEMS, STEPS = 3, 30


def make_agent(outside: Path, syscalls: KillingSyscalls) -> Any:
    def lines() -> list[str]:
        return outside.read_text().splitlines() if outside.exists() else []

    @step
    async def draw(number: int) -> str:
        syscalls.tick()
        return os.urandom(8).hex()

    @step
    async def long(run: Run[Any], drawn: list[str]) -> list[str]:
        if run.saved_progress is None:
            await run.progress(drawn)
            syscalls.tick()
        return list(run.saved_progress)

    def find(item: str, drawn: list[str]) -> int:
        for number, line in enumerate(lines()):
            if json.loads(line)["item"] == item:
                return number
        raise NotDone

    @effect(verify=find)
    async def tell(item: str, drawn: list[str]) -> int:
        syscalls.tick()
        with outside.open("a") as file:
            file.write(json.dumps({"item": item, "drawn": drawn}) + "\n")
        syscalls.tick()
        return find(item, drawn)

    async def work(run: Run[Any], item: Item) -> list[str]:
        drawn = [await draw(number) for number in range(STEPS)]
        await run.output(f"{item.text}.json", json.dumps(drawn))
        drawn += [await draw(STEPS + number) for number in range(STEPS)]
        await tell(item.text, drawn)
        assert await long(drawn=[*drawn, await draw(-1)])  # type: ignore[call-arg]
        return drawn

    @agent(durability="pipelined")
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, [f"item {number}" for number in range(ITEMS)])
        await run.todo.each(work)

    return main


def child(folder: Path, outside: Path, moment: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            syscalls = KillingSyscalls(moment)
            outcome = run(DiskStore(folder, syscalls), make_agent(outside, syscalls))
            code = 0 if outcome.status == "completed" else 71
            if outcome.error:
                raise outcome.error
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def recorded(folder: Path) -> tuple[set[str], int]:
    """All that the journal says was drawn, and how often something was."""
    rows = [row for path in sorted(folder.glob("journal/*.jsonl")) for row in path.read_bytes().split(b"\n")[:-1]]
    records = [json.loads(row) for row in rows]
    drawn = [record["result"] for record in records if record["type"] == "step.completed" and record["step"] == "draw"]
    return set(drawn), len(drawn)


def seen(folder: Path, outside: Path) -> set[str]:
    """All drawn values that anybody can have seen: in outputs and in the world outside."""
    told = [json.loads(line)["drawn"] for line in (outside.read_text().splitlines() if outside.exists() else [])]
    made = [json.loads(path.read_text()) for path in folder.glob("outputs/*.json")]
    return set(itertools.chain(*told, *made))


def check(folder: Path, outside: Path, *, is_over: bool) -> str:
    """What is wrong, in words."""
    known, count = recorded(folder)
    if lost := seen(folder, outside) - known:
        return f"{len(lost)} values were seen and are not on record"
    if not is_over:
        return ""
    items = [json.loads(line)["item"] for line in outside.read_text().splitlines()]
    if sorted(items) != [f"item {number}" for number in range(ITEMS)]:
        return f"these effects were done: {items}"
    if count != len(known) or count != ITEMS * (2 * STEPS + 1):
        return f"{count} steps were finished and are on record"
    return ""


def main(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        whole = new_workspace(base / "whole")
        counting = KillingSyscalls(-1)
        outcome = run(DiskStore(whole, counting), make_agent(base / "whole.out", counting))
        assert outcome.status == "completed", outcome
        moments = -1 - counting.left
        kills = 0
        for number in range(rounds):
            folder, outside = new_workspace(base / "killed"), base / "killed.out"
            plan = [chance.randint(1, moments) for _ in range(chance.choice((1, 1, 2, 3)))]
            wrong = ""
            for moment in [*plan, -1]:
                code = child(folder, outside, moment)
                kills += code == -signal.SIGKILL
                if code not in (-signal.SIGKILL, 0):
                    wrong = f"exit code {code}"
                wrong = wrong or check(folder, outside, is_over=code == 0)
            if wrong:
                kept = tempfile.mkdtemp(prefix="satchel-killed-")
                shutil.copytree(folder, f"{kept}/workspace")
                raise SystemExit(f"seed {seed}, round {number}, killed at {plan}: {wrong}; kept in {kept}")
            shutil.rmtree(folder)
            outside.unlink()
        print(f"{kills} kills in {rounds} rounds at moments 1 to {moments}, seed {seed}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
