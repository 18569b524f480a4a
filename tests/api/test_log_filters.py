"""`log`: the records that were asked for, no others, and those that come while a run works."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli
from servers import BUCKET, Server
from waits import PATIENCE

import satchel
from satchel import Item, Run, agent, run, step
from satchel.runtime.api import RECORD_TYPES, LogRow
from satchel.runtime.status import place as control_place
from satchel.workspace import journal
from satchel.workspace.base import moment_before
from satchel.workspace.base.errors import UsageError
from satchel.workspace.journal import segment_path, segments
from satchel.workspace.store import open_store

DEFINITION = "format: 1\nrun_id: demo-1\nagent: agent.py:main\n"


@step
async def ask(text: str) -> str:
    return text.upper()


@step
async def tell(text: str) -> str:
    return text


async def work(run: Run[Any], item: Item) -> None:
    await ask(item.text)
    await tell(item.text)


@agent
async def deep(run: Run[Any]) -> None:
    await ask("below")


@agent
async def left(run: Run[Any]) -> None:
    await run.plan("Left", ["x"])
    await run.todo.each(work)
    await run.spawn(deep, "deep")


@agent
async def main(run: Run[Any]) -> None:
    await run.plan("Work", ["a", "b"])
    await run.todo.each(work)
    await run.spawn(left, "left")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("logged") / "demo"
    found.mkdir()
    (found / "workspace.yaml").write_text(DEFINITION)
    assert run(found, main).status == "completed"
    return found


def seqs(rows: Iterator[LogRow]) -> list[int]:
    return [row.line.seq for row in rows]


def test_a_filter_differs_from_a_look_at_every_record(folder: Path) -> None:
    """200 combinations, against a plain reading of the lines."""
    handle, rng = satchel.open(folder), random.Random(1)
    known = [row.record for row in handle.history.log()]
    middle = known[len(known) // 2]["at"]

    def wanted(record: dict[str, Any], **by: Any) -> bool:
        agent = record.get("agent", "") if record["type"] not in OF_THE_RUN else None
        asked = by.get("agent")
        return (
            ("item" not in by or record.get("scope") == by["item"].removeprefix("^"))
            and ("step" not in by or record.get("step") == by["step"])
            and ("type" not in by or re.fullmatch(by["type"].replace(".", r"\.").replace("*", ".*"), record["type"]))
            and (asked is None or (agent == "" if asked == "." else f"{agent}/".startswith(f"{asked}/")))
            and ("since" not in by or record["at"] >= middle)
        )

    choices: dict[str, list[Any]] = {
        "item": ["^1", "2", "1"],
        "step": ["ask", "tell"],
        "type": ["step.*", "scope.committed", "*"],
        "agent": [".", "left", "left/deep"],
        "since": [datetime.fromisoformat(middle), middle],
    }
    for _ in range(200):
        by = {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.4}
        assert seqs(handle.history.log(**by)) == [each["seq"] for each in known if wanted(each, **by)], by


OF_THE_RUN = {
    kind.__struct_config__.tag for kind in journal.AnyRecord.__args__ if "agent" not in kind.__struct_fields__
}


def test_the_time_of_a_filter_is_in_the_future(folder: Path) -> None:
    handle = satchel.open(folder)
    count = len(seqs(handle.history.log()))
    assert len(seqs(handle.history.log(since="2h"))) == len(seqs(handle.history.log(since=timedelta(hours=2)))) == count
    assert seqs(handle.history.log(since=datetime.now(UTC) + timedelta(seconds=1))) == []
    now = datetime(2026, 11, 22, 12, 0, tzinfo=UTC).astimezone()
    for text, hours in (("2h", 2), (f"{now - timedelta(hours=3):%H:%M}", 3), (f"{now + timedelta(hours=1):%H:%M}", 23)):
        assert moment_before(text, now) == now - timedelta(hours=hours)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ({"type": "step.complete"}, "Did you mean 'step.completed'?"),
        ({"type": "stop.*"}, "There are opened, closed"),
        ({"item": "^22"}, "no record is of the item '22'. The records name 1, 2"),
        ({"step": "asks"}, "no record is of the step 'asks'. Did you mean 'ask'?"),
        ({"agent": "lift"}, "no record is of the agent 'lift'. Did you mean 'left'?"),
        ({"agent": "right"}, "The records name ., left, left/deep"),
        ({"since": "yesterday"}, "'yesterday' is not a time"),
        ({"since": datetime(2026, 11, 1)}, "without a time zone"),
        ({"since": 5}, "since"),
    ],
)
def test_a_wrong_value_gets_an_empty_log(folder: Path, by: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        list(satchel.open(folder).history.log(**by))
    assert said in str(raised.value)


def test_the_command_takes_other_filters(folder: Path, cli: Cli) -> None:
    given = ("--item", "1", "--type", "step.*", "--agent", ".", "--step", "ask", "--since", "1h", "--follow", "--json")
    (row,) = map(json.loads, cli("log", folder, *given).stdout.splitlines())
    assert (row["type"], row["scope"], row["step"]) == ("step.completed", "1", "ask")
    assert cli("log", folder, "--type", "stop.*").exit_code == 2
    assert all(name in cli("log", "--help").stdout.replace("\n", " ") for name in ("step.completed", RECORD_TYPES[-1]))


# Following


def followed(handle: Any, until: Callable[[], None], **by: Any) -> list[LogRow]:
    """What a follower gets that began before `until` was called."""
    found: list[LogRow] = []
    first = threading.Event()

    def follow() -> None:
        for row in handle.history.log(follow=True, **by):
            found.append(row)
            first.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert first.wait(PATIENCE)
    until()
    thread.join(60)
    assert not thread.is_alive(), "it ends with the run"
    return found


def two_starts(go: Callable[[Any], Any]) -> tuple[Callable[[], None], Callable[[], None]]:
    """A run that waits for a second start, and the second start."""

    @agent
    async def twice(run: Run[Any]) -> None:
        await run.plan("Work", ["a", "b"])
        await run.todo.each(work)
        if run.attempt == 1:
            await run.sleep(3600)

    def first() -> None:
        assert go(twice).status == "sleeping"

    def second() -> None:
        @agent
        async def ends(run: Run[Any]) -> None:
            await run.plan("Work", ["a", "b"])
            await tell("again")

        assert go(ends).status == "completed"

    return first, second


def test_a_follower_misses_a_record_or_goes_on_for_ever(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(DEFINITION)
    first, second = two_starts(lambda agent: run(tmp_path, agent, wake=True))
    first()
    handle = satchel.open(tmp_path)
    found = followed(handle, second)
    assert [(row.data, row.who) for row in found] == [(row.data, row.who) for row in handle.history.log()]
    assert seqs(iter(followed(satchel.open(tmp_path), lambda: None, type="step.*"))) == seqs(
        handle.history.log(type="step.*")
    )

    async def inside() -> None:
        handle.history.log(follow=True)

    with pytest.raises(UsageError, match="event loop"):
        asyncio.run(inside())


@pytest.fixture
def place(moto: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new workspace in a bucket."""
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    place = moto.place()
    key = f"{place.removeprefix(f's3://{BUCKET}/')}/workspace.yaml"
    moto.client.put_object(Bucket=BUCKET, Key=key, Body=DEFINITION.encode())
    return place


def test_a_follower_in_a_bucket_gets_records_twice(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments repeat records of earlier ones, until they are rolled up."""
    monkeypatch.setattr(control_place, "REMOTE_LOOK", 0.1)
    first, second = two_starts(lambda agent: run(place, agent, wake=True))
    first()
    found = followed(satchel.open(place), second)
    assert seqs(iter(found)) == seqs(satchel.open(place).history.log()) == [*range(1, len(found) + 1)]


@pytest.mark.slow
def test_a_log_of_an_active_run_in_a_bucket_tells_records_twice(place: str) -> None:
    told: list[list[int]] = []

    @agent
    async def looking(run: Run[Any]) -> None:
        for text in "abcd":
            await ask(text)
        store = open_store(place)
        store.refresh()
        lines = [line for each in segments(store) for line in store.read(segment_path(each)).data.splitlines()]
        assert len(lines) > len({*lines}), "some are repeated"
        told.append(seqs(satchel.open(place).history.log()))

    assert run(place, looking).status == "completed"
    assert told[0] == [*range(1, len(told[0]) + 1)] and len(told[0]) >= 6
