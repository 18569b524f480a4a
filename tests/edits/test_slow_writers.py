"""Programs that keep a file open while they write it in pieces: what is obeyed is what they have saved in the end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import InboxTask, Item, Run, agent, effect, run
from satchel.runtime.supervision.known_run import judge
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import Waits

from .folder import Place
from .running import Gate, going

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells who has a file open")

_WRITER = """
import json, os, sys, time
path, how, pieces = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
flags = {"w": os.O_TRUNC, "a": os.O_APPEND}[how]
file = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
for number, (text, pause) in enumerate(pieces):
    os.write(file, text.encode())
    if number == 0:
        print("begun", flush=True)
    time.sleep(pause)
"""

QUICK = [(1, 0.5), (2, 0.7)]
"""Seeds, and the longest pause of a writer in seconds."""

SEEDS = [pytest.param(seed, longest, id=f"{seed}") for seed, longest in QUICK]
SEEDS += [
    pytest.param(seed, longest, id=f"{seed}", marks=pytest.mark.slow if longest < 2 else pytest.mark.soak)
    for seed, longest in [(10, 1.0), (11, 2.0), (12, 3.5), (13, 5.0)]
]
each_seed = pytest.mark.parametrize(("seed", "longest"), SEEDS)


@pytest.fixture(autouse=True)
def people_save(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_files, "WAITS", Waits())


@contextmanager
def writing(path: Path, text: str, seed: int, longest: float, how: str = "w") -> Iterator[None]:
    """Another process saves `text` in two or three pieces; the body begins when the first one is there."""
    rng = random.Random(seed)
    places = sorted(rng.sample(range(1, len(text)), rng.choice((1, 2))))
    pieces = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    pauses = [max(0.2, longest * rng.random()) for _ in pieces[1:]] + [0.0]
    pauses[rng.randrange(len(pieces) - 1)] = longest
    print(f"seed {seed}: {list(zip(pieces, pauses, strict=True))}")
    path.parent.mkdir(exist_ok=True)
    said = json.dumps(list(zip(pieces, pauses, strict=True)))
    with subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _WRITER, str(path), how, said], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout and writer.stdout.readline()
        yield


DELETE = "Delete the folder /srv/data/old-backups/2019"


def deleting(deleted: list[str], gate: Gate | None = None) -> Any:
    @effect
    def delete(what: str) -> None:
        if gate:
            gate.pass_through(what)
        deleted.append(what)

    async def work(run: Run[Any], item: Item) -> None:
        await delete(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    return main


@each_seed
def test_an_effect_is_done_on_half_of_an_item_at_a_start(place: Place, seed: int, longest: float) -> None:
    deleted: list[str] = []
    place.agent = deleting(deleted)
    with writing(place.folder / "todo.md", f"- [ ] one\n- [ ] {DELETE}\n", seed, longest):
        assert place.run().status == "completed"
    assert deleted == ["one", DELETE]


@each_seed
def test_an_effect_is_done_on_half_of_an_item_while_it_is_running(place: Place, seed: int, longest: float) -> None:
    deleted: list[str] = []
    gate = Gate("one")
    with going(place, deleting(deleted, gate), gate) as running:
        running.reach("one")
        text = place.text().replace("- [/] one ^1\n", f"- [/] one ^1\n- [ ] {DELETE}\n")
        with writing(place.folder / "todo.md", text, seed, longest):
            gate.open()
            assert running.end().status == "completed"
    assert deleted == ["one", DELETE] and place.is_at_the_moment()


@each_seed
def test_half_of_a_wish_is_obeyed(place: Place, seed: int, longest: float) -> None:
    gate = Gate("one")
    text = "reason: let me look\nresume: await_instructions\nmode: drain\n"
    with going(place, deleting([], gate), gate) as running:
        running.reach("one")
        with writing(place.folder / "pause.yaml", text, seed, longest):
            pass
        running.until_told("let me look")
        gate.open()
        assert running.end().status == "paused"
    assert "resume: await_instructions" in place.text("pause.yaml")
    assert place.moment.pause and place.moment.pause.resume == "await_instructions"


@each_seed
def test_half_of_a_task_is_done(place: Place, seed: int, longest: float) -> None:
    done: list[str] = []

    async def work(run: Run[Any], task: InboxTask) -> None:
        done.append(task.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    place.agent = main
    with writing(place.folder / "inbox/a.md", DELETE, seed, longest):
        assert place.run().status == "completed"
    assert done == [DELETE] and place.text("inbox/done/a.md") == DELETE


@each_seed
def test_half_of_an_answer_is_taken(place: Place, seed: int, longest: float) -> None:
    @agent
    async def main(run: Run[Any]) -> Any:
        answer = await run.ask("How many?", wait_for=0 if run.attempt == 1 else 10)
        return [answer.decision, answer.note]

    place.agent = main
    assert place.run().status == "waiting"
    text = place.text("approvals/a1.yaml").replace("decision:\n", "decision: 1 0 0\n").replace("note:\n", "note: yes\n")
    with writing(place.folder / "approvals/a1.yaml", text, seed, longest):
        assert place.run().result == ["1 0 0", "yes"]


@each_seed
def test_half_of_the_definition_counts(place: Place, seed: int, longest: float) -> None:
    @agent
    async def main(run: Run[Any]) -> Any:
        return run.settings

    place.agent = main
    text = place.text("workspace.yaml") + "settings: {only: /srv/data/old-backups/2019}\n"
    with writing(place.folder / "workspace.yaml", text, seed, longest):
        assert place.run().result == {"only": "/srv/data/old-backups/2019"}


# What comes after a task was taken


def test_what_is_added_to_a_task_that_is_done_is_lost(place: Place) -> None:
    """A program opens the file while its task is done, and writes when that is over."""
    begun, written = threading.Event(), threading.Event()
    done: list[str] = []
    path = place.folder / "inbox/a.md"
    path.parent.mkdir()
    path.write_text("delete all\n")

    def add() -> None:
        with path.open("a") as file:
            begun.set()
            assert gone.wait(PATIENCE)
            file.write("but the last three\n")
        written.set()

    gone = threading.Event()

    async def work(run: Run[Any], task: InboxTask) -> None:
        done.append(task.text)
        if len(done) == 1:
            threading.Thread(target=add).start()
            assert begun.wait(PATIENCE)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    assert run(place.folder, main).status == "completed"
    assert done == ["delete all\n"] and not path.exists()
    now = datetime.now(UTC)
    verdict = judge(place.store, now)
    assert not verdict.starts and verdict.passing and verdict.at is None, "nobody may start it before more has come"
    gone.set()
    assert written.wait(PATIENCE)
    assert judge(place.store, now).starts
    assert run(place.folder, main).status == "completed"
    assert done == ["delete all\n", "delete all\nbut the last three\n"]
    assert place.there("inbox/*") == ["inbox/done"]


def test_a_task_whose_file_was_only_open_stays_where_it_was(place: Place) -> None:
    path = place.folder / "inbox/a.md"
    path.parent.mkdir()
    path.write_text("once")
    done: list[str] = []

    async def work(run: Run[Any], task: InboxTask) -> None:
        done.append(task.text)
        files.append(path.open("a"))

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    files: list[Any] = []
    assert run(place.folder, main).status == "completed"
    files.pop().close()
    place.recover()
    assert run(place.folder, main).status == "completed"
    assert done == ["once"] and place.there("inbox/*") == ["inbox/done"] and place.text("inbox/done/a.md") == "once"
