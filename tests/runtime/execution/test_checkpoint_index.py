"""checkpoints/README.md: which moments there are, what they cost, and the command that returns to each."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from servers import Server

from satchel import Item, Run, agent, run, step
from satchel.runtime.cli.group import group as cli
from satchel.workspace.store import open_store

PLAN = "# Work\n\n- [ ] a | b\n  milestone: true\n- [ ] c\n- [ ] d\n"


@step
async def upper(text: str) -> str:
    return text.upper()


@agent
async def main(run: Run[Any]) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await upper(item.text)
        run.spend(tokens=1000, usd=0.25)

    await run.todo.each(work)


@pytest.fixture
def ran(workspace: Path) -> Path:
    (workspace / "todo.md").write_text(PLAN)
    assert run(workspace, main).status == "completed"
    return workspace


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| 20")]


def names(workspace: Path) -> list[str]:
    return sorted((path.stem for path in (workspace / "checkpoints").glob("*.json")), reverse=True)


def index(workspace: Path) -> Path:
    return workspace / "checkpoints" / "README.md"


def test_the_checkpoints_have_no_index(ran: Path) -> None:
    found = rows(index(ran).read_text())
    assert [re.search(r"--to (\S+)`", row)[1] for row in found] == names(ran)  # type: ignore[index]
    last, *_, milestone, first = found
    assert "`stop: the run is completed`" in last and "3 steps, 3,000 tokens, $0.75" in last
    assert "| `milestone` | `1-a-b` | 1 step, 1,000 tokens, $0.25 |" in milestone
    assert "| `start` |  | 0 steps |" in first


def test_a_long_reason_ends_in_the_middle_of_a_word_without_a_sign(workspace: Path) -> None:
    @agent
    async def fails(run: Run[Any]) -> None:
        raise TypeError("the machine catches fire " * 9)

    assert run(workspace, fails).status == "failed"
    last, *_ = rows(index(workspace).read_text())
    assert last.split(" | ")[1].endswith("…`")


def test_a_command_of_the_index_does_not_return_there(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in rows(index(ran).read_text()) if "milestone" in row)
    _, *arguments = shlex.split(row.split("`")[-2])
    monkeypatch.chdir(ran)
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "- [ ] c" in (ran / "todo.md").read_text() and "- [x] a" in (ran / "todo.md").read_text()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("how", ["missing", "damaged", "changed", "empty"])
def test_a_damaged_index_stays(ran: Path, how: str) -> None:
    whole = index(ran).read_text()
    if how == "missing":
        index(ran).unlink()
    else:
        data = {"damaged": whole[:400], "changed": whole.replace("3 steps", "9 steps"), "empty": ""}[how]
        index(ran).write_text(data)
    with (ran / "todo.md").open("a") as file:
        file.write("- [ ] e\n")
    assert run(ran, main).status == "completed"
    now = rows(index(ran).read_text())
    assert [row for row in rows(whole) if any(name in row for name in names(ran))] == [
        row for row in now if row in rows(whole)
    ]
    assert len(now) == len(names(ran)) and not any("9 steps" in row for row in now)


def test_a_checkpoint_that_is_gone_is_still_listed(workspace: Path) -> None:
    text = (workspace / "workspace.yaml").read_text()
    (workspace / "workspace.yaml").write_text(f"{text}keep: {{checkpoints: 2}}\n")
    (workspace / "todo.md").write_text(PLAN)

    @agent
    async def often(run: Run[Any]) -> None:
        for _ in range(5):
            await run.checkpoint()

    assert run(workspace, often).status == "completed"
    assert len(rows(index(workspace).read_text())) == len(names(workspace)) <= 3


def test_a_checkpoint_that_can_not_be_read_spoils_the_index(ran: Path) -> None:
    index(ran).unlink()
    broken = ran / "checkpoints" / f"{names(ran)[1]}.json"
    broken.write_text("{")
    (ran / "todo.md").write_text((ran / "todo.md").read_text().replace("[x] d", "[ ] d"))
    assert run(ran, main).status == "completed"
    text = index(ran).read_text()
    assert f"| unknown, record {int(broken.stem[:12])} | `it can't be read` |" in text


def test_a_bucket_has_no_index(seaweedfs: Server) -> None:
    store = open_store(seaweedfs.place(), seaweedfs.storage_options())
    store.create("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    store.create("todo.md", PLAN.encode())
    assert run(store, main).status == "completed"
    again = open_store(store.url, seaweedfs.storage_options())
    text = again.read("checkpoints/README.md").data.decode()
    there = sorted(entry.path for entry in again.list("checkpoints") if entry.path.endswith(".json"))
    assert len(rows(text)) == len(there) and f"satchel rewind {store.url} --to {Path(there[-1]).stem}`" in text
    again.remove("checkpoints/README.md")
    again.replace("todo.md", again.read("todo.md").data + b"- [ ] e\n")
    run(open_store(store.url, seaweedfs.storage_options()), main)
    fresh = open_store(store.url, seaweedfs.storage_options())
    assert len(rows(fresh.read("checkpoints/README.md").data.decode())) >= len(there)
