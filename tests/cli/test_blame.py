"""`satchel blame`: who set a value, from the command line and from Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import satchel
from satchel.runtime.cli.group import group
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import look
from satchel.workspace.store import DiskStore

from .conftest import Cli, Make, data_of

AGENT = """
from satchel import Run, agent, step

@step
async def summarise(run: Run, text: str) -> str:
    return run.prompt("brief") + text

async def work(run, item):
    if item.text == "ask":
        answer = await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
        run.state["answer"] = answer.decision
    else:
        run.state.setdefault("done", []).insert(0, await summarise(item.text))

@agent
async def reader(run):
    await run.scope("read", read, run)

async def read(run):
    run.state["read"] = True

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Work", ["a", "b", "ask"])
    await run.spawn(reader, "reader")
    await run.todo.each(work)
"""


@pytest.fixture
def folder(make: Make, cli: Cli) -> Path:
    made = make(AGENT)
    (made / "prompts").mkdir()
    (made / "prompts/brief.md").write_text("Short: ")
    assert cli("run", made).exit_code == 4
    return made


def told(cli: Cli, *words: object) -> list[str]:
    result = cli("blame", *words)
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()


def test_a_value_is_blamed_on_something_else(folder: Path, cli: Cli) -> None:
    handle = satchel.open(folder)
    commits = {
        row.record["scope"]: row.line.seq
        for row in handle.history.log(type="scope.committed")
        if not row.line.record.agent
    }
    first, second = told(cli, folder, "state.json/done")
    assert first.startswith("/done/0  ") and f"  {commits['2']}  " in first and "^2 b [prompt brief@" in first
    assert second.startswith("/done/1  ") and f"  {commits['1']}  " in second
    assert told(cli, folder, "state.json/data/done") == [first, second]
    (read,) = told(cli, folder, "agents/reader/state.json")
    assert read.startswith("/read  true  ") and read.endswith("  reader: read")
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"Short: a"', '"Long: a"'))
    handle.answer("yes", by="Ada")
    assert handle.run().status == "completed"
    values = {each.path: each for each in handle.history.blame().values}
    edited, answered = values["/done/1"].origin, values["/answer"].origin
    assert (edited.kind, edited.by) == ("edit", [*handle.history.log(type="edited")][-1].record["by"])
    assert answered.title == "ask" and [(hand.by, hand.did) for hand in answered.people] == [("Ada", "answered")]
    handle.history.rewind(to=commits["2"])
    values = {each.path: each for each in handle.history.blame("state.json").values}
    back = [*handle.history.log(type="rewound")][-1].line.seq
    assert values.keys() == {"/done/0", "/done/1"}
    assert (values["/done/1"].origin.seq, values["/done/1"].brought_back_by) == (commits["1"], back)
    assert (values["/done/0"].origin.seq, values["/done/0"].brought_back_by) == (commits["2"], 0)
    assert told(cli, folder)[1].endswith(f"; brought back by record {back}")


def test_an_item_is_blamed_on_something_else(folder: Path, cli: Cli) -> None:
    handle = satchel.open(folder)
    todo = folder / "todo.md"
    todo.write_text(todo.read_text().replace("] ask", "] ask Ada"))
    handle.answer("yes", by="Ada")
    handle.run()
    written, ticked = handle.history.blame("todo.md/^1").values
    for each in handle.history.blame("todo.md").values:  # what it prints can be typed
        assert handle.history.blame(f"todo.md{each.path}").values[0] == each
        if not each.path.endswith("/mark"):  # also if the record of the text has set the mark, too
            assert handle.history.blame(f"todo.md{each.path}/mark").values[0].path == f"{each.path}/mark"
    assert (written.path, written.value, written.origin.kind, written.origin.by) == ("/^1", "a", "plan", "agent")
    assert (ticked.path, ticked.value, ticked.origin.kind, ticked.origin.title) == ("/^1/mark", "done", "commit", "a")
    by_path = {each.path: each for each in handle.history.blame("todo.md").values}
    assert by_path["/^3"].origin.kind == "edit" and by_path["/^3/mark"].origin.kind == "commit"
    assert len(told(cli, folder, "todo.md")) == 6


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("state.json/dnoe", "there is no 'state.json/dnoe'. Did you mean 'state.json/done'"),
        ("state.json/done/7", "there is no 'state.json/done/7'. There are 0, 1"),
        ("state.json/done/0/x", "'state.json/done/0' has no parts"),
        ("agents/raeder/state.json", "did you mean 'agents/reader/state.json'"),
        ("todo.md/^9", "there is no 'todo.md/^9'"),
        ("summaries", "names no file whose values are blamed"),
    ],
)
def test_a_path_that_is_not_there_is_not_explained(folder: Path, path: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        satchel.open(folder).history.blame(path)
    assert why.lower() in str(raised.value).lower()


def test_json_and_the_current_folder(folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = data_of(CliRunner().invoke(group, ["blame", "--json", "state.json/done/0"]))
    (value,) = found["values"]
    assert (found["file"], value["path"], value["value"]) == ("state.json", "/done/0", "Short: b")
    assert value["origin"]["kind"] == "commit" and value["brought_back_by"] is None and not found["problem"]


def test_a_damaged_journal_is_not_blamed_as_far_as_it_can_be_read(folder: Path, cli: Cli) -> None:
    handle = satchel.open(folder)
    seq = next(row.line.seq for row in handle.history.log(type="scope.committed") if row.record.get("scope") == "1")
    segment = sorted((folder / "journal").iterdir())[0]
    rows = segment.read_bytes().split(b"\n")
    rows[seq] = rows[seq].replace(b'"type"', b'"tipe"')
    segment.write_bytes(b"\n".join(rows))
    result = cli("blame", folder)
    assert result.exit_code == 0 and "/done/0" in result.stdout and f"note: up to record {seq};" in result.stderr


def test_blame_needs_the_workspace_or_runs_something(folder: Path) -> None:
    seen = look(DiskStore(folder)).moment.seq
    (folder / "agent.py").write_text("raise SystemExit(9)")
    assert satchel.open(folder).history.blame().values
    assert look(DiskStore(folder)).moment.seq == seen
