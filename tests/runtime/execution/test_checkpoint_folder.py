"""The folder that a person finds next to a checkpoint: whole, comparable, and without any power over the run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from servers import BUCKET, Server

import satchel
from satchel import Item, Run, agent, run, step
from satchel.schemas import problems
from satchel.workspace.inspect.discovery import below
from satchel.workspace.store import DiskStore, open_store
from satchel.workspace.store.s3 import Requests
from satchel.workspace.views import checkpoint_folder

PLAN = "# Work\n\n- [ ] a\n  milestone: true\n- [ ] b\n- [ ] c\n"


@step
async def upper(text: str) -> str:
    return text.upper()


@agent
async def kid(run: Run[Any], number: int) -> int:
    async def keep() -> None:
        run.state["number"] = number

    await run.plan("Little", ["one"])
    await run.scope("keep", keep)
    return number


@agent
async def main(run: Run[Any]) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await upper(item.text)
        if item.text == "b":
            await run.checkpoint()

    await run.todo.each(work)
    await run.spawn(kid, "little", 4)


@pytest.fixture
def ran(workspace: Path) -> Path:
    """A completed run that had a milestone, a call of `run.checkpoint` and a stop."""
    (workspace / "todo.md").write_text(PLAN)
    assert run(workspace, main).status == "completed"
    return workspace


def folders(workspace: Path) -> list[Path]:
    return sorted(path for path in (workspace / "checkpoints").iterdir() if path.is_dir())


def body(todo: Path) -> str:
    """The plan without its last line, which says where the file comes from."""
    text, _, last = todo.read_text().rstrip("\n").rpartition("\n")
    *above, checkpoint = todo.parts[todo.parts.index("checkpoints") : -1][1:2]
    assert f"checkpoint: {checkpoint} of " in last and not above
    return text


def body_of_why(path: Path) -> str:
    return path.read_text().rpartition("\n<!-- satchel ")[0]


def test_a_milestone_or_a_stop_has_no_folder_to_open(ran: Path) -> None:
    first, second, last = folders(ran)
    assert re.fullmatch(r"\d{12}-1-a", first.name) and re.fullmatch(r"\d{12}-2-b", second.name)
    for folder in (first, second, last):
        assert folder.with_name(f"{folder.name}.json").is_file()
        assert not (folder / "workspace.yaml").exists()
    assert body(first / "todo.md") == PLAN.replace("[ ] a", "[x] a ^1")
    assert json.loads((first / "state.json").read_text())["checkpoint"] == first.name
    assert json.loads((first / "state.json").read_text())["data"] == {"a": "A"}
    assert json.loads((second / "state.json").read_text())["open"] == ["2-b"]
    little = json.loads((last / "agents" / "little" / "state.json").read_text())
    assert little["data"] == {"number": 4} and not problems("state", little)
    assert (last / "agents" / "little" / little["$schema"]).resolve() == (
        ran / ".satchel/schemas/agents/little/state.json"
    )
    assert body(last / "agents" / "little" / "todo.md") == "# Little\n\n- [ ] one\n"


def test_why_md_does_not_say_what_was_around_it(ran: Path) -> None:
    first, second, last = [path / "why.md" for path in folders(ran)]
    seq = int(first.parent.name[:12])
    said = first.read_text()
    assert "- Why: the milestone 1-a\n" in said and re.search(rf"- Record: {seq}, [0-9:]+: `committed \^1 ", said)
    assert re.search(rf"## Before\n\n- {seq - 3}, ", said) and '`step ^1 upper("text":"a") -> "A"`' in said
    assert f"- Records {seq + 1} to {int(second.parent.name[:12])}\n" in said
    assert f"- The next checkpoint at that time: `{second.parent.name}`\n" in said
    assert f"- The previous checkpoint at that time: `{first.parent.name}`\n" in second.read_text()
    assert not any("](" in each.read_text() for each in (first, second, last)), (
        "a link is dead when its folder is pruned"
    )
    assert "the agent called `run.checkpoint()`" in second.read_text()
    for each in (first, second, last):
        command = f"satchel rewind --to {each.parent.name}"
        assert body_of_why(each).endswith(f"\n## Return\n\n`{command}`\n")
    assert "and the run is completed" in last.read_text() and "The next checkpoint" not in last.read_text()


def test_folders_of_one_plan_differ_in_more_than_the_run_does(workspace: Path) -> None:
    @agent
    async def rests(run: Run[Any]) -> None:
        await run.plan("Work", ["a"])

    for _ in range(2):
        run(workspace, rests)
        (workspace / "inbox").mkdir(exist_ok=True)
        (workspace / "inbox" / "more.md").write_text("more\n")
    one, other = folders(workspace)[:2]
    assert body(one / "todo.md") == body(other / "todo.md")
    lines = [(path / "state.json").read_text().splitlines() for path in (one, other)]
    different = [pair for pair in zip(*lines, strict=True) if pair[0] != pair[1]]
    assert all(re.match(r' *"(at|attempt|checkpoint|seconds|steps)"', line) for line, _ in different), different


def test_a_change_in_a_folder_is_not_seen_or_changes_the_run(ran: Path) -> None:
    store = DiskStore(ran)
    first, second, last = folders(ran)
    assert not [*checkpoint_folder.edited(store)]
    (first / "todo.md").write_text("# Nothing\n")
    (second / "why.md").write_text((second / "why.md").read_text().replace("start 1", "start 7"))
    (last / "why.md").unlink()  # as a crash may leave it
    (last / "state.json").write_text("{")
    (last / "workspace.yaml").write_text("format: 1\nrun_id: another\nagent: agent.py:main\n")
    found = [finding.file for finding in satchel.open(ran).check().problems if "checkpoints/" in finding.file]
    assert found == [f"checkpoints/{first.name}/todo.md", f"checkpoints/{second.name}/why.md"]
    before = (ran / "state.json").read_text()
    assert run(ran, main).status == "completed"
    assert json.loads((ran / "state.json").read_text())["data"] == json.loads(before)["data"]
    assert [*below(str(ran.parent))] == [str(ran)]


def test_the_folder_outlives_its_checkpoint(workspace: Path) -> None:
    text = (workspace / "workspace.yaml").read_text()
    (workspace / "workspace.yaml").write_text(f"{text}keep: {{checkpoints: 2}}\n")
    own = []

    @agent
    async def often(run: Run[Any]) -> None:
        for _ in range(4):
            await run.checkpoint()
            if not own:
                own.append(workspace / "checkpoints" / "000000000001-mine")
                own[0].mkdir()
                (own[0] / "notes.txt").write_text("a person's")
                (own[0] / "todo.md").write_text("left by a crash")

    assert run(workspace, often).status == "completed"
    assert [path.name for path in own[0].iterdir()] == ["notes.txt"]
    shutil.rmtree(own[0])
    assert [f"{path.name}.json" for path in folders(workspace)] == sorted(
        path.name for path in (workspace / "checkpoints").glob("*.json")
    )


def test_a_copy_of_a_run_lacks_the_folders(ran: Path, tmp_path: Path) -> None:
    satchel.open(ran).copy(tmp_path / "copy")
    assert [path.name for path in folders(tmp_path / "copy")] == [path.name for path in folders(ran)]
    assert not [*checkpoint_folder.edited(DiskStore(tmp_path / "copy"))]


def test_a_wide_tree_becomes_hundreds_of_files(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folder, "_AGENTS", 3)

    @agent
    async def wide(run: Run[Any]) -> None:
        for number in range(5):
            await run.spawn(kid, f"kid-{number}", number)

    assert run(workspace, wide).status == "completed"
    (folder,) = folders(workspace)
    assert len([*folder.glob("agents/*/state.json")]) == 2
    assert "3 more sub-agents are not shown here" in (folder / "why.md").read_text()


@pytest.mark.slow
def test_a_stop_in_a_bucket_costs_more_than_the_files_of_a_folder(
    moto: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three, and one request to remove the oldest; an opening reads none of them."""
    place = moto.place()
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    definition = b"format: 1\nrun_id: trip-1\nagent: agent.py:main\n"
    moto.client.put_object(Bucket=BUCKET, Key=f"{prefix}/workspace.yaml", Body=definition)
    asked: list[tuple[str, str]] = []
    once, fetch = Requests.once, Requests.fetch

    def counted(self: Requests, method: str, why: str, path: str, **arguments: Any) -> Any:
        asked.append((method, path))
        return once(self, method, why, path, **arguments)

    def fetched(self: Requests, why: str, path: str, *more: Any, **arguments: Any) -> Any:
        asked.append(("get_object", path))
        return fetch(self, why, path, *more, **arguments)

    monkeypatch.setattr(Requests, "once", counted)
    monkeypatch.setattr(Requests, "fetch", fetched)
    tries = []

    @agent
    async def fails(run: Run[Any]) -> None:
        tries.append(1)
        if len(tries) == 1:
            await run.plan("Work", ["a"])
        raise ValueError

    costs = []
    for _ in range(7):
        asked.clear()
        assert run(open_store(place, moto.storage_options()), fails).status == "failed"
        costs.append(sorted(method for method, path in asked if re.match(r"checkpoints/[^/]+/", path)))
    assert costs[0] == ["put_object"] * 3 and costs[-1] == ["delete_objects"] + ["put_object"] * 3
    found = moto.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/checkpoints/")["Contents"]
    names = [each["Key"].removeprefix(f"{prefix}/checkpoints/") for each in found]
    assert {f"{name.partition('/')[0]}.json" for name in names if "/" in name} == {
        name for name in names if "/" not in name and name != "README.md"
    }
