"""State of an earlier version: migrated once, step by step, on the record; or refused, with the run as it was."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, SatchelError, agent, migration, run
from satchel.results import Migration
from satchel.workspace import journal
from satchel.workspace.base.errors import Refused, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore


@dataclass
class First:
    names: list[str] = field(default_factory=list)


@dataclass
class Third:
    people: dict[str, int] = field(default_factory=dict)
    count: int = 0


@migration(2)
def to_people(data: dict[str, Any]) -> dict[str, Any]:
    data["people"] = dict.fromkeys(data.pop("names"), 0)
    return data


@migration(3)
def counted(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "count": len(data["people"])}


async def add(run: Run[Any], item: Item) -> None:
    run.state.names.append(item.text)


@agent(state=First)
async def first(run: Run[First]) -> None:
    if not run.todo.items:
        await run.plan(None, ["Ada"])
    await run.todo.each(add)
    raise ValueError("stopped")


def third(*migrations: Migration, state: Any = Third, seen: list[Any] | None = None) -> Any:
    """Fails if it is given a list for what it has seen: a run that has completed is not entered again."""

    @agent(state=state, migrations=migrations or (counted, to_people))
    async def main(run: Run[Any]) -> Any:
        if seen is None:
            return run.state
        seen.append(run.state)
        raise ValueError("stopped")

    return main


def data(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


def moment(workspace: Path) -> Any:
    return look(DiskStore(workspace)).moment


@pytest.fixture
def begun(workspace: Path) -> Path:
    """A run of the first version, stopped after its first item."""
    assert run(workspace, first).status == "failed"
    assert data(workspace) == {"names": ["Ada"]}
    return workspace


def test_data_are_migrated_step_by_step_and_only_once(begun: Path) -> None:
    seen: list[Any] = []
    outcome = run(begun, third(seen=seen))
    assert seen == [Third({"Ada": 0}, 1)]
    assert data(begun) == {"people": {"Ada": 0}, "count": 1}
    assert "migrated from version 1 to 3" in outcome.report.late[0].text
    assert run(begun, third()).result == {"people": {"Ada": 0}, "count": 1}
    lines = journal.read(DiskStore(begun), after=0).lines
    assert [line.record.to for line in lines if isinstance(line.record, journal.Migrated)] == [2, 3]
    assert moment(begun).root.data_version == 3


def test_the_data_go_on_from_a_checkpoint_and_from_the_journal_alike(begun: Path) -> None:
    run(begun, third(seen=[]))
    for path in (begun / "checkpoints").glob("*.json"):
        path.unlink()
    assert run(begun, third()).result == {"people": {"Ada": 0}, "count": 1}


def test_the_version_survives_the_loss_of_the_journal(begun: Path) -> None:
    seen: list[Any] = []
    run(begun, third(seen=seen))
    for folder in ("journal", "checkpoints"):
        shutil.rmtree(begun / folder)
    run(begun, third(seen=seen), wake=True)
    assert seen == [Third({"Ada": 0}, 1)] * 2


def test_a_new_run_begins_with_the_newest_version(workspace: Path) -> None:
    seen: list[Any] = []
    run(workspace, third(seen=seen))
    assert moment(workspace).root.data_version == 3
    run(workspace, third(seen=seen))
    assert seen == [Third(), Third()]


def untouched(workspace: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(workspace)): path.read_bytes() for path in sorted(workspace.rglob("*")) if path.is_file()
    }


def raising(data: dict[str, Any]) -> dict[str, Any]:
    raise KeyError("surname")


@pytest.mark.parametrize(
    "migrations, reason",
    [
        ((counted,), "no migration leads from version 1 to 2"),
        ((migration(2)(raising),), "the migration to version 2 has failed: KeyError: 'surname'"),
        ((migration(2)(lambda data: None),), "has not returned the data"),  # type: ignore[arg-type,return-value]
        ((migration(2)(lambda data: {"a": object()}),), "not JSON"),
        ((migration(2)(lambda data: {"people": "none"}),), "does not fit the state type"),
    ],
)
def test_what_can_not_be_migrated_leaves_the_workspace_as_it_was(begun: Path, migrations: Any, reason: str) -> None:
    before = untouched(begun)
    with pytest.raises(Refused, match=reason.replace("(", r"\(")):
        run(begun, third(*migrations))
    assert untouched(begun) == before
    assert run(begun, third()).status == "completed"


def test_data_of_a_newer_version_are_not_touched(begun: Path) -> None:
    run(begun, third(seen=[]))
    before = untouched(begun)
    with pytest.raises(Refused, match=r"of version 3, but this agent knows only version 2"):
        run(begun, third(to_people))
    assert untouched(begun) == before


def test_an_edit_of_data_of_an_older_version_is_not_refused_for_that(begun: Path) -> None:
    path = begun / "state.json"
    path.write_text(path.read_text().replace('"Ada"', '"Ada",\n      "Alan"'))
    assert run(begun, third()).result == {"people": {"Ada": 0, "Alan": 0}, "count": 2}


def test_an_edit_that_does_not_migrate_is_refused(begun: Path) -> None:
    path = begun / "state.json"
    path.write_text(path.read_text().replace('"names"', '"nouns"'))
    with pytest.raises(SatchelError):
        run(begun, third())
    assert data(begun) == {"names": ["Ada"]}


def test_a_sub_agent_is_migrated_when_it_is_entered(workspace: Path) -> None:
    def child_of(*migrations: Migration, state: Any) -> Any:
        @agent(state=state, migrations=migrations)
        async def child(run: Run[Any], version: int) -> Any:
            if version == 1:
                await run.scope("name", fill, run)
            return run.state

        async def fill(run: Run[Any]) -> None:
            run.state.names.append("Ada")

        return child

    def parent_of(child: Any, version: int) -> Any:
        @agent
        async def parent(run: Run[Any]) -> Any:
            found = await run.spawn(child, "child", version)
            if version == 1:
                raise ValueError("not yet")
            return found

        return parent

    assert run(workspace, parent_of(child_of(state=First), 1)).status == "failed"
    broken = run(workspace, parent_of(child_of(counted, state=Third), 3))
    assert broken.status == "paused"  # nothing of it has failed
    assert "agents/child/state.json: no migration leads from version 1 to 2" in moment(workspace).reason
    fixed = run(workspace, parent_of(child_of(to_people, counted, state=Third), 3), wake=True)
    assert fixed.status == "completed" and fixed.result == {"people": {"Ada": 0}, "count": 1}
    assert moment(workspace).agents["child"].data_version == 3 and moment(workspace).root.data_version == 1


@pytest.mark.parametrize("to", [1, 0, True, "2", None])
def test_a_migration_to_nowhere_is_refused(to: Any) -> None:
    with pytest.raises(UsageError):
        migration(to)


def test_two_ways_to_one_version_are_refused() -> None:
    with pytest.raises(UsageError, match="two migrations lead to version 2"):
        third(to_people, to_people)
    with pytest.raises(UsageError, match="not a migration"):
        third(lambda data: data)  # type: ignore[arg-type]


def test_a_type_that_was_changed_without_a_migration_is_told_without_a_remedy(workspace: Path) -> None:
    run(workspace, first)

    @dataclass
    class Counted:
        names: int = 0

    @agent(state=Counted)
    async def changed(run: Run[Counted]) -> None: ...

    with pytest.raises(Refused, match=r"state.json: .*@migration"):
        run(workspace, changed)
