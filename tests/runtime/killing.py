"""Runs an agent in real child processes that are killed by SIGKILL at seeded moments. Started by test_kill.py.

A moment is the n-th call that the disk store makes to the operating system, or the time just before or after the
outside action of an effect: so every gap between two writes is one, and a seed finds it again. Forks from a process
that has imported everything, because importing takes longer than running.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satchel import NotDone, Run, agent, effect, run, step
from satchel.workspace.stamp import read_markdown
from satchel.workspace.store import DiskStore, Syscalls

ITEMS = 20
_MOMENTS = {"write", "sync", "sync_data", "sync_folder", "rename", "link", "unlink", "open_new", "mkdir", "rmdir"}


@dataclass
class State:
    lengths: dict[str, int] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Receipt:
    text: str
    line: int


class KillingSyscalls(Syscalls):
    """Kills this process when the n-th moment comes."""

    def __init__(self, moment: int):
        self.left = moment

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattribute__(self, name: str) -> Any:
        if name in _MOMENTS:
            self.tick()
        return object.__getattribute__(self, name)


def make_agent(outside: Path, syscalls: KillingSyscalls):
    @step
    async def measure(text: str) -> int:
        return len(text)

    @step
    def shout(text: str) -> str:
        return text.upper()

    def find(text: str) -> Receipt:
        lines = outside.read_text().splitlines() if outside.exists() else []
        if text not in lines:
            raise NotDone
        return Receipt(text, lines.index(text))

    @effect(verify=find)
    def append(text: str) -> Receipt:
        syscalls.tick()
        with outside.open("a") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
        syscalls.tick()
        return find(text)

    async def work(run: Run[State], item: Any) -> dict[str, Any]:
        length = await measure(item.text)
        loud = await shout(item.text)
        receipt = await append(loud)
        run.state.lengths[item.text] = length
        run.state.order.append(receipt.text)
        run.messages.add("agent", f"did {item.text}")
        if item.text.endswith("7"):
            await run.output(f"{item.text}.txt", loud)
        return {"loud": loud, "line": receipt.line}

    @agent(state=State)
    async def main(run: Run[State]) -> None:
        if not run.todo.items:
            await run.plan("Work", [f"item number {i}" for i in range(ITEMS)])
        await run.todo.each(work)

    return main


def new_workspace(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: killed-1\nagent: agent.py:main\n")
    return folder


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
    state = json.loads((folder / "state.json").read_text())
    messages = [json.loads(line) for line in (folder / "messages.jsonl").read_text().splitlines()]
    return {
        "effects": outside.read_text().splitlines(),
        "todo": read_markdown((folder / "todo.md").read_bytes()).body.decode(),
        "data": state["data"],
        "status": state["status"],
        "usage": state["usage"]["items"],
        "messages": [(message["role"], message["content"]) for message in messages],
        "outputs": {path.name: path.read_text() for path in sorted((folder / "outputs").iterdir())},
        "left over": sorted(
            str(path.relative_to(folder))
            for name in ("partials", "steps", ".satchel/tmp")
            for path in (folder / name).rglob("*")
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
        moments = -1 - counting.left
        kills = 0
        for number in range(rounds):
            folder, outside = new_workspace(base / "killed"), base / "killed.out"
            plan = [chance.randint(1, moments) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
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
