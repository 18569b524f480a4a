"""Workspaces for agents that are defined in the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

DEFINITION = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"


class Crash(BaseException):
    """Raised in an agent, it leaves the workspace without closing it: on the disk, the same as a kill."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION)
    return folder


@pytest.fixture
def crash() -> type[Crash]:
    return Crash


Counter = Callable[[str], int]


@pytest.fixture
def calls() -> list[str]:
    """Where the functions of a test note that they really ran."""
    return []
