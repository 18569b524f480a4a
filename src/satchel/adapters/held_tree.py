"""What adapters share: held workspaces below a root, with names for the disk, of folders for what users call their
threads, and of files for any path; questions about calls of a model; and versions of frameworks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from jsonschema import Draft202012Validator

from satchel import Answer, Handle, Run, UsageError, clean, hold, open_all, remove
from satchel import open as opened
from satchel.errors import AgentError, NoWorkspace
from satchel.results import Held

__all__ = ["HeldTree", "ask_about", "folder_name", "held_path", "require", "virtual_path"]

T = TypeVar("T")

_UNFIT = re.compile(r'[\x00-\x1f\x7f\\:*?"<>|\ud800-\udfff]|%(?=[0-9A-F]{2}|\+\Z)|[ .]\Z|\.(?=rejected)')
"""What a name in files/ can't have: characters, an ending, what looks escaped, or like a person's version that
Satchel has kept."""

_NAME_BYTES = 200


def require(adapter: str, package: str, least: str) -> None:
    """ImportError unless `package` is installed in the version `least` or a newer one. `adapter` is who needs it."""
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    if not found or _numbers(found) < _numbers(least):
        has = f", and {found} is installed: it has other interfaces" if found else ""
        raise ImportError(f"{adapter} needs {package} {least} or newer{has}. Run: pip install '{package}>={least}'")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


_shared = WeakValueDictionary[tuple[Any, ...], Held]()
"""What trees of this process hold, so that two trees of one root don't keep each other out. One that is open is kept
by itself."""

_adding = Lock()
"""Between looking for one and adding it."""


class HeldTree:
    """The workspaces of one kind below `root`, a folder or URL, by the names of the folders that lead to them. Without
    names it is the one at `root`.

    Each is held from its first use until `idle` seconds after its last one, and once in this process, whatever its
    threads: trees of one root share it, and `wait` and `idle` are those of the tree that calls. `kind`, `wait`, `idle`
    and `storage_options` are those of `satchel.hold`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        kind: str,
        wait: float = 0.0,
        idle: float = 5.0,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not root or not isinstance(root, str | os.PathLike):
            raise UsageError(f"the root can't be {root!r}", remedy="give a path or URL as text, or a pathlib.Path")
        given = os.fspath(root)
        self.root = given.rstrip("/") if "://" in given else os.path.abspath(given)
        self._storage = storage_options
        self._hold = partial(hold, kind=kind, storage_options=storage_options)
        self._arguments = (kind, repr(storage_options))
        self._times = {"wait": wait, "idle": idle}
        self._used = WeakSet[Held]()
        self._is_closed = False

    def url(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def use(self, function: Callable[[Held], T], *names: str) -> T:
        """What `function` returns for a workspace, which is made if it is not there. No other thread or program comes
        between its calls. If another program has removed the workspace, `function` is called again for a new one."""
        try:
            return self._call(function, *names)
        except NoWorkspace:
            return self._call(function, *names)

    async def ause(self, function: Callable[[Held], T], *names: str) -> T:
        """`use`, for an event loop. Who is cancelled meanwhile waits for its end, so that a later call comes after
        it."""
        task = asyncio.create_task(asyncio.to_thread(self.use, function, *names))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    def _call(self, function: Callable[[Held], T], *names: str) -> T:
        while True:
            held = self._held(*names)
            with held.exclusive(**self._times):
                if self._is_closed:  # by another thread, before this one had its turn
                    raise self._closed()
                if _shared.get(self._key(*names)) is not held:  # another thread has found that it was removed
                    continue
                try:
                    return function(held)
                except NoWorkspace:
                    self._forget(held, *names)
                    raise

    def _held(self, *names: str) -> Held:
        with _adding:
            if self._is_closed:
                raise self._closed()
            if (held := _shared.get(key := self._key(*names))) is None:
                if names:
                    self._check_root()
                held = _shared[key] = self._hold(self.url(*names))
            self._used.add(held)
            return held

    def _check_root(self) -> None:
        """UsageError if the root is a workspace itself. A bucket is not asked: that costs each first use a request."""
        if os.path.isfile(self.url("workspace.yaml")):
            what = "is a workspace, so others in it would not be found"
            raise UsageError(what, path=self.root, remedy="name another folder, which need not exist yet")

    def _key(self, *names: str) -> tuple[Any, ...]:
        return self.url(*names), *self._arguments

    def _forget(self, held: Held, *names: str) -> None:
        held.close()
        with _adding:
            _shared.pop(self._key(*names), None)

    def _closed(self) -> UsageError:
        return UsageError("this is closed", path=self.root, remedy="make another one")

    def read(self, function: Callable[[Handle], Sequence[T]], *names: str) -> Sequence[T]:
        """What `function` returns for a workspace, as a reader, who takes nothing. Empty if there is none."""
        try:
            return function(opened(self.url(*names), storage_options=self._storage))
        except NoWorkspace:
            return ()

    def below(self, *names: str) -> list[Handle]:
        """All workspaces below a folder, for a reader. Empty if there is no such folder."""
        try:
            return open_all(self.url(*names), storage_options=self._storage)
        except NoWorkspace:
            return []

    def remove(self, *names: str) -> None:
        """Remove a workspace, if it is there. LeaseHeld if another process has it."""
        held = self._held(*names)
        with held.exclusive(**self._times):
            self._forget(held, *names)
            remove(self.url(*names), storage_options=self._storage)

    def close(self) -> None:
        """Release all of them for good. They can still be read."""
        self._is_closed = True
        self.release()

    def release(self) -> None:
        """Leave all of them to other processes now. The next use takes one again."""
        with _adding:
            used = [*self._used]
        for each in used:
            each.release()


def folder_name(text: str) -> str:
    """A name that every disk and bucket can hold, at most 51 characters; different for different texts. A short text of
    small letters, digits, `_` and `-` is its own name."""
    shown = re.sub("[^a-z0-9_]+", "-", text.lower())[:40].strip("-")
    if text and shown == text and not re.search("-[0-9a-f]{10}$", text):
        return text
    return f"{shown}-{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=5).hexdigest()}".lstrip("-")


def held_path(path: str) -> str:
    """A path in files/ that every disk can hold, for any path: what a name can't have is `%3F`, as in a URL, and a long
    name is in parts, which are folders with `%+` at their ends. Different for different paths."""
    names = list[str]()
    for name in path.strip("/").split("/"):
        part = ""
        for piece in re.findall("%[0-9A-F]{2}|.", _UNFIT.sub(_escape, name), re.S):
            if len((part + piece).encode()) > _NAME_BYTES:
                names.append(part + "%+")
                part = ""
            part += piece
        names.append(part)
    return "/".join(names)


def virtual_path(path: str) -> str:
    """The path that `held_path` was given, with `/` before it. A person may have made a file with a name that
    `held_path` never gives: that is its own."""
    with suppress(UnicodeDecodeError):
        plain = re.sub("(%[0-9A-F]{2})+", _unescape, path.replace("%+/", ""))
        if held_path(plain) == path:
            return f"/{plain}"
    return f"/{path}"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="surrogatepass"))


def _unescape(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode(errors="surrogatepass")


async def ask_about(
    question: str,
    arguments: Any,
    *,
    tool: str,
    schema: Any = None,
    can_change: bool = True,
    can_deny: bool = True,
    context: Mapping[str, Any] | None = None,
    wait_for: float = 10.0,
) -> Answer:
    """Ask people in the current run about a call that a model wants to make. They see the arguments as `clean` leaves
    them. If `can_change`, they may change them to others that fit the JSON Schema `schema`, or have the same kinds if
    these don't fit it. `tool`, `context` and `wait_for` are those of `run.ask`. AgentError outside a run.
    """
    if (run := Run.current()) is None:
        raise AgentError("people were asked outside a run", remedy="call it in the function of an agent")
    shown, choices = clean(arguments), None if can_deny else ["approve"]
    if not can_change:
        context = {**(context or {}), "arguments": shown}
        return await run.ask(question, choices, context=context, tool=tool, wait_for=wait_for)
    kind = schema if schema is not None and Draft202012Validator(schema).is_valid(shown) else None
    return await run.ask(question, choices, arguments=shown, schema=kind, context=context, tool=tool, wait_for=wait_for)
