"""A folder of a store as a store of its own: many workspaces below one URL share one listing and one client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

from ..base import check_path
from .contract import Abilities, AppendFile, Entry, Exchanged, FileContent, Store, Sync, Trace, Version
from .exposure import Exposure


class SubStore:
    """The files in `folder` of `whole`."""

    def __init__(self, whole: Store, folder: str):
        self._whole, self._prefix = whole, f"{check_path(folder)}/" if folder else ""

    @property
    def url(self) -> str:
        return f"{self._whole.url}/{self._prefix}".rstrip("/")

    @property
    def abilities(self) -> Abilities:
        return self._whole.abilities

    def exposure(self) -> Exposure:
        return self._whole.exposure()

    @property
    def pages(self) -> int:
        return self._whole.pages

    def refresh(self, folder: str = "") -> None:
        self._whole.refresh(self._folder(folder))

    def fetch(self, paths: Iterable[str]) -> None:
        self._whole.fetch(map(self._in, paths))

    def expect(self, path: str, data: bytes) -> None:
        self._whole.expect(self._in(path), data)

    # Reading

    def read(self, path: str, *, limit: int | None = None) -> FileContent:
        inside = self._in(path)
        return self._whole.read(inside) if limit is None else self._whole.read(inside, limit=limit)

    def tail(self, path: str, size: int) -> bytes:
        return self._whole.tail(self._in(path), size)

    def version(self, path: str) -> Version | None:
        return self._whole.version(self._in(path))

    def has_writer(self, path: str) -> bool | None:
        return self._whole.has_writer(self._in(path))

    def trace(self, path: str) -> Trace:
        return self._whole.trace(self._in(path))

    def list(self, folder: str) -> Iterator[Entry]:
        return (Entry(self._out(path), size) for path, size in self._whole.list(self._folder(folder)))

    def folders(self, folder: str) -> Iterator[str]:
        return map(self._out, self._whole.folders(self._folder(folder)))

    def unusable(self, folder: str) -> Iterator[str]:
        return self._whole.unusable(self._folder(folder))

    # Writing

    def replace(self, path: str, data: bytes, *, sync: Sync = "all", if_version: Version | None = None) -> Version:
        return self._whole.replace(self._in(path), data, sync=sync, if_version=if_version)

    def exchange(self, path: str, data: bytes, *, if_version: Version | None) -> Exchanged:
        """The whole keeps displaced files, so this is not for parts of a disk."""
        return self._whole.exchange(self._in(path), data, if_version=if_version)

    def create(self, path: str, data: bytes) -> Version:
        return self._whole.create(self._in(path), data)

    def create_log(self, path: str, data: bytes) -> AppendFile:
        return self._whole.create_log(self._in(path), data)

    def append(self, path: str, data: bytes, *, durable: bool = False, if_version: Version | None = None) -> Version:
        return self._whole.append(self._in(path), data, durable=durable, if_version=if_version)

    def rename(self, path: str, to: str) -> None:
        self._whole.rename(self._in(path), self._in(to))

    def settle(self, folder: str) -> None:
        self._whole.settle(self._folder(folder))

    def remove(self, path: str, *, if_version: Version | None = None) -> None:
        self._whole.remove(self._in(path), if_version=if_version)

    def remove_many(self, paths: Sequence[str]) -> None:
        self._whole.remove_many([self._in(path) for path in paths])

    def tidy(self, folder: str) -> None:
        self._whole.tidy(self._folder(folder))

    def watch(self, folders: Sequence[str], hint: Callable[[], None]) -> AbstractContextManager[object]:
        return self._whole.watch([self._folder(folder) for folder in folders], hint)

    def lock(self) -> AbstractContextManager[None]:
        return self._whole.lock()

    def try_lock(self, path: str) -> None:
        self._whole.try_lock(self._in(path))

    def _in(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _out(self, path: str) -> str:
        return path.removeprefix(self._prefix)

    def _folder(self, folder: str) -> str:
        return self._in(folder) if folder else self._prefix.rstrip("/")
