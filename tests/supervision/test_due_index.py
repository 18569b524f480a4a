"""The index of what rests: wrong words in it start a run, or keep one from being started for more than a minute."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.results import ServeEvent
from satchel.runtime.status import Overview
from satchel.runtime.supervision import lookout, roots
from satchel.runtime.supervision.roots import DUE_INDEX, DueIndex
from satchel.runtime.supervision.run_server import Server

from .test_cheap_looks import Looks, asker, made


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(roots, "_MANY", 1)
    monkeypatch.setattr(lookout, "_LOOKS", 1)
    for name in "abc":
        made(tmp_path / "runs", name, asker)
    return tmp_path / "runs"


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs whose records were read."""
    names, judge = list[str](), lookout.judge

    def noted(store: Any, *args: Any, **options: Any) -> Any:
        names.append(store.url.rpartition("/")[2])
        return judge(store, *args, **options)

    monkeypatch.setattr(lookout, "judge", noted)
    return names


def rewrite(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """As one who knows how it is made."""
    path = root / DUE_INDEX
    content = json.loads(path.read_bytes().partition(b"\n")[2])
    change(content)
    data = json.dumps(content).encode()
    path.write_bytes(sha256(data).hexdigest().encode() + b"\n" + data)


def test_the_next_process_reads_every_record_again(
    root: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Looks(root, monkeypatch).look()[1] == []
    assert sorted(judged) == ["a", "b", "c"]
    judged.clear()
    looks = Looks(root, monkeypatch)
    assert looks.look() == (["a", "b", "c"], []) and judged == []
    assert {each.run_id for each in looks.lookout.known.values()} == {"a", "b", "c"}
    looks.look(60.0)
    assert sorted(judged) == ["a", "b", "c"], "once, within a minute"
    looks.look(60.0)
    assert len(judged) == 3


def test_what_has_changed_since_the_index_was_written_is_missed(
    root: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Looks(root, monkeypatch).look()
    judged.clear()
    satchel.open(root / "b").answer("yes")
    assert Looks(root, monkeypatch).look()[1] == ["b"] and judged == ["b"]


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def turned(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"A"'))


def nested(path: Path) -> None:
    data = b"[" * 100_000
    path.write_bytes(sha256(data).hexdigest().encode() + b"\n" + data)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_another_version(path: Path) -> None:
    rewrite(path.parents[1], lambda content: content.update(satchel="0.0.9"))


def with_wrong_types(path: Path) -> None:
    rewrite(path.parents[1], lambda content: content["runs"].update(x=3))


def with_a_time_of_no_zone(path: Path) -> None:
    rewrite(path.parents[1], lambda content: [run.update(at="2000-01-01T00:00:00") for run in content["runs"].values()])


def with_no_time(path: Path) -> None:
    rewrite(path.parents[1], lambda content: [run["figures"].update(asked_at="?") for run in content["runs"].values()])


@pytest.mark.parametrize(
    "damage",
    [
        with_a_time_of_no_zone,
        with_no_time,
        torn,
        turned,
        nested,
        link,
        folder,
        of_another_version,
        with_wrong_types,
        Path.unlink,
        lambda path: path.write_bytes(b"\xff"),
    ],
)
def test_an_index_that_is_damaged_or_foreign_is_believed(
    root: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    Looks(root, monkeypatch).look()
    judged.clear()
    damage(root / DUE_INDEX)
    assert Looks(root, monkeypatch).look()[1] == []
    assert sorted(judged) == ["a", "b", "c"]


@pytest.mark.parametrize("at", [None, "3000-01-01T00:00:00Z"])
def test_an_index_that_lies_keeps_a_run_from_being_started_for_more_than_a_minute(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: str | None
) -> None:
    Looks(root, monkeypatch).look()
    satchel.open(root / "b").answer("yes")
    digest = Looks(root, monkeypatch).lookout.root.signature(str(root / "b"))[0][0]

    def lie(content: dict[str, Any]) -> None:
        content["runs"][str(root / "b")].update(signature=digest, at=at)

    rewrite(root, lie)
    looks = Looks(root, monkeypatch)
    assert looks.look()[1] == []
    assert looks.look(60.0)[1] == ["b"]


def test_a_single_look_believes_an_index_that_lies(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the only one: no other follows within a minute."""
    Looks(root, monkeypatch).look()
    satchel.open(root / "b").answer("yes")
    digest = Looks(root, monkeypatch).lookout.root.signature(str(root / "b"))[0][0]
    rewrite(root, lambda content: content["runs"][str(root / "b")].update(signature=digest))
    monkeypatch.undo()

    async def found() -> list[str]:
        return [run.run_id async for look in satchel.due(root, once=True) for run in look.runs]

    assert asyncio.run(found()) == ["b"]
    told = list[ServeEvent]()
    satchel.serve(root, once=True, tell=told.append)
    assert ("started", "b") in [(each.kind, Path(each.folder).name) for each in told]


def test_an_index_that_lies_starts_a_run(root: Path, judged: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(root, monkeypatch).look()

    def lie(content: dict[str, Any]) -> None:
        content["runs"][str(root / "b")].update(at="2020-01-01T00:00:00Z")

    rewrite(root, lie)
    judged.clear()
    assert Looks(root, monkeypatch).look()[1] == [] and judged == ["b"]


def test_a_run_that_a_signal_has_paused_rests_under_the_next_serve(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no wish of a person, so the index says nothing of it."""
    monkeypatch.setattr(roots, "_EVERY", 0.0)
    first = Looks(root, monkeypatch)
    first.look()

    @satchel.agent
    async def stopped(run: satchel.Run[Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await run.sleep(900)

    made(root, "d", stopped)
    assert satchel.open(root / "d").status().state == "paused"
    first.look()
    assert str(root / "a") in (root / DUE_INDEX).read_text()
    assert str(root / "d") not in json.loads((root / DUE_INDEX).read_bytes().partition(b"\n")[2])["runs"]
    assert Looks(root, monkeypatch).look()[1] == ["d"]


def test_few_runs_get_an_index(tmp_path: Path) -> None:
    made(tmp_path / "runs", "a", asker)
    Server(str(tmp_path / "runs"), 1, lambda event: None)._lookout.look()
    assert not (tmp_path / "runs/.satchel").exists()


def test_a_root_that_can_not_be_written_to_is_not_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".satchel").write_text("a file")
    looks = Looks(root, monkeypatch)
    assert looks.look() == (["a", "b", "c"], []) and looks.told == []


def test_ls_or_the_page_shows_what_the_index_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no rows here, and so says nothing to them. With rows: test_resting_rows.py."""
    Looks(root, monkeypatch).look()
    (root / "c/inbox").mkdir()
    (root / "c/inbox/more.md").write_text("One more\n")

    def lie(content: dict[str, Any]) -> None:
        for run in content["runs"].values():
            run.update(run_id="liar")
            run["figures"].update(state="completed", questions=0, steps=99)

    rewrite(root, lie)
    told = [each.status for each in Overview(root).look().runs]
    for found in (satchel.ls(root), told):
        assert [(each.definition and each.definition.run_id, each.state) for each in found] == [
            (name, "waiting") for name in "abc"
        ]
        assert [(len(each.questions), each.waiting) for each in found] == [(1, 0), (1, 0), (1, 1)]


def test_one_reads_half_an_index_while_two_write_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "_EVERY", 0.0)
    Looks(root, monkeypatch).look()
    runs = DueIndex(str(root)).read()
    assert len(runs) == 3

    def write() -> None:
        for _ in range(50):
            DueIndex(str(root)).write(runs)

    with ThreadPoolExecutor(2) as writers:
        written = [writers.submit(write) for _ in range(2)]
        while not all(each.done() for each in written):
            assert DueIndex(str(root)).read() == runs
    assert [each.result() for each in written] == [None, None]
