"""Rows of lists that come from the index of `serve`: one says something else than the files of its run."""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import warm
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from properties import examples

import satchel
from satchel import Run, agent, step
from satchel.errors import SatchelError
from satchel.runtime.cli.commands.fleet import _row
from satchel.runtime.present import cost
from satchel.runtime.status import ORDERS, Overview, RunQuery, SeenRun, overview, resting_row
from satchel.runtime.status.run_status import RestingStatus, RunStatus
from satchel.runtime.supervision import figures_of, lookout, roots, run_server
from satchel.runtime.supervision.roots import DUE_INDEX, DueIndex
from satchel.workspace.store import Syscalls

from .test_cheap_looks import OLD, Looks, asker, made, parent
from .test_due_index import rewrite


@step
async def one() -> int:
    return 1


@agent
async def worker(run: Run[Any]) -> None:
    async def work(run: Run[Any], item: Any) -> None:
        await one()
        run.spend(usd=0.25, tokens=10)

    await run.plan(None, ["one", "two"])
    await run.todo.each(work)


@agent
async def failing(run: Run[Any]) -> None:
    await run.plan(None, ["one", "two"])
    raise ValueError("a text of the run")


@agent
async def sleeper(run: Run[Any]) -> None:
    await run.sleep(900)


@agent
async def pausing(run: Run[Any]) -> None:
    await run.pause("a text of the run")


@agent
async def inside(run: Run[Any]) -> None:
    """Waits inside an item, whose title is in the name of the checkpoint then."""

    async def work(run: Run[Any], item: Any) -> None:
        await run.ask("Go on?", wait_for=0)

    await run.plan(None, ["Zanzibar"])
    await run.todo.each(work)


MAINS = {
    "done": worker,
    "asks": asker,
    "inside": inside,
    "fails": failing,
    "sleeps": sleeper,
    "parent": parent,
    "paused": pausing,
}
KINDS = (*MAINS, "cancelled", "until", "new", "held")


def make(root: Path, kind: str) -> Path:
    if kind in MAINS:
        return made(root, kind, MAINS[kind])
    if kind == "held":
        with satchel.hold(root / kind, kind="notes"):
            return root / kind
    if kind == "new":
        (root / kind).mkdir(parents=True)
        (root / kind / "workspace.yaml").write_text(f"format: 1\nrun_id: {kind}\nagent: agent.py:main\n")
        return root / kind
    folder = made(root, kind, sleeper)
    if kind == "cancelled":
        satchel.open(folder).cancel()
        satchel.run(folder, sleeper)
    else:
        satchel.open(folder).pause(until="2099-01-01T00:00:00Z")
    return folder


_ADDRESS = re.compile("(?<= at )0x[0-9a-f]+")


class Clock:
    """Gives each file that was changed a time of its own, long ago."""

    def __init__(self) -> None:
        self.now = OLD

    def age(self, root: Path) -> None:
        self.now += 10
        for above, _, files in os.walk(root):
            for each in [above, *(os.path.join(above, file) for file in files)]:
                if os.lstat(each).st_mtime > time.time() - 10**6:
                    os.utime(each, (self.now, self.now), follow_symlinks=False)


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "_MANY", 0)
    monkeypatch.setattr(roots, "_EVERY", 0.0)
    monkeypatch.setattr(lookout, "_LOOKS", 1)


def write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index, as a process that looks writes it."""
    (root / DUE_INDEX).unlink(missing_ok=True)
    Looks(root, monkeypatch, resting_row).look()


def shown(found: RunStatus) -> list[Any]:
    """What lists show of it."""
    run = SeenRun(found.folder, found)
    figures = (
        found.figures if isinstance(found, RestingStatus) else found.moment and figures_of(found.moment, found.state)
    )
    return [
        _row(found),
        cost(found),
        found.needs_person,
        found.same_run_id,
        str(found.problem),
        figures,
        [order.key(run) for order in ORDERS.values()],
        found.definition,
    ]


def facts(found: RunStatus) -> dict[str, str]:
    """All of it. Plans are not compared by their texts."""
    return {name: _ADDRESS.sub("", repr(getattr(found, name))) for name in RunStatus.__struct_fields__}


def resting(root: Path) -> dict[str, RestingStatus]:
    """Those that come from the index."""
    return {Path(each.folder).name: each for each in satchel.ls(root) if isinstance(each, RestingStatus)}


def read(root: Path, look: Callable[[], list[RunStatus]]) -> list[RunStatus]:
    """What a look shows without the index."""
    (root / DUE_INDEX).rename(root / ".satchel/aside")
    try:
        return look()
    finally:
        (root / ".satchel/aside").rename(root / DUE_INDEX)


def check(root: Path) -> None:
    for look in (lambda: satchel.ls(root), lambda: [each.status for each in Overview(root).look().runs]):
        expected = read(root, look)
        found = look()
        assert [*map(shown, found)] == [*map(shown, expected)]
        assert [*map(facts, found)] == [*map(facts, expected)]


# What people and programs do


def answered(folder: Path) -> None:
    satchel.open(folder).answer("yes")


def typed(folder: Path) -> None:
    path = folder / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("decision:", "decision: yes", 1))


def asked_to_pause(folder: Path) -> None:
    (folder / "pause.yaml").write_text("status: paused\nreason: by hand\n")


def wrongly_paused(folder: Path) -> None:
    (folder / "pause.yaml").write_text("status: [\n")


def released(folder: Path) -> None:
    path = folder / "pause.yaml"
    path.write_text(path.read_text().replace("status: paused", "status: resume"))


def sent(folder: Path) -> None:
    satchel.open(folder).send("One more")


def planned(folder: Path) -> None:
    with (folder / "todo.md").open("a") as file:
        file.write("- [ ] three\n")


def contradicted(folder: Path) -> None:
    path = folder / "todo.md"
    path.write_text(path.read_text().replace("[x]", "[ ]"))


def edited(folder: Path) -> None:
    path = folder / "state.json"
    path.write_text(path.read_text()[:-20])


def redefined(folder: Path) -> None:
    with (folder / "workspace.yaml").open("a") as file:
        file.write("group: ada\npriority: 3\n")


def misdefined(folder: Path) -> None:
    with (folder / "workspace.yaml").open("a") as file:
        file.write("no_such_key: 1\n")


def undefined(folder: Path) -> None:
    (folder / "workspace.yaml").unlink()


def renamed(folder: Path) -> None:
    path = folder / "workspace.yaml"
    path.write_text(path.read_text().replace("run_id: ", "run_id: x"))


def torn(folder: Path) -> None:
    path = max((folder / "journal").iterdir())
    path.write_bytes(path.read_bytes()[:-9])


def without_a_journal(folder: Path) -> None:
    shutil.rmtree(folder / "journal")


def without_its_checkpoint(folder: Path) -> None:
    max((folder / "checkpoints").glob("*.json")).unlink()


def with_a_spoilt_checkpoint(folder: Path) -> None:
    path = max((folder / "checkpoints").glob("*.json"))
    path.write_bytes(path.read_bytes().replace(b'"', b"'", 1))


def with_another_checkpoint(folder: Path) -> None:
    path = max((folder / "checkpoints").glob("*.json"))
    shutil.copy(path, path.with_name("000000999999-stop.json"))


def with_a_lease(folder: Path) -> None:
    lease = {"format": 1, "run_id": folder.name, "pid": 2**22 - 1, "host": "elsewhere", "epoch": 99}
    (folder / ".satchel/lease.json").write_text(json.dumps(lease))


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def taken_away(folder: Path) -> None:
    folder.rename(folder.with_name(f"{folder.name}2"))


def copied(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name(f"{folder.name}2"))


def moved(folder: Path) -> None:
    satchel.open(folder).move(folder.with_name(f"{folder.name}3"))


def cancelled(folder: Path) -> None:
    satchel.open(folder).cancel()


def paused(folder: Path) -> None:
    satchel.open(folder).pause()


def run_again(folder: Path) -> None:
    satchel.run(folder, worker, accept_drift=True)


ACTS = [
    answered,
    typed,
    asked_to_pause,
    wrongly_paused,
    released,
    sent,
    planned,
    contradicted,
    edited,
    redefined,
    misdefined,
    undefined,
    renamed,
    torn,
    without_a_journal,
    without_its_checkpoint,
    with_a_spoilt_checkpoint,
    with_another_checkpoint,
    with_a_lease,
    removed,
    taken_away,
    copied,
    moved,
    cancelled,
    paused,
    run_again,
]


def acted(root: Path, kind: str, act: Callable[[Path], None]) -> bool:
    """False if it can't be done to this run as it is now."""
    try:
        act(root / kind)
    except (SatchelError, OSError, ValueError):
        return False
    return True


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_show_what_was_done_to_its_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    for act in ACTS:
        root, clock = tmp_path / act.__name__, Clock()
        make(root, kind)
        clock.age(root)
        write(root, monkeypatch)
        assert ({*resting(root)} == {kind}) == (kind not in ("new", "held"))
        if acted(root, kind, act):
            check(root)
            clock.age(root)
            write(root, monkeypatch)
            check(root)
            done += 1
    assert done > 10


@settings(examples(50), phases=[Phase.explicit, Phase.generate])  # a shorter example would take minutes
@given(acts=st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(ACTS)), min_size=3, max_size=9))
def test_a_row_of_the_index_differs_from_the_row_that_is_read(
    acts: list[tuple[str, Callable[[Path], None]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After some acts on the same runs, with looks of a `serve` in between that remembers what it has seen."""
    root, clock = tmp_path_factory.mktemp("runs"), Clock()
    for kind in {kind for kind, _ in acts}:
        make(root, kind)
    with pytest.MonkeyPatch.context() as patch:
        looks = Looks(root, patch, resting_row)
        for kind, act in acts:
            clock.age(root)
            looks.look()
            check(root)
            acted(root, kind, act)
            check(root)
        clock.age(root)
        looks.look()
        check(root)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("asks", "done", "fails"):
        make(tmp_path / "runs", kind)
    write(tmp_path / "runs", monkeypatch)
    return tmp_path / "runs"


@pytest.fixture
def looks_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs whose records are read for lists."""
    names, real = list[str](), overview.look_at

    def noted(found: Any, folder: str = "") -> RunStatus:
        names.append(Path(found if isinstance(found, str) else found.url).name)
        return real(found, folder)

    monkeypatch.setattr(overview, "look_at", noted)
    return names


def test_lists_read_what_the_index_knows(root: Path, looks_at: list[str]) -> None:
    found = satchel.ls(root)
    for order in ORDERS:
        RunQuery(sort=order, usd=0.1, wanted=True, since="1d").of(SeenRun(each.folder, each) for each in found)
    assert [*map(shown, found)] and Overview(root).look().runs and looks_at == []
    assert [str(each.moment.error) for each in found if each.moment and each.moment.error] != []
    assert [*map(facts, found)] and looks_at == ["asks", "done", "fails"], "once, and only when it is asked for"


def test_a_row_holds_a_text_of_its_run_or_is_long(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(root, "inside")
    assert [*(root / "inside/checkpoints").glob("*-zanzibar.json")] != []
    write(root, monkeypatch)
    assert "inside" in resting(root)
    content = (root / DUE_INDEX).read_text()
    texts = ("Go on?", "a text of the run", "agent.py", "Zanzibar")
    assert [each for each in texts if each.lower() in content.replace(str(root), "").lower()] == []
    runs = json.loads(content.partition("\n")[2])["runs"].values()
    assert all(len(json.dumps(each["row"])) < 300 for each in runs)


def test_who_may_read_the_root_and_not_the_runs_reads_the_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.chmod(0o2770)
    write(root, monkeypatch)
    assert (root / DUE_INDEX).stat().st_mode & 0o777 == 0o600
    (root / DUE_INDEX).chmod(0o660)
    index = DueIndex(str(root))
    index.write(index.read())
    assert (root / DUE_INDEX).stat().st_mode & 0o777 == 0o600


def test_who_may_not_read_the_index_gets_no_list(
    root: Path, looks_at: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    real = Syscalls.read

    def refused(calls: Syscalls, path: str, limit: int) -> Any:
        if path.endswith(DUE_INDEX):
            raise PermissionError(errno.EACCES, "not yours", path)
        return real(calls, path, limit)

    monkeypatch.setattr(Syscalls, "read", refused)
    assert [each.state for each in satchel.ls(root)] == ["waiting", "completed", "failed"]
    assert looks_at == ["asks", "done", "fails"] and capfd.readouterr() == ("", "")


def test_a_row_that_no_process_has_looked_at_for_a_minute_is_believed(root: Path, looks_at: list[str]) -> None:
    for age in (61, -5):  # or whose clock was ahead
        os.utime(root / DUE_INDEX, (time.time() - age,) * 2)
        assert not resting(root)
    assert looks_at == 2 * ["asks", "done", "fails"]


def test_a_process_that_looks_lets_rows_grow_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(root, monkeypatch, resting_row)
    looks.look()
    looks.look(60.0)
    os.utime(root / DUE_INDEX, (time.time() - 61,) * 2)
    looks.look()
    assert len(resting(root)) == 3


@pytest.mark.parametrize("how", ["due", "serve"])
def test_who_looks_again_and_again_makes_no_rows(root: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / DUE_INDEX).unlink()
    if how == "serve":
        monkeypatch.setattr(run_server, "serve", lambda server, once: server._lookout.look())
        satchel.serve(root)
    else:

        async def look() -> None:
            async for _ in satchel.due(root):
                return

        asyncio.run(look())
    assert len(resting(root)) == 3


def test_what_the_index_alone_says_is_handed_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A next `serve` vouches for a row only after it has read the run itself."""
    looks = Looks(root, monkeypatch, resting_row)
    monkeypatch.setattr(looks.lookout, "_rests_by_index", lambda known, signature, now: _unproven(known, signature))
    looks.look()
    assert not resting(root)


def _unproven(known: Any, signature: Any) -> bool:
    known.is_unproven, known.signature = True, signature
    return True


@pytest.mark.parametrize(
    "row",
    [
        {"at": "x"},
        {"asked": ["\x1b[2J"]},
        {"asked": "a1"},
        {"plan": [1]},
        {"proof": ""},
        {"proof": "0" * 16},
        {"checkpoint": "../../etc/passwd"},
        {"checkpoint": -1},
        {"checkpoint": 10**6},
    ],
)
def test_a_row_that_no_process_has_made_is_shown(root: Path, row: dict[str, Any]) -> None:
    rewrite(root, lambda content: content["runs"][str(root / "asks")]["row"].update(row))
    assert "asks" not in resting(root)
    check(root)


def test_a_page_shows_for_more_than_a_minute_what_a_lying_index_says(
    root: Path, looks_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(content: dict[str, Any]) -> None:
        content["runs"][str(root / "asks")]["figures"].update(state="completed")

    rewrite(root, lie)
    now = time.monotonic()
    monkeypatch.setattr(overview, "time", Mock(monotonic=lambda: now))
    page = Overview(root)
    assert [each.status.state for each in page.look().runs] == ["completed", "completed", "failed"] and not looks_at
    now += 20
    page.look()
    assert len(looks_at) == 2
    now += 20
    assert [each.status.state for each in page.look().runs] == ["waiting", "completed", "failed"]
    assert sorted(looks_at) == ["asks", "done", "fails"]
    now += 20
    page.look()
    assert len(looks_at) == 3, "each once"


def test_a_status_from_the_index_can_not_be_copied_or_sent_elsewhere(root: Path) -> None:
    for again in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):  # noqa: S301
        (one,) = (each for each in satchel.ls(root) if each.state == "completed")
        assert isinstance(one, RestingStatus) and one != again(one) and facts(again(one)) == facts(one)


def test_a_run_that_is_gone_when_its_status_is_read_breaks_the_list(root: Path) -> None:
    found = resting(root)
    shutil.rmtree(root / "fails")
    assert found["fails"].moment is None and found["fails"].problem is not None
    with pytest.raises(AttributeError):
        found["done"].no_such_name  # type: ignore[attr-defined]  # noqa: B018


_WRITER = """
import sys
from satchel.runtime.status import resting_row
from satchel.runtime.supervision import Lookout
from satchel.runtime.supervision import roots
from satchel.runtime.supervision import lookout as module
roots._MANY, roots._EVERY, module._LOOKS = 0, 0.0, 1
lookout = Lookout(sys.argv[1], None, print, row_of=resting_row)
while True:
    lookout.look()
    print(flush=True)
"""


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("turns", range(5))
def test_a_writer_that_is_killed_leaves_half_an_index(root: Path, turns: int) -> None:
    (root / DUE_INDEX).unlink()
    for turn in range(4):
        with warm.Popen([sys.executable, "-c", _WRITER, root], stdout=subprocess.PIPE) as writer:
            assert writer.stdout
            for _ in range(turns + turn + 1):
                assert writer.stdout.readline()
            writer.kill()
        assert len(resting(root)) == 3 or turns + turn < 2, "the first look has read none"
        check(root)
