"""`make demo` shows what it says, and would say so if it were otherwise."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import folder

DEMO = Path(__file__).parents[2] / "tools" / "demo.py"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Where the demo has run, and what it said. A key in the environment must not make it ask a model."""
    place = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = subprocess.run(
        [sys.executable, DEMO], cwd=place, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place, done.stdout


@pytest.fixture
def demo(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(shown[0])
    return module


def cut_off(demo: Any) -> Any:
    """What the demo has seen after the kill, read from what became of it."""
    (recovered,) = demo.RUN.glob("recovered/*/*.md")
    text = demo.body_of(recovered).rpartition("\n\n[recovered: ")[0]
    return demo.CutOff(recovered, demo.item_of(recovered), text)


def test_the_demo_ends_with_what_was_not_done_again(shown: tuple[Path, str]) -> None:
    last = shown[1].splitlines()[-1]
    assert re.fullmatch(
        r"Not done again: [2-5] finished summaries, and the first \d+ characters of the one that was cut off\. "
        r"The journal has 13 results, each of them once\.", last,
    )  # fmt: skip


def test_the_demo_shows_the_plan_the_partial_and_the_brief(shown: tuple[Path, str]) -> None:
    said = shown[1]
    for line in (" [/] Summarise ", " [x] Summarise ", "/02-summarise.md\n    ---\n", "# Digest of 6 documents"):
        assert line in said, line
    assert said.index("kill -9 ") < said.index("$ satchel status ") < said.index("$ satchel resume ")


def test_the_demo_would_notice_a_call_that_was_repeated(demo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    records = demo.journal()
    assert demo.check(cut_off(demo), records[:5])
    (again,) = [record for record in records if record["type"] == "step.completed" and record["step"] == "find"]
    monkeypatch.setattr(demo, "journal", lambda: [*records, again])
    with pytest.raises(demo.Wrong, match="done twice"):
        demo.check(cut_off(demo), records[:5])


def test_the_demo_would_notice_a_record_that_was_lost(demo: Any) -> None:
    lost = {**folder.journal(demo.RUN)[0], "seq": 0}
    with pytest.raises(demo.Wrong, match="not in the journal any more"):
        demo.check(cut_off(demo), [lost])


def test_the_demo_would_notice_a_text_that_was_not_kept(demo: Any) -> None:
    other = cut_off(demo)._replace(text="X" * len(cut_off(demo).text))
    with pytest.raises(demo.Wrong, match="no summary goes on"):
        demo.check(other, [])
