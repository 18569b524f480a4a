"""Idempotency keys: the same at every attempt of a run, and never those of another run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from linked import linked, parsed
from msgspec.structs import replace

from satchel import Agent, Run, agent, effect, run
from satchel.workspace import journal
from satchel.workspace.journal import AnyRecord, Opened, StepStarted


def ordering(keys: list[str], crash: Any, **options: Any) -> Agent:
    """Orders a ticket; its first attempt dies in the middle of that."""

    @effect(**options)
    async def order(*, key: str) -> str:
        keys.append(key)
        if len(keys) == 1 and crash:
            raise crash
        return key

    @agent
    async def main(run: Run[Any]) -> str:
        return await order()

    return main


def rewrite(workspace: Path, change: Any) -> None:
    """Each record of the first segment as `change` has it, as if it had been written so."""
    path = workspace / journal.segment_path(1)
    lines = parsed(path.read_bytes())
    path.write_bytes(linked(replace(line, record=change(line.record)) for line in lines).data)


def lose_the_journal(workspace: Path) -> None:
    shutil.rmtree(workspace / "journal")
    shutil.rmtree(workspace / "checkpoints")


def test_copies_of_a_folder_that_was_never_started_share_no_keys(workspace: Path, calls: list[str]) -> None:
    other = workspace.with_name("other")
    shutil.copytree(workspace, other)
    main = ordering(calls, None)
    assert run(workspace, main).result != run(other, main).result


def test_a_copy_of_a_begun_run_has_its_keys(workspace: Path, calls: list[str], crash: Any) -> None:
    main = ordering(calls, crash, idempotent=True)
    with pytest.raises(crash):
        run(workspace, main)
    shutil.move(workspace, workspace.with_name("moved"))
    assert run(workspace.with_name("moved"), main).status == "completed"
    assert calls[0] == calls[1]


def test_a_run_begun_before_there_were_nonces_keeps_its_keys(workspace: Path, calls: list[str], crash: Any) -> None:
    def older(found: AnyRecord) -> AnyRecord:
        if isinstance(found, Opened):
            return replace(found, run_nonce="")
        return replace(found, idempotency_key="as it was then") if isinstance(found, StepStarted) else found

    main = ordering(calls, crash, idempotent=True)
    with pytest.raises(crash):
        run(workspace, main)
    rewrite(workspace, older)
    shutil.rmtree(workspace / "checkpoints")
    assert run(workspace, main).status == "completed"
    assert calls[1] == "as it was then", "a retry has the key of its intent"
    assert "run_nonce" not in (workspace / "state.json").read_text()


def test_the_keys_outlive_the_journal(workspace: Path, calls: list[str]) -> None:
    main = ordering(calls, None, idempotent=True)
    run(workspace, main)
    lose_the_journal(workspace)
    (workspace / "state.json").write_text((workspace / "state.json").read_text().replace("completed", "running"))
    assert run(workspace, main).status == "completed"
    assert calls[0] == calls[1], "the receiver knows that it is the same"


def test_an_idempotent_effect_whose_key_is_lost_is_asked_about(workspace: Path, calls: list[str]) -> None:
    main = ordering(calls, None, idempotent=True)
    run(workspace, main)
    file = workspace / "state.json"
    for _ in range(2):  # the second time there is a new nonce, which is not that of the first effect
        lose_the_journal(workspace)
        text = re.sub(r'\n  "run_nonce": "[0-9a-f]+",', "", file.read_text()).replace("completed", "running")
        file.write_text(text)
        outcome = run(workspace, main)
        assert (outcome.status, len(calls)) == ("waiting", 1)
        assert "the journal was lost" in outcome.doubts[0].cause
