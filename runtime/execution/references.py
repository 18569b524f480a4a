"""References of a run to things outside: whether each still exists, and what tells its content.

A reference is a path (relative to the workspace, or absolute), an http or https address, or any URL that fsspec opens.
A file's content is told by its SHA-256, an object's by its version or ETag, an address' by its ETag; else by the time
of the last change. A folder's, and that of an address without any of these, are not known. What is not known yet is
found out while the agent runs: a large file takes time to read.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...workspace.base import SatchelError, UsageError, urls
from ...workspace.journal import Configured
from ..agent import DaemonExecutor
from ..engine import Context

Content = Mapping[str, Any]
"""What tells the content of a reference, as it is recorded. Empty: nothing is known."""

_ANSWER = 5.0
"""Seconds that a server has for an answer."""

LIMIT = 15.0
"""Seconds until each of them has been found, all at once. Reading a file takes as long as it takes."""

_CHUNK = 1 << 20
CONTENTS = "contents"
"""What a `configured` record calls the contents of the references."""

_IDENTITIES = ("sha256", "etag", "version", "modified")
"""What two contents are told apart by: the first that both have. An object of the same ETag is the same in a new
version."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(://|::)")
_SECRETS = re.compile(r"(?<=://)[^/@\s]*@|\?.*")


class Missing(NamedTuple):
    reference: str  # without what may be secret in it
    why: str

    def __str__(self) -> str:
        return f"reference {self.reference} is missing: {self.why}"


class ReferenceState(NamedTuple):
    """What is at a reference."""

    why: str = ""  # it can't be used
    content: Content = MappingProxyType({})
    file: str = ""  # whose SHA-256 the content does not have


async def find(references: Iterable[str], root: str, known: Mapping[str, Content]) -> dict[str, ReferenceState]:
    """What is at each of them. `root` is the folder or URL of the workspace. A file is read if its content was `known`
    and its size or time of change is another now."""
    unique = list(dict.fromkeys(references))
    found = await asyncio.gather(*(look(each, root, known.get(each)) for each in unique))
    return dict(zip(unique, found, strict=True))


async def look(reference: str, root: str, known: Content | None) -> ReferenceState:
    """What is at one reference. A file is not read if nothing is `known`, or if its size and time of change are."""
    apart, given_up = DaemonExecutor("satchel-reference"), threading.Event()
    try:
        try:
            async with asyncio.timeout(LIMIT):
                found = await apart.call(lambda: _found(reference, root))
        except TimeoutError:
            return ReferenceState(f"no answer within {LIMIT:g} s")
        if not found.file or known is None:
            return found
        if all(known.get(key) == value for key, value in found.content.items()) and "sha256" in known:
            return ReferenceState(content=known)
        return await apart.call(lambda: _read(found, given_up))
    finally:
        given_up.set()
        apart.end()


def missing(found: Mapping[str, ReferenceState]) -> list[Missing]:
    """Those that do not exist, or can't be checked."""
    return [Missing(shown(reference), each.why) for reference, each in found.items() if each.why]


def change(reference: str, before: Content, now: Content) -> str:
    """In words, how the content has changed. Empty if it has not, or if nothing tells."""
    by = next((key for key in _IDENTITIES if key in before and key in now), None)
    if by is None or before[by] == now[by]:
        return ""
    return f"reference {shown(reference)} has changed: it is {_said(now)}, and was {_said(before)}"


def _said(content: Content) -> str:
    size = f"{content['size']:,} bytes" if "size" in content else ""
    for key, name in (("sha256", "SHA-256 "), ("etag", "ETag "), ("version", "version "), ("modified", "of ")):
        if key in content:
            told = content[key][:8] if key == "sha256" else content[key]
            return f"{size}{', ' if size and key != 'modified' else ' ' if size else ''}{name}{told}"
    return size


def shown(reference: str) -> str:
    """A reference that is safe to show: a URL without user, password and query."""
    return _SECRETS.sub("", reference) if _SCHEME.match(reference) else reference


def _found(reference: str, root: str) -> ReferenceState:
    scheme = _SCHEME.match(reference)
    if scheme is None:
        try:
            place = urls.resolve(root, reference)
        except UsageError as error:
            return ReferenceState(error.what)
        return _of_url(place) if urls.is_remote(place) else _of_path(place)
    if scheme[1].lower() in ("http", "https"):
        return _of_address(reference)
    return _of_url(reference)


def _of_path(path: str) -> ReferenceState:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return ReferenceState("there is no such file")
    except (OSError, ValueError) as error:
        return ReferenceState(f"it can't be inspected: {getattr(error, 'strerror', None) or error}")
    if not stat.S_ISREG(facts.st_mode):
        return ReferenceState()
    return ReferenceState(content=_stated(facts), file=path)


def _stated(facts: os.stat_result) -> Content:
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}


def _read(found: ReferenceState, given_up: threading.Event) -> ReferenceState:
    """The same with the SHA-256 of the file, unless it can't be read or the wait for it is over."""
    digest = hashlib.sha256()
    try:
        with open(found.file, "rb") as file:
            content = _stated(os.fstat(file.fileno()))  # before: a change meanwhile has a later time
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if given_up.is_set():
                    return found
    except OSError:
        return found
    return ReferenceState(content={**content, "sha256": digest.hexdigest()})


def _of_address(address: str) -> ReferenceState:
    """Some servers don't support or allow HEAD; then the answer to GET counts. Its body is not read."""
    import http.client  # slow, and most runs refer to none
    import urllib.error
    import urllib.request

    why = ""
    for method in ("HEAD", "GET"):
        try:
            request = urllib.request.Request(address, method=method, headers={"User-Agent": "satchel"})
            with urllib.request.urlopen(request, timeout=_ANSWER) as answer:
                told = {"etag": answer.headers["ETag"], "modified": answer.headers["Last-Modified"]}
                return ReferenceState(content={key: value for key, value in told.items() if value})
        except urllib.error.HTTPError as error:
            why = f"the server answers {error.code} {error.reason}"
            error.close()
        except urllib.error.URLError as error:
            return ReferenceState(f"the server can't be reached: {error.reason}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return ReferenceState(f"the server can't be reached: {type(error).__name__}: {error}".rstrip(": "))
    return ReferenceState(why)


def _of_url(url: str) -> ReferenceState:
    import fsspec  # type: ignore[import-untyped]  # slow, and most runs refer to none
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    try:
        files, path = fsspec.core.url_to_fs(url)
        if isinstance(files, LocalFileSystem):
            return _of_path(path)
        files.invalidate_cache()
        facts = files.info(path)
    except FileNotFoundError:
        return ReferenceState("there is no such file")
    except Exception as error:  # of whichever library opens it
        return ReferenceState(f"it can't be inspected: {type(error).__name__}: {error}")
    return ReferenceState(content=_told_of_object(facts))


def _told_of_object(facts: Mapping[str, Any]) -> Content:
    """What the drivers of fsspec call these."""
    if facts.get("type") == "directory":
        return {}
    names = {
        "size": ("size",),
        "version": ("VersionId", "version_id", "generation"),
        "etag": ("ETag", "etag"),
        "modified": ("LastModified", "last_modified", "updated", "mtime", "modified", "created"),
    }
    found = {key: next((facts[name] for name in of if facts.get(name)), None) for key, of in names.items()}
    return {
        key: value if key == "size" else str(value)
        for key, value in found.items()
        if value is not None and (key != "version" or value != "null")
    }


def contents_in(config: Mapping[str, Any]) -> dict[str, Content]:
    """What the references held, as a configuration has it."""
    return dict(config.get(CONTENTS, {}))


class Contents:
    """For one opening. What is not found by its end is not recorded; the next start has nothing to compare then."""

    def __init__(self, context: Context):
        self._context = context
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    def find_unknown(self) -> None:
        """Look at the references whose content is not recorded."""
        workspace = self._context.workspace
        config = workspace.moment.config
        recorded = contents_in(config)
        for reference in (*workspace.definition.references, *config.get("references", ())):
            if workspace.redactor.text(reference) not in recorded:
                self.find(reference)

    def find(self, reference: str) -> None:
        """Look at one, and record it. If that is under way, it is not begun again."""
        if reference not in self._looking and not self._is_over:
            looking = asyncio.create_task(self._find(reference), name=f"reference {shown(reference)}")
            self._looking[reference] = looking
            looking.add_done_callback(lambda _: self._looking.pop(reference))

    async def end(self, *, waits: bool) -> None:
        """Find no more. With `waits`, what is under way has some seconds."""
        self._is_over = True
        if not (looking := list(self._looking.values())):
            return
        if waits:
            await asyncio.wait(looking, timeout=LIMIT)
        for task in looking:
            task.cancel()
        await asyncio.wait(looking)

    async def _find(self, reference: str) -> None:
        workspace = self._context.workspace
        key = workspace.redactor.text(reference)
        known = contents_in(workspace.moment.config).get(key, {})
        found = await look(reference, workspace.store.url, known)
        config = workspace.moment.config  # as it is after that
        contents = contents_in(config)
        if not found.content or found.file or contents.get(key) == found.content:
            return
        try:
            workspace.journal.add(Configured(config={**config, CONTENTS: {**contents, key: found.content}}))
        except SatchelError as error:
            self._context.stopping.fail(error)
