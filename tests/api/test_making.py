"""`new` and `serve` from Python."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import warm
from cli.conftest import Make, contents

import satchel
from satchel.workspace.base.errors import UsageError
from satchel.workspace.formats.definition import parse


def test_a_new_workspace_is_not_that_of_the_template(make: Make, tmp_path: Path) -> None:
    source = make(extra="settings:\n  limit: 3\n  mail: {port: 25}\n")
    satchel.open(source).run()
    made = satchel.new(source, tmp_path / "new", settings={"limit": 5, "mail.port": 2525})
    assert (made.folder, made.template) == (str(tmp_path / "new"), "demo")
    assert made.settings == {"limit": 5, "mail": {"port": 2525}} and made.run_id.startswith("demo-")
    assert sorted(contents(tmp_path / "new")) == [
        str(tmp_path / f"new/{name}") for name in (".gitignore", "agent.py", "workspace.yaml")
    ]
    described = parse((tmp_path / "new/workspace.yaml").read_text())
    assert (described.run_id, described.settings) == (made.run_id, made.settings)
    assert satchel.open(made.folder).status().state == "new"
    with pytest.raises(UsageError, match="is not empty"):
        satchel.new(source, tmp_path / "new")


def test_runs_of_one_template_get_the_same_name(make: Make, tmp_path: Path) -> None:
    """Of four digits two of 300 runs had the same: `serve` and a pool then took them for copies of one run."""
    source = make()
    names = {satchel.new(source, tmp_path / f"new{number}").run_id for number in range(3)}
    assert len(names) == 3 and all(re.fullmatch("demo-[0-9a-f]{10}", name) for name in names), names


def test_a_setting_that_is_none_leaves_a_folder(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no setting 'limt'"):
        satchel.new(make(extra="settings:\n  limit: 3\n"), tmp_path / "new", settings={"limt": 5})
    assert not (tmp_path / "new").exists()


ASKED = """
from dataclasses import dataclass
from satchel import agent

@dataclass
class Customer:
    name: str
    vip: bool = False

@agent
async def main(run, question: str, customer: Customer | None = None, depth: int = 1):
    return f"{question} {customer} {depth}"
"""


def test_an_input_is_lost_before_the_first_start(make: Make, tmp_path: Path) -> None:
    source = make(ASKED)
    given = {"question": "no: why?\n", "customer": {"name": "Ada"}}
    made = asyncio.run(satchel.new_async(source, tmp_path / "new", input=given, run_id="request-7"))
    assert made.run_id == "request-7" == parse((tmp_path / "new/workspace.yaml").read_bytes()).run_id
    assert made.input == {"question": "no: why?\n", "customer": {"name": "Ada", "vip": False}}
    ended = satchel.open(made.folder).run()  # as a process would that knows only the folder
    assert ended.result == "no: why?\n Customer(name='Ada', vip=False) 1"
    assert satchel.open(made.folder).result.input == {**made.input, "depth": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"qestion": "why?"}, "no parameter 'qestion'"),
        ({}, "needs the argument 'question'"),
        ({"question": 7}, "'question'"),
        ({"question": "why?", "customer": {"name": "Ada", "age": 7}}, "age"),
        ({"question": "why? " * 20_000}, "too large"),
        ({"question": object()}, "question"),
        ("why?", "input can't be of the type str"),
    ],
)
def test_a_refused_input_leaves_a_folder(make: Make, tmp_path: Path, given: Any, said: str) -> None:
    source = make(ASKED)
    with pytest.raises(satchel.SatchelError, match=said):
        satchel.new(source, tmp_path / "deep/new", input=given)
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("name", ["", "Ada 7", "a" * 64, "../up", 7])
def test_a_name_that_no_run_can_have_leaves_a_folder(make: Make, tmp_path: Path, name: Any) -> None:
    with pytest.raises(UsageError, match="run_id can't be"):
        satchel.new(make(), tmp_path / "new", run_id=name)
    assert not (tmp_path / "new").exists()


def test_an_input_of_the_template_gets_lost(make: Make, tmp_path: Path) -> None:
    source = make(ASKED, extra="input: {question: why, depth: 3}\n")
    made = satchel.new(source, tmp_path / "new", input={"depth": 2})
    assert made.input == {"question": "why", "depth": 2}
    assert satchel.new(source, tmp_path / "other").input == {"question": "why", "depth": 3}


def test_a_secret_of_an_input_gets_into_a_file(make: Make, tmp_path: Path) -> None:
    source = make(ASKED, extra="redact: {patterns: ['sk-[0-9]+']}\n")
    made = satchel.new(source, tmp_path / "new", input={"question": "is sk-123456789 valid?"})
    assert "sk-123" not in (tmp_path / "new/workspace.yaml").read_text()
    assert satchel.open(made.folder).run().status == "completed"


def test_a_new_workspace_is_lost_in_a_power_failure(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(ASKED)
    (source / "docs").mkdir()
    (source / "docs/a.md").write_text("a document")
    synced: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    satchel.new(source, tmp_path / "deep/new", input={"question": "why?"})
    new = tmp_path / "deep/new"
    rest = {new / name for name in (".gitignore", "agent.py", "docs/a.md", "docs", "")} | {new.parent, tmp_path}
    last = synced.index(str(new / "workspace.yaml"))
    assert {str(path) for path in rest} <= set(synced[:last]), "before workspace.yaml makes it a workspace"
    assert synced[last + 1 :] == [str(new)]


def test_what_is_due_is_not_run(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    for name in ("runs/a", "runs/b"):
        make(name=name)
    satchel.open(tmp_path / "runs/b").pause()
    told: list[tuple[str, str]] = []
    satchel.serve(tmp_path / "runs", once=True, tell=lambda event: told.append((event.kind, event.folder)))
    assert [each.state for each in satchel.ls(tmp_path / "runs")] == ["completed", "paused"]
    assert {kind for kind, folder in told if folder.endswith("a")} >= {"started", "completed"}
