"""Begun on a laptop, carried into a bucket while it waits for a person, answered there, and finished by a server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from servers import BUCKET, Server

AGENT = """
from satchel import agent, effect

@effect
def grant(user: str) -> str:
    with open(GRANTED, "a") as file:
        file.write(user + "\\n")
    return "granted"

async def work(run, item):
    if await run.ask("Grant admin rights?", choices=["approve", "deny"], wait_for=0) == "approve":
        run.state["ada"] = await grant("ada")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Newcomer", ["Set up ada"])
    await run.todo.each(work)
"""


def satchel(*words: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "satchel", *map(str, words)]
    return warm.run(command, capture_output=True, timeout=120, text=True, env=env, check=False)


@pytest.mark.slow
def test_a_run_that_waits_can_not_be_carried_to_where_it_is_answered(seaweedfs: Server, tmp_path: Path) -> None:
    laptop, place = tmp_path / "laptop", seaweedfs.place()
    laptop.mkdir()
    (laptop / "workspace.yaml").write_text("format: 1\nrun_id: ada-1\nagent: agent.py:main\n")
    (laptop / "agent.py").write_text(f"GRANTED = {str(tmp_path / 'granted')!r}\n" + AGENT)
    env = {**os.environ, **seaweedfs.environment()}
    assert satchel("run", "--quiet", laptop, env=env).returncode == 4
    moved = satchel("move", laptop, place, env=env)
    assert moved.returncode == 0, moved.stderr
    assert satchel("run", "--quiet", laptop, env=env).returncode == 2, "it lives in the bucket now"
    key = f"{place.removeprefix(f's3://{BUCKET}/')}/approvals/a1.yaml"
    text = seaweedfs.client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    answered = re.sub(r"^decision:.*$", "decision: approve", text, flags=re.MULTILINE)
    assert answered != text
    seaweedfs.client.put_object(Bucket=BUCKET, Key=key, Body=answered.encode())
    served = satchel("serve", place, "--once", env=env)
    assert served.returncode == 0, served.stderr
    assert (tmp_path / "granted").read_text() == "ada\n", "once"
    assert '"ada": "granted"' in state_at(seaweedfs, place)


def state_at(server: Server, place: str) -> str:
    key = f"{place.removeprefix(f's3://{BUCKET}/')}/state.json"
    return server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
