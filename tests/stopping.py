"""Runs that are stopped in the middle, and what they have left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from satchel import Agent, Outcome, run


class Stop(BaseException):
    """Leaves the workspace unclosed, as a kill does."""


def interrupted(workspace: Path, main: Agent[Any]) -> None:
    """A start whose agent raises `Stop`."""
    with pytest.raises(Stop):
        run(workspace, main)


def completed(outcome: Outcome) -> Any:
    assert outcome.status == "completed", outcome.error
    return outcome.result


def records(workspace: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted((workspace / "journal").glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]
