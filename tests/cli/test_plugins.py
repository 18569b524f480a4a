"""Commands of other distributions, found by their entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_group import loaded, ours

HELLO = """
import click

@click.command()
@click.argument("name")
def hello(name):
    '''Greet somebody.'''
    click.echo(f"Hello, {name}")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed distributions, before all others."""
    return tmp_path / "site"


def install(site: Path, distribution: str, module: str, code: str, entry: str, group: str = "satchel.commands") -> None:
    """What `pip install` leaves of a distribution with one module and one entry point."""
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    (site / f"{module}.py").write_text(code)


def satchel(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "satchel", *words]
    path = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(command, env=path, capture_output=True, text=True, timeout=60, check=False)


def test_a_command_of_another_distribution_is_not_called(site: Path) -> None:
    install(site, "greetings", "greetings", HELLO, "hello = greetings:hello")
    done = satchel(site, "hello", "you")
    assert (done.returncode, done.stdout) == (0, "Hello, you\n")
    overview = satchel(site, "--help").stdout
    assert "hello       Greet somebody." in overview and "  watch " in overview
    assert "Did you mean 'hello'?" in satchel(site, "helo").stderr


def test_two_distributions_with_one_command_are_not_told_apart(site: Path) -> None:
    install(site, "greetings", "greetings", HELLO, "hello = greetings:hello")
    install(site, "other-greetings", "others", HELLO, "hello = others:hello")
    done = satchel(site, "hello", "you")
    assert done.returncode == 2 and not done.stdout
    assert "greetings and other-greetings" in done.stderr and "Uninstall one" in done.stderr
    assert satchel(site, "--help").returncode == 0


def test_a_command_that_fails_to_import_breaks_the_others(site: Path) -> None:
    install(site, "greetings", "greetings", "raise RuntimeError('no greeting')", "hello = greetings:hello")
    done = satchel(site, "hello", "you")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "greetings" in done.stderr and "RuntimeError: no greeting" in done.stderr
    overview = satchel(site, "--help")
    assert overview.returncode == 0 and "  hello " in overview.stdout and "  watch " in overview.stdout


@pytest.mark.parametrize(
    ("command", "package"), [("watch", "textual"), ("page", "starlette"), ("mcp", "mcp"), ("fleet", "distributed")]
)
def test_a_face_without_its_packages_is_not_shown(site: Path, command: str, package: str) -> None:
    site.mkdir()
    code = (
        "import sys\n"
        f"class Missing:\n    def find_spec(self, name, *_):\n"
        f"        if name == {package!r}: raise ModuleNotFoundError(f'No module named {{name!r}}', name=name)\n"
        f"sys.meta_path.insert(0, Missing())\n"
        "import importlib.util as util; real = util.find_spec\n"
        f"util.find_spec = lambda name, *more: None if name == {package!r} else real(name, *more)\n"
    )
    (site / "sitecustomize.py").write_text(code)
    assert f"  {command} " in satchel(site, "--help").stdout
    done = satchel(site, command, str(site), *(["--local", "1"] if command == "fleet" else []))
    extra = "dask" if command == "fleet" else command
    assert done.returncode == 2 and f"pip install 'satchel[{extra}]'" in done.stderr


def test_a_command_of_satchel_looks_for_plugins() -> None:
    names = loaded("completion", "bash")
    assert "importlib.metadata" not in names and not [name for name in ours(names) if ".faces" in name]
