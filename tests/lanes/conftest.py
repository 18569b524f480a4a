from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: lanes-1\nagent: agent.py:main\n")
    return folder


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed item is tried again at once."""
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
