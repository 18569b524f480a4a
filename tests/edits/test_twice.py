"""The same edit merged twice, since a crash came before its file was written anew: nothing changes the second time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

from .folder import Place, world

READ = "steps/2-two/01-read.json"

EDITS: dict[str, Callable[[Place], object]] = {
    "ticked": lambda place: place.edit("todo.md", ("[ ] three", "[x] three")),
    "unticked": lambda place: place.edit("todo.md", ("[x] one", "[ ] one")),
    "begun anew": lambda place: place.edit("todo.md", ("[/] two", "[ ] two")),
    "added and removed": lambda place: place.edit("todo.md", ("- [ ] three\n", "- [ ] four\n- [ ] four\n\nWords.\n")),
    "reworded and moved": lambda place: place.edit(
        "todo.md", ("- [ ] three\n", ""), ("- [/] two", "## A\n\n- [ ] drei\n- [/] two")
    ),
    "without a stamp": lambda place: place.put(
        "todo.md", "# New\n\n- [x] one\n- [ ] two\n- [ ] new\n- [ ] ask bob\n- [ ] three\n"
    ),
    "data": lambda place: place.set_data(lambda data: data.update(n=7, words=["a", *data["words"], "b"])),
    "a result": lambda place: place.edit(READ, ('"TWO"', '"ZWEI"')),
    "redo": lambda place: place.edit(READ.replace("01-read", "03-send"), ('"call"', '"redo": true, "call"')),
    "settings": lambda place: place.put("workspace.yaml", place.text("workspace.yaml") + "settings:\n  a: 1\n"),
}


class Crash(BaseException): ...


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", EDITS)
def test_an_edit_counts_twice_after_a_crash(
    stopped: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, every: int
) -> None:
    EDITS[what](stopped)
    stopped.folder = stopped.folder.rename(tmp_path / "kept")  # so that a copy of it is no second one
    once = _copy(stopped, tmp_path / "once")
    once.recover()
    wanted, records = once.substance(), len(once.edited)
    assert records
    crashed = 0
    for at in range(len(what) % every, 100, every):  # others for each
        place = _copy(stopped, tmp_path / f"at-{at}")
        with monkeypatch.context() as patched:
            calls = _crash_after(patched, at)
            try:
                place.recover()
            except Crash:
                crashed += 1
        if calls[0] <= at:
            break
        place.recover()
        assert place.substance() == wanted and len(place.edited) == records, (what, at)
        assert place.is_at_the_moment() and not place.there("conflicts/*") and not place.there("**/*.rejected*"), at
    assert crashed >= 5 // every


def _copy(place: Place, to: Path) -> Place:
    shutil.copytree(place.folder, to)
    other = Place.__new__(Place)
    other.folder, other.store, other.agent = to, DiskStore(to), place.agent
    return other


def _crash_after(patched: pytest.MonkeyPatch, count: int) -> list[int]:
    """Let the process die at the write after `count` of them; counts all."""
    calls = [0]

    def wrap(name: str) -> None:
        real = getattr(DiskStore, name)

        def wrapped(self: DiskStore, *args: object, **options: object) -> object:
            calls[0] += 1
            if calls[0] > count:
                raise Crash
            return real(self, *args, **options)

        patched.setattr(DiskStore, name, wrapped)

    for name in ("replace", "create_log", "append", "remove"):
        wrap(name)
    return calls


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", [what for what in EDITS if what != "settings"])
def test_the_same_bytes_come_back_after_the_run_has_gone_on(stopped: Place, what: str) -> None:
    """A power failure has taken the rename, and the run was gone on with."""
    EDITS[what](stopped)
    mine = {path: stopped.get(path) for path in ("todo.md", "state.json", *stopped.there("steps/2-two/*"))}
    report = Report()
    with opened(stopped.store, "recover", report) as workspace:
        changed = {edit.file for edit in stopped.edited}
        workspace.close()
    before = stopped.substance()
    for path in changed:
        stopped.put(path, mine[path])
    stopped.recover()
    assert stopped.substance() == before and stopped.is_at_the_moment()
    assert world.fresh() == []
