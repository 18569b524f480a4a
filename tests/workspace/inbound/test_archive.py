"""Where the files of tasks go that are done, whoever still has them open, and whatever lies there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from fencing.bucket import Bucket, opened_store
from fencing.scheduler import Simulation

from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.inbound import archive, inbox
from satchel.workspace.state.run_state import Moment, TaskFile
from satchel.workspace.store import DiskStore, Syscalls

TASK = "inbox/a.md"


class Kernel(Syscalls):
    """Says of the files below a folder that a program has them open for writing."""

    opened = ""

    def has_writer(self, path: str) -> bool:
        return bool(self.opened) and f"/{self.opened}/" in path


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def store(tmp_path: Path, kernel: Kernel) -> DiskStore:
    return DiskStore(tmp_path, kernel)


def do(store: DiskStore, text: str, id: str) -> None:
    """A file comes, is taken, and its task is done."""
    data = text.encode()
    if store.version(TASK) is None:
        store.create(TASK, data)
    moment = Moment(run_id="archive-1")
    moment.tasks_done[id] = TaskFile(TASK, hashlib.sha256(data).hexdigest(), "done")
    archive.put_away(store, moment)
    assert store.version(TASK) is None


def texts(folder: Path) -> dict[str, list[str]]:
    """What lies in the inbox, by the folder below it."""
    found: dict[str, list[str]] = {}
    for path in sorted((folder / "inbox").rglob("*.*")):
        found.setdefault(path.relative_to(folder / "inbox").parts[0], []).append(path.read_text())
    return found


def test_a_file_that_is_still_open_takes_the_place_of_another_that_is(
    tmp_path: Path, store: DiskStore, kernel: Kernel
) -> None:
    """A program that writes a head and then, for long, nothing is run once more before it has ended."""
    kernel.opened = "inbox"
    do(store, "head\n", "t1")
    (first,) = tmp_path.glob("inbox/open/*/*")
    do(store, "head\n", "t2")
    first.write_text("head\nthe first one's rest\n")
    kernel.opened = ""
    archive.bring_back(store)
    assert (tmp_path / TASK).read_text() == "head\nthe first one's rest\n"
    assert texts(tmp_path) == {"a.md": ["head\nthe first one's rest\n"], "done": ["head\n"]}


def test_a_file_that_is_closed_at_last_takes_the_place_of_another_that_is_done(
    tmp_path: Path, store: DiskStore, kernel: Kernel
) -> None:
    kernel.opened = "inbox"
    do(store, "one", "t1")
    kernel.opened = "inbox/open"
    do(store, "another", "t2")
    kernel.opened = ""
    archive.bring_back(store)
    assert sorted(texts(tmp_path)["done"]) == ["another", "one"]


@pytest.mark.parametrize("rest", [", 2]\n", ""])
def test_what_is_added_to_a_file_that_could_not_be_taken_is_lost(
    tmp_path: Path, store: DiskStore, kernel: Kernel, rest: str
) -> None:
    """A program pauses for so long, in the middle of saving it, that half of it counts."""
    kernel.opened = "inbox"
    (tmp_path / "inbox").mkdir()
    with (tmp_path / "inbox/a.yaml").open("w") as file:
        file.write("- [1")
        file.flush()
        with pytest.raises(InvalidFile) as refused:
            inbox.parse("inbox/a.yaml", b"- [1")
        inbox.refuse(store, refused.value)
        assert inbox.files(store) == []
        file.write(rest)
    kernel.opened = ""
    archive.bring_back(store)
    assert inbox.files(store) == (["inbox/a.yaml"] if rest else [])
    assert not rest or (tmp_path / "inbox/a.yaml").read_text() == "- [1, 2]\n"
    assert (tmp_path / "inbox/a.rejected.yaml").read_text() == "- [1" and not (tmp_path / "inbox/open").exists()


def test_a_task_that_is_saved_over_in_a_bucket_is_put_away_undone() -> None:
    """By a program that uploads it after the listing from which the run puts the first one away."""
    simulation, objects = Simulation(1), Bucket()
    run, program = (opened_store(simulation, objects, None) for _ in range(2))
    program.create(TASK, b"one")
    run.refresh()
    moment = Moment(run_id="archive-1")
    moment.tasks_done["t1"] = TaskFile(TASK, hashlib.sha256(run.read(TASK).data).hexdigest(), "done")
    program.replace(TASK, b"another")
    archive.put_away(run, moment)
    assert archive.has_open(run), "it comes back with the next look"
    archive.bring_back(run)
    assert run.read(TASK).data == b"another" and not archive.has_open(run)
