"""A storage that renames only to free names: whatever fails on the way, the old file or the new one is there."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest

from satchel.workspace.inbound import rejection
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store.fsspec_store import OtherStore

PATH = "outputs/report.md"
OLD, NEW = b"committed", b"the next draft"
numbers = itertools.count()


class Renaming:
    """The store at a place in memory, and what each of its renames does."""

    def __init__(self) -> None:
        self.url = f"memory://renaming/{next(numbers)}"
        self.store = OtherStore(self.url)
        self.store.replace(PATH, OLD)
        self.files = self.store._fs
        self.files.renames = True
        self.meddle: Callable[[int], None] = lambda number: None
        self.is_dead = False
        self._count = itertools.count(1)
        self._remove = self.files.rm_file
        self.files.rename, self.files.rm_file = self.rename, self.remove  # type: ignore[method-assign]

    def rename(self, source: str, target: str) -> None:
        self._live()
        self.meddle(next(self._count))
        if self.files.exists(target):
            raise FileExistsError(errno.EEXIST, "taken", target)
        self.files.mv(source, target)

    def remove(self, path: str) -> None:
        self._live()
        self._remove(path)

    def _live(self) -> None:
        if self.is_dead:
            raise SystemExit("killed")

    def files_left(self) -> dict[str, bytes]:
        fresh = OtherStore(self.url)
        folders = ("outputs", ".satchel/tmp", ".satchel/displaced")
        return {entry.path: fresh.read(entry.path).data for folder in folders for entry in fresh.list(folder)}


@pytest.fixture
def renaming() -> Renaming:
    return Renaming()


def failing(*numbers: int) -> Callable[[int], None]:
    def meddle(number: int) -> None:
        if number in numbers:
            raise OSError(errno.EIO, "503 Service Unavailable")

    return meddle


def test_a_taken_name_is_replaced_and_nothing_else_is_left(renaming: Renaming) -> None:
    renaming.store.replace(PATH, NEW)
    assert renaming.files_left() == {PATH: NEW}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_rename_that_fails_leaves_the_old_file(renaming: Renaming, number: int) -> None:
    renaming.meddle = failing(number)
    with pytest.raises(Exception, match="can't be written"):
        renaming.store.replace(PATH, NEW)
    assert renaming.files_left() == {PATH: OLD}


@pytest.mark.parametrize("number", [2, 3])
def test_the_next_opening_puts_back_what_a_killed_process_has_moved_aside(renaming: Renaming, number: int) -> None:
    def killed(at: int) -> None:
        renaming.is_dead = at == number
        renaming._live()

    renaming.meddle = killed
    with pytest.raises(SystemExit):
        renaming.store.replace(PATH, NEW)
    rejection.put_back_displaced(OtherStore(renaming.url), Moment(run_id="r-1"))
    left = renaming.files_left()
    assert left.pop(PATH) == OLD and not any(path.startswith(".satchel/displaced") for path in left)


def test_what_is_left_alone_is_kept_if_the_old_file_is_gone(renaming: Renaming) -> None:
    def lost(number: int) -> None:
        renaming._remove(f"{renaming.files.root}/{PATH}")  # as a server that dies in the middle of a MOVE
        raise OSError(errno.EIO, "502 Bad Gateway")

    renaming.meddle = lost
    with pytest.raises(Exception, match="can't be written"):
        renaming.store.replace(PATH, NEW)
    assert [*renaming.files_left().values()] == [NEW]
