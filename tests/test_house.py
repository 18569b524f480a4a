"""The house stays as the README draws it: layers, face, no second copies, no module too long to tell."""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import satchel

ROOT = Path(__file__).parent.parent
LAYERS = ["schemas", "workspace", "runtime"]
"""Each may import those before it."""


def modules() -> list[tuple[str, Path]]:
    found = [(layer, path) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    assert len(found) > 40
    return found


@functools.cache
def imports(path: Path) -> list[tuple[str, ...]]:
    """What a module imports of Satchel, wherever in it, as parts below `satchel`."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [(*base, *(node.module.split(".") if node.module else ()))]
            if not node.module:
                names = [(*base, alias.name) for alias in node.names]
            found += names
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("satchel"):
            found.append(tuple((node.module or "").split(".")[1:]))
    return found


def test_a_layer_imports_only_those_below_it() -> None:
    for layer, path in modules():
        allowed = ["sample_workspaces", *LAYERS[: LAYERS.index(layer) + 1]]
        wrong = [".".join(parts) for parts in imports(path) if parts and parts[0] not in allowed]
        assert not wrong, f"{path} imports {wrong}"


def test_no_module_imports_in_a_circle() -> None:
    """Imports inside functions and for type checking count too: what needs them is in the wrong place."""
    names = {path.relative_to(ROOT).with_suffix("").parts: path for _, path in modules()}
    needs = {
        name: {found for parts in imports(path) if (found := _module(parts, names))} for name, path in names.items()
    }
    finished: set[tuple[str, ...]] = set()

    def visit(name: tuple[str, ...], above: tuple[tuple[str, ...], ...]) -> None:
        assert name not in above, " -> ".join("/".join(each) for each in (*above[above.index(name) :], name))
        if name not in finished:
            for needed in needs[name] - {name}:
                visit(needed, (*above, name))
            finished.add(name)

    for name in needs:
        visit(name, ())


def _module(parts: tuple[str, ...], names: dict[tuple[str, ...], Path]) -> tuple[str, ...] | None:
    """The module that an import goes to: itself, or the package's own file."""
    return parts if parts in names else (*parts, "__init__") if (*parts, "__init__") in names else None


def test_no_module_is_too_long_to_tell() -> None:
    long = {str(path.relative_to(ROOT)): n for _, path in modules() if (n := len(path.read_text().splitlines())) > 400}
    assert not long


@pytest.mark.parametrize("name", ["satchel", "satchel.schemas", "satchel.workspace.store"])
def test_the_face_of_a_package_is_what_it_says(name: str) -> None:
    module = __import__(name, fromlist=["*"])
    assert list(module.__all__) == sorted(module.__all__, key=str) or name != "satchel"
    assert all(hasattr(module, each) for each in module.__all__)


def test_no_module_is_loaded_under_a_bare_name() -> None:
    code = (
        "import sys, satchel, satchel.runtime.cli\n"
        "bare = {'workspace', 'runtime', 'schemas', 'sample_workspaces'} & set(sys.modules)\nassert not bare, bare"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_importing_satchel_imports_nothing_slow() -> None:
    slow = ["jsonschema", "markdown_it", "rich", "click", "pydantic", "tenacity", "filelock", "openai", "fsspec"]
    slow += ["s3fs", "botocore", "aiohttp"]
    code = f"import sys, satchel\nloaded = set({slow}) & set(sys.modules)\nassert not loaded, loaded"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_errors_survive_pickling() -> None:
    import pickle

    from satchel.schemas import Problem
    from satchel.workspace import errors

    invalid = errors.InvalidFile("a.yaml", [Problem("line 1", "this", "that", "do so")])
    damaged = errors.Damaged("is broken", path="p", why="w", remedy="r")
    for error in (invalid, damaged, errors.NotDone("not")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    from satchel.workspace.version import version as ours

    assert ours() == version("satchel")
    assert satchel.__doc__


@pytest.mark.parametrize("line", ["<<<<<<< ours", "||||||| base", "=======", ">>>>>>> theirs"])
def test_make_lint_does_not_see_what_a_merge_has_left(tmp_path: Path, line: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for place in (".ci/run", "tests/deep/a.py", ".venv/b.py"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text("Heading\n========\n" if place != ".venv/b.py" else f"{line}\n")

    def found() -> list[str]:
        done = subprocess.run(["make", "-s", "conflict-markers"], cwd=tmp_path, capture_output=True, text=True)
        assert bool(done.returncode) == bool(done.stdout), done.stderr
        return done.stdout.splitlines()

    assert found() == []
    for place in (".ci/run", "tests/deep/a.py"):
        (tmp_path / place).write_text(f"one\n{line}\ntwo\n")
    assert sorted(found()) == [f"./tests/deep/a.py:2:{line}", f".ci/run:2:{line}"]
