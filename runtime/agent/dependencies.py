"""The code of an agent: its own modules, and the installed distributions that they import.

Read from the source, so that it is the same at every start, whatever was imported before. Not seen: imports by a
computed name, and what distributions import.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct, field

_SHORT = 12
"""How many hexadecimal digits of a hash are kept."""

_DEEPEST = 1000
_TRIES = 10


class Code(Struct):
    """The agent's modules by path (relative to their import folder), with the start of their SHA-256."""

    modules: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)  # distributions, with their versions
    commit: str = ""  # of git, that the folder of the code is at; the files may have changed since


def of(file: str) -> Code:
    """The modules that belong to `file`: itself, the modules in its folder that it imports, and so on."""
    folder, top = os.path.dirname(os.path.abspath(file)), ""
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, top = os.path.split(folder)
    code = Code()
    names: set[str] = set()
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
        code.modules[os.path.relpath(path, folder)] = short(source)
        for level, name in _imports(source):
            is_own = level or not top or name.partition(".")[0] == top  # not every installed package
            found = list(_beside(folder, os.path.dirname(path), level, name)) if is_own else []
            waiting += found
            if not found and not level:
                names.add(name.partition(".")[0])
    code.modules = dict(sorted(code.modules.items()))
    code.packages = dict(sorted(_distributions(names)))
    code.commit = _commit(folder)
    return code


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
