"""Orders of events that once broke a promise."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from pathlib import Path

import pytest
import warm
from msgspec import Raw

from satchel import Run, agent, effect, step
from satchel.runtime.execution.running import run
from satchel.workspace.base.errors import NewerFormat, SatchelError
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Resolved, StepCompleted
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    return tmp_path


def test_an_answer_to_one_effect_does_not_silently_skip_another_that_runs_at_once(folder: Path) -> None:
    sent: list[str] = []
    texts = ["z"]

    @effect
    async def send(text: str) -> str:
        sent.append(text)
        if text == "z":
            raise TimeoutError
        return f"sent {text}"

    @step
    async def think(salt: int) -> None:
        await asyncio.sleep(0.05)  # something is under way, so that nobody is alone and flushed at once

    async def work(run: Run) -> list[str]:
        calls = (send(text) for text in texts)
        return (await asyncio.gather(think(time.time_ns() % 10**9), *calls))[1:]

    @agent
    async def main(run: Run) -> list[str]:
        return await run.scope("s", work, run)

    outcome = run(folder, main)
    texts[:] = ["x", "y"]
    while outcome.status == "waiting":
        with opened(DiskStore(folder), "answer", Report()) as workspace:
            answer = Resolved(id=outcome.doubts[-1].id, outcome="done", by="ann", result=Raw(b'"by hand"'))
            workspace.journal.add(answer)
            workspace.close("waiting", "a person is asked")
        outcome = run(folder, main)
    assert outcome.result in (["by hand", "sent y"], ["sent x", "by hand"]), (
        "the answer counts for the call asked about"
    )
    assert sent == ["z", "y" if outcome.result[0] == "by hand" else "x"]


def test_a_process_whose_lock_was_deleted_does_not_acknowledge_what_nobody_can_read(folder: Path) -> None:
    """`git clean -fdX`, a synchronising tool or a person removes .satchel/; a second process opens and mends."""
    with opened(DiskStore(folder), "run", Report()) as first:
        first.journal.add(StepCompleted(scope="", no=1, step="s", args="1", n=0))
        first.journal.flush()
        shutil.rmtree(folder / ".satchel")
        program = (
            "from satchel.workspace.lifecycle.opening import opened\n"
            "from satchel.workspace.inspect.report import Report\n"
            "from satchel.workspace.store import DiskStore\n"
            f"with opened(DiskStore({str(folder)!r}), 'run', Report()): pass"
        )
        warm.run([sys.executable, "-c", program], check=True)
        first.journal.add(StepCompleted(scope="", no=2, step="s", args="2", n=0))
        with pytest.raises(SatchelError):
            first.journal.flush()


def test_a_newer_partial_is_refused_before_anything_is_touched(folder: Path) -> None:
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    partial = folder / "partials/1-a/01-s.md"
    partial.parent.mkdir(parents=True)
    partial.write_text("---\nformat: 2\n---\ntext")
    before = look(DiskStore(folder)).moment.seq
    with pytest.raises(NewerFormat), opened(DiskStore(folder), "recover", Report()):
        pass
    assert look(DiskStore(folder)).moment.seq == before


@pytest.mark.parametrize("name", [".DS_Store", "Thumbs.db", ".01-read.json.swp"])
def test_a_file_that_is_no_step_does_not_keep_the_run_from_opening(folder: Path, name: str) -> None:
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    (folder / "steps/1-a").mkdir(parents=True)
    (folder / "steps/1-a" / name).write_bytes(b"\0\0\0\1Bud1")
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
