"""`SatchelBackend`: the files of an agent are versions in a workspace that is held while they are used."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import wraps
from typing import Any, NamedTuple, get_args, get_type_hints

from deepagents.backends import protocol as of
from deepagents.backends.utils import compile_grep_include_glob, slice_read_response

from satchel import Run, clean, step
from satchel.adapters import HeldTree, held_path, virtual_path
from satchel.errors import Conflicting
from satchel.results import FileEntry, Held, HeldFile

from .file_texts import BINARY, info, matches_in, replaced, virtual

_PATH_BYTES = 800  # a path of a bucket is not longer, with what is added


class _Change(NamedTuple):
    """What becomes of a file that has `version`, 0 if there is none. `content`: None to remove it."""

    version: int
    content: bytes | None


_Changes = dict[str, _Change]


def _later(method: Callable[..., Any], plan: Callable[..., tuple[Any, _Changes]] | None = None) -> Any:
    """The async twin of a method: a step inside a run. One that changes files by a plan keeps what it is about to do:
    after a kill it does what is left, and nothing twice."""
    kind, name = get_type_hints(method)["return"], f"files.{method.__name__.strip('_')}"
    kind, make = next(iter(get_args(kind)), kind), plan or (lambda *args, **more: (method(*args, **more), {}))

    @wraps(method)
    async def call(self: SatchelBackend, *args: Any, **more: Any) -> Any:
        async def perform(workspace: str, arguments: Any) -> Any:
            run: Any = Run.current()
            intended = run.saved_progress
            while True:
                result, changes = await asyncio.to_thread(make, self, *args, **more)
                kept = _kept(result)
                if intended is not None:
                    changes, kept = await asyncio.to_thread(self._left, changes, intended)
                elif changes:
                    wanted = {path: [change.version, _digest(change.content)] for path, change in changes.items()}
                    await run.progress({"result": kept, "changes": wanted})
                if not changes or await asyncio.to_thread(self._apply, changes):
                    return kept

        if Run.current() is None:
            return await asyncio.to_thread(method, self, *args, **more)
        given = [_digest(each) if isinstance(each, bytes) else each for each in args]
        return _result(kind, await step(name=name)(perform)(self._url, clean([*given, more])))

    return call


def _changing(plan: Callable[..., tuple[Any, _Changes]]) -> tuple[Any, Any]:
    """The method that makes the changes of a plan, and its async twin."""

    @wraps(plan)
    def call(self: SatchelBackend, *args: Any, **more: Any) -> Any:
        while True:
            result, changes = plan(self, *args, **more)
            if self._apply(changes):
                return result

    return call, _later(call, plan)


class SatchelBackend(of.BackendProtocol):
    """A backend of deepagents whose files lie in the workspace at `url`, in `files/`. It is opened when it is used.

    A call that changes a file is durable when it returns. An edit counts on the version that it has read, or is made
    again on the newer one. Inside a run the async methods are steps. `wait`, `idle` and `storage_options` are those of
    `satchel.hold`. What is wrong with a path or a text is an error in the result; a failure of the storage is raised.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        wait: float = 10.0,
        idle: float = 5.0,
        storage_options: Mapping[str, Any] | None = None,
    ):
        self._tree = HeldTree(url, kind="deepagents", wait=wait, idle=idle, storage_options=storage_options)
        self._url = os.fspath(url)

    def close(self) -> None:
        """Release the workspace for good. Else that happens after `idle` seconds, until the next call."""
        self._tree.close()

    def ls(self, path: str) -> of.LsResult:
        files, base = self._files(), virtual(path)
        below, found = base.rstrip("/") + "/", dict[str, of.FileInfo]()
        for name in files:
            if name.startswith(below):
                first, slash, _ = name.removeprefix(below).partition("/")
                folder = of.FileInfo(path=f"{below}{first}/", is_dir=True)
                each = folder if slash else info(name, files[name])
                found[each["path"]] = each
        if not found and base != "/":
            return of.LsResult(error=f"Path '{path}': {'not_a_directory' if base in files else 'path_not_found'}")
        return of.LsResult(entries=[found[name] for name in sorted(found)])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> of.ReadResult:
        if (file := self._get(file_path)) is None:
            return of.ReadResult(error=f"File '{file_path}' not found")
        if BINARY.search(file_path):
            content = base64.standard_b64encode(file.data).decode()
            return of.ReadResult(file_data=of.FileData(content=content, encoding="base64"))
        try:
            return slice_read_response(of.FileData(content=file.text, encoding="utf-8"), offset, limit)
        except UnicodeDecodeError as error:
            return of.ReadResult(error=f"Error reading file '{file_path}': {error}")

    def grep(
        self,
        pattern: str,
        path: str | None = None,
        glob: str | None = None,
        *,
        max_count: int | None = None,
        context_lines: int = 0,
    ) -> of.GrepResult:
        if context_lines < 0:
            raise ValueError("context_lines must be non-negative")
        try:
            names = self._matching(glob, path)
        except ValueError as error:
            return of.GrepResult(error=str(error))
        found = list[of.GrepMatch]()
        for name, entry in names.items():
            file = None if BINARY.search(name) else self._file(entry.path)
            for match in matches_in(name, file.data, pattern, context_lines) if file else ():
                if max_count is not None and len(found) >= max_count:
                    return of.GrepResult(matches=found, truncated=True)
                found.append(match)
        return of.GrepResult(matches=found)

    def glob(self, pattern: str, path: str | None = None) -> of.GlobResult:
        try:
            return of.GlobResult(matches=[info(name, file) for name, file in self._matching(pattern, path).items()])
        except ValueError as error:
            return of.GlobResult(error=str(error))

    def _write(self, file_path: str, content: str) -> tuple[of.WriteResult, _Changes]:
        try:
            error, changes = self._put(file_path, content.encode())
        except UnicodeEncodeError as failed:
            error, changes = str(failed), {}
        if error:
            return of.WriteResult(f"Error writing file '{file_path}': {error}"), {}
        return of.WriteResult(path=file_path), changes

    def _edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> tuple[of.EditResult, _Changes]:
        if (file := self._get(file_path)) is None:
            return of.EditResult(error=f"Error: File '{file_path}' not found"), {}
        try:
            found = replaced(file.text, old_string, new_string, replace_all)
            if isinstance(found, str):
                return of.EditResult(error=found), {}
            change = _Change(file.version, found[0].encode())
        except UnicodeError as failed:
            return of.EditResult(error=f"Error editing file '{file_path}': {failed}"), {}
        return of.EditResult(path=file_path, occurrences=found[1]), {file.path: change}

    def _delete(self, file_path: str) -> tuple[of.DeleteResult, _Changes]:
        gone = {file.path: _Change(file.version, None) for file in self._matching(None, file_path).values()}
        return of.DeleteResult(path=file_path) if gone else of.DeleteResult(f"Error: '{file_path}' not found"), gone

    def _upload(self, path: str, content: bytes) -> tuple[of.FileUploadResponse, _Changes]:
        try:
            error, changes = self._put(path, content)
        except ValueError:
            error, changes = of.INVALID_PATH, {}
        return of.FileUploadResponse(path, error), changes

    def _download(self, path: str) -> of.FileDownloadResponse:
        try:
            if file := self._get(path):
                return of.FileDownloadResponse(path, file.data)
            is_folder = virtual(path) == "/" or bool(self._matching(None, path))
        except ValueError:
            return of.FileDownloadResponse(path, error=of.INVALID_PATH)
        return of.FileDownloadResponse(path, error=of.IS_DIRECTORY if is_folder else of.FILE_NOT_FOUND)

    als, aread, agrep, aglob, _adownload = (_later(each) for each in (ls, read, grep, glob, _download))
    write, awrite = _changing(_write)
    edit, aedit = _changing(_edit)
    delete, adelete = _changing(_delete)
    _upload_one, _aupload_one = _changing(_upload)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[of.FileUploadResponse]:
        return [self._upload_one(*each) for each in files]

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[of.FileUploadResponse]:
        return [await self._aupload_one(*each) for each in files]

    def download_files(self, paths: list[str]) -> list[of.FileDownloadResponse]:
        return [self._download(path) for path in paths]

    async def adownload_files(self, paths: list[str]) -> list[of.FileDownloadResponse]:
        return [await self._adownload(path) for path in paths]

    def _files(self) -> dict[str, FileEntry]:
        return {virtual_path(file.path): file for file in self._tree.use(Held.list)}

    def _place(self, name: str) -> str:
        """The path in files/ of a file that is there, or may be made. Empty if none can be."""
        place, by_hand = held_path(name), name[1:]
        if by_hand != place and virtual_path(by_hand) == name and by_hand in self._places():
            return by_hand
        return place if len(place.encode()) <= _PATH_BYTES and clean(name) is name else ""

    def _places(self) -> set[str]:
        return {file.path for file in self._tree.use(Held.list)}

    def _get(self, path: str) -> HeldFile | None:
        return self._file(place) if (place := self._place(virtual(path))) else None

    def _file(self, place: str) -> HeldFile | None:
        return self._tree.use(lambda held: held.get(place))

    def _matching(self, glob: str | None, path: str | None) -> dict[str, FileEntry]:
        """The files at or below `path` that `glob` includes."""
        base, includes = virtual(path or "/"), compile_grep_include_glob(glob) if glob else lambda name: True
        below = base.rstrip("/") + "/"
        inside = ((posixpath.relpath(name, base), name, file) for name, file in sorted(self._files().items()))
        return {
            name: file
            for part, name, file in inside
            if (name == base and includes(posixpath.basename(name))) or (name.startswith(below) and includes(part))
        }

    def _put(self, path: str, content: bytes) -> tuple[str | None, _Changes]:
        """Why a file can't be written, or its change."""
        name = virtual(path)
        place, places = self._place(name), self._places()
        if name == "/" or any(each.startswith(f"{place}/") for each in places):
            return of.IS_DIRECTORY, {}
        if not place or any(place.startswith(f"{each}/") for each in places):
            return of.INVALID_PATH, {}
        return None, {place: _Change(file.version if (file := self._file(place)) else 0, content)}

    def _apply(self, changes: _Changes) -> bool:
        """Make the changes. Whether each file still had its version."""

        def apply(held: Held) -> None:
            for path, (version, content) in changes.items():
                if content is None:
                    held.remove(path, if_version=version)
                else:
                    held.put(path, content, if_version=version)

        try:
            self._tree.use(apply)
        except Conflicting:
            return False
        return True

    def _left(self, changes: _Changes, intended: Any) -> tuple[_Changes, Any]:
        """The changes that a killed process has not made, and the result of all."""
        left, kept = _Changes(), intended["result"]
        for path, (version, digest) in intended["changes"].items():
            file = self._file(path)
            if (file.version if file else 0) == version and path in changes:
                left[path] = changes[path]
            elif _digest(file.data if file else None) != digest:
                why = "another writer has changed it since. Read it to see whether this change is in it"
                kept = {**kept, "error": f"Error: a crash has cut off this change, and {why}"}
        return left, kept


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _kept(result: Any) -> Any:
    """A result as JSON. An error may show a path with half a character."""
    kept = {key: value for key, value in asdict(result).items() if value is not None}
    return clean({**kept, "content": kept["content"].decode("latin-1")} if "content" in kept else kept)


def _result(kind: Any, kept: Any) -> Any:
    return kind(**{**kept, "content": kept["content"].encode("latin-1")} if "content" in kept else kept)
