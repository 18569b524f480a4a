"""The sample that was stopped in the middle of its work: to be looked at, and to be continued."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
import yaml
from click.testing import CliRunner
from waits import PATIENCE

from satchel.runtime.cli.group import group

ROOT = Path(__file__).parents[2]
_NOW_AND_THEN = {"at", "prev", "commit", "ms"}  # fields that depend on the time that things took
OFFERS = ROOT / "sample_workspaces" / "offers"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OFFERS, tmp_path / "offers", ignore=shutil.ignore_patterns("__pycache__")))


def cli(*words: object) -> str:
    result = CliRunner().invoke(group, [str(word) for word in words])
    assert result.exit_code in (0, 3), result.output  # 3: it is paused
    return result.output


def test_a_look_at_it_shows_too_little_or_changes_it(copy: Path) -> None:
    def content() -> dict[str, str]:
        files = [path for path in copy.rglob("*") if path.is_file()]
        return {str(path.relative_to(copy)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = content()
    status = cli("status", copy)
    for word in ("paused", "3 of 5 done", "partials/4-", "buyer", "a1: The offers go", "ada@laptop"):
        assert word in status, status
    assert "no problems: offers" in cli("check", copy)
    assert "step.completed" in cli("log", copy, "--json")
    for place in ("steps/4-*/*.json", "partials/4-*/*.md", "approvals/a1.yaml", "agents/buyer/todo.md", "pause.yaml"):
        assert [*copy.glob(place)], place
    assert len([*copy.glob("checkpoints/*.json")]) == 2
    assert content() == before


def test_it_can_not_be_continued(copy: Path) -> None:
    cut_off = next(copy.glob("partials/*/*.md")).read_text().split("---\n")[-1]
    cli("answer", copy, "a1", "2400")
    said = cli("resume", "--in-process", copy)
    assert f"{len(cut_off)} characters of a cut-off answer were continued" in said, said
    text = (copy / "outputs/comparison.md").read_text()
    assert text.startswith(cut_off) and text.endswith("\nnothing else differs.\n")
    assert json.loads((copy / "state.json").read_text())["data"]["ordered"].endswith("at Fabrikam for 2328.00")


def test_its_files_are_not_what_satchel_writes_now(tmp_path: Path) -> None:
    """If this fails after a change of a format: `python tools/make_offers.py`, and commit what it has written."""
    with warm.Popen([sys.executable, ROOT / "tools/make_offers.py", tmp_path / "made"]) as process:
        assert process.wait(PATIENCE) == 0
    assert _shapes(OFFERS) == _shapes(tmp_path / "made")


def test_it_names_the_machine_that_made_it() -> None:
    records = [json.loads(line) for line in next(OFFERS.glob("journal/*.jsonl")).read_text().splitlines()]
    (opened,) = [record for record in records if record["type"] == "opened"]
    assert (opened["host"], opened["url"]) == ("laptop", "/home/ada/runs/offers")


def _shapes(workspace: Path) -> dict[str, Any]:
    """The keys in each file, and the fields of each kind of record. Values and positions are another run's."""
    shapes: dict[str, Any] = {}
    for path in sorted(workspace.rglob("*")):
        name = re.sub(r"\d{12}", "SEQ", path.relative_to(workspace).as_posix())
        if path.suffix == ".json":
            shapes[name] = _shape(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            shapes[name] = kinds = {}
            for record in map(json.loads, path.read_text().splitlines()):
                kinds.setdefault(record["type"], set()).update({*record} - _NOW_AND_THEN)
        elif path.suffix == ".yaml":
            shapes[name] = _shape(yaml.safe_load(path.read_text()))
        elif "partials" in path.parts and path.is_file():
            shapes[name] = _shape(yaml.safe_load(path.read_text().split("---\n")[1]))
        elif path.is_file() and "__pycache__" not in path.parts:
            shapes[name] = "a file"
    return shapes


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = {"ms"} if "type" in value else set()  # a record in a checkpoint: absent if it took no time
        return {key: _shape(each) for key, each in value.items() if key not in left_out}
    return [_shape(each) for each in value[:1]] if isinstance(value, list) else type(value).__name__
