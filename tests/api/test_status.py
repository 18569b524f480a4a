"""`status` and `ls` from Python: they only look, and tell what is wrong instead of raising it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import PLAIN, Make, contents

import satchel
from satchel.runtime.api import stops
from satchel.runtime.live import Announcer
from satchel.workspace.base.errors import UsageError
from satchel.workspace.journal import Journal

from .test_answering import GRANTING


def test_a_status_is_not_that_of_the_run(make: Make) -> None:
    folder = make(GRANTING)
    handle = satchel.open(folder)
    new = handle.status()
    assert (new.state, new.next, new.plan, new.questions) == ("new", f"satchel run {folder}", None, [])
    handle.run()
    (folder / "state.json").unlink()
    handle.recover()
    before = contents(folder)
    waiting = handle.status()
    assert (waiting.state, waiting.next) == ("waiting", f"answer, then satchel resume {folder}")
    assert waiting.plan and waiting.plan.progress == (0, 2) and waiting.at_work and waiting.at_work.text == "Grant?"
    assert [(each.id, each.command) for each in waiting.questions] == [("a1", f"satchel answer {folder} a1")]
    assert waiting.definition and waiting.definition.run_id == "demo-1a2b" and waiting.holder is None
    assert waiting.report and contents(folder) == before
    brief = handle.status(brief=True)
    assert (brief.state, [each.id for each in brief.questions]) == ("waiting", ["a1"])
    assert brief.questions[0].command == "" and not brief.report


def test_a_copy_that_the_next_start_refuses_is_not_told(make: Make, tmp_path: Path) -> None:
    folder = make(GRANTING)
    satchel.open(folder).run()
    assert not satchel.open(folder).status().complaints
    copy = shutil.copytree(folder, tmp_path / "copy")
    (said,) = satchel.open(copy).status().complaints
    with pytest.raises(UsageError) as refused:
        satchel.open(copy).answer("approve")
    assert said == str(refused.value) and f"{folder} still has it" in said and "--adopt" in said
    shutil.rmtree(folder)
    assert not satchel.open(copy).status().complaints


def test_limits_and_times_are_not_told(make: Make) -> None:
    extra = "budget: {steps: 3}\nschedule:\n  - {name: weekly, cron: '0 8 * * 1'}\n"
    handle = satchel.open(make(extra=extra))
    handle.run()
    status = handle.status()
    assert [(share.kind, share.used, share.limit) for share in status.budget] == [("steps", 2, 3)]
    (weekly,) = status.schedule
    assert weekly.name == "weekly" and weekly.next and weekly.last is None
    assert not handle.status(brief=True).schedule


def test_what_is_wrong_is_raised(make: Make, tmp_path: Path) -> None:
    folder = make()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: [\n")
    status = satchel.open(folder).status()
    assert status.state == "damaged" and status.problem and status.next == f"satchel check {folder}"
    (tmp_path / "none").mkdir()
    assert isinstance(satchel.open(tmp_path / "none").status().problem, UsageError)


def test_a_workspace_is_missing_in_the_list(make: Make, tmp_path: Path) -> None:
    for name in ("b", "a", "deep/c"):
        make(name=f"runs/{name}")
    (tmp_path / "runs/b/workspace.yaml").write_text("format: 1\nrun_id: a-1a2b\nagent: agent.py:main\n")
    (tmp_path / "runs/deep/c/workspace.yaml").write_text("no: yaml: at all\n")
    satchel.open(tmp_path / "runs/a").run()
    told: list[tuple[int, int]] = []
    found = satchel.ls(tmp_path / "runs", progress=lambda *each: told.append(each))
    assert [(Path(each.folder).name, each.state) for each in found] == [
        ("a", "completed"),
        ("b", "new"),
        ("c", "damaged"),
    ]
    assert [each.same_run_id for each in found] == [[str(tmp_path / "runs/b")], [str(tmp_path / "runs/a")], []]
    assert told == [(1, 3), (2, 3), (3, 3)] and found[2].problem
    with pytest.raises(UsageError, match="no such folder"):
        satchel.ls(tmp_path / "no")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_process_that_left_after_an_error_counts_as_the_one_that_runs_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """It lives on, and would wait for itself for ever."""
    handle = satchel.open(make())

    def fail(*_: object, **__: object) -> None:
        raise error("in an opening")

    with monkeypatch.context() as patched:
        patched.setattr(Announcer, "__init__", fail)
        with pytest.raises(error, match="in an opening"):
            handle.run()
    status = handle.status()
    assert (status.state, status.holder) == ("interrupted", None)
    monkeypatch.setattr(stops, "_MARGIN", 0.0)
    assert handle.wait().status == "interrupted"
    assert handle.check().problems == []
    assert handle.run().status == "completed"


def test_files_that_an_error_left_behind_at_the_end_of_a_run_stay_as_they_are(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is on record, so only the lease tells that something was left to do."""
    handle = satchel.open(folder := make())

    def fail(*_: object) -> None:
        raise RuntimeError("behind the end")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "roll_up", fail)
        with pytest.raises(RuntimeError, match="behind the end"):
            handle.run()
    assert handle.status().state == "completed" and (folder / ".satchel/lease.json").exists()
    handle.run()
    assert not (folder / ".satchel/lease.json").exists()


def test_a_status_loads_what_only_a_run_or_a_bucket_needs(make: Make) -> None:
    folder = make(PLAIN)
    satchel.open(folder).run()
    slow = ["s3fs", "fsspec", "jsonschema", "markdown_it", "rich", "watchdog", "click", "botocore", "pydantic"]
    code = (
        f"import sys, satchel\nassert satchel.open({str(folder)!r}).status().state == 'completed'\n"
        f"loaded = set({slow}) & set(sys.modules)\nassert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
