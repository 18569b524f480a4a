"""The house: each module lies in a room, and a room imports only from rooms above it in its table, through their faces.

A face is the `__init__` of a folder: what it imports is what other rooms may import from it. A room of one module is
that module, without a face.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import satchel
from satchel import adapters

ROOT = Path(__file__).parent.parent
TABLES = {
    "schemas": (),
    "workspace": (
        "base",
        "formats",
        "secrets",
        "store",
        "plan",
        "journal",
        "state",
        "views",
        "inspect",
        "history",
        "inbound",
        "lifecycle",
        "transfer",
    ),
    "runtime": (
        "agent",
        "live",
        "keeper",
        "engine",
        "execution",
        "supervision",
        "status",
        "launch",
        "history",
        "api",
        "present",
        "cli",
        "faces",
    ),
}
"""The layers, each with its rooms. A module may import from what comes before it."""

FACES = {
    "runtime.faces.http": (),
    "runtime.faces.web": ("runtime.faces.http",),
    "runtime.faces.watch": (),
    "runtime.faces.mcp": ("runtime.faces.http",),
}
"""The plugins, each with those that it may import: what is served has its addresses and tokens from `http`."""

OF_FACES = ("runtime.api", "runtime.present", "runtime.supervision", "runtime.cli")
"""The rooms of `runtime` that a plugin may import: of `supervision` what calls of `api` return, of the command line
the options that commands share. Nothing imports a plugin: it is found by its entry point."""

KNOWN: dict[str, str] = {}
"""Imports that break the order, `importing module -> imported module`, and why. It may only become shorter."""

HELPER = "workspace"
"""What every face is made with."""


class Import(NamedTuple):
    """One name that a module imports of Satchel, with dotted names below `satchel`."""

    by: str
    base: str  # the package or module after `from`
    name: str
    target: str  # the module that has the name: a face is looked through

    def __str__(self) -> str:
        return f"{self.by} -> {self.target}"


@functools.cache
def modules() -> dict[str, Path]:
    """All modules of the three layers; a package goes by its own name."""
    found = {}
    for layer in TABLES:
        for path in sorted((ROOT / layer).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    assert len(found) > 200
    return found


def is_package(name: str) -> bool:
    return name in modules() and modules()[name].name == "__init__.py"


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """All in it, also in its functions. An expression holds none, and most of a tree are expressions."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        inside = getattr(node, name, ())
        for each in inside if isinstance(inside, list) else ():
            if isinstance(each, ast.stmt):
                yield each
            yield from statements(each)


def parts_of(module: str, path: Path) -> Iterator[tuple[str, str]]:
    """(from what, which name) of each import of Satchel, wherever in the module it stands."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in statements(tree(path)):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("satchel.") for alias in node.names), f"{path}: import it by `from`"
        if not isinstance(node, ast.ImportFrom):
            continue
        said = (node.module or "").split(".") if node.module else []
        if node.level:
            base = [*package[: len(package) - node.level + 1], *said]
        elif said[:1] == ["satchel"]:
            base = said[1:]
        else:
            continue
        yield from ((".".join(base), alias.name) for alias in node.names)


@functools.cache
def handed_on(package: str) -> dict[str, str]:
    """What a face hands on: name -> module that has it. Nothing for a plugin whose `__init__` is its command."""
    found = {}
    parts = [*parts_of(package, modules()[package])]
    is_command = plugin(package) == package and HELPER not in {base for base, _ in parts}
    for base, name in () if is_command else parts:
        if base != HELPER:
            found[name] = f"{package}.{name}" if base == package else _target(base, name)
    return found


def _target(base: str, name: str) -> str:
    """Modules of a package are found although its face says nothing of them."""
    if is_package(base) and name in handed_on(base):
        return handed_on(base)[name]
    return inside(base, name) if inside(base, name) in modules() else base


def inside(base: str, name: str) -> str:
    return f"{base}.{name}".removeprefix(".")


def imports(module: str) -> list[Import]:
    return [Import(module, base, name, _target(base, name)) for base, name in parts_of(module, modules()[module])]


@functools.cache
def everything() -> list[Import]:
    return [each for module in modules() for each in imports(module)]


def room(module: str) -> str:
    """`layer.room`, or the layer if it has no rooms or the module is its own face."""
    return ".".join(module.split(".")[: 2 if TABLES[module.split(".")[0]] else 1])


def rank(module: str) -> tuple[int, int]:
    layer, _, name = room(module).partition(".")
    return list(TABLES).index(layer), TABLES[layer].index(name) if name else -1


def test_each_module_lies_in_a_room_of_the_tables() -> None:
    homeless = [
        name
        for name in modules()
        if TABLES[name.split(".")[0]] and "." in name and name.split(".")[1] not in TABLES[name.split(".")[0]]
    ]
    assert not homeless


def test_a_room_imports_only_from_rooms_above_it() -> None:
    wrong = {str(each) for each in everything() if rank(each.target) > rank(each.by)}
    assert not wrong - KNOWN.keys()
    assert not KNOWN.keys() - wrong, "mended: take it out of KNOWN"


def plugin(module: str) -> str:
    """`runtime.faces.NAME` for a module of a plugin, or else nothing."""
    return ".".join(module.split(".")[:3]) if module.startswith("runtime.faces.") else ""


def test_a_plugin_imports_what_programs_may_use_and_nothing_imports_a_plugin() -> None:
    wrong = []
    for each in everything():
        mine, other = plugin(each.by), plugin(each.target)
        if other and other not in (mine, *FACES.get(mine, ())):
            wrong.append(f"{each}: it is a plugin")
        if (
            mine
            and not other
            and each.target.startswith("runtime.")
            and not {room(each.base), room(each.target)} & {*OF_FACES}
        ):
            wrong.append(f"{each}: not for plugins")
    assert {plugin(each) for each in modules()} - {""} == {*FACES}
    assert not wrong


def test_rooms_import_each_other_through_their_faces() -> None:
    wrong = []
    for each in everything():
        if room(each.target) == room(each.by) or (each.base == HELPER and is_package(each.by)):
            continue
        if is_package(inside(each.base, each.name)):
            continue  # a face itself, to be asked by its name
        if not is_package(each.base):
            if each.base == room(each.base):
                continue  # a room of one module
            wrong.append(f"{each.by} imports {each.name} from {each.base}, which is no face")
        elif each.name not in handed_on(each.base):
            wrong.append(f"{each.by} imports {each.name}, which {each.base} does not hand on")
    assert not wrong


def test_a_module_asks_its_neighbours_and_not_the_face_of_its_own_room() -> None:
    wrong = [
        f"{each.by} imports {each.name} from its own face"
        for each in everything()
        if not is_package(each.by)
        and each.base == each.by.rpartition(".")[0]
        and inside(each.base, each.name) not in modules()
    ]
    assert not wrong


def test_no_module_imports_in_a_circle() -> None:
    """Imports inside functions and for type checking count too: what needs them is in the wrong place."""
    needs: dict[str, set[str]] = {name: set() for name in modules()}
    for each in everything():
        if not is_package(each.by):
            # who imports a face as a whole may need all of it
            needs[each.by] |= set(handed_on(each.target).values()) if is_package(each.target) else {each.target}
    finished: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name not in finished:
            for needed in sorted(needs[name]):
                visit(needed, (*above, name))
            finished.add(name)

    for name in needs:
        visit(name, ())


def test_no_module_reaches_into_another_ones_private_names() -> None:
    wrong = [f"{each.by} imports {each.name}" for each in everything() if each.name.startswith("_")]
    for module, path in modules().items():
        names = {each.name for each in imports(module) if each.target.rpartition(".")[2] == each.name}
        is_told = names and re.search(rf"\b({'|'.join(names)})\._", path.read_text())
        for node in ast.walk(tree(path)) if is_told else ():
            is_of_module = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_of_module and node.value.id in names and node.attr.startswith("_") and node.attr[:2] != "__":
                wrong.append(f"{module} uses {ast.unparse(node)}")
    assert not wrong


def test_only_a_face_imports_the_helper_of_faces() -> None:
    assert not [each.by for each in everything() if each.target == HELPER and not is_package(each.by)]


@functools.cache
def faces() -> list[str]:
    """The packages that hand something on."""
    return [name for name in modules() if is_package(name) and handed_on(name)]


def test_each_room_has_a_face() -> None:
    rooms = (f"{layer}.{name}" for layer, names in TABLES.items() for name in names)
    missing = [name for name in rooms if is_package(name)]
    missing = [name for name in missing if not any(face == name or face.startswith(f"{name}.") for face in faces())]
    assert not missing
    assert not [name for name in modules() if is_package(name) and not ast.get_docstring(tree(modules()[name]))]


@pytest.mark.parametrize("name", faces())
def test_a_face_hands_on_what_it_imports(name: str) -> None:
    face = importlib.import_module(f"satchel.{name}")
    for each, module in handed_on(name).items():
        there = importlib.import_module(f"satchel.{module}")
        is_module = module.rpartition(".")[2] == each
        assert getattr(face, each) is (there if is_module else getattr(there, each)), each
    assert handed_on(name).keys() <= set(dir(face))
    assert not hasattr(face, "no_such_name")


def test_importing_a_face_imports_none_of_its_modules() -> None:
    code = (
        "import builtins, sys; real = builtins.__import__; seen = []\n"
        "sys.setprofile(lambda *_: seen.append(builtins.__import__ is real))\n"
        "import satchel.runtime.api as face; sys.setprofile(None)\n"
        "assert all(seen) and 'Handle' in dir(face) and 'Handle' not in vars(face)\n"
        "assert not [name for name in sys.modules if name.startswith(f'{face.__name__}.')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_many_threads_that_use_a_face_for_the_first_time_find_all_names() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor as Threads; from threading import Barrier\n"
        "import sys, satchel; sys.setswitchinterval(1e-6); gate = Barrier(8)\n"
        "def use(_): gate.wait(); return satchel.SatchelError\n"
        "with Threads(8) as threads: assert len({*threads.map(use, range(8))}) == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


@pytest.mark.parametrize("name", faces())
def test_no_name_of_a_face_is_hidden_by_a_module_of_the_same_name(name: str) -> None:
    """Importing a submodule puts it into its package, over whatever the package hands on under that name."""
    inner = {each.removeprefix(f"{name}.").partition(".")[0] for each in modules() if each.startswith(f"{name}.")}
    hidden = [each for each, module in handed_on(name).items() if each in inner and module != f"{name}.{each}"]
    assert not hidden


def test_the_face_of_satchel_asks_faces_only() -> None:
    testing = ROOT / "src/satchel/testing"
    for path in (*(ROOT / "src/satchel").glob("*.py"), *testing.glob("*.py")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.level > (path.parent == testing):
                ours = node.module is None and {each.name for each in node.names} <= {"errors", "results"}
                assert ours or node.module in (*faces(), HELPER), f"{path} imports from {node.module}"


ADAPTERS = ROOT / "src/satchel/adapters"

PUBLIC = {each.__name__: each for each in (satchel, satchel.errors, satchel.results, adapters)}


@pytest.mark.parametrize("path", sorted(ADAPTERS.rglob("*.py")), ids=lambda path: str(path.relative_to(ADAPTERS)))
def test_an_adapter_is_short_and_uses_public_names_only(path: Path) -> None:
    """It shows that the public names are enough. What needs more than 300 lines for one interface of a framework shows
    that they are not. The dispatcher of a fleet is no such interface."""
    assert len(path.read_text().splitlines()) <= (350 if path.parent.name == "dask" else 300)
    for node in ast.walk(tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            is_own = path.parent != ADAPTERS or path.name == "__init__.py"
            assert node.level <= is_own, f"{path}: {node.module}"  # within its own package
            if (node.module or "").partition(".")[0] == "satchel":
                known = {*PUBLIC[node.module or ""].__all__, *(["open"] if node.module == "satchel" else ())}
                assert {*names} <= known, f"{path}: {names}"
            assert not any(name.startswith("_") for name in (*names, *(node.module or "").split(".")[1:])), path
        assert not isinstance(node, ast.Import) or not any(name.partition(".")[0] == "satchel" for name in names), path


def test_nothing_of_satchel_loads_an_adapter() -> None:
    others = [*modules().values(), *(ROOT / "src/satchel").glob("*.py")]
    wrong = [
        str(path)
        for path in others
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and "adapters" in (node.module or "").split(".")
    ]
    assert not wrong


def test_a_face_names_a_module_that_is_gone() -> None:
    """In the table of its docstring: a name, two spaces or more, what the module tells."""
    faces = [path for layer in TABLES for path in (ROOT / layer).rglob("__init__.py")]
    named = {
        path: re.findall(r"^(\w+)/?  +\S", ast.get_docstring(ast.parse(path.read_text())) or "", re.M) for path in faces
    }
    gone = [(path, name) for path, names in named.items() for name in names if not [*path.parent.glob(f"{name}*")]]
    assert sum(map(len, named.values())) > 50 and not gone
