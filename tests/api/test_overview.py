"""All runs below a root, kept current: read once, and again only if they have changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import PLAIN, Make
from servers import Server

import satchel
from satchel.results import RunStatus
from satchel.runtime.api import Overview, Seen
from satchel.runtime.status import overview
from satchel.runtime.supervision import roots
from satchel.workspace.base.errors import StorageFailed, UsageError
from satchel.workspace.inspect import lease
from satchel.workspace.store import Store, open_store

from .test_answering import GRANTING


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were read, in their order."""
    found: list[str] = []
    real, real_all = overview.look_at, overview.look_at_all

    def note(place: Store | str) -> None:
        found.append((place if isinstance(place, str) else place.url).rpartition("/")[2])

    def noting(place: Store | str) -> RunStatus:
        note(place)
        return real(place)

    def noting_all(root: Store, there: Sequence[Store | str], progress: Any) -> Iterator[tuple[int, RunStatus]]:
        for place in there:
            note(place)
        return real_all(root, there, progress)

    monkeypatch.setattr(overview, "look_at", noting)
    monkeypatch.setattr(overview, "look_at_all", noting_all)
    return found


def aged(folder: Path) -> Path:
    """With files of long ago: new ones are read once more, as soon as a change would show at their times."""
    for above, _, files in os.walk(folder):
        for each in (above, *(os.path.join(above, file) for file in files)):
            os.utime(each, (1_700_000_000, 1_700_000_000))
    return folder


def states(seen: Seen) -> dict[str, str]:
    return {run.name: run.status.state for run in seen.runs}


def test_a_run_that_has_not_changed_is_read_again(
    make: Make, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letters, deep = aged(make(GRANTING, "letters")), aged(make(PLAIN, "more/deep"))
    (tmp_path / "link").symlink_to(letters)
    runs = Overview(tmp_path)
    assert runs.seen is None
    first = runs.look()
    assert states(first) == {"letters": "new", "more/deep": "new"} and first == runs.seen
    assert runs.look(now=True).number == first.number and sorted(reads) == ["deep", "letters"]

    satchel.open(letters).run()
    monkeypatch.setattr(runs, "_due", float("inf"))
    assert states(runs.look()) == states(first), "it is current"
    second = runs.look(now=True)
    assert states(second)["letters"] == "waiting" and second.number > first.number
    assert reads[2:] == ["letters"]
    assert satchel.open(second.runs[0].url).questions()

    (letters / "approvals" / "a1.md").touch()
    shutil.copytree(deep, tmp_path / "other")
    third = runs.look(now=True)
    assert states(third).keys() == {"letters", "more/deep", "other"}
    same = {run.name: [Path(each).name for each in run.status.same_run_id] for run in third.runs}
    assert same == {"letters": [], "more/deep": ["other"], "other": ["deep"]}

    shutil.rmtree(letters)
    fourth = runs.look(now=True)
    assert states(fourth).keys() == {"more/deep", "other"} and fourth.number > third.number


def test_the_first_rows_wait_for_the_last(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that has changed last is read first, and shown while the others are read."""
    for age, name in enumerate(("new", "old", "older")):
        os.utime(make(PLAIN, name), (1_700_000_000 - age, 1_700_000_000 - age))
    runs, real, shown = Overview(tmp_path), overview.look_at, list[tuple[list[str], int]]()

    def looking(place: Store | str) -> RunStatus:
        if (seen := runs.seen) is not None:
            shown.append(([run.name for run in seen.runs], seen.unread))
        return real(place)

    monkeypatch.setattr(overview, "look_at", looking)
    monkeypatch.setattr(overview, "_SHOWN_EVERY", 0.0)
    whole = runs.look()
    assert shown == [(["new"], 2), (["new", "old"], 1)]
    assert len(whole.runs) == 3 and not whole.unread and runs.seen == whole


def test_a_look_at_runs_that_rest_opens_their_folders_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        make(PLAIN, name)
    runs = Overview(tmp_path)
    runs.look()
    opened: list[str] = []
    monkeypatch.setattr(roots, "open_store", opened.append)
    runs.look(now=True)
    assert not opened


def test_a_root_that_is_a_run_has_no_name(make: Make, tmp_path: Path) -> None:
    assert states(Overview(make()).look()) == {"": "new"}
    with pytest.raises(UsageError, match="no such folder"):
        Overview(tmp_path / "nowhere")


def test_a_root_that_is_gone_seems_to_be_empty(make: Make, tmp_path: Path) -> None:
    make(PLAIN, "runs/letters")
    runs = Overview(tmp_path / "runs")
    first = runs.look()
    (tmp_path / "runs").rename(tmp_path / "unmounted")
    gone = runs.look(now=True)
    assert states(gone) == states(first) == {"letters": "new"} and gone.number == first.number
    assert isinstance(gone.problem, StorageFailed) and "runs: is gone: the folder was removed" in str(gone.problem)
    (tmp_path / "other").mkdir()
    late = Overview(tmp_path / "other")
    (tmp_path / "other").rmdir()
    with pytest.raises(StorageFailed, match="other: is gone"):
        late.look()
    (tmp_path / "unmounted").rename(tmp_path / "runs")
    back = runs.look(now=True)
    assert states(back) == {"letters": "new"} and back.problem is None and back.number != first.number


def test_a_run_whose_process_was_killed_seems_to_run(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end changes no file."""
    folder = make()
    satchel.open(folder).run()
    runs = Overview(tmp_path)
    runs.look()
    mine = lease.mine(open_store(str(folder)), "demo-1a2b", 99)
    (folder / lease.PATH).write_bytes(lease.encode(mine))
    assert states(runs.look(now=True)) == {"demo": "running"}
    monkeypatch.setattr(lease, "process_started", lambda pid: "another process has its number")
    assert states(runs.look(now=True))["demo"] != "running"


def test_a_bucket_is_asked_for_each_run(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reads: list[str]
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = seaweedfs.place()
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    for number in range(5):
        for path, text in (
            ("workspace.yaml", f"format: 1\nrun_id: r{number}\nagent: agent.py:main\n"),
            ("agent.py", GRANTING),
        ):
            seaweedfs.client.put_object(Bucket=bucket, Key=f"{prefix}/r{number}/{path}", Body=text.encode())
    satchel.open(f"{root}/r3").run()
    runs = Overview(root)
    assert runs.is_remote and runs.every >= 4
    first = runs.look()
    assert states(first) == {f"r{each}": "waiting" if each == 3 else "new" for each in range(5)}
    assert runs.look(now=True).number == first.number and len(reads) == 5

    satchel.open(f"{root}/r3").answer("deny", by="ada")
    satchel.open(f"{root}/r3").run()
    again = runs.look(now=True)
    assert again.number > first.number and reads[5:] == ["r3"]
    assert [run.url for run in again.runs] == [f"{root}/r{each}" for each in range(5)]

    def fails() -> None:
        raise StorageFailed("no answer")

    monkeypatch.setattr(runs._root, "folders", fails)
    failed = runs.look(now=True)
    assert states(failed) == states(again) and "no answer" in str(failed.problem)
