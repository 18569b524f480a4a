"""A folder of prompts that several runs share: `prompts: ../prompts`."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from servers import Server

import satchel
from satchel import Outcome, Run, agent, run, step
from satchel.workspace.base.errors import InvalidFile, SatchelError, UsageError
from satchel.workspace.store import open_store


def make(folder: Path, prompts: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(
        f"format: 1\nrun_id: {folder.name}-1\nagent: agent.py:main\nprompts: {prompts}\n"
    )
    return folder


@step
async def ask(text: str) -> str:
    return text


@agent
async def main(run: Run[Any]) -> str:
    said = await ask(run.prompt("summary", name="Ada"))
    if run.attempt == 1:
        raise ValueError("stopped")
    return said


@agent
async def again(run: Run[Any]) -> str:
    return await ask(run.prompt("summary", name=f"Ada {run.attempt}"))


SHARED = "{folder: ../prompts}"
PINNED = "{folder: ../prompts, use: pinned}"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "summary.md").write_text("Sum up {{name}}")
    return folder


def version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def said(outcome: Outcome) -> str:
    return " ".join(each.text for each in outcome.report.remarks)


def test_runs_read_the_same_file_and_each_keeps_the_version_that_it_has_used(tmp_path: Path, shared: Path) -> None:
    for name, prompts in (("a", SHARED), ("b", "../prompts"), ("c", str(shared))):
        folder = make(tmp_path / name, prompts)
        assert run(folder, again).result == "Sum up Ada 1"
        kept = folder / ".satchel/prompts" / f"{version('Sum up {{name}}')}.md"
        assert kept.read_text() == "Sum up {{name}}"
    assert [path.name for path in shared.iterdir()] == ["summary.md"], "nothing is written there"


@pytest.mark.parametrize("prompts", ["pined", "s3://bucket/prompts", "prompts", "''"])
def test_a_word_or_a_url_is_taken_for_the_folder(tmp_path: Path, prompts: str) -> None:
    folder = make(tmp_path / "a", prompts)
    with pytest.raises(InvalidFile, match="live, pinned, or a path with a slash in it") as refused:
        run(folder, main)
    assert "workspace.yaml, line 4" in str(refused.value)


def test_a_changed_shared_prompt_is_told_at_the_next_start(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", SHARED)
    assert run(folder, main).status == "failed"
    (shared / "summary.md").write_text("In short: {{name}}")
    outcome = run(folder, main)
    assert outcome.result == "In short: Ada"
    assert "prompt summary was" in said(outcome)


def test_a_pinned_run_keeps_the_shared_prompt_that_it_began_with(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", PINNED)
    run(folder, again)
    (shared / "summary.md").write_text("In short: {{name}}")
    (folder / "workspace.yaml").write_text((folder / "workspace.yaml").read_text() + "x-note: 1\n")
    outcome = run(folder, main)
    assert outcome.status == "completed"
    complaints = satchel.open(folder).status().complaints
    held = f"../prompts/summary.md has changed; the run keeps the version {version('Sum up {{name}}')}"
    assert any(each.startswith(held) for each in complaints), complaints


def test_a_pinned_run_goes_on_without_the_folder(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", PINNED)
    assert run(folder, main).status == "failed"
    shutil.rmtree(shared)
    outcome = run(folder, main)
    assert outcome.result == "Sum up Ada"
    assert "../prompts/summary.md is missing; the run keeps the version" in said(outcome)


def test_a_pinned_run_that_is_copied_elsewhere_has_its_versions(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", PINNED)
    run(folder, main)
    there = tmp_path / "far" / "away" / "a"
    there.parent.mkdir(parents=True)
    satchel.open(folder).copy(there)
    assert run(there, main, adopt=True).result == "Sum up Ada"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", SHARED)
    error = run(folder, again).error
    assert isinstance(error, UsageError)
    assert "there is no prompt 'summary', and no folder ../prompts" in str(error)
    assert "Restore the folder, or correct `prompts:` in workspace.yaml" in str(error)


def test_a_missing_prompt_names_those_of_both_folders(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", SHARED)
    (shared / "deep").mkdir()
    (shared / "deep" / "more.md").write_text("more")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "own.md").write_text("own")

    @agent
    async def asking(run: Run[Any]) -> None:
        run.prompt("sumary")

    error = run(folder, asking).error
    assert "../prompts/sumary.md" in str(error)
    assert "The prompts are: deep/more.md, own.md, summary.md" in str(error)


def test_a_file_of_the_run_counts_before_the_shared_one(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", SHARED)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "summary.md").write_text("Mine: {{name}}")
    assert run(folder, again).result == "Mine: Ada 1"


@pytest.mark.parametrize("how", ["a link", "a name"])
def test_no_prompt_leads_out_of_the_shared_folder(tmp_path: Path, shared: Path, how: str) -> None:
    folder = make(tmp_path / "a", SHARED)
    (tmp_path / "secret.md").write_text("secret")
    name = "../secret"
    if how == "a link":
        (shared / "linked.md").symlink_to(tmp_path / "secret.md")
        name = "linked"

    @agent
    async def asking(run: Run[Any]) -> str:
        return run.prompt(name)

    outcome = run(folder, asking)
    assert isinstance(outcome.error, SatchelError) and outcome.result is None, outcome.result
    assert not list(folder.glob(".satchel/prompts/*"))


@pytest.mark.parametrize(
    "prompts", ["{folder: 's3://other/prompts'}", "{use: pinned}", "{folder: ''}", "{folder: a, use: often}"]
)
def test_a_line_that_makes_no_sense_is_refused(tmp_path: Path, prompts: str) -> None:
    with pytest.raises(InvalidFile, match="prompts"):
        run(make(tmp_path / "a", prompts), again)


def test_a_replay_with_another_text_leaves_the_shared_file_alone(tmp_path: Path, shared: Path) -> None:
    folder = make(tmp_path / "a", SHARED)

    @agent
    async def items(run: Run[Any]) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(work)

    async def work(run: Run[Any], item: Any) -> None:
        run.state["said"] = await ask(run.prompt("summary", name="Ada"))

    assert run(folder, items).status == "completed"
    satchel.open(folder).history.replay("^1", tmp_path / "r", agent=items, prompts="New: {{name}}")
    assert "New: Ada" in (tmp_path / "r" / "state.json").read_text()
    assert (shared / "summary.md").read_text() == "Sum up {{name}}"


def test_a_run_in_a_bucket_reads_a_folder_of_its_bucket(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in seaweedfs.environment().items():
        monkeypatch.setenv(key, value)
    place = seaweedfs.place()
    store, there = open_store(f"{place}/a"), open_store(f"{place}/prompts")
    store.replace("workspace.yaml", f"format: 1\nrun_id: a-1\nagent: agent.py:main\nprompts: {SHARED}\n".encode())
    there.replace("summary.md", b"Sum up {{name}}")
    assert run(open_store(f"{place}/a"), again).result == "Sum up Ada 1"
