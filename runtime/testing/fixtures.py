"""The fixtures that pytest offers where Satchel is installed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def satchel_workspace(tmp_path: Path) -> Path:
    """A folder with a `workspace.yaml`, for a run that has not begun."""
    from .scratch import DEFINITION

    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION)
    return folder


@pytest.fixture
def satchel_run(satchel_workspace: Path) -> Callable[..., Any]:
    """`fake_run` on the folder `satchel_workspace`, so that the test can look at its files afterwards."""
    from .scratch import fake_run

    return partial(fake_run, folder=satchel_workspace)
