"""`stop`, `recover` and `merge` from Python, and `open_all`."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make, contents
from properties import pairs

import satchel
from satchel.runtime.api import MergeResult, stop_all
from satchel.runtime.supervision import forced_stop
from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, SatchelError, UsageError
from satchel.workspace.inbound import Side
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


def test_a_stopped_run_begins(make: Make) -> None:
    handle = satchel.open(make())
    stopped = handle.stop(reason="wrong recipients", by="ada")
    assert (stopped.how, stopped.killed, stopped.url) == ("idle", (), handle.url)
    assert "mode: emergency" in (Path(handle.url) / "pause.yaml").read_text()
    assert handle.run().reason == "wrong recipients"
    assert asyncio.run(handle.stop_async()).how == "idle"


def test_one_workspace_that_is_none_lets_others_be_stopped(make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    places = [satchel.open(make()), satchel.open(tmp_path / "other")]
    with pytest.raises(UsageError, match="is not a workspace"):
        stop_all(places)
    assert not (tmp_path / "demo/pause.yaml").exists() and not list((tmp_path / "other").iterdir())


def test_not_all_are_found(make: Make, tmp_path: Path) -> None:
    for name in ("runs/b", "runs/a", "runs/deep/er/c", "runs/.hidden/d"):
        make(name=name)
    make(name="runs/a/inside")
    found = satchel.open_all(tmp_path / "runs")
    assert [Path(each.url).name for each in found] == ["a", "b", "c"]
    assert [each.how for each in stop_all(found)] == ["new"] * 3
    assert not (tmp_path / "runs/.hidden/d/pause.yaml").exists() and satchel.open_all(tmp_path / "runs/.hidden/d")
    with pytest.raises(UsageError, match="no such folder"):
        satchel.open_all(tmp_path / "no")


def test_what_a_crash_left_is_not_repaired(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    assert not handle.recover().has_begun and not (folder / "journal").exists()
    with opened(DiskStore(folder), "run", Report()) as workspace:
        workspace.journal.flush()
        seq = workspace.moment.seq
    assert not look(DiskStore(folder)).moment.clean
    recovered = asyncio.run(handle.recover_async())
    assert recovered.has_begun and recovered.run_id == "demo-1a2b" and not recovered.questions
    assert "everything up to record" in recovered.report[0].text
    assert look(DiskStore(folder)).moment.clean and look(DiskStore(folder)).moment.seq > seq
    with pytest.raises(UsageError, match="there is nothing to take over on a disk"):
        handle.recover(take_over=True)


def test_a_cut_forgets_another_record(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    assert handle.run().status == "completed"
    (first,) = journal.segments(DiskStore(folder))
    path = folder / journal.segment_path(first)
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:5], b"broken\n", *rows[6:]]))
    for checkpoint in (folder / "checkpoints").glob("*.json"):
        checkpoint.unlink()
    with pytest.raises(Damaged):
        handle.recover()
    before = contents(folder)
    cut = handle.plan_cut(5)
    assert (
        len(rows) - 7 <= cut.records <= len(rows) - 6
    )  # a line of the same group can't be read without the broken one
    assert contents(folder) == before
    recovered = handle.recover(truncate_at=cut)
    assert any("cut off after record 5" in remark.text for remark in recovered.report)
    assert next((folder / "cut-off").rglob("*.jsonl")).read_bytes() == before[str(path)]
    assert handle.run().status == "completed"


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_run_that_was_killed_in_its_first_start_is_not_sound(make: Make, is_rebuilt: bool) -> None:
    """The schema of its data was published, and no data is on record yet."""
    folder = make()
    handle = satchel.open(folder)
    handle.run()
    handle.recover(truncate_at=1)
    assert json.loads((folder / "state.json").read_text())["data"] is None
    if is_rebuilt:
        for name in ("journal", "checkpoints"):
            shutil.rmtree(folder / name)
        handle = satchel.open(folder)
    assert handle.check().problems == []
    assert handle.run().status == "completed"


@pytest.mark.parametrize("cut", [True, False, 1.0, "1"])
def test_a_cut_at_what_is_no_record_forgets_all(make: Make, cut: Any) -> None:
    folder = make()
    handle = satchel.open(folder)
    assert handle.run().status == "completed"
    before = contents(folder)
    with pytest.raises(UsageError, match="Give the number of the last good record"):
        handle.recover(truncate_at=cut)
    with pytest.raises(UsageError, match="Give the number of the last good record"):
        handle.plan_cut(cut)
    assert contents(folder) == before


COUNTING = """
from pathlib import Path
from typing import Any
from satchel import agent

async def work(run, item):
    run.state["n"] = run.state.get("n", 0) + 1
    if item.text == "b" and not Path(__file__).with_name("on").exists():
        raise TypeError("stop")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a", "b"])
    await run.todo.each(work)
"""


@pytest.mark.parametrize(
    ("use", "kept", "files"),
    [
        ("ours", 2, lambda path: ["state.json"]),
        ("theirs", 9, lambda path: "state.json"),
        ("theirs", 9, lambda path: [path]),
        ("theirs", 9, lambda path: Path("state.json")),
    ],
    ids=["names", "a name", "paths", "a relative path"],
)
def test_a_conflict_is_not_settled(make: Make, use: Side, kept: int, files: Callable[[Path], Any]) -> None:
    folder = make(COUNTING)
    state, handle = folder / "state.json", satchel.open(folder)
    assert handle.run().status == "failed" and handle.merge() == MergeResult((), (), ())
    old = state.read_text()
    (folder / "on").touch()
    assert handle.run().status == "completed"
    state.write_text(old.replace('"n": 1', '"n": 9'))
    before = contents(folder)
    found = handle.merge()
    (conflict,) = found.conflicts
    assert conflict.path == "state.json" and conflict.places and found.open == [conflict] and not found.settled
    assert json.loads(conflict.theirs)["data"] == {"n": 9} and json.loads(conflict.ours)["data"] == {"n": 2}
    with pytest.raises(UsageError, match=r"there is no conflict in todo\.md"):
        handle.merge(use, files=["todo.md"])
    for other in ("mine", True, ["ours"]):
        with pytest.raises(UsageError, match=r"is not a side\. Write ours, theirs or edited"):
            handle.merge(other)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="5 is not the path of a file"):
        handle.merge(use, files=[5])  # type: ignore[list-item]
    assert contents(folder) == before
    found = asyncio.run(handle.merge_async(use, files=files(state)))
    assert found.settled == ("state.json",) and not found.open and found.report
    assert json.loads(state.read_text())["data"] == {"n": kept} and not handle.merge().conflicts


def test_a_remedy_names_only_what_is_typed_on_a_command_line(make: Make, tmp_path: Path) -> None:
    """A Python caller is told the argument, too."""
    handle = satchel.open(folder := make())
    handle.run()
    copied = satchel.open(handle.copy(tmp_path / "copy").to)
    copied.send("a task")
    with pytest.raises(UsageError, match=r"`satchel resume --adopt [^`]*` \(`resume\(adopt=True\)` in Python\)"):
        copied.run()
    with pytest.raises(SatchelError, match="`from_checkpoint` in Python"):
        handle.resume(from_checkpoint=True)
    with pytest.raises(UsageError, match="storage options are only for URLs"):
        satchel.open(folder, storage_options={"key": "x"})


ACTS = ["pause", "run", "resume", "recover", "stop", "merge", "crashes", "kill", "rewind", "send"]


@pytest.mark.parametrize(("act", "left"), pairs(ACTS, ["", "requested", "paused", "emergency", "resume"], every=5))
def test_a_cancelled_run_has_another_status_afterwards(make: Make, act: str, left: str) -> None:
    """Also if its process was killed before it could remove pause.yaml. `transitions` sees each record."""
    folder = make()
    handle = satchel.open(folder)
    handle.pause()
    handle.run()
    assert handle.cancel().status == "cancelled"
    if left:
        mode = "emergency" if left == "emergency" else "drain"
        status = "requested" if left == "emergency" else left
        (folder / "pause.yaml").write_text(f"status: {status}\nreason: late\nby: ada\nmode: {mode}\n")
    request = PauseRequested(reason="late", by="ada")
    acts: dict[str, Callable[[], object]] = {
        "crashes": lambda: forced_stop.after_crashes(DiskStore(folder), "5 crashes"),
        "kill": lambda: forced_stop.after_kill(DiskStore(folder), request, 1.0, datetime.now(UTC)),
        "rewind": lambda: handle.history.rewind(to=3),
        "send": lambda: handle.send("Write to Ada"),
    }
    with suppress(SatchelError):
        acts.get(act, getattr(handle, act, None))()  # type: ignore[misc]
    moment = look(DiskStore(folder)).moment
    assert (moment.status, moment.reason) == ("cancelled", "cancelled")
