"""`replicate` and `restore`: what is typed, what is said, and a process that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from servers import SECRET, Server
from waits import PATIENCE

from .conftest import ASKING, Cli, Make, data_of, satchel


def test_a_run_is_lost_with_its_machine(make: Make, cli: Cli, tmp_path: Path) -> None:
    demo, safe, new = make(ASKING), tmp_path / "safe", tmp_path / "new"
    cli("run", demo)
    told = cli("replicate", demo, safe, "--once")
    assert told.exit_code == 0 and f"ended     {demo}: record" in told.stderr
    assert f"backup    {safe}: has all that the last process recorded, record" in cli("status", demo).stdout
    shown = cli("status", safe)
    assert f"state     backup: follows {demo} on " in shown.stdout and "; complete at " in shown.stdout
    assert "several workspaces" not in cli("ls", tmp_path).stderr
    listed = {os.path.basename(each["folder"]): each for each in data_of(cli("ls", "--json", tmp_path))}
    assert listed["safe"]["state"] == "backup" and listed["safe"]["backup_of"]["of"] == str(demo)
    assert listed["demo"]["backup"]["to"] == str(safe)
    told = cli("restore", safe, new)
    assert told.exit_code == 0 and f"restored demo-1a2b from {safe} to {new}, up to record" in told.stdout
    assert "ask before each effect" in told.stdout and f"next: satchel resume {new}" in told.stderr
    repeated = cli("restore", safe, new)
    assert "there is nothing to do" in repeated.stdout and f"next: satchel resume {new}" in repeated.stderr
    refused = cli("restore", safe, tmp_path / "other")
    assert refused.exit_code == 2 and "--again" in refused.stderr
    assert f"restored to {new}" in cli("status", safe).stdout
    again = data_of(cli("restore", "--again", "--nothing-after", "--json", safe, tmp_path / "other"))
    assert (again["kind"], again["run_id"], again["exit_code"]) == ("restore", "demo-1a2b", 0) and again["seq"] > 3
    told = cli("replicate", demo, safe, "--once")
    assert told.exit_code == 6 and f"restored from its backup to {tmp_path / 'other'}" in told.stderr.replace("\n", "")
    refused = cli("resume", demo)
    assert refused.exit_code == 6 and "satchel resume --adopt" in refused.stderr


def test_all_runs_of_a_folder_are_lost(make: Make, cli: Cli, tmp_path: Path) -> None:
    one, other = make(), make(name="other")
    (other / "workspace.yaml").write_text((other / "workspace.yaml").read_text() + "backup: ../../own/{run_id}\n")
    told = cli("replicate", tmp_path, tmp_path.with_name(f"{tmp_path.name}-safe"), "--once", "--json")
    events = [json.loads(line) for line in told.stdout.splitlines()]
    assert {(each["folder"], each["kind"]) for each in events} == {(str(one), "ended"), (str(other), "ended")}
    assert {Path(each["to"]).parent.name for each in events} == {f"{tmp_path.name}-safe", "own"}
    safe = next(each["to"] for each in events if each["folder"] == str(one))
    for _ in range(2):  # it was never started
        assert f"next: satchel run {tmp_path / 'new'}" in cli("restore", safe, tmp_path / "new").stderr


@pytest.mark.parametrize(
    "words", [["{here}/nothing", "x"], ["{here}/empty", "x"], ["s3://bucket/run", "x"], ["{demo}"]]
)
def test_what_can_t_be_followed_is_tried(make: Make, cli: Cli, tmp_path: Path, words: list[str]) -> None:
    demo = make()
    (tmp_path / "empty").mkdir()
    words = [word.format(here=tmp_path, demo=demo) for word in words]
    for once in [[], ["--once"]][words[0].endswith("empty") :]:  # with a place, workspaces may still come
        told = cli("replicate", *words, *once)
        assert told.exit_code == 2 and told.stderr.startswith("satchel: ")
    assert cli("restore", demo, tmp_path / "x").exit_code == 2


LONG = """
import asyncio
from satchel import agent, step

@step
async def wait(number: int) -> int:
    await asyncio.sleep(0.01)
    return number

@agent
async def main(run):
    for number in range(100_000):
        await wait(number)
"""


def test_a_process_goes_on_although_its_run_was_restored(make: Make, cli: Cli, tmp_path: Path) -> None:
    """`replicate` stops it: the process itself does not look at the backup."""
    demo, safe, new = make(LONG), tmp_path / "safe", tmp_path / "new"
    runs = warm.Popen([sys.executable, "-m", "satchel", "run", demo, "--quiet"], stderr=subprocess.DEVNULL)
    follows = warm.Popen([sys.executable, "-m", "satchel", "replicate", demo, safe], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + PATIENCE
        while (status := data_of(cli("status", "--json", demo)))["state"] != "running" or not status["backup"]:
            assert time.monotonic() < until
            time.sleep(0.1)
        while data_of(cli("status", "--json", demo))["backup"]["seq"] < 10:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert cli("restore", safe, new).exit_code == 0
        runs.wait(PATIENCE)
        assert data_of(cli("status", "--json", demo))["backup"]["state"] == "overtaken"
        follows.send_signal(signal.SIGTERM)
        assert "overtaken" in follows.communicate(timeout=PATIENCE)[1] and follows.returncode == 0
    finally:
        for each in (runs, follows):
            each.kill()
            each.wait()


def test_a_bucket_is_away(make: Make, tmp_path: Path) -> None:
    """Nobody listens at the address."""
    demo = make()
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": SECRET}
    told = satchel("replicate", demo, "s3://bucket/{run_id}", "--once", env={**os.environ, **environment})
    assert told.returncode == 8 and "away" in told.stderr and SECRET not in told.stderr


@pytest.mark.slow
def test_a_backup_lies_in_a_bucket(
    make: Make, cli: Cli, tmp_path: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    demo, place = make(ASKING), seaweedfs.place()
    (demo / "workspace.yaml").write_text((demo / "workspace.yaml").read_text() + f"backup: {place}/{{run_id}}\n")
    assert cli("run", demo, "--quiet").exit_code == 4
    assert data_of(cli("status", "--json", demo))["backup"]["state"] == "ended"
    (listed,) = data_of(cli("ls", "--json", place))
    assert (listed["state"], listed["run_id"]) == ("backup", "demo-1a2b")
    assert cli("run", f"{place}/demo-1a2b").exit_code == 2
    assert cli("restore", f"{place}/demo-1a2b", tmp_path / "new").exit_code == 0
    assert (
        cli("resume", demo).exit_code == 6 or data_of(cli("status", "--json", demo))["backup"]["state"] == "overtaken"
    )
    assert cli("run", tmp_path / "new", "--quiet").exit_code == 4
    assert data_of(cli("status", "--json", tmp_path / "new"))["backup"]["state"] == "ended"
