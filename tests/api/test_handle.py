"""`satchel.open`: which workspace is meant, and what a look at it must not cost."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest
from cli.conftest import PLAIN, Make, contents
from properties import pairs

import satchel
from satchel import SatchelError
from satchel.runtime import api
from satchel.runtime.status import Place
from satchel.workspace.base.errors import UsageError


def test_the_current_folder_is_not_the_default(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = make()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the current folder is not a workspace"):
        satchel.open()
    monkeypatch.chdir(folder)
    assert satchel.open().url == str(folder)
    assert satchel.open().command("run") == "satchel run"
    assert satchel.open("../demo").command("answer", "a 1") == "satchel answer ../demo 'a 1'"


@pytest.mark.parametrize("url", ["nowhere", "demo/workspace.yaml", "S3://bucket/run", "s3:/bucket/run"])
def test_a_slip_is_opened(make: Make, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(make().parent)
    with pytest.raises(SatchelError) as raised:
        satchel.open(url)
    assert raised.value.remedy


def test_opening_changes_something(make: Make) -> None:
    folder = make()
    before = contents(folder)
    satchel.open(folder).questions()
    assert contents(folder) == before


def test_a_handle_loads_what_only_a_command_or_a_bucket_needs(make: Make) -> None:
    slow = ["s3fs", "fsspec", "jsonschema", "markdown_it", "rich", "watchdog", "click", "botocore", "pydantic"]
    code = (
        f"import sys, satchel\nhandle = satchel.open({str(make())!r})\nhandle.command('run')\n"
        f"loaded = set({slow}) & set(sys.modules)\nassert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


PARTS = (api.Handle, api.RunHistory, api.RunFiles, api.RunBackup)


@pytest.mark.parametrize("part", PARTS)
def test_a_twin_is_missing_or_another_method(part: type) -> None:
    methods = dict(inspect.getmembers(part, inspect.isfunction))
    decorated = {name for name, each in methods.items() if hasattr(each, "__wrapped__")}
    declared = {name for name in decorated if not name.endswith("_async")}
    assert {f"{name}_async" for name in declared} == {name for name in methods if name.endswith("_async")}
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    assert declared and (part is not api.Handle or declared >= {"run", "resume", "pause", "cancel", "wait", "answer"})
    for name in declared:
        assert f"`{name}_async`" in page
        plain, twin = methods[name], methods[f"{name}_async"]
        assert inspect.iscoroutinefunction(twin) and not inspect.iscoroutinefunction(plain)
        assert (plain.__name__, twin.__name__) == (name, f"{name}_async")
        assert plain.__qualname__.endswith(f".{name}") and twin.__qualname__.endswith(f".{name}_async")
        signature = inspect.signature(plain)
        assert signature == inspect.signature(twin)
        assert signature.return_annotation and "[" not in signature.return_annotation
        assert inspect.getdoc(plain) and (inspect.getdoc(twin) or "").startswith(f"`{name}`, without blocking")


def test_a_mock_of_a_handle_takes_itself_for_an_argument() -> None:
    handle = create_autospec(satchel.Handle, instance=True)
    handle.pause(wait=True)
    handle.pause.assert_called_once_with(wait=True)


def test_help_hides_a_twin() -> None:
    said = " ".join(pydoc.plain(pydoc.render_doc(api.Handle)).replace("|", " ").split())  # 3.13 wraps signatures
    for name in (" pause", " async pause_async"):
        assert f"{name}(self, *, reason: 'str' = 'manual'" in said.replace("( self", "(self")
    assert "`pause`, without blocking the event loop." in said


@pytest.mark.parametrize("part", PARTS)
def test_a_public_method_says_nothing_of_itself(part: type) -> None:
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    for name, method in inspect.getmembers(part, lambda each: callable(each) or isinstance(each, property)):
        if not name.startswith("_"):
            assert inspect.getdoc(method), name
            assert f"`{name}`" in page or f"`{name}(" in page or hasattr(Place, name), f"the page does not have {name}"


def test_a_handle_has_a_method_of_its_parts_or_does_not_name_them(make: Make) -> None:
    handle = satchel.open(make())
    history, files = (
        {each for each in dir(part) if not each.startswith("_")} for part in (handle.history, handle.files)
    )
    assert {*dir(handle)} >= {"history", "files"} and not (history | files) & {*dir(handle)} and not history & files
    for part, names in (("history", history), ("files", files)):
        said = inspect.getdoc(getattr(type(handle), part)) or ""
        assert {name for name in names if not name.endswith("_async")} == {*re.findall(r"`(\w+)`", said)}
    with pytest.raises(AttributeError, match="'Handle' object has no attribute 'blame'"):
        handle.blame()  # type: ignore[attr-defined]


def test_a_part_of_a_handle_shows_what_was_there_when_it_was_made(make: Make) -> None:
    handle = satchel.open(folder := make())
    history = handle.history
    handle.run()
    rows = [*history.log()]
    assert rows and rows[-1].line.seq == handle.history.show().seq
    assert {each.path for each in handle.files.list()} >= {"todo.md", "state.json"}
    assert handle.files.read("todo.md") == (folder / "todo.md").read_bytes()
    assert satchel.open(folder).history.diff(handle).is_empty


def test_a_run_is_not_told_as_it_ended(make: Make) -> None:
    handle = satchel.open(make())
    ended = handle.run()
    assert (ended.status, ended.result, ended.steps, ended.items) == ("completed", {"said": 2}, 2, (2, 2))
    assert sorted(ended.outputs) == ["outputs/1.txt", "outputs/2.txt"] and ended.run_id == "demo-1a2b"
    again = asyncio.run(handle.run_async())
    assert (again.status, again.entered, again.steps) == ("completed", False, 0)


def test_a_shell_does_not_say_which_run_it_is(make: Make) -> None:
    folder = make()
    handle = satchel.open(folder)
    assert [repr(each) for each in (handle, handle.history, handle.files, handle.backup)] == [
        f"<{name} of {folder}>" for name in ("Handle", "RunHistory", "RunFiles", "RunBackup")
    ]


def test_resume_begins_a_run(make: Make) -> None:
    folder = make(PLAIN)
    before = contents(folder)
    with pytest.raises(UsageError, match="nothing to resume yet"):
        satchel.open(folder).resume()
    assert contents(folder) == before


VERBS = ["steps", "redo", "blame", "prompt", "replay", "log", "read", "draft", "edit", "version"]


@pytest.mark.parametrize(("verb", "wrong"), pairs(VERBS, [4, None, b"x", ["^1"], 1.5], every=5))
def test_a_wrong_argument_is_a_fault_of_the_interpreter(make: Make, tmp_path: Path, verb: str, wrong: Any) -> None:
    """AttributeError: 'int' object has no attribute 'strip'."""
    handle = satchel.open(make())
    handle.run()
    history, files = handle.history, handle.files
    calls: dict[str, Callable[[], object]] = {
        "steps": lambda: history.steps(wrong),
        "redo": lambda: history.redo(wrong),
        "blame": lambda: history.blame(wrong),
        "prompt": lambda: history.prompt(wrong, "1"),
        "replay": lambda: history.replay(wrong, tmp_path / "copy"),
        "log": lambda: list(history.log(item=wrong)),
        "read": lambda: files.read(wrong),
        "draft": lambda: files.draft(wrong),
        "edit": lambda: files.edit(wrong, "text", version="1"),
        "version": lambda: files.edit("todo.md", "text", version=wrong),
    }
    if wrong is None and verb in ("steps", "log"):
        calls[verb]()
        return
    with pytest.raises(UsageError, match="can't be"):
        calls[verb]()
    if verb == "read":
        assert files.read("state.json", limit=None) == files.read("state.json")
