"""Agents of several workspaces in one process: each gets its own modules, or is refused by name."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Refused, run, run_async
from satchel.runtime.agent.code import import_from

AGENT = """
import asyncio
from satchel import Run, agent

@agent
async def main(run: Run) -> str:
    await asyncio.sleep(0.2)  # the other one is loaded meanwhile
    import {module}
    return {module}.NAME
"""


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before, path = {*sys.modules}, [*sys.path]
    yield
    for name in {*sys.modules} - before:
        del sys.modules[name]
    sys.path[:] = path


def workspace(folder: Path, name: str, module: str = "helper", text: str | None = None) -> Path:
    place = folder / name
    place.mkdir()
    (place / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}-1\nagent: agent.py:main\n")
    (place / "agent.py").write_text(AGENT.format(module=module))
    (place / f"{module}.py").write_text(f"NAME = {name!r}\n" if text is None else text)
    return place


def packaged(place: Path, is_regular: bool) -> Path:
    """Its module is in a package."""
    (place / "parts").mkdir()
    (place / "helper.py").rename(place / "parts/helper.py")
    if is_regular:
        (place / "parts/__init__.py").touch()
    (place / "agent.py").write_text(AGENT.format(module="parts.helper"))
    return place


each_package = pytest.mark.parametrize("is_regular", [True, False])


async def both(*places: Path) -> list[Any]:
    return await asyncio.gather(*map(run_async, places), return_exceptions=True)


def test_two_that_run_at_once_get_each_others_modules(tmp_path: Path) -> None:
    found = asyncio.run(both(workspace(tmp_path, "a"), workspace(tmp_path, "b")))
    refused = [each for each in found if isinstance(each, Exception)]
    (done,) = [each for each in found if not isinstance(each, Exception)]
    assert done.status == "completed" and done.result == {"a-1": "a", "b-1": "b"}[run_id_of(done, tmp_path)]
    (error,) = refused
    assert isinstance(error, Refused) and "helper" in str(error) and "satchel serve" in str(error), error


def run_id_of(outcome: Any, folder: Path) -> str:
    (found,) = (each.definition.run_id for each in satchel.ls(folder) if each.state == "completed")
    return str(found)


def test_one_after_the_other_gets_the_others_modules(tmp_path: Path) -> None:
    a, b = workspace(tmp_path, "a"), workspace(tmp_path, "b")
    assert [run(each).result for each in (a, b)] == ["a", "b"]
    again = tmp_path / "c"
    a.rename(again)
    for name in ("journal", "checkpoints", "state.json", ".satchel"):
        import shutil

        path = again / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    assert run(again).result == "a"


@each_package
def test_one_after_the_other_gets_a_module_in_a_package_of_the_other(tmp_path: Path, is_regular: bool) -> None:
    assert [run(packaged(workspace(tmp_path, name), is_regular)).result for name in "ab"] == ["a", "b"]


@each_package
def test_two_that_run_at_once_get_a_module_in_a_package_of_the_other(tmp_path: Path, is_regular: bool) -> None:
    found = asyncio.run(both(*(packaged(workspace(tmp_path, name), is_regular) for name in "ab")))
    assert ["parts" in str(each) for each in found if isinstance(each, Refused)] == [True], found


def test_an_installed_module_is_imported_again_since_an_agent_has_its_package_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed/parts"
    installed.mkdir(parents=True)
    (installed / "core.py").touch()
    place = packaged(workspace(tmp_path, "a", text="from .inner.more import NAME\n"), False)
    (place / "parts/inner").mkdir()
    (place / "parts/inner/__init__.py").touch()
    (place / "parts/inner/more.py").write_text("NAME = 'a'\n")
    assert run(place).result == "a"
    monkeypatch.syspath_prepend(tmp_path / "installed")
    core = importlib.import_module("parts.core")
    other = workspace(tmp_path, "b")
    import_from(str(other / "agent.py"))
    assert run(other).result == "b"
    assert sys.modules["parts.core"] is core
    assert not {"parts.helper", "parts.inner", "parts.inner.more"} & {*sys.modules}
    assert not hasattr(sys.modules["parts"], "helper")


def test_a_later_start_gets_the_modules_of_the_first(tmp_path: Path) -> None:
    """A person has corrected one of them since, and the program goes on."""
    place = workspace(tmp_path, "a", text="name = 'misspelt'\n")
    assert run(place).status == "failed"
    (place / "helper.py").write_text("NAME = 'corrected'\n")
    assert run(place, wake=True).result == "corrected"


@each_package
def test_a_later_start_gets_a_module_in_a_package_of_the_first(tmp_path: Path, is_regular: bool) -> None:
    place = packaged(workspace(tmp_path, "a", text="name = 'misspelt'\n"), is_regular)
    assert run(place).status == "failed"
    (place / "parts/helper.py").write_text("NAME = 'corrected'\n")
    assert run(place, wake=True).result == "corrected"


def test_copies_of_one_template_do_not_run_together(tmp_path: Path) -> None:
    places = [workspace(tmp_path, name, text="NAME = 'the same'\n") for name in "abc"]
    assert [each.result for each in asyncio.run(both(*places))] == ["the same"] * 3


def test_one_loses_its_modules_when_another_is_loaded(tmp_path: Path) -> None:
    a, b = workspace(tmp_path, "a", "alpha"), workspace(tmp_path, "b", "beta")
    assert [each.result for each in asyncio.run(both(a, b))] == ["a", "b"]


def test_a_module_of_one_takes_the_place_of_a_package_that_another_imports(tmp_path: Path) -> None:
    a = workspace(tmp_path, "a", "alpha")
    (a / "agent.py").write_text(AGENT.format(module="wave").replace("wave.NAME", "wave.Error.__name__"))
    b = workspace(tmp_path, "b", "wave")
    sys.modules.pop("wave", None)
    found = asyncio.run(both(a, b))
    assert any(isinstance(each, Refused) and "wave" in str(each) for each in found), found
    assert not any(getattr(each, "status", "") == "failed" for each in found)
