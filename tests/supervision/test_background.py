"""The log of a run in the background stays small, however long the run writes."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
import warm
from cli.conftest import Make, make

import satchel
from satchel.runtime.supervision import child
from satchel.runtime.supervision.child import LOG, bound_log, mark_start, open_log, started_at
from satchel.runtime.supervision.supervisor import Order, Supervisor
from satchel.workspace.store import DiskStore

__all__ = ["make"]

LIMIT = 1000
TELLING = """
import os
from satchel import agent

@agent
async def main(run):
    return [name for name in os.environ if name.startswith("SATCHEL_") and name.endswith("_TOKEN")]
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DiskStore:
    monkeypatch.setattr(child, "_LOG_LIMIT", LIMIT)
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: log-1\nagent: agent.py:main\n")
    return DiskStore(tmp_path)


def test_a_log_outgrows_its_limit_while_a_run_writes(store: DiskStore, tmp_path: Path) -> None:
    supervisor = Supervisor(store, Order(["run"], ["run"]), print)
    log, old = tmp_path / LOG, tmp_path / f"{LOG}.old"
    with open_log(store) as output:
        for number in range(1000):
            output.write(b"line %d\n" % number)
            output.flush()
            supervisor._glance = 0.0  # half a second has passed
            supervisor.poll()
            assert log.stat().st_size <= LIMIT
    assert old.stat().st_size == LIMIT
    assert (old.read_bytes() + log.read_bytes()).endswith(b"line 998\nline 999\n")


def test_a_huge_log_of_an_earlier_run_is_not_kept_whole(store: DiskStore, tmp_path: Path) -> None:
    open_log(store).close()
    (tmp_path / LOG).write_bytes(b"x" * 50_000 + b"the end\n")
    open_log(store).close()
    assert (tmp_path / LOG).read_bytes() == b""
    assert (tmp_path / f"{LOG}.old").read_bytes()[-8:] == b"the end\n"
    assert sorted(os.listdir(tmp_path / ".satchel")) == ["run.log", "run.log.old"]


def test_a_log_that_belongs_to_another_user_grows_for_ever(
    store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(store).close()
    (tmp_path / LOG).write_bytes(b"x" * 50_000 + b"the end\n")
    monkeypatch.setattr(os, "fchown", mock.Mock(side_effect=PermissionError(1, "Operation not permitted")))
    bound_log(store)
    assert (tmp_path / LOG).read_bytes() == b""
    assert (tmp_path / f"{LOG}.old").read_bytes()[-8:] == b"the end\n"


@pytest.mark.parametrize("is_detached", [False, True])
def test_a_run_gets_the_token_of_a_server(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], is_detached: bool
) -> None:
    """Also of another server than the one that starts it: a person may have all three in the environment."""
    for name in ("LISTEN", "MCP", "PAGE"):
        monkeypatch.setenv(f"SATCHEL_{name}_TOKEN", "a token of a server")
    monkeypatch.setattr(child.subprocess, "Popen", warm.Popen)
    handle = satchel.open(make(TELLING))
    if is_detached:
        handle.detach(options=["--quiet"])
        handle.wait()
    else:
        assert handle.supervise(options=["--quiet"]).exit_code == 0
    assert handle.status().result == []


def test_a_link_in_place_of_the_log_is_left_alone(store: DiskStore, tmp_path: Path) -> None:
    target = tmp_path / "mine.txt"
    target.write_bytes(b"x" * 5000)
    (tmp_path / ".satchel").mkdir()
    (tmp_path / LOG).symlink_to(target)
    bound_log(store)
    assert target.stat().st_size == 5000


def test_a_start_leaves_no_mark(store: DiskStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only in a log: what a person runs in a terminal has none."""
    with open_log(store) as output:
        mark_start(store, output)
    mark_start(store, None)
    marks = (tmp_path / LOG).read_text().splitlines()
    assert len(marks) == 1 and started_at(marks[0]).endswith("Z")
    assert not started_at(f"{marks[0]} ") and not started_at(marks[0].replace("2", "<b>", 1)) and not started_at("")


def test_a_restart_of_a_run_in_the_background_is_not_marked(store: DiskStore, tmp_path: Path) -> None:
    """Its supervisor writes to the log already."""
    before = os.dup(1)
    try:
        with open_log(store) as output:
            os.dup2(output.fileno(), 1)
            mark_start(store, None)
    finally:
        os.dup2(before, 1)
        os.close(before)
    assert started_at((tmp_path / LOG).read_text().strip())
