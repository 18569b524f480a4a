"""`move` and `copy` from Python."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from cli.conftest import Make, contents

import satchel
from satchel.workspace.base.errors import LeaseHeld, UsageError
from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore


def test_a_moved_run_is_not_whole(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make())
    handle.pause()
    told: list[tuple[str, int, int]] = []
    result = handle.move(tmp_path / "there", by="ada", progress=lambda *each: told.append(each))
    assert (result.kind, result.to, result.was_done) == ("move", str(tmp_path / "there"), False)
    assert told and all(done <= total for _, done, total in told)
    assert os.listdir(handle.url) == ["moved.yaml"] or (Path(handle.url) / "moved.yaml").exists()
    with pytest.raises(UsageError, match="moved"):
        handle.run()
    assert satchel.open(result.to).resume().status == "completed"


def test_a_copy_lives_next_to_the_original(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make())
    handle.pause()
    result = asyncio.run(handle.copy_async(tmp_path / "there"))
    assert result.kind == "copy" and result.files > 3
    with pytest.raises(satchel.SatchelError, match="--adopt"):
        satchel.open(tmp_path / "there").resume()
    assert satchel.open(tmp_path / "there").resume(adopt=True).status == "completed"


@pytest.mark.usefixtures("holder_stays")
def test_what_can_not_be_moved_changes_something(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make())
    handle.pause()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("Dear Ada\n")
    before = contents(tmp_path)
    with pytest.raises(UsageError):
        handle.move(tmp_path / "full")
    with pytest.raises(UsageError, match="are only for URLs"):
        handle.move(tmp_path / "there", storage_options={"key": "x"})
    with lease.held(DiskStore(handle.url)), pytest.raises(LeaseHeld):
        handle.move(tmp_path / "there")
    assert {path: data for path, data in contents(tmp_path).items() if "/.satchel/" not in path} == {
        path: data for path, data in before.items() if "/.satchel/" not in path
    }
