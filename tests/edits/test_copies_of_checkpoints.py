"""Files from the folder of a checkpoint, copied over those of the run: asked about, obeyed, and never put back in
silence."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from click.testing import CliRunner
from servers import Server

import satchel
from satchel import Item, Run, agent, run, step
from satchel.runtime.cli.group import group as cli
from satchel.workspace import journal
from satchel.workspace.base.errors import InvalidFile, Refused
from satchel.workspace.journal import Rewound
from satchel.workspace.store import open_store

from .folder import Place, world
from .folder import main as agent_main
from .running import Gate, going


@pytest.fixture
def place(place: Place) -> Place:
    """Completed, with a checkpoint of a milestone after its second item."""
    place.put("todo.md", "- [ ] amy\n- [ ] bob\n  milestone: true\n- [ ] cyd\n")
    assert place.run().status == "completed"
    world.fresh()
    return place


def folder(place: Place) -> Path:
    return next(path for path in (place.folder / "checkpoints").iterdir() if path.name.endswith("-2-bob"))


def copy(place: Place, *names: str) -> None:
    for name in names or ("state.json", "todo.md"):
        shutil.copy(folder(place) / name, place.folder / name)


def answer(place: Place, decision: str) -> satchel.results.AnswerResult:
    return satchel.open(place.folder).answer(decision)


def items(calls: list[str]) -> list[str]:
    return [call.removeprefix("read ") for call in calls if call.startswith("read ")]


def test_files_of_a_checkpoint_are_put_back_in_silence(place: Place) -> None:
    assert len(place.root.data["words"]) == 3
    copy(place)
    outcome = place.run()
    assert outcome.status == "waiting" and world.fresh() == []
    (question,) = satchel.open(place.folder).questions()
    name = folder(place).name
    assert question.choices == ("go-back", "data", "keep")
    assert f"state.json and todo.md are from the checkpoint {name}" in question.text
    assert place.is_at_the_moment() and "decision:" in place.text(question.question.path)
    assert place.run().status == "waiting", "as long as nobody has answered"


def test_a_person_who_wants_to_go_back_stays_where_the_run_is(place: Place) -> None:
    copy(place)
    place.run()
    at = place.moment.seq
    outcome = answer(place, "go-back")
    assert outcome.is_recorded and place.root.data["words"] == ["AMY!", "BOB!"]
    assert "- [ ] cyd" in place.text() and place.is_at_the_moment()
    said = "\n".join(remark.text for remark in outcome.report)
    (undo,) = [word for word in said.split("`") if word.startswith("satchel rewind WS --to ")]
    assert place.run().status == "completed" and items(world.fresh()) == ["cyd"]
    assert len(place.root.data["words"]) == 3
    satchel.open(place.folder).history.rewind(to=int(undo.rpartition(" ")[2]))
    assert len(place.root.data["words"]) == 3 and "- [x] cyd ^3" in place.text()
    assert at <= int(undo.rpartition(" ")[2])


def test_data_only_brings_the_plan_back_too(place: Place) -> None:
    copy(place)
    place.run()
    done = answer(place, "data")
    assert place.root.data["words"] == ["AMY!", "BOB!"] and "- [x] cyd ^3" in place.text()
    assert any("the data is that of the checkpoint" in remark.text for remark in done.report)
    assert place.run().status == "completed" and items(world.fresh()) == [] and place.is_at_the_moment()


def test_an_answer_in_the_file_is_not_taken(place: Place) -> None:
    before = place.substance()
    copy(place)
    place.run()
    (question,) = satchel.open(place.folder).questions()
    place.edit(question.question.path, ("decision:\n", "decision: keep\n"))
    assert place.run().status == "completed" and world.fresh() == []
    assert place.substance() == before and place.is_at_the_moment()
    place.edit("todo.md", ("[x] amy", "[ ] amy"))
    copy(place, "state.json")  # asked again, at another time
    place.run()
    (question,) = satchel.open(place.folder).questions()
    place.edit(question.question.path, ("decision:\n", "decision: go-back\n"))
    assert place.run().status == "completed" and items(world.fresh()) == ["cyd"], "the untick was undone, too"


def test_a_copied_plan_alone_is_merged(place: Place) -> None:
    copy(place, "todo.md")
    assert place.run().status == "waiting"
    (question,) = satchel.open(place.folder).questions()
    assert question.choices == ("go-back", "keep") and "- [x] cyd ^3" in place.text()
    answer(place, "go-back")
    assert place.run().status == "completed" and items(world.fresh()) == ["cyd"]


def test_a_copy_of_a_sub_agents_file_is_put_back(place: Place) -> None:
    place.put("todo.md", place.text().replace("- [x] cyd ^3", "- [x] cyd ^3\n- [ ] ask bob\n- [ ] dee"))
    assert place.run("dee").status == "failed"
    last = max(path for path in (place.folder / "checkpoints").iterdir() if path.is_dir())
    assert place.run().status == "completed"
    assert place.moment.agents["bob"].data["words"] == ["BOB 1!"]
    place.set_data(lambda data: data | {"words": ["another"]}, "agents/bob/state.json")
    place.run()
    shutil.copytree(last / "agents", place.folder / "agents", dirs_exist_ok=True)
    assert place.run().status == "waiting"
    (question,) = satchel.open(place.folder).questions()
    assert "agents/bob/agents/carol/state.json" in question.text
    answer(place, "data")
    assert place.moment.agents["bob"].data["words"] == ["BOB 1!"]


def test_a_changed_copy_loses_the_change(place: Place) -> None:
    copy(place)
    place.set_data(lambda data: data | {"n": 77})
    place.put("todo.md", place.text().replace("cyd", "CYD"))
    outcome = place.run()
    assert outcome.status == "waiting"
    assert "CYD" in place.text("todo.rejected.md") and '"n": 77' in place.text("state.rejected.json")
    assert '"n": 77' not in place.text("state.json")
    answer(place, "data")
    assert place.root.data["n"] == 77 and len(place.root.data["words"]) == 2


def test_a_changed_copy_that_does_not_fit_is_asked_about(place: Place) -> None:
    copy(place, "state.json")
    place.set_data(lambda data: data | {"n": "many"})
    with pytest.raises(InvalidFile, match=r"data\.n"):
        place.run()
    assert '"many"' in place.text("state.rejected.json") and not place.moment.approvals and place.is_at_the_moment()


def test_a_file_written_in_another_way_is_no_copy(place: Place) -> None:
    shutil.copy(folder(place) / "state.json", place.folder)
    place.put("state.json", json.dumps(json.loads(place.text("state.json")), sort_keys=True))
    assert place.run().status == "waiting" and len(place.moment.approvals) == 1


def test_a_copy_of_the_newest_checkpoint_is_asked_about(place: Place) -> None:
    last = max(path for path in (place.folder / "checkpoints").iterdir() if path.is_dir())
    for name in ("state.json", "todo.md"):
        shutil.copy(last / name, place.folder)
    outcome = place.run()
    assert outcome.status == "completed" and place.is_at_the_moment()
    assert "says nothing new" in "\n".join(remark.text for remark in outcome.report.remarks)


def test_files_of_two_checkpoints_are_taken_for_one_moment(place: Place) -> None:
    copy(place, "todo.md")
    last = max(path for path in (place.folder / "checkpoints").iterdir() if path.is_dir())
    shutil.copy(last / "state.json", place.folder)
    with pytest.raises(Refused, match="Copy the files of one checkpoint"):
        place.run()
    assert place.is_at_the_moment() and not place.moment.approvals
    assert "checkpoint: " in place.text("todo.rejected.md")


@pytest.mark.parametrize("name", ["state.json", "todo.md"])
def test_a_copy_from_another_run_is_obeyed(place: Place, tmp_path: Path, name: str) -> None:
    other = Place(tmp_path / "other", "run-2")
    other.put("todo.md", "- [ ] amy\n  milestone: true\n- [ ] bob\n")
    assert other.run().status == "completed"
    (first, *_) = sorted(path for path in (other.folder / "checkpoints").iterdir() if path.is_dir())
    shutil.copy(first / name, place.folder)
    with pytest.raises(Refused, match=rf"from another run.*checkpoint {first.name} of the run run-2"):
        place.run()
    assert place.is_at_the_moment() and place.there("*.rejected.*")


def test_any_other_older_file_is_asked_about(place: Place) -> None:
    old = {name: place.get(name) for name in ("state.json", "todo.md")}
    place.put("todo.md", place.text().replace("- [x] cyd ^3", "- [x] cyd ^3\n- [ ] dee"))
    assert place.run().status == "completed"
    for name, data in old.items():
        place.put(name, data)
    assert place.run().status == "completed" and not place.moment.approvals_asked and place.is_at_the_moment()


def test_a_look_says_nothing_of_a_copy(place: Place) -> None:
    copy(place)
    before = place.hash()
    found = CliRunner().invoke(cli, ["status", str(place.folder)])
    assert "a start asks: state.json and todo.md are from the checkpoint" in " ".join(found.stdout.split())
    assert place.hash() == before


def test_a_second_copy_leaves_two_questions(place: Place) -> None:
    copy(place)
    place.run()
    copy(place, "state.json")
    assert place.run().status == "waiting"
    (asked,) = place.moment.approvals.values()
    assert asked.id == "a2" and asked.back is not None and asked.back.files == ("state.json",)
    assert "withdrawn" in place.text("approvals/a1.yaml")


def test_a_crash_between_the_return_and_the_answer_loses_the_return(place: Place) -> None:
    """The return comes first. A question that is open although it was obeyed is answered once more."""
    copy(place)
    place.run()
    answer(place, "go-back")
    segment = sorted(place.there("journal/*.jsonl"))[-1]
    lines = place.text(segment).splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if json.loads(line)["type"] == "approval.answered")
    assert any(json.loads(line)["type"] == "rewound" for line in lines[:at])
    place.put(segment, "".join(lines[:at]))
    for path in place.there("checkpoints/*.json"):
        if int(Path(path).name[:12]) >= json.loads(lines[at])["seq"]:
            (place.folder / path).unlink()
    for path in ("state.json", "todo.md"):  # they are ahead of this journal
        (place.folder / path).unlink()
    assert place.run().status == "waiting" and len(place.root.data["words"]) == 2 and world.fresh() == []
    answer(place, "go-back")
    assert place.run().status == "completed" and items(world.fresh()) == ["cyd"]


def test_another_command_puts_the_copy_back_unasked(place: Place) -> None:
    copy(place)
    satchel.open(place.folder).recover()
    assert len(place.moment.approvals) == 1 and place.is_at_the_moment()
    assert place.run().status == "waiting" and world.fresh() == []


def test_a_paused_run_goes_on_before_the_answer(place: Place) -> None:
    place.put("todo.md", place.text().replace("- [x] cyd ^3", "- [x] cyd ^3\n- [ ] dee"))
    place.put("pause.yaml", "")
    assert place.run().status == "paused"
    copy(place)
    assert place.run().status == "paused"
    outcome = satchel.open(place.folder).resume()
    assert outcome.status == "waiting" and world.fresh() == []
    answer(place, "go-back")
    assert place.run().status == "completed" and items(world.fresh()) == ["cyd"]


def test_a_copy_while_the_run_is_active_is_put_back_unsaid(place: Place, tmp_path: Path) -> None:
    gate = Gate("second ends")

    @step
    def slowly(name: str) -> str:
        gate.pass_through(name)
        return name

    @agent
    async def main(run: Run) -> None:
        if not run.todo.items:
            await run.plan(None, ["first", "second"])

        async def work(run: Run, item: Item) -> None:
            if item.text == "first":
                await run.checkpoint()
            await slowly(f"{item.text} ends")

        await run.todo.each(work)

    other = Place(tmp_path / "active")
    with going(other, main, gate) as running:
        running.reach("second ends")
        running.until(lambda: other.there("checkpoints/*/state.json"), "the folder of the checkpoint")
        (first, *_) = other.there("checkpoints/*/state.json")
        shutil.copy(other.folder / first, other.folder / "state.json")
        running.until_told("only a start asks what to do with it")
        assert any(f"satchel rewind WS --to {int(Path(first).parent.name[:12])}" in line for line in running.told.lines)
        gate.open()
    assert other.there("state.rejected.json") and not other.moment.approvals_asked and other.is_at_the_moment()


@pytest.mark.slow
def test_a_bucket_puts_the_copy_back(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    store = open_store(seaweedfs.place())
    store.create("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    store.create("todo.md", b"- [ ] amy\n- [ ] bob\n- [ ] cyd\n")
    world.fails = {"bob"}
    assert run(store, agent_main).status == "failed"
    world.fails = set()
    assert run(open_store(store.url), agent_main).status == "completed"
    store.refresh()
    name = min(store.folders("checkpoints"))
    for file in ("state.json", "todo.md"):
        store.replace(file, store.read(f"{name}/{file}").data)
    world.fresh()
    assert run(open_store(store.url), agent_main).status == "waiting"
    assert satchel.open(store.url).answer("go-back").is_recorded
    assert run(open_store(store.url), agent_main).status == "completed"
    assert items(world.fresh()) == ["cyd"], "bob had begun, and keeps its steps"


AGENT = """
from satchel import agent, step

@step
def read(text: str) -> str:
    return text

@agent
async def main(run):
    async def work(run, item):
        run.state[item.text] = await read(item.text)
    await run.todo.each(work)
"""


def test_a_person_at_a_terminal_is_not_asked(tmp_path: Path) -> None:
    """In a process of its own, which has a terminal; without one it waits."""
    workspace = Place(tmp_path / "w")
    workspace.put("agent.py", AGENT)
    workspace.put("todo.md", "- [ ] amy\n- [ ] bob\n  milestone: true\n- [ ] cyd\n")
    command = [sys.executable, "-m", "satchel", "run", str(workspace.folder)]
    assert warm.run(command, capture_output=True).returncode == 0
    copy(workspace)
    done = warm.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 4 and "satchel answer" in done.stderr + done.stdout, done
    mine, its = pty.openpty()
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, close_fds=True) as process:
        os.close(its)
        said = b""
        while b"Your answer" not in said:
            said += os.read(mine, 1 << 16)
        os.write(mine, b"go-back\n")
        with contextlib.suppress(OSError):  # the terminal ends with the process
            while more := os.read(mine, 1 << 16):
                said += more
        assert process.wait() == 0, said.decode()
    os.close(mine)
    assert b"returns the run to that moment" in said and b"went back to the checkpoint" in said
    assert "- [x] cyd ^3" in workspace.text() and workspace.moment.approvals == {}
    kinds = [line.record for line in journal.read(workspace.store, after=0).lines]
    assert sum(isinstance(record, Rewound) for record in kinds) == 1


def test_a_text_that_is_a_copy_is_saved_by_a_program(place: Place) -> None:
    handle = satchel.open(place.folder)
    before, version = place.hash(), handle.files.draft("state.json").version
    with pytest.raises(Refused, match="only a copied file is asked about"):
        handle.files.edit("state.json", (folder(place) / "state.json").read_text(), version=version)
    assert place.hash() == before
