"""The code of an agent: its own modules, the installed distributions that they import, who may import what, and the
lines of it that an exception came through.

It is read from the source, so that it is the same at every start, whatever was imported before. Imports by a computed
name, and what distributions import, are not seen.

The code of a workspace in a bucket is imported from a private copy, which lives as long as this process. Only a run
makes one. Files are data until then, and none is written outside the copy.

A process has one table of modules and one list of folders to import from, so a name means one module for all of its
code. Agents of several workspaces share a process where a program runs them. So each imports from its own folder, an
agent that runs keeps its folder until it has ended, and one is refused that would get the module of another, or give it
its own. Copies of one template have the same modules, and share them. A later start gets what is in the files then.
"""

from __future__ import annotations

import ast
import atexit
import functools
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import Struct, field

from ...workspace.base import OF_A_RUN, Refused, StorageFailed, check_path, urls
from ...workspace.journal import Failure
from ...workspace.state import prompts
from ...workspace.store import Store, Version

LIMIT = 16 << 20
"""Bytes of code that are fetched. More is not the source of an agent."""
_MOST = 2000  # files
_PREFIX = "satchel-agent-"

_Files = tuple[tuple[str, Version], ...]
_copies: dict[tuple[str, _Files], str] = {}
"""Folders by their originals. The same code is fetched once; another version goes to another folder."""


def folder_of(store: Store) -> str:
    """The folder to import a workspace's own code from: the workspace itself on a disk, else a copy."""
    if not urls.is_remote(store.url):
        return store.url
    paths = tuple(_code(store))
    files = tuple((path, version) for path in paths if (version := store.version(path)) is not None)
    key = (store.url, files)
    if key not in _copies:
        _copies[key] = _fetch(store, files)
    return _copies[key]


def shown(file: str) -> str | None:
    """The name of a copied file in the workspace; None if the file is not in a copy."""
    for folder in _copies.values():
        if file.startswith(f"{folder}/"):
            return os.path.relpath(file, folder)
    return None


def clear(pid: int) -> None:
    """Remove the copies of a killed process. The caller knows that it was one of ours and is dead."""
    import tempfile  # slow, and only what is fetched from a bucket needs it

    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            is_its = entry.name.startswith(f"{_PREFIX}{pid}-") and entry.is_dir(follow_symlinks=False)
            if is_its and entry.stat(follow_symlinks=False).st_uid == os.getuid():
                shutil.rmtree(entry.path, ignore_errors=True)


def _code(store: Store) -> Iterator[str]:
    """All modules, and all files with prompts. Not the files of the run, and nothing hidden."""
    size, count = 0, 0
    waiting = [""]
    while waiting:
        here = waiting.pop()
        for entry in store.list(here):
            if entry.path.endswith(".py") or entry.path.startswith(f"{prompts.FOLDER}/"):
                size, count = size + entry.size, count + 1
                if size > LIMIT or count > _MOST:
                    raise Refused(
                        "the workspace's own code can't be fetched",
                        path=store.url,
                        why=f"its modules and prompts are more than {LIMIT >> 20} MiB or {_MOST:,} files",
                        remedy="move other files away, or name an installed agent: `agent: package.module:main`",
                    )
                yield entry.path
        waiting += [inner for inner in store.folders(here) if not _is_passed_over(inner)]


def _is_passed_over(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return (
        name.startswith(".")
        or name == "__pycache__"
        or folder in OF_A_RUN
        or (folder.startswith("agents/") and name in OF_A_RUN)
    )


def _fetch(store: Store, files: _Files) -> str:
    import tempfile

    folder = os.path.realpath(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))  # mode 700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    left = LIMIT
    for path, _ in files:
        full = os.path.join(folder, *check_path(path).split("/"))
        data = store.read(path, limit=left).data
        left -= len(data)
        try:
            os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
            with open(full, "xb") as file:
                file.write(data)
        except OSError as error:  # a.py next to a.py/b.py, for example, which only a bucket can hold
            raise Refused("the workspace's own code can't be fetched", path=path, why=str(error.strerror)) from error
    return folder


_SHORT = 12
"""How many hexadecimal digits of a hash are kept."""

_DEEPEST = 1000
_TRIES = 10


class Code(Struct):
    """The agent's modules by path (relative to their import folder), with the start of their SHA-256."""

    modules: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)  # distributions, with their versions
    commit: str = ""  # of git, that the folder of the code is at; the files may have changed since


class Imports(NamedTuple):
    """What the code of a file imports: the modules in its folder, with the start of their SHA-256, and the first names
    of all others."""

    folder: str
    modules: dict[str, str]
    others: set[str]


def imports_of(file: str) -> Imports:
    """The modules that belong to `file`: itself, the modules in its folder that it imports, and so on."""
    folder, top = os.path.dirname(os.path.abspath(file)), ""
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, top = os.path.split(folder)
    found = Imports(folder, {}, set())
    waiting, seen = [os.path.abspath(file)], set[str]()
    while waiting and len(seen) < _DEEPEST:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            with open(path, "rb") as opened:
                source = opened.read()
        except OSError:
            continue
        found.modules[os.path.relpath(path, folder)] = short(source)
        for level, name in _imports(source):
            is_own = level or not top or name.partition(".")[0] == top  # not every installed package
            near = list(_beside(folder, os.path.dirname(path), level, name)) if is_own else []
            waiting += near
            if not near and not level:
                found.others.add(name.partition(".")[0])
    return found


def of(file: str) -> Code:
    """The code of the agent in `file`."""
    folder, modules, others = imports_of(file)
    return Code(dict(sorted(modules.items())), dict(sorted(_distributions(others))), _commit(folder))


def _commit(folder: str) -> str:
    """The commit that a checkout is at. Empty if the folder lies in none, or if its files can't be read."""
    with suppress(OSError, ValueError):
        while not os.path.exists(git := os.path.join(folder, ".git")):
            folder, was = os.path.dirname(folder), folder
            if folder == was:
                return ""
        if os.path.isfile(git):  # of a work tree or a submodule
            git = os.path.join(folder, _line(git).removeprefix("gitdir: "))
        head = _line(os.path.join(git, "HEAD"))
        if not head.startswith("ref: "):
            return head[:_SHORT]
        common = os.path.join(git, "commondir")
        shared = os.path.normpath(os.path.join(git, _line(common))) if os.path.isfile(common) else git
        branch = os.path.join(shared, head.removeprefix("ref: "))
        if os.path.isfile(branch):
            return _line(branch)[:_SHORT]
        with open(os.path.join(shared, "packed-refs"), encoding="utf-8") as packed:
            return next((line[:_SHORT] for line in packed if line.rstrip().endswith(head[4:])), "")
    return ""


def _line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline(1000).strip()


def short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_SHORT]


@functools.lru_cache(maxsize=256)
def _imports(source: bytes) -> tuple[tuple[int, str], ...]:
    """All imports in the source: the number of dots, and the name. `from a import b` also gives `a.b`, which may be a
    module."""
    try:
        tree = _parsed(source)
    except (SyntaxError, ValueError):
        return ()
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            found += [(node.level, base)] if base else []
            found += [(node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names]
    return tuple(dict.fromkeys(found))


def _parsed(source: bytes) -> ast.AST:
    """CPython has one depth counter for all threads (python/cpython#106905). If two threads parse at the same time (a
    traceback also parses), one may report that the counter is wrong."""
    for _ in range(_TRIES):
        with suppress(SystemError):
            return ast.parse(source)
    return ast.parse(source)


def _beside(folder: str, here: str, level: int, name: str) -> Iterator[str]:
    """The files of a module in the agent's folder: the module and the packages around it."""
    for _ in range(level - 1):
        here = os.path.dirname(here)
    at = here if level else folder
    for part in name.split("."):
        at = os.path.join(at, part)
        if os.path.isfile(f"{at}.py"):
            yield f"{at}.py"
        elif os.path.isfile(package := os.path.join(at, "__init__.py")):
            yield package
        elif not os.path.isdir(at):
            return


def _distributions(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    others = sorted({*names} - sys.stdlib_module_names - {"satchel"})
    if not others:
        return
    from importlib import metadata  # slow, and many agents import nothing that was installed

    for name in others:
        for distribution in _providers(name):
            try:
                said = metadata.metadata(distribution)
            except metadata.PackageNotFoundError:
                continue
            if said["Version"]:
                yield said["Name"] or distribution, said["Version"]


def _providers(name: str) -> list[str]:
    """The distributions that contain a module. Most have its name; a search through all others takes longer."""
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        folder = _where(name)
        return [*_provided(name, folder, os.stat(folder).st_mtime_ns)] if folder else []
    return [name]


def _where(name: str) -> str | None:
    """The folder of sys.path that contains the module."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    locations = list(spec.submodule_search_locations or ())
    place = locations[0] if locations else spec.origin
    folder = os.path.dirname(place or "")
    return folder if os.path.isdir(folder) else None


@functools.lru_cache(maxsize=256)
def _provided(name: str, folder: str, changed: int) -> tuple[str, ...]:
    """The distributions in a folder that contain a top-level module. `changed` is the modification time of the folder.

    The lists of files are searched as text: there may be hundreds, with tens of thousands of lines."""
    from importlib import metadata

    in_list = re.compile(rf"^{re.escape(name)}[./]", re.MULTILINE)
    found = set()
    for distribution in metadata.distributions(path=[folder]):
        modules = (distribution.read_text("top_level.txt") or "").split()
        if name in modules or (not modules and in_list.search(distribution.read_text("RECORD") or "")):
            found.add(distribution.metadata["Name"])
    return tuple(sorted(found))


changing = threading.RLock()
"""Held while an agent is imported: then the names that it imports by are its own."""

_known: dict[str, dict[str, dict[str, str]]] = {}
"""The folders of all agents so far, each with its modules when they were last imported from."""
_running: Counter[OwnModules] = Counter()
_counting = threading.Lock()
"""Held for a moment, for `_running`: an event loop must not wait until another agent is imported."""


class OwnModules(Struct, frozen=True):
    """What an agent imports. `own`: the modules in its folder, and `others`, by their first names."""

    folder: str
    own: frozenset[str]
    others: frozenset[str]

    @classmethod
    def of(cls, file: str) -> OwnModules:
        _, modules, others = imports_of(file)
        names = {path.split("/")[0].removesuffix(".py") for path in modules}
        mine = os.path.basename(file).removesuffix(".py")
        return cls(os.path.dirname(file), frozenset(names - {mine}), frozenset(others))


def import_from(file: str) -> None:
    """Let the agent in `file` import from its own folder, and from no other that has none running. Refused if one of
    its modules would be another's."""
    mine = OwnModules.of(file)
    contents = {name: _files(mine.folder, name) for name in mine.own}
    with changing:
        with _counting:
            others = [*_running]
        for other in others:
            if other.folder != mine.folder and (name := _shared(mine, other) or _shared(other, mine)):
                raise _refused(
                    file, name, f"the agent in {other.folder}, which runs in this process, means another one"
                )
        in_use = {each.folder for each in others}
        kept = {mine.folder, *in_use}
        stale = _known.keys() - kept
        if mine.folder not in in_use and _known.get(mine.folder, contents) != contents:
            stale.add(mine.folder)
            importlib.invalidate_caches()
        _forget(stale)
        for name in sorted(mine.own):
            if name in sys.modules and _is_foreign(sys.modules[name], mine.folder, kept):
                raise _refused(file, name, "this process has imported another one")
        folders = [mine.folder, *sorted(kept - {mine.folder})]
        sys.path[:] = [*folders, *(entry for entry in sys.path if entry not in _known)]
        _known[mine.folder] = contents


def _forget(folders: set[str]) -> None:
    """The modules in these folders, and in their packages, are imported again. Of a package without `__init__.py` that
    has other places, too, only what lies here. There may be thousands of other modules."""
    top = {name: _folders_of(module) for name, module in [*sys.modules.items()] if "." not in name} if folders else {}
    touched = {name for name, places in top.items() if places & folders}
    for name, module in [*sys.modules.items()] if touched else ():
        package, _, inner = name.partition(".")
        if package not in touched:
            continue
        if top[package] <= folders:
            sys.modules.pop(name, None)
        elif inner and any(_file_of(module).startswith(f"{folder}{os.sep}") for folder in folders):
            sys.modules.pop(name, None)
            above, _, last = name.rpartition(".")
            if above in sys.modules:  # else it lies here, too
                vars(sys.modules[above]).pop(last, None)


@contextmanager
def running(file: str | None) -> Iterator[None]:
    """While the body runs, the agent in `file` keeps its modules. None: it is no file of a workspace."""
    if file is None:
        yield
        return
    mine = OwnModules.of(file)
    with changing:
        import_from(file)
        with _counting:
            _running[mine] += 1
    try:
        yield
    finally:
        with _counting:
            _running.subtract([mine])
            if not _running[mine]:
                del _running[mine]


def _shared(one: OwnModules, other: OwnModules) -> str:
    """A name by which `one` imports something else than the module in the folder of `other`."""
    for name in sorted(one.own | one.others):
        there = _files(other.folder, name)
        if there and (name in one.others or _files(one.folder, name) != there):
            return name
    return ""


def _files(folder: str, name: str) -> dict[str, str]:
    """The files of a module or package in a folder, each with the start of its hash. Empty: it is not there."""
    found = {}
    package = os.path.join(folder, name)
    paths = [f"{package}.py"]
    if os.path.isdir(package):
        paths += [os.path.join(at, each) for at, _, names in os.walk(package) for each in names if each.endswith(".py")]
    for path in paths:
        with suppress(OSError), open(path, "rb") as file:
            found[os.path.relpath(path, folder)] = short(file.read())
    return found


def _file_of(module: object) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _folders_of(module: object) -> set[str]:
    """The folder that holds a top-level module; of a package the one around it. A package without `__init__.py` may
    have several."""
    if not (file := _file_of(module)):
        places = getattr(getattr(module, "__spec__", None), "submodule_search_locations", None) or ()
        return {os.path.dirname(place) for place in places}
    folder, _, name = file.rpartition(os.sep)
    return {os.path.dirname(folder) if name == "__init__.py" else folder}


def _is_foreign(module: object, folder: str, kept: set[str]) -> bool:
    folders = _folders_of(module)
    return not folders & kept and os.path.realpath(folder) not in map(os.path.realpath, folders)


def _refused(file: str, name: str, why: str) -> Refused:
    return Refused(
        f"can't import its own module {name!r}",
        path=file,
        why=why,
        remedy="give the module a name of its own, or run it in a process of its own: `satchel run`, `satchel serve`",
    )


_LINES = 5
_CHARACTERS = 100_000
_OURS = tuple(
    f"{os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/{folder}/"
    for folder in ("runtime", "workspace", "schemas")
)
_LIBRARY = sysconfig.get_path("stdlib")
_RETRIES = f"{sysconfig.get_path('purelib')}/tenacity/"  # what Satchel retries with


def describe(error: BaseException, root: str) -> Failure:
    """`root` is the workspace; lines of code in it are named relative to it."""
    return Failure(type(error).__name__, _message(error), where(error, root))


def where(error: BaseException, root: str) -> tuple[str, ...]:
    """The lines of the agent that an error came through, outermost first: without those of Satchel and of the standard
    library. For a failed step the last ones are those of the step."""
    lines = ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
    theirs = [
        (each, line) for each, line in lines if not each.co_filename.startswith((*_OURS, _LIBRARY, _RETRIES, "<"))
    ]
    return tuple(f"{place(each.co_filename, root)}:{line} in {each.co_name}" for each, line in theirs[-_LINES:])


def said(error: BaseException) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {_message(error)}"


def brief(error: BaseException) -> Failure:
    """The error without lines of code."""
    return Failure(type(error).__name__, _message(error))


def of_storage(error: BaseException | None) -> StorageFailed | None:
    """The storage failure that an exception is, contains, or was caused by."""
    while error is not None:
        if isinstance(error, StorageFailed):
            return error
        if isinstance(error, BaseExceptionGroup):
            return next((found for each in error.exceptions if (found := of_storage(each))), None)
        error = error.__cause__
    return None


def _message(error: BaseException) -> str:
    """An exception group only says how many errors it has, so this names them."""
    if not isinstance(error, BaseExceptionGroup):
        text = str(error)[:_CHARACTERS]
        return text.encode(errors="backslashreplace").decode()  # half a surrogate pair can't be kept
    inner = "; ".join(f"{type(each).__name__}: {_message(each)}" for each in error.exceptions[:_LINES])
    return f"{error.message}: {inner}"


def place(file: str, root: str) -> str:
    """The name of a code file as people know it."""
    return os.path.relpath(file, root) if file.startswith(f"{root}/") else shown(file) or file
