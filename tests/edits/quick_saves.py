"""A person who saves one file quickly and in every way, and the part of a run that notices it: step by step, by a seed.

Both sides are cut into steps, and a seed says whose turn it is. So a save may come between the look and the write, the
file may be away for any number of looks, and an editor may write into a file that was displaced long ago.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from satchel.workspace.store import DiskStore
from satchel.workspace.views.guarded_files import Settling, ViewGuard

NAME = "todo.md"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Run:
    """Looks, takes what holds still, and writes the file now and then. Its file has a word a line."""

    def __init__(self, folder: Path):
        self.store, self.clock = DiskStore(folder), Clock()
        self.guard = ViewGuard(self.store, self.clock)
        self.words: list[str] = []
        self._settling = Settling(self.store, self.clock)
        self.write()

    def write(self) -> None:
        self.guard.replace(NAME, "".join(f"{word}\n" for word in self.words).encode())

    def look(self) -> bool:
        """As `SavedFiles` of runtime/live/folder_watch.py does. Whether there is something to wait for."""
        if NAME not in self.guard.look():
            return False
        version = self.store.version(NAME)
        if version is None:
            self.guard.lose(NAME)  # and it is written again some time
            return False
        content = self._settling.read(NAME)
        if content is not None:
            self.words += [word for word in content.data.decode().split() if word not in self.words]
            self.guard.take(NAME, version)
        return content is None


class Editor:
    """Adds a word to what it has read, and saves that. One save after the other, each in steps."""

    def __init__(self, folder: Path, rng: random.Random):
        self._path, self._rng = folder / NAME, rng
        self.words: list[str] = []
        self._open: list[IO[str]] = []
        self._text = ""  # as this editor knows the file

    def save(self, word: str) -> Iterator[None]:
        save = self._rng.choice((self._whole, self._in_place, self._by_a_new_name, self._with_backup))
        with_word = self._rng.random() < 0.8
        if self._path.exists() and self._rng.random() < 0.9:
            self._text = self._path.read_text()
            yield
        self._text += f"{word}\n" if with_word else ""
        yield from save(self._text)
        if with_word:
            self.words.append(word)

    def _whole(self, text: str) -> Iterator[None]:
        with self._path.open("w") as file:
            yield
            file.write(text)

    def _in_place(self, text: str) -> Iterator[None]:
        """The file stays open for a while, whatever takes its name."""
        with self._path.open("r+" if self._path.exists() else "w") as file:
            yield
            file.write(text)
            file.truncate()
            file.flush()
            yield

    def _by_a_new_name(self, text: str) -> Iterator[None]:
        new = self._path.with_name(".new")
        new.write_text(text)
        yield
        new.replace(self._path)

    def _with_backup(self, text: str) -> Iterator[None]:
        backup = self._path.with_name(f"{NAME}~")
        if self._path.exists():
            self._path.rename(backup)
            yield
        self._path.write_text(text)
        yield
        backup.unlink(missing_ok=True)


def lost(folder: Path, seed: int, saves: int = 12) -> list[str]:
    """The words that were saved and that the run has not noticed, although all was still for long."""
    folder.mkdir()
    rng = random.Random(seed)
    run = Run(folder)
    editor = Editor(folder, rng)
    how_often = rng.choice((0.02, 0.2, 0.5))  # it writes: the file may be behind for long
    for number in range(saves):
        for _ in editor.save(f"w{number}"):
            while rng.random() < 0.5:
                run.clock.now += rng.choice((0.0, 0.05, 0.4))
                run.look() if rng.random() > how_often else run.write()
    for _ in range(40):  # it holds still, and nothing is written meanwhile
        run.clock.now += 0.5
        run.look()
    return [word for word in editor.words if word not in run.words]
