"""A `tmp_path` for tests of the disk itself, and of what only a disk does: an inode comes back with the next file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture(name="tmp_path")
def on_disk() -> Iterator[Path]:
    """Where the system keeps temporary files, and not in memory (see conftest.py)."""
    with TemporaryDirectory(prefix="satchel-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()
