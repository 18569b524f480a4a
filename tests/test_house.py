"""The house stays as docs/architecture.md draws it: layers, face, no second copies, no module too long to tell."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import pytest

import satchel

ROOT = Path(__file__).parent.parent
LAYERS = ["schemas", "workspace", "runtime"]


def modules() -> list[tuple[str, Path]]:
    found = [(layer, path) for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))]
    assert len(found) > 40
    return found


def test_a_struct_is_decoded_by_a_decoder_of_jsontext() -> None:
    """Two threads that decode to it for the first time at once may die: see workspace/formats/jsontext.py."""
    plain = {"dict", "list", "str", "Any", "Raw", "msgspec"}
    named = re.compile(r"\b(Decoder|convert|json\.decode)\(")
    for path in (each for _, each in modules() if each.name != "jsontext.py" and named.search(each.read_text())):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            kinds = [each.value for each in call.keywords if each.arg == "type"]
            if (made := ast.unparse(call.func)) in ("msgspec.json.Decoder", "Decoder", "msgspec.convert", "convert"):
                kinds += call.args[made.endswith("convert") :]
            elif made not in ("msgspec.json.decode", "json.decode"):
                continue
            names = {each.id for kind in kinds for each in ast.walk(kind) if isinstance(each, ast.Name)}
            assert names <= plain, f"{path}, line {call.lineno}: make it with `decoder` of jsontext.py"


def test_no_module_is_too_long_to_tell() -> None:
    long = {str(path.relative_to(ROOT)): n for _, path in modules() if (n := len(path.read_text().splitlines())) > 600}
    assert not long, "split it, or take out what it does not need: a module has at most 600 lines"


CLOCK = r"time\.(?:monotonic|time|perf_counter|thread_time|process_time)\(\)"
DEPENDS_ON_TIME = re.compile(rf"{CLOCK} - \w+ <")
GIVES_UP = re.compile(
    rf"{CLOCK} \+ (\d+)|\.(?:wait|join|result|timeout)\((\d+)|\bwait_for\(.*, (\d+)\)|\btimeout=(\d+)"
)


def test_a_test_depends_on_the_speed_of_the_machine() -> None:
    """What must not take long is compared with something (`growth`), counted, or made to hang. What gives up does so
    after `PATIENCE` of waits.py; a shorter wait is for something that does not come."""
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            seconds = [int(each) for found in GIVES_UP.findall(line) for each in found if each]
            if DEPENDS_ON_TIME.search(line) or any(4 < each < 60 for each in seconds):
                wrong.append(f"{path.relative_to(ROOT)}, line {number}: {line.strip()}")
    assert not wrong


def test_a_command_is_short_and_holds_no_logic() -> None:
    commands = [
        (path, node)
        for path in (ROOT / "runtime/cli").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and any(map(_makes_a_command, node.decorator_list))
    ]
    assert len(commands) > 30
    for path, node in commands:
        assert (node.end_lineno or 0) - node.decorator_list[0].lineno < 60, path


def _makes_a_command(decorator: ast.expr) -> bool:
    """`@click.command(...)`, `@click.group(...)`, or `command` of such a group."""
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith((".command", ".group"))


def test_the_public_face_is_what_it_says() -> None:
    import satchel

    assert satchel.__all__ == sorted(satchel.__all__, key=str)
    assert sorted((*satchel.__all__, "errors", "open", "results")) == dir(satchel), (
        "`import *` must not hide the builtin"
    )
    assert all(hasattr(satchel, each) for each in satchel.__all__)


def test_no_module_is_loaded_under_a_bare_name() -> None:
    code = (
        "import sys, satchel, satchel.runtime.cli\n"
        "bare = {'workspace', 'runtime', 'schemas', 'sample_workspaces'} & set(sys.modules)\nassert not bare, bare"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_a_folder_called_satchel_hides_an_editable_install(tmp_path: Path) -> None:
    """`git clone` makes such a folder, and Python looks in the current one first."""
    (tmp_path / "satchel").mkdir()
    code = "import satchel.workspace, satchel.sample_workspaces; print(satchel.run)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and "function run" in done.stdout


def test_an_agents_imports_load_little_and_nothing_slow() -> None:
    """What each agent's file begins with. Counted and not timed: a module takes about a third of a millisecond."""
    from benchmarks.imports import NAME_LOADED, SLOW

    loaded = subprocess.run([sys.executable, "-c", NAME_LOADED], check=True, cwd=ROOT.parent, capture_output=True)
    names = loaded.stdout.decode().split()
    slow = {*SLOW, "aiohttp", "botocore", "email", "multiprocessing", "tempfile"} & set(names)
    ours = [name for name in names if name.startswith("satchel.")]
    assert "satchel.runtime.execution.run_object" in ours and not slow
    assert len(ours) <= 28 and len(names) <= 70, names


@pytest.mark.parametrize(("kind", "code"), [("time", 0), ("count", 1), ("bytes", 1)])
def test_a_count_that_is_over_stops_no_ci(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: Literal["time", "count", "bytes"],
    code: int,
) -> None:
    from benchmarks import __main__ as benchmarks
    from benchmarks.measuring import Ground, Result

    over = Result("one measure", kind, "at most 1", 2, 1, "2")
    monkeypatch.setattr(benchmarks, "_ALL", {"one": lambda ground: iter([over])})
    monkeypatch.setattr(benchmarks, "ground", lambda *_, **__: nullcontext(Ground(tmp_path)))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--check"])
    assert benchmarks.main() == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert "over: one measure: 2; at most 1" in last and ("time" in last) == (kind == "time")
    assert "-m benchmarks --quick --check " in (ROOT / ".ci" / "run").read_text()


def test_errors_survive_pickling() -> None:
    import pickle

    from satchel.schemas import Problem
    from satchel.workspace.base import errors

    invalid = errors.InvalidFile("a.yaml", [Problem("line 1", "this", "that", "do so")])
    damaged = errors.Damaged("is broken", path="p", why="w", remedy="r")
    for error in (invalid, damaged, errors.NotDone("not")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    from satchel.workspace.base.names import version as ours

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


def test_make_clears_an_environment_that_a_person_has_made(tmp_path: Path) -> None:
    """README makes `.venv` by hand and installs more into it; `make demo` after it keeps all of that."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / ".venv" / "theirs").touch()
    outer = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "VENV", "PYTHON")  # of the `make test` that runs this
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "-s", f"PYTHON={sys.executable}", ".venv/made"]
    subprocess.run(command, cwd=tmp_path, check=True, env=environment)
    assert sorted(os.listdir(tmp_path / ".venv")) == ["bin", "made", "theirs"]


def test_a_retired_word_comes_back() -> None:
    """`python tools/retired_words.py`, which `make lint` runs, says what to write instead."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "retired_words.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("# one\n# it goes on\n# with it\n", None),  # two comments
        ('x = """\nit went on\nwith it"""\n', "went on with"),
        ("x = 1\n# Nobody answers\n", "Nobody"),
        ('x = f"{y} is at work"\n', "at work"),
        ("\nbeside = beside(anew)  # written anew\n", "anew"),
        ("x = 'where it stands'", "stands"),
        ("# a word that stands for another", None),
        ('def f() -> None:\n    """Of a file, its name."""\n', '"""Of a'),
    ],
)
def test_a_planted_word_is_overlooked(tmp_path: Path, text: str, word: str | None) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "runtime").mkdir()
    shutil.copy(ROOT / "tools" / "retired_words.py", tmp_path / "tools")
    (tmp_path / "runtime" / "a.py").write_text(text)
    done = subprocess.run([sys.executable, tmp_path / "tools" / "retired_words.py"], capture_output=True, text=True)
    assert bool(done.returncode) == bool(done.stdout) == bool(word), done.stderr
    assert word is None or (repr(word) in done.stdout and done.stdout.startswith("runtime/a.py:")), done.stdout
    (tmp_path / "runtime" / "a.py").unlink()
    (tmp_path / "README.md").write_text(f"# It\n\nHere somebody {word}\n")
    done = subprocess.run([sys.executable, tmp_path / "tools" / "retired_words.py"], capture_output=True, text=True)
    assert done.returncode == 1 and "README.md:3: 'somebody'; write instead: name the actor" in done.stdout


def test_a_planted_fault_is_planted_no_more() -> None:
    """What planted_faults.txt names must be found whatever becomes of the code. New ones are added to it."""
    files = [*(ROOT / "tests").rglob("test_planted*.py"), *(ROOT / "tests").rglob("test_carrying.py")]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    planted = {line.partition("::")[2] for line in collected.splitlines()}
    assert {*(ROOT / "tests" / "planted_faults.txt").read_text().splitlines()} <= planted
