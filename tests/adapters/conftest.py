"""Agents of Pydantic AI whose models are functions, in new workspaces."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: test-1\nagent: agent.py:main\n")
    return folder
