"""SIGKILL at any moment of each kind of use of Pydantic AI: it ends as if it had not been killed, nothing that is on
record is called again, and every effect happens once."""

from __future__ import annotations

from pathlib import Path

import pytest
from killing import explore, kinds
from killing.kinds import KINDS
from properties import seed

from satchel import run

each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.sampled(every=14)
@each_kind
def test_a_killed_use_ends_as_an_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    explore(f"kinds:{kind}", tmp_path, "seeded", seed(), 2, needs="pydantic_ai")


@pytest.mark.soak
@each_kind
def test_a_use_killed_at_many_moments_ends_as_an_uninterrupted_one(kind: str, tmp_path: Path) -> None:
    explore(f"kinds:{kind}", tmp_path, "seeded", seed(), 10, needs="pydantic_ai")


def test_a_call_that_was_on_record_and_is_made_again_is_seen(tmp_path: Path) -> None:
    """What the kills are checked with has teeth."""
    for name in ("whole", "killed"):
        folder, outside = tmp_path / name / "run", tmp_path / name / "outside"
        folder.mkdir(parents=True)
        (folder / "workspace.yaml").write_text("format: 1\nrun_id: r-1\nagent: agent.py:main\n")
        run(folder, kinds.make_agent("tools that are effects", outside))
    assert kinds.wrong(folder, outside) == ""
    for again in ("look", "model", "send"):
        with outside.with_suffix(".log").open("a") as log:
            log.write(f"{again}\n")
        assert again in kinds.wrong(folder, outside)


def test_the_table_of_the_page_has_each_kind() -> None:
    page = (Path(__file__).parents[2] / "docs/pydantic-ai.md").read_text()
    table = page.partition("## What survives a kill\n")[2].partition("\n## ")[0]
    assert [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")][2:] == [*KINDS]
