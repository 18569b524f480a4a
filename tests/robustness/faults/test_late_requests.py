"""The last request of a killed process arrives while the next process takes the workspace, or after that. Nobody else
has it, so that one must not say that another process has taken over its run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm
from page.conftest import make
from servers import Server
from waits import PATIENCE

import satchel
from faults.faults import delayed
from faults.proxy import Proxy, proxying
from faults.traffic import Seen

AGENT = """
import asyncio
from pathlib import Path
from satchel import agent, effect, step

HERE = Path({here!r})

@step
async def fill(number):
    return "x" * 3000

@effect
def pay():
    return "paid"

async def work(run):
    for number in range(30):
        run.state["number"] = await fill(number)

@agent
async def main(run):
    await run.scope("work", work, run)
    while not (HERE / "goes on").exists():
        await asyncio.sleep(0.01)
    return await run.scope("pays", pay)  # an effect begins only if no other process is known to have the run
"""

_HELD: dict[str, Callable[[Seen], bool]] = {
    "the lease": lambda seen: seen.method == "PUT" and seen.key.endswith("/lease.json"),
    "the fence": lambda seen: seen.method == "PUT" and seen.kind == "journal",
    "the opening": lambda seen: seen.method == "PUT" and seen.kind == "journal" and "000001.jsonl" not in seen.key,
    "records": lambda seen: seen.method == "PUT" and seen.kind == "journal" and seen.up > 3000,
    "a roll-up": lambda seen: seen.method == "PUT" and seen.kind == "journal" and "If-Match" in seen.condition,
    "the removal after a roll-up": lambda seen: seen.kind == "several",
    "a file": lambda seen: seen.method == "PUT" and seen.key.endswith("/state.json"),
}
_FENCED = ("the fence", "the opening", "records")
"""What takes the place of the next process's fence, if it comes before that."""


@pytest.mark.sampled(every=14)
@pytest.mark.parametrize("is_fenced", [False, True], ids=["before the fence", "after the fence"])
@pytest.mark.parametrize("held", _HELD)
def test_the_last_request_of_a_killed_process_ends_the_next_one(
    held: str, is_fenced: bool, seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    make(tmp_path / "run", AGENT.format(here=str(tmp_path)))
    satchel.new(tmp_path / "run", url := f"{seaweedfs.place()}/run")
    command = [sys.executable, "-m", "satchel", "run", "--in-process", "--take-over", url]

    def start(proxy: Proxy) -> subprocess.Popen[Any]:
        environment = {**os.environ, **seaweedfs.environment(proxy.url)}
        return warm.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    with proxying(seaweedfs.endpoint) as of_first, proxying(seaweedfs.endpoint) as of_next:
        late = of_first.plant(delayed(), matching=_HELD[held])
        with start(of_first) as first:
            late.await_strike()
            first.kill()
        # The next process has looked when it writes its fence, and has fenced when it writes anything else.
        own = "the fence" if not is_fenced else held if held in ("the lease", "a file") else "the lease"
        waits = of_next.plant(delayed(), matching=_HELD[own])
        with start(of_next) as process:
            try:
                waits.await_strike()
                late.lift()
                arrived = next(each for each in of_first.seen if each.fault == "delayed")
                of_first.await_answer(arrived)
                waits.lift()
                (tmp_path / "goes on").touch()
                said, _ = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
    assert arrived.status == (412 if is_fenced and held in _FENCED else 200)
    assert process.returncode == 0, said.decode()
    there = satchel.open(url)
    assert there.status().state == "completed"
    seqs = [row.record["seq"] for row in there.history.log()]
    assert seqs == list(range(1, seqs[-1] + 1))
