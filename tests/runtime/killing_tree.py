"""Runs a tree of agents in child processes that are killed by SIGKILL at seeded moments. Started by test_subagents.py.

The same as killing.py, but the work is done by grandchildren, two of them at once.
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
from collections import Counter
from pathlib import Path
from typing import Any

from killing import KillingSyscalls, Receipt, new_workspace

from satchel import NotDone, Partial, Run, agent, effect, run, step
from satchel.workspace.stamp import read_markdown
from satchel.workspace.store import DiskStore

BRANCHES, ITEMS = ("left", "right"), 3


def make_agent(outside: Path, syscalls: KillingSyscalls) -> Any:
    @step
    async def measure(text: str) -> int:
        await asyncio.sleep(0)
        return len(text)

    @step
    async def write(text: str, out: Partial) -> str:
        for at in range(len(out.text), len(text)):
            await out.write(text[at])
        return out.text

    def find(text: str) -> Receipt:
        lines = outside.read_text().splitlines() if outside.exists() else []
        if text not in lines:
            raise NotDone
        return Receipt(text, 0)

    @effect(verify=find)
    async def append(text: str) -> Receipt:
        syscalls.tick()
        with outside.open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        syscalls.tick()
        await asyncio.sleep(0)
        return find(text)

    async def work(run: Run[Any], item: Any) -> str:
        written = await write(f"{run.agent} writes {item.text}")
        await append(written)
        run.state[item.text] = await measure(written)
        await run.output(f"{item.text}.txt", written)
        return written

    @agent
    async def reader(run: Run[Any], topic: str) -> list[str]:
        if not run.todo.items:
            await run.plan(None, [f"{topic} {number}" for number in range(ITEMS)])
        await run.todo.each(work)
        return [run.todo.result(item) for item in run.todo.items]

    async def read(run: Run[Any], topic: str) -> list[str]:
        found: list[str] = await run.spawn(reader, "reader", topic)
        run.state["read"] = len(found)
        return found

    @agent
    async def branch(run: Run[Any], topic: str) -> list[str]:
        await append(f"{run.agent} begins")
        return await run.scope("read", read, run, topic)

    async def both(run: Run[Any]) -> list[list[str]]:
        return list(await asyncio.gather(*(run.spawn(branch, name, f"about {name}") for name in BRANCHES)))

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("both", both, run)

    return main


def child(folder: Path, outside: Path, moment: int) -> int:
    """Run in a fork until the end or until the kill; the exit code, or minus the signal."""
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


def result(folder: Path, outside: Path) -> dict[str, Any]:
    """All that a run leaves and that must not depend on when it was killed."""
    records = [
        json.loads(line) for path in sorted(folder.glob("journal/*.jsonl")) for line in path.read_text().splitlines()
    ]
    done = Counter(
        (record.get("agent"), record["scope"], record["step"], record["args"], record["n"])
        for record in records
        if record["type"] == "step.completed"
    )
    states = {
        path: json.loads(path.read_text()) for path in sorted(folder.rglob("state.json")) if "schemas" not in str(path)
    }
    return {
        "effects": sorted(outside.read_text().splitlines()),
        "done twice": [call for call, count in done.items() if count > 1],
        "asked": [record for record in records if record["type"] == "doubt"],
        "states": {
            str(path.relative_to(folder)): (state["status"], state["data"], state["open"])
            for path, state in states.items()
        },
        "todo": {
            str(path.relative_to(folder)): read_markdown(path.read_bytes()).body.decode()
            for path in sorted(folder.rglob("todo.md"))
        },
        "outputs": {
            str(path.relative_to(folder)): path.read_text() for path in sorted(folder.glob("agents/**/outputs/*"))
        },
        "left over": sorted(
            str(path.relative_to(folder))
            for name in ("partials", "steps")
            for path in folder.rglob(f"{name}/*/*")
            if "_agent" not in str(path)  # the agent's own calls stay open
        ),
    }


def main(seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        whole = new_workspace(base / "whole")
        counting = KillingSyscalls(-1)
        outcome = run(DiskStore(whole, counting), make_agent(base / "whole.out", counting))
        assert outcome.status == "completed", outcome
        expected = result(whole, base / "whole.out")
        assert not expected["done twice"] and not expected["asked"]
        assert len(expected["effects"]) == len(BRANCHES) * (ITEMS + 1)
        moments = -1 - counting.left
        kills = 0
        for number in range(rounds):
            folder, outside = new_workspace(base / "killed"), base / "killed.out"
            plan = [chance.randint(1, moments) for _ in range(chance.choice((1, 1, 2, 3)))]
            for moment in plan:
                code = child(folder, outside, moment)
                assert code in (-signal.SIGKILL, 0), (number, plan, code)
                kills += code != 0
            code = child(folder, outside, -1)
            found = result(folder, outside) if code == 0 else None
            if found != expected:
                kept = tempfile.mkdtemp(prefix="satchel-killed-")
                shutil.copytree(folder, f"{kept}/workspace")
                differing = {k: (v, found and found[k]) for k, v in expected.items() if not found or found[k] != v}
                raise SystemExit(f"seed {seed}, round {number}, killed at {plan}: {code}, {differing}; kept in {kept}")
            shutil.rmtree(folder)
            outside.unlink()
        print(f"{kills} kills in {rounds} rounds at moments 1 to {moments}, seed {seed}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
