"""Which runs need a person, for all who list runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.conftest import PLAIN, Cli, cli, data_of
from cli.test_merge import COUNTING

import satchel
from satchel.runtime.api import Overview, by_need, wanted

from .test_answering import GRANTING
from .test_withdrawing import Gated

__all__ = ["cli"]


def made(folder: Path, source: str = PLAIN) -> satchel.Handle:
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(source)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}\nagent: agent.py:main\n")
    return satchel.open(folder)


def conflicting(folder: Path) -> satchel.Handle:
    """It has completed, and an older state.json that was edited contradicts it."""
    handle = made(folder, COUNTING)
    assert handle.run().status == "failed"
    old = (folder / "state.json").read_text()
    (folder / "on").touch()
    assert handle.run().status == "completed"
    (folder / "state.json").write_text(old.replace('"n": 1', '"n": 9'))
    return handle


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    conflicting(root / "conflict")
    with pytest.raises(satchel.SatchelError, match="conflict"):
        conflicting(root / "conflict-told").run()
    made(root / "waiting", GRANTING).run()
    made(root / "failed", PLAIN.replace("text.upper()", "text.no_such_method()")).run()
    made(root / "paused").pause(reason="lunch")
    made(root / "later").pause(reason="lunch", until="2999-01-01T00:00:00Z")
    made(root / "cancelled", GRANTING).run()
    satchel.open(root / "cancelled").cancel()
    made(root / "completed").run()
    made(root / "more").run()
    satchel.open(root / "more").send("do more")
    made(root / "new")
    made(root / "moved").move(tmp_path / "elsewhere")
    (root / "typo").mkdir()
    (root / "typo/workspace.yaml").write_text("format: 1\nrunid: typo\n")
    return root


NEEDING = ["conflict", "conflict-told", "waiting", "failed", "typo", "paused", "more"]
OTHERS = ["running", "later", "new", "completed", "cancelled", "moved"]


def test_a_run_that_needs_nobody_comes_before_one_that_does(root: Path, cli: Cli) -> None:
    gated = Gated()
    with gated.going(made(root / "running")):
        runs = sorted(Overview(root).look().runs, key=lambda run: (by_need(run.status), run.name))
        for run in runs[:2]:
            assert (run.status.state, wanted(run.status)) == ("completed", "merge"), run.name
        assert [run.name for run in runs if run.status.needs_person] == NEEDING
        assert [run.name for run in runs] == NEEDING + OTHERS
        told = data_of(cli("ls", "--json", root))
        assert sorted(Path(each["folder"]).name for each in told if each["needs_person"]) == sorted(NEEDING)
