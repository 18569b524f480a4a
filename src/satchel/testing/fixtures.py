"""The fixtures that pytest offers where Satchel is installed. `pytest --fixtures` shows their docstrings. Until a test
uses one, nothing else of Satchel is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def satchel_workspace(tmp_path: Path) -> Path:
    """A folder with a `workspace.yaml`, for a run that has not begun. The run finds what a test has put there:

    def test_a_task(satchel_workspace):
        (satchel_workspace / "inbox").mkdir()
        (satchel_workspace / "inbox" / "letter.txt").write_text("Dear Ada")
        satchel.run(satchel_workspace, main).raise_for_status()
    """
    from .scratch import DEFINITION

    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION)
    return folder


@pytest.fixture
def satchel_run(satchel_workspace: Path) -> Callable[..., Any]:
    """`satchel.testing.fake_run` on the folder `satchel_workspace`, so that the test can look at its files afterwards:

    async def test_the_plan(satchel_run, satchel_workspace):
        async with satchel_run(["Ada"]) as run:
            await run.todo.each(work)
        assert "- [x] Ada" in (satchel_workspace / "todo.md").read_text()
    """
    from .scratch import fake_run

    return partial(fake_run, folder=satchel_workspace)
