"""Tasks that a pausing run hands on: none is lost, and none gets there twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from satchel.workspace.base import urls
from satchel.workspace.inbound import inbox
from satchel.workspace.inbound.findings import sha
from satchel.workspace.inspect.load import look as look_at
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested, TaskTaken
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import Why, opened
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.store import DiskStore, Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new(tmp_path, "here", "redirect_to: ../there\n")


def new(base: Path, name: str, extra: str = "") -> Path:
    folder = base / name
    (folder / "inbox").mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}-1\nagent: agent.py:main\n{extra}")
    return folder


@contextmanager
def at_work(folder: Path, report: Report | None = None) -> Iterator[Workspace]:
    with opened(DiskStore(folder), "run", report or Report(), reaches_out=True) as workspace:
        yield workspace


def redirect(workspace: Workspace) -> list[str]:
    inbox.redirect(workspace.store, workspace.moment, workspace.journal, workspace.definition, workspace.report)
    return [remark.text for remark in workspace.report.remarks[1:]]


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def test_a_task_that_is_handed_on_stays_or_is_lost(folder: Path, tmp_path: Path) -> None:
    there = new(tmp_path, "there")
    (folder / "inbox/a.md").write_text("first")
    (folder / "inbox/b.yaml").write_text("customer: 7 # a comment\n")
    (folder / "inbox/c.yaml").write_bytes(inbox.message("for this agent"))
    (folder / "inbox/d.yaml").write_text("a: [\n")
    with at_work(folder) as workspace:
        assert redirect(workspace) == ["2 tasks were forwarded to ../there"]
        assert redirect(workspace) == ["2 tasks were forwarded to ../there"], "and not again"
        workspace.close("paused", "manual")
    assert sorted(files(folder / "inbox")) == ["c.yaml", "d.yaml"]
    assert files(folder / "inbox/moved") == {"a.md": "first", "b.yaml": "customer: 7 # a comment\n"}
    assert sorted(files(there / "inbox").values()) == ["customer: 7 # a comment\n", "first"]
    assert all("here-1-t" in name for name in files(there / "inbox"))
    moment = look_at(DiskStore(there)).moment
    assert len(inbox.waiting(DiskStore(there), moment)) == 2
    rows = [json.loads(row) for path in (folder / "journal").iterdir() for row in path.read_text().splitlines()]
    moved = [row["moved_to"] for row in rows if row["type"] == "task.done"]
    assert sorted(Path(path).read_text() for path in moved) == sorted(files(there / "inbox").values())


def test_a_task_at_work_is_handed_on(folder: Path, tmp_path: Path) -> None:
    there = new(tmp_path, "there")
    (folder / "inbox/a.md").write_text("first")
    with at_work(folder) as workspace:
        taken = TaskTaken(id="t1", scope="", file="inbox/a.md", sha256=sha(b"first"))
        workspace.journal.add(taken)
        workspace.journal.flush()
        assert redirect(workspace) == []
    assert files(there / "inbox") == {} and files(folder / "inbox") == {"a.md": "first"}


def test_a_plain_folder_gets_the_files_themselves(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (folder / "inbox/a.md").write_text("first")
    with at_work(folder) as workspace:
        redirect(workspace)
    assert list(files(tmp_path / "there").values()) == ["first"]


@pytest.mark.parametrize("redirect_to", ["../there", ".", "inbox"])
def test_a_target_that_is_not_one_takes_the_tasks_away(folder: Path, redirect_to: str) -> None:
    (folder / "workspace.yaml").write_text((folder / "workspace.yaml").read_text().replace("../there", redirect_to))
    (folder / "inbox/a.md").write_text("first")
    with at_work(folder) as workspace:
        (said,) = redirect(workspace)
        assert "can't be forwarded" in said
        workspace.close("paused", "manual")
    assert files(folder / "inbox") == {"a.md": "first"}


@pytest.mark.parametrize("was_shown", [False, True])
def test_what_a_crash_left_half_handed_on_gets_there_twice_or_never(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_shown: bool
) -> None:
    there = new(tmp_path, "there")
    (folder / "inbox/a.md").write_text("first")
    show = inbox._show

    def killed(target: Store, path: str) -> None:
        if was_shown:
            show(target, path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), at_work(folder) as workspace:
        monkeypatch.setattr(inbox, "_show", killed)
        redirect(workspace)
    monkeypatch.undo()
    visible = [path for path in (there / "inbox").iterdir() if not path.name.startswith(".")]
    assert bool(visible) == was_shown
    for path in visible:
        path.unlink()  # the other one has done it meanwhile, and forgotten it
    report = Report()
    with at_work(folder, report) as workspace:
        assert "is half" not in str(report) and not workspace.moment.tasks
        workspace.close("paused", "manual")
    assert len(files(there / "inbox")) == (0 if was_shown else 1)
    assert files(folder / "inbox") == {} and files(folder / "inbox/moved") == {"a.md": "first"}


def test_a_target_that_is_gone_holds_up_an_opening_or_is_forgotten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = new(tmp_path, "there")
    (folder / "inbox/a.md").write_text("first")
    with at_work(folder) as workspace:
        monkeypatch.setattr(inbox, "_show", lambda target, path: inbox.open_store("/nowhere"))
        with pytest.raises(Exception, match="nowhere"):
            redirect(workspace)
    monkeypatch.undo()
    there.rename(tmp_path / "unmounted")
    for _ in range(2):
        report = Report()
        with at_work(folder, report) as workspace:
            assert list(workspace.moment.tasks) == ["t1"] and report.has("wanted")
            assert inbox.waiting(workspace.store, workspace.moment) == [], "nobody may do it here"
            workspace.close("paused", "manual")
    (tmp_path / "unmounted").rename(there)
    with at_work(folder) as workspace:
        assert not workspace.moment.tasks
        workspace.close("paused", "manual")
    assert list(files(there / "inbox").values()) == ["first"]


def forge(folder: Path, handed_to: str, sha256: str = "") -> None:
    """A journal that says a task was about to be handed on."""
    with at_work(folder) as workspace:
        task = TaskTaken(id="t1", scope="", file="inbox/a.md", sha256=sha256 or sha(b"first"), handed_to=handed_to)
        workspace.journal.add(task)
        workspace.journal.flush()
        workspace.close("paused", "manual")


@pytest.mark.parametrize("why", ["recover", "pause", "forced", "answer", "merge"])
def test_only_a_run_finishes_what_was_half_handed_on(folder: Path, tmp_path: Path, why: Why) -> None:
    there = new(tmp_path, "there")
    name = f"a.here-1-t1-{sha(b'first')[:8]}.md"
    (there / f"inbox/.{name}.part").write_text("first")
    forge(folder, f"{there}/inbox/{name}")
    with opened(DiskStore(folder), why, Report()) as workspace:
        assert list(workspace.moment.tasks) == ["t1"]
        workspace.close()
    assert not (there / "inbox" / name).exists()
    with opened(DiskStore(folder), "run", report := Report(), reaches_out=True) as workspace:
        assert not workspace.moment.tasks and report.has("done")
    assert files(there / "inbox") == {name: "first"}


@pytest.mark.parametrize(
    "place", ["elsewhere", "there", "there/inbox", "there/inbox/deep", "s3://bucket/x", "http://x/y"]
)
def test_a_stranger_s_journal_renames_files_outside(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """`handed_to` is the journal's word, and `redirect_to` a person's."""
    new(tmp_path, "there")
    target = tmp_path / place
    if "://" not in place:
        target.mkdir(parents=True, exist_ok=True)
        (target / "precious").write_text("precious")
        (target / ".precious.part").write_text("evil")
        (target / f".a.here-1-t1-{sha(b'first')[:8]}.md.part").write_text("not what was taken")
    opens: list[str] = []
    monkeypatch.setattr(inbox, "open_store", lambda url: opens.append(url) or DiskStore(url))  # type: ignore[func-returns-value]
    where = place if "://" in place else str(target)
    for name in ("precious", f"a.here-1-t1-{sha(b'first')[:8]}.md", "x/../precious"):
        here = new(tmp_path, f"here-{name[:5].strip('.')}", "redirect_to: ../there\n")
        (here / "workspace.yaml").write_text((folder / "workspace.yaml").read_text())
        forge(here, f"{where}/{name}")
        before = files(target) if "://" not in place else {}
        with at_work(here, report := Report()) as workspace:
            assert list(workspace.moment.tasks) == ["t1"], "it is not forgotten either"
            assert [each.text for each in report.remarks if each.kind == "wanted"]
            workspace.close("paused", "manual")
        assert before == (files(target) if "://" not in place else {})
    assert {urls.is_remote(url) for url in opens} == {False}


def test_a_pause_of_a_folder_that_nobody_runs_hands_its_tasks_on(folder: Path, tmp_path: Path) -> None:
    """Whoever pauses a stranger's folder does not want to write where that says. The run hands them on."""
    there = new(tmp_path, "there")
    (folder / "inbox/a.md").write_text("first")
    request = PauseRequested(reason="x", by="y")
    with opened(DiskStore(folder), "pause", Report()) as workspace:
        workspace.journal.add(request)
        workspace.journal.flush()
        pausing.settle(workspace)
        workspace.close("paused", "x")
    assert files(there / "inbox") == {} and files(folder / "inbox") == {"a.md": "first"}
