"""The sample `refunds`: a refund needs approval and is paid once, with the amount that a person has approved, and the
letter is continued after a kill."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import warm

import satchel
from satchel import run

pytest.importorskip("pydantic_ai")
REFUNDS = Path(__file__).parents[2] / "sample_workspaces" / "refunds"

_DYING = """
import os, signal, sys, satchel

class Watch:
    def streamed(self, agent, name, characters):
        if characters >= 30:
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name):
        return lambda *args: None

satchel.run(sys.argv[1], watch=Watch())
"""


@pytest.fixture
def customer(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    shutil.copytree(REFUNDS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    code = folder / "agent.py"
    code.write_text(
        code.read_text().replace("SatchelDurability(stream=True)", "SatchelDurability(stream=True, wait_for=0)")
    )
    return folder


@pytest.mark.slow
def test_what_was_approved_is_paid_once_and_the_letter_says_so_after_a_kill(customer: Path) -> None:
    first = run(customer)
    assert first.status == "waiting" and [each.id for each in first.approvals] == ["a1", "a2"], first.error
    satchel.open(customer).answer("approve", "a1", arguments={"cents": 1950})
    satchel.open(customer).answer("deny", "a2", note="Only with a photo.")
    dead = warm.run([sys.executable, "-c", _DYING, str(customer)], timeout=60, check=False)
    assert dead.returncode == -signal.SIGKILL
    assert len(list((customer / "partials").rglob("*.md"))) == 1
    last = run(customer)
    assert last.status == "completed", last.error
    assert last.recovered > 0
    assert [line.split(",")[1:] for line in (customer / "bank.csv").read_text().splitlines()] == [["1007", "1950"]]
    letter = (customer / "outputs/answer.md").read_text()
    assert letter.startswith("Dear customer,\n\nwe are sorry. 19.50 were paid back for order 1007. A person has denied")
    assert letter.endswith("Only with a photo..\n\nYour support\n")
    assert not re.search(r"(\b\w+ \w+ \w+\b).*\1", letter), "nothing is said twice"
