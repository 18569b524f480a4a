"""`move` and `copy`: what is typed, what is said, and a real kill in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import warm
from servers import SECRET, Server
from waits import PATIENCE

from .conftest import ASKING, Cli, Make, data_of, satchel


def test_a_run_is_lost_between_two_folders(make: Make, cli: Cli, tmp_path: Path) -> None:
    demo, to = make(), tmp_path / "new/place"
    cli("run", demo)
    told = cli("move", demo, to)
    assert told.exit_code == 0 and f"moved demo-1a2b from {demo} to {to}" in told.stdout
    assert "compared by its hash" in told.stdout and f"next: satchel status {to}" in told.stderr
    for command in ("status", "run", "check", "recover", "log", "send"):
        refused = cli(command, demo, *(["x"] if command == "send" else []))
        assert refused.exit_code == 2, command
        assert f"satchel status {to}" in refused.stderr, command
    assert cli("run", to).exit_code == 0
    again = cli("move", demo, to)
    assert again.exit_code == 0 and "there is nothing to do" in again.stdout
    assert cli("move", to, demo).exit_code == 0 and cli("status", demo).exit_code == 0


def test_a_moved_run_vanishes_from_the_list(make: Make, cli: Cli, tmp_path: Path) -> None:
    demo = make()
    cli("run", demo)
    cli("move", demo, tmp_path / "other")
    (tmp_path / "no-run").mkdir()
    (tmp_path / "no-run/moved.yaml").write_text("furniture: all of it\n")
    told = {os.path.basename(each["folder"]): each for each in data_of(cli("ls", "--json", tmp_path))}
    assert {name: each["state"] for name, each in told.items()} == {"demo": "moved", "other": "completed"}
    assert told["demo"]["moved"]["to"] == str(tmp_path / "other") and told["demo"]["run_id"] == "demo-1a2b"
    assert f"see {tmp_path / 'other'}" in cli("ls", tmp_path).stdout


def test_a_program_has_to_read_prose(make: Make, cli: Cli, tmp_path: Path) -> None:
    demo = make(ASKING)
    cli("run", demo)
    told = data_of(cli("copy", "--json", demo, tmp_path / "b"))
    assert (told["kind"], told["exit_code"], told["run_id"]) == ("copy", 0, "demo-1a2b")
    assert told["source"] == str(demo) and told["to"] == str(tmp_path / "b") and told["files"] == told["copied"] > 5
    assert told["is_clean"] and len(told["sha256"]) == 64 and told["left"] == []
    refused = data_of(cli("move", "--json", demo, tmp_path / "b"))
    assert (refused["status"], refused["exit_code"]) == ("refused", 2) and "this run already" in refused["error"][
        "message"
    ]


def test_what_means_nothing_is_tried(make: Make, cli: Cli, tmp_path: Path) -> None:
    demo = make()
    before = sorted(tmp_path.rglob("*"))
    for words in (
        (demo, demo),
        (demo, demo / "inside"),
        (demo, tmp_path),
        (tmp_path / "none", tmp_path / "b"),
        (demo / "agent.py", tmp_path / "b"),
        (demo, demo / "agent.py"),
        (demo, "nonsense://x/y"),
        (demo, tmp_path / "b", "--storage-option", "key=x"),
    ):
        for command in ("move", "copy"):
            refused = cli(command, *words)
            assert refused.exit_code == 2 and refused.stderr.startswith("satchel: "), words
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "lock" and path.name != ".satchel") == before


def test_a_run_is_moved_away_under_its_process(
    make: Make, started: Callable[..., subprocess.Popen[str]], cli: Cli, tmp_path: Path
) -> None:
    from .conftest import SLOW

    demo = make(SLOW)
    process = started(demo)
    for command in ("move", "copy"):
        refused = cli(command, demo, tmp_path / "b")
        assert refused.exit_code == 6 and f"process {process.pid}" in refused.stderr
    assert not (tmp_path / "b").exists()
    process.kill()
    process.wait()
    told = cli("move", demo, tmp_path / "b")
    assert told.exit_code == 0 and "did not close it" in told.stdout
    assert cli("recover", tmp_path / "b").exit_code == 0


HELD = """
import runpy, sys, threading

def hold(event, args):
    if event == "open" and str(args[0]).endswith("030.bin"):
        threading.Event().wait()

sys.addaudithook(hold)
runpy.run_module("satchel", run_name="__main__")
"""
"""A command that comes no further than to this file."""


def test_a_kill_in_the_middle_costs_the_run(make: Make, tmp_path: Path) -> None:
    demo, to = make(), tmp_path / "b"
    assert satchel("run", demo, "--quiet").returncode == 0
    for number in range(60):
        (demo / f"outputs/{number:03}.bin").write_bytes(os.urandom(2000))
    whole = {path.name: path.read_bytes() for path in (demo / "outputs").iterdir()}
    process = warm.Popen(
        [sys.executable, "-c", HELD, "move", str(demo), str(to)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    deadline = time.monotonic() + PATIENCE
    while len(list(to.glob("outputs/*"))) < 5:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (demo / "workspace.yaml").exists() and not (to / "workspace.yaml").exists()
    half = satchel("status", to)
    assert half.returncode == 2 and f"satchel move {demo} {to}" in half.stderr
    told = satchel("move", demo, to)
    assert told.returncode == 0 and "in an earlier attempt" in told.stdout
    assert {path.name: path.read_bytes() for path in (to / "outputs").iterdir()} == whole
    assert satchel("status", to).returncode == 0


def test_a_url_is_no_place_to_move_to(make: Make, seaweedfs: Server, tmp_path: Path) -> None:
    demo, place = make(), seaweedfs.place()
    environment = {**os.environ, **seaweedfs.environment()}
    assert satchel("run", demo, "--quiet").returncode == 0
    told = satchel("move", demo, place, env=environment)
    assert told.returncode == 0 and f"to {place}" in told.stdout, told.stderr
    assert f"to: {place}" in (demo / "moved.yaml").read_text() and not (demo / "workspace.yaml").exists()
    back = satchel("copy", place, tmp_path / "b", "--storage-option", "use_ssl=false", env=environment)
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "b/workspace.yaml").exists()
    assert SECRET not in told.stdout + told.stderr + back.stdout + back.stderr
