"""The comparison with peers: what it counts, what its page has, and what the README repeats of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.peers import asking, page
from benchmarks.peers.__main__ import MANY, SUBJECTS
from benchmarks.peers.pairing import RECORD, Pairing, bodies, kept

ROOT = Path(__file__).parent.parent


def test_a_gap_is_lost_or_the_warming_up_is_counted(tmp_path: Path) -> None:
    pairing = Pairing(tmp_path, 2, 5)
    for _ in range(pairing.total - 1):
        pairing.body()
    assert pairing.found() == {}, "the last gap has no end yet"
    pairing.body()
    assert len(pairing._gaps) == 5 and {"step", "sync", "cpu", "written"} <= pairing.found().keys()
    assert bodies(tmp_path) == pairing.total == 8 and (tmp_path / "bodies").stat().st_size == 8 * len(RECORD)
    assert kept(tmp_path) == 0


_SLOW = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("satchel.strict", "satchel.items", "satchel.growing", "langgraph.satchel", "sessions.satchel")
]


@pytest.mark.parametrize("subject", ["nothing.loop", *_SLOW])
def test_a_subject_does_steps_again_after_a_kill(subject: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.peers.one", subject, str(tmp_path), "0", "6"]
    killed = subprocess.run([*command, "4"], cwd=ROOT, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert bodies(tmp_path) == 3
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert bodies(tmp_path) == 7


@pytest.mark.slow
def test_a_killed_subject_pays_less_or_more_than_it_asks_for_again() -> None:
    """Nothing below a keeper. Without one the prompt and the answer again, which was written to its end."""
    assert asking.again("satchel.kept", streams=True) == (0, 0)
    assert asking.again("satchel.strict", streams=False) == (1, asking.PROMPT + asking.TOKENS)


def test_the_page_leaves_a_subject_out() -> None:
    assert sorted(page.LABELS) == sorted(each.name for each in (*SUBJECTS, *MANY))
    assert len({*page.LABELS.values()}) == len(page.LABELS)
    found = {"step": 3e-4, "sync": 2e-4, "cpu": 1e-4, "written": 500.0}
    rows = [page.Row(each.name, each.count, [found, found], 400.0, 1.0, 0, 200) for each in SUBJECTS]
    many = [page.ManyRow(each.name, each.runs, 120.0, 0.25, 39e6) for each in MANY]
    text = page.page(rows, many, ROOT)
    twice = 1  # LangGraph with its SQLite saver
    assert text.count("| 1.5 (1.5 to 1.5) | 100 (100 to 100) | 500 | 400 | 1.0 | 0 of 99 |") == len(SUBJECTS) + twice
    assert text.count(" | 120 | 0.250 | 39.00 |") == len(MANY)
    assert "not measured" not in text and "to 100 KB" in text


def test_the_readme_says_other_figures_than_the_page() -> None:
    readme, measured = (ROOT / "README.md").read_text(), (ROOT / "docs/benchmarks.md").read_text()
    rows = [line for line in readme.splitlines() if page.label_of(line)]
    assert len(rows) >= 6 and {*rows} <= {*measured.splitlines()}
    assert page.refreshed(readme, measured) == readme
