"""`serve` while Satchel is upgraded: nothing is started by the old version, and nothing that runs is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import warm

from satchel.runtime.supervision import run_server
from satchel.runtime.supervision.supervisor import Policy

from . import supervised
from .serve_in_process import Served
from .supervised import WAITING, make, seen, wait_until
from .test_serving import ENDING_SLOWLY, QUICK, status_of

_PROGRAM = """
import runpy, sys, types
loaded = types.ModuleType("satchel.loaded")
loaded.__file__ = sys.argv.pop(1)
sys.modules[loaded.__name__] = loaded
sys.argv[0] = "satchel"
runpy.run_module("satchel", run_name="__main__")
"""
"""Satchel with one more module, whose file the test upgrades."""

Upgraded = Callable[[], subprocess.Popen[str]]

ENDING_WHEN_TOLD = ENDING_SLOWLY.replace("    await asyncio.sleep(1000)", "    return None")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def upgraded(root: Path, tmp_path: Path) -> Iterator[Upgraded]:
    """A `serve --at-most 1` that has started `a` and is upgraded then. `b` is due."""
    started: list[subprocess.Popen[str]] = []
    module = tmp_path / "loaded.py"

    def upgrade() -> subprocess.Popen[str]:
        module.write_text("old\n")
        make(root / "b", QUICK)
        os.utime(root / "b/workspace.yaml", (2e9, 2e9))
        with (tmp_path / "said").open("w") as said:
            process = warm.Popen(
                [sys.executable, "-c", _PROGRAM, module, "serve", "--json", "--at-most", "1", root],
                env=os.environ | {"SEEN": str(root / "a/seen")},
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            )
        started.append(process)
        wait_until(lambda: seen(root / "a"), process)
        module.unlink()  # as an installer does first
        wait_until(lambda: "outdated" in (tmp_path / "said").read_text(), process)
        module.write_text("new\n")
        return process

    yield upgrade
    supervised.clean_up([root / "a"], started)


def events(tmp_path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    return [(row["event"], os.path.basename(row["folder"])) for row in rows]


def test_an_upgrade_is_not_noticed_or_cuts_off_what_runs(root: Path, tmp_path: Path, upgraded: Upgraded) -> None:
    make(root / "a", ENDING_WHEN_TOLD)
    process = upgraded()
    (root / "a/seen-go").touch()
    assert process.wait(supervised.PATIENCE) == 10
    assert events(tmp_path) == [("started", "a"), ("outdated", "runs"), ("completed", "a")]
    assert status_of(root / "b") == "new"


def test_a_signal_after_an_upgrade_waits_for_what_runs(root: Path, tmp_path: Path, upgraded: Upgraded) -> None:
    make(root / "a", WAITING)
    process = upgraded()
    process.send_signal(signal.SIGTERM)
    assert process.wait(supervised.PATIENCE) == 0
    assert events(tmp_path) == [("started", "a"), ("outdated", "runs"), ("paused", "a")]


@pytest.fixture
def served(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    monkeypatch.setenv("SEEN", str(root / "a/seen"))
    root.mkdir()
    served = Served(root, 1)
    yield served
    served.end()


@pytest.mark.parametrize("dies_first", [True, False])
def test_a_run_that_dies_beside_an_upgrade_is_started_by_the_old_version(
    root: Path, served: Served, dies_first: bool
) -> None:
    make(root / "a", WAITING)
    served.until(lambda: seen(root / "a"))
    served.server.running[0]._policy = Policy(first_delay=1000.0, longest_delay=1000.0)
    if dies_first:
        os.kill(seen(root / "a")[0], signal.SIGKILL)
        served.until_event("crashed", "a")
    served.server.finish("because")
    if not dies_first:
        os.kill(seen(root / "a")[0], signal.SIGKILL)
    served.until_event("interrupted", "a")
    assert served.server.is_idle and len(seen(root / "a")) == 1


def test_a_run_that_is_due_for_another_process_gets_it_after_an_upgrade(root: Path, served: Served) -> None:
    make(root / "a", ENDING_SLOWLY, "restart_every: 1s\n")
    served.until(lambda: seen(root / "a"))
    served.server.finish("because")
    (root / "a/seen-go").touch()
    served.until_event("sleeping", "a")
    assert served.server.is_idle and len(seen(root / "a")) == 1


def test_a_server_that_still_imports_ends_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    class Imported(str):
        """The name of a module that has just been imported. While it is looked at, another thread imports one more."""

        def startswith(self, *_: object) -> bool:
            modules.setdefault("one more", sys)
            return False

    modules = {Imported("satchels"): sys}
    monkeypatch.setattr(run_server, "sys", SimpleNamespace(modules=modules))
    assert run_server.Installation().changed == ""
