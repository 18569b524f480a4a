"""Copies of a run that were continued apart, and put together again by a sync tool or a person."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, SatchelError
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import ScopeBegun, ScopeCommitted
from satchel.workspace.journal.reader import explained
from satchel.workspace.journal.segment import Misfit
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, FileContent

DEFINITION = "format: 1\nrun_id: run-1\nagent: agent.py:main\n"


def work(folder: Path, *done: str, closes: bool = True) -> None:
    """One opening that commits scopes of these names, each of which sets a value of the data."""
    with opened(DiskStore(folder), "run", Report(), adopt=True) as workspace:
        if not workspace.moment.root.has_data:
            workspace.journal.add(ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {}}]))
        for name in done:
            workspace.journal.add(ScopeBegun(scope=f"_{name}", title=name))
            patch: list[dict[str, object]] = [{"op": "add", "path": f"/{name}", "value": folder.name}]
            workspace.journal.add(ScopeCommitted(scope=f"_{name}", patch=patch))
            workspace.journal.flush()
        if closes:
            workspace.close("paused")


def files(folder: Path) -> dict[str, bytes]:
    """What a sync tool carries of the journal and the checkpoints."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("journal", "checkpoints")
        for path in sorted((folder / part).glob("*.json*"))
    }


def copies(folder: Path, name: str) -> Path:
    (folder.parent / name).mkdir(exist_ok=True)
    return shutil.copytree(folder, folder.parent / name, dirs_exist_ok=True)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION)
    work(folder, "one", "two")
    return folder


def data(folder: Path) -> dict[str, object]:
    found = look(DiskStore(folder)).moment.root.data
    assert isinstance(found, dict)
    return found


def put(folder: Path, found: dict[str, bytes]) -> Path:
    """Exactly these files in journal/ and checkpoints/."""
    for part in ("journal", "checkpoints"):
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    for path, content in found.items():
        (folder / path).write_bytes(content)
    return folder


def opens(folder: Path) -> None:
    with opened(DiskStore(folder), "recover", Report(), adopt=True) as workspace:
        workspace.close()


def groups_of(error: Damaged, names: Iterable[str]) -> list[set[str]]:
    """The files that the error says belong together."""
    parts = (error.remedy or "").partition(". Move")[0].split("; these: ")
    return [{name for name in names if name in part} for part in parts]


def test_two_copies_that_were_both_continued_are_taken_for_one_run(origin: Path) -> None:
    """What either leaves when the files of the other are taken away is that one, and can be opened."""
    a, b = copies(origin, "a"), copies(origin, "b")
    work(a, "three", "four", closes=False)
    work(b, "five")
    work(b, "six")
    mixed = copies(a, "mixed")
    whole = files(b) | files(a)
    with pytest.raises(Damaged, match="two histories of this run are in one folder") as refused:
        opens(put(mixed, whole))
    groups = groups_of(refused.value, whole)
    assert [sorted(group) for group in groups] == [
        ["checkpoints/000000000011-stop.json", "checkpoints/000000000015-stop.json", "journal/000000000012.jsonl"],
        ["journal/000000000008.jsonl"],
    ]
    for group, found in zip(groups, (a, b), strict=True):
        left = put(mixed, {path: content for path, content in whole.items() if path not in group})
        assert data(left) == data(found) and journal.woven(DiskStore(left)) is None


def test_a_history_whose_beginning_was_overwritten_passes_for_one_that_can_be_opened(origin: Path) -> None:
    a, b = copies(origin, "a"), copies(origin, "b")
    work(a, "three")
    work(b, "four")
    work(b, "five", closes=False)
    mixed = put(copies(a, "mixed"), files(b) | files(a))
    with pytest.raises(Damaged, match="two histories") as refused:
        look(DiskStore(mixed))
    of_b, of_a = (refused.value.remedy or "").partition(". Move")[0].split("; these: ")
    assert "its records up to 11 are missing" in of_b and "not there" not in of_a


def mixtures(a: dict[str, bytes], b: dict[str, bytes]) -> Iterator[dict[str, bytes]]:
    """All that can come of putting two folders together: each file is one's or the other's, or there or not if only one
    has it."""
    names = sorted({*a, *b})
    choices = []
    for name in names:
        found = [files.get(name) for files in (a, b)]
        choices.append([*dict.fromkeys(found)])
    for chosen in itertools.product(*choices):
        yield {name: content for name, content in zip(names, chosen, strict=True) if content is not None}


@pytest.mark.parametrize("closes", [True, False])
def test_a_mixture_of_two_copies_opens_as_something_that_neither_of_them_was(origin: Path, closes: bool) -> None:
    """Each is opened as one of them, as it is or as it was, or refused."""
    a, b = copies(origin, "a"), copies(origin, "b")
    work(a, "three", closes=closes)
    work(b, "four", "five")
    work(b, "six", closes=closes)
    mixed, outcomes = copies(a, "mixed"), {"a": 0, "b": 0, "refused": 0}
    for found in mixtures(files(a), files(b)):
        put(mixed, found)
        try:
            values = set(data(mixed).values())
        except SatchelError:
            outcomes["refused"] += 1
            continue
        assert not {"a", "b"} <= values, sorted(found)
        outcomes["b" if "b" in values else "a"] += 1
    print(outcomes)
    assert all(outcomes.values())


def test_a_segment_that_goes_while_two_histories_are_told_apart_ends_a_look(
    origin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner has rolled it up. What was found first is told, and whoever looks takes a new listing."""
    store = DiskStore(origin)
    newest = journal.segment_path(journal.segments(store)[-1])
    store.replace(journal.segment_path(10**6), store.read(newest).data)
    read = DiskStore.read

    def gone(self: DiskStore, path: str, **limit: int) -> FileContent:
        if path == newest:
            raise FileNotFoundError(path)
        return read(self, path, **limit)

    monkeypatch.setattr(DiskStore, "read", gone)
    with pytest.raises(Damaged):
        raise explained(store, Misfit("records are missing before it", path=newest))
