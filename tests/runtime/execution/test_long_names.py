"""A name that is too long is a mistake of who gives it, and no failure of the storage. Names that Satchel makes fit."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from servers import Server

from satchel import InboxTask, Run, UsageError, agent, run
from satchel.workspace.inbound import archive
from satchel.workspace.store import DiskStore, Store, open_store

DEFINITION = b"format: 1\nrun_id: long-1\nagent: agent.py:main\n"
LONGEST = pytest.mark.parametrize("name", ["a" * 252 + ".md", "日" * 84 + ".md"], ids=["ascii", "utf-8"])
"""Names of 255 bytes."""

Place = Callable[[], Store]
"""Opens the workspace of a test: for a run, or to work behind its back."""


@pytest.fixture(params=["disk", "bucket"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "disk":
        folder: Path = request.getfixturevalue("workspace")
        return lambda: DiskStore(folder)
    server: Server = request.getfixturevalue("seaweedfs")
    url = server.place()
    open_store(url, server.storage_options()).create("workspace.yaml", DEFINITION)
    return lambda: open_store(url, server.storage_options())


def done(place: Place, function: Callable[[Run[Any]], Awaitable[None]]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", function, run)

    run(place(), main).raise_for_status()


def taken(place: Place) -> list[Any]:
    """The tasks that a run has done."""
    contents: list[Any] = []

    async def work(run: Run[Any], task: InboxTask) -> None:
        contents.append(task.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    run(place(), main).raise_for_status()
    return contents


def inside(place: Place, folder: str) -> dict[str, bytes]:
    store = place()
    return {entry.path: store.read(entry.path).data for entry in store.list(folder)}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", ["日" * 100 + ".md", "a" * 256, f"{'b' * 300}/a.md", "/".join(["c" * 99] * 9)])
def test_an_output_whose_name_is_too_long_is_a_failure_of_the_storage(place: Place, name: str) -> None:
    async def write(run: Run[Any]) -> None:
        with pytest.raises(UsageError, match="is too long"):
            await run.output(name, "text")
        await run.output("short.md", "text")

    done(place, write)
    assert inside(place, "outputs") == {"outputs/short.md": b"text"}


@pytest.mark.sampled(every=4)
@LONGEST
def test_an_edited_output_whose_name_leaves_no_room_blocks_the_run(place: Place, name: str) -> None:
    async def write(run: Run[Any]) -> None:
        await run.output(name, "one")
        place().replace(f"outputs/{name}", b"a person's")
        await run.output(name, "two")

    done(place, write)
    found = inside(place, "outputs")
    assert found.pop(f"outputs/{name}") == b"two"
    version, reasons = sorted(found)
    assert found[version] == b"a person's" and b"another program" in found[reasons]
    assert version.endswith(".rejected.md") and reasons == version.removesuffix(".md") + ".txt"


@pytest.mark.sampled(every=4)
@LONGEST
def test_an_unreadable_task_whose_name_leaves_no_room_blocks_the_run(place: Place, name: str) -> None:
    place().create(f"inbox/{name}", b"\xff\xfe\x00 no text")
    place().create("inbox/good.md", b"good")
    assert taken(place) == ["good"]
    names = [*inside(place, "inbox")]
    assert len(names) == 2 and all(".rejected." in each for each in names), names


@pytest.mark.sampled(every=4)
@LONGEST
def test_finished_tasks_of_one_long_name_are_not_put_away(place: Place, name: str) -> None:
    texts = ["first", "second", "third"]
    for text in texts:
        place().create(f"inbox/{name}", text.encode())
        assert taken(place) == [text]
    assert not inside(place, "inbox")
    assert sorted(inside(place, "inbox/done").values()) == sorted(map(str.encode, texts))
    store = place()
    for text in texts:
        sha = hashlib.sha256(text.encode()).hexdigest()
        assert archive.has(store, f"inbox/{name}", sha), text
        archive.take_back(store, f"inbox/{name}", sha)
    assert sorted(inside(place, "inbox").values()) == sorted(map(str.encode, texts))


def test_a_damaged_partial_with_a_long_name_blocks_the_run(workspace: Path) -> None:
    folder = workspace / "partials/_agent"
    folder.mkdir(parents=True)
    (folder / ("a" * 252 + ".md")).write_text("what a power failure has left")

    @agent
    async def main(run: Run[Any]) -> None: ...

    run(workspace, main).raise_for_status()
    (kept,) = (workspace / "recovered/_agent").iterdir()
    assert kept.read_text() == "what a power failure has left" and kept.name.endswith("-damaged.md")
