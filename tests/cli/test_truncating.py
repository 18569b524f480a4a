"""`satchel recover --truncate-at SEQ`: the way out of a journal that can't be opened, for a person without a backup."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from linked import parsed
from msgspec import structs

import satchel
from satchel.runtime.cli.group import group
from satchel.workspace.base.errors import UsageError
from satchel.workspace.journal import Failure, Line, ScopeFailed, StepStarted, written
from satchel.workspace.lifecycle import recovery
from satchel.workspace.store import DiskStore

from .conftest import Cli, Make, contents, data_of

SENDING = """
from satchel import agent, effect

@effect
def send(text: str) -> str:
    return text

async def work(run, item):
    run.state[item.text] = await send(item.text)
    with open("SENT", "a") as file:
        file.write(item.text + "\\n")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["a", "b", "c"])
    await run.todo.each(work)
"""


@pytest.fixture
def folder(make: Make, cli: Cli, tmp_path: Path) -> Path:
    made = make(SENDING.replace("SENT", str(tmp_path / "sent")))
    assert cli("run", made).exit_code == 0
    return made


def journal(folder: Path) -> Path:
    (path,) = (folder / "journal").iterdir()
    return path


def lines(folder: Path) -> list[Line]:
    return parsed(journal(folder).read_bytes())


def commit_of(folder: Path, scope: str) -> int:
    return next(
        line.seq
        for line in lines(folder)
        if getattr(line.record, "scope", "") == scope and line.record.__struct_config__.tag == "scope.committed"
    )


def spoil(folder: Path, at: int) -> None:
    """The records behind `at` begin with one that does not fit, as an earlier version may have left it."""
    found = lines(folder)
    failed = ScopeFailed(scope="gone", error=Failure("E", "x"))
    rows = journal(folder).read_bytes().splitlines(keepends=True)[:at]
    prev = found[at - 1].crc
    for number, line in enumerate(found[at:]):  # each names the one before it
        row = written(structs.replace(line, record=line.record if number else failed, prev=prev))
        rows.append(row.data)
        prev = row.line.crc
    journal(folder).write_bytes(b"".join(rows))
    for path in (folder / "checkpoints").glob("*.json"):
        if int(path.name[:12]) > at:
            path.unlink()


def test_a_journal_with_a_record_that_does_not_fit_can_never_be_opened_again(
    folder: Path, cli: Cli, tmp_path: Path
) -> None:
    good = commit_of(folder, "1")
    spoil(folder, good)
    refused = cli("resume", folder)
    assert refused.exit_code == 2 and f"recover --truncate-at {good}`" in " ".join(refused.output.split())
    before = contents(folder)
    whole = {path: (folder / path).read_bytes() for path in ("journal/000000000001.jsonl", "state.json", "todo.md")}
    asked = CliRunner().invoke(group, ["recover", str(folder), "--truncate-at", str(good)], input="n\n")
    assert asked.exit_code == 130 and contents(folder) == before, "nothing is touched before a person says so"
    said = " ".join(asked.output.split())
    assert "records after record" in said and "effects are forgotten and will be done again: send(" in said
    told = CliRunner().invoke(group, ["recover", str(folder), "--truncate-at", str(good)], input="y\n")
    assert told.exit_code == 0, told.output
    (kept,) = (folder / "cut-off").iterdir()
    assert kept.name in told.stdout
    assert {path: (kept / path).read_bytes() for path in whole} == whole
    assert data_of(cli("check", "--json", folder))["ok"]
    assert "[x] a" in (folder / "todo.md").read_text() and "[x] b" not in (folder / "todo.md").read_text()
    assert cli("resume", folder).exit_code == 0
    assert json.loads((folder / "state.json").read_text())["data"] == {"a": "a", "b": "b", "c": "c"}
    assert (tmp_path / "sent").read_text().split() == ["a", "b", "c", "b", "c"]


TASKS = """
from satchel import agent

async def work(run, task):
    run.state[task.id] = task.text

@agent
async def main(run):
    await run.scope("begin", lambda: None)
    await run.inbox.each(work)
"""


@pytest.mark.parametrize("at", ["before it was taken", "between taken and done"])
def test_a_task_whose_end_is_cut_off_stays_done_and_its_result_is_lost(make: Make, cli: Cli, at: str) -> None:
    folder = make(TASKS)
    (folder / "inbox").mkdir()
    for name in ("one", "two"):
        (folder / "inbox" / f"{name}.md").write_text(name)
    assert cli("run", folder).exit_code == 0
    found = lines(folder)
    tag = {"before it was taken": "task.taken", "between taken and done": "scope.begun"}[at]
    seq = next(line.seq for line in found if line.record.__struct_config__.tag == tag and "t2" in str(line.record)) - 1
    (folder / "inbox" / "two.md").write_text("a new one")  # has the name of one that was done
    assert cli("recover", folder, "--truncate-at", str(seq), "--yes").exit_code == 0
    assert cli("resume", folder).exit_code == 0
    data = json.loads((folder / "state.json").read_text())["data"]
    assert sorted(data.values()) == ["a new one", "one", "two"]
    assert not [*(folder / "inbox").glob("*.md")]


def test_a_pruned_task_is_said_to_come_back(make: Make, cli: Cli) -> None:
    folder = make(TASKS)
    (folder / "inbox").mkdir()
    for name in ("one", "two"):
        (folder / "inbox" / f"{name}.md").write_text(name)
    assert cli("run", folder).exit_code == 0
    seq = next(line.seq for line in lines(folder) if line.record.__struct_config__.tag == "task.taken") - 1
    (folder / "inbox/done/one.md").unlink()  # as retention does
    assert satchel.open(folder).plan_cut(seq).lost == ("inbox/one.md",)
    said = " ".join(cli("recover", folder, "--truncate-at", str(seq), "--yes").output.split())
    assert "these tasks are forgotten and can't come back, because their files are gone: inbox/one.md" in said
    assert "1 task that the run took later came back into inbox/" in said
    assert [path.name for path in (folder / "inbox").glob("*.md")] == ["two.md"]
    assert cli("resume", folder).exit_code == 0


def test_a_broken_byte_in_the_middle_is_the_end_of_a_run(folder: Path, cli: Cli) -> None:
    good = commit_of(folder, "1")
    rows = journal(folder).read_bytes().splitlines(keepends=True)
    rows[good] = rows[good].replace(b'"', b"'", 1)
    journal(folder).write_bytes(b"".join(rows))
    for path in (folder / "checkpoints").glob("*.json"):
        path.unlink()
    refused = cli("status", folder)
    assert f"recover --truncate-at {good}`" in " ".join(refused.output.split())
    told = data_of(cli("recover", folder, "--truncate-at", str(good), "--json"))
    assert told["status"] == "running" and "cut off after record" in json.dumps(told["report"])
    assert cli("resume", folder).exit_code == 0


def test_a_copy_of_a_run_is_cut_off_before_its_adoption_is_refused(folder: Path, cli: Cli, tmp_path: Path) -> None:
    """Or a refused command has done half of its work, and with `--adopt` it finds nothing to do."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    good = commit_of(copy, "1")
    rows = journal(copy).read_bytes().splitlines(keepends=True)
    rows[good] = rows[good].replace(b'"', b"'", 1)
    journal(copy).write_bytes(b"".join(rows))
    for path in (copy / "checkpoints").glob("*.json"):
        path.unlink()
    before = contents(copy)
    refused = cli("recover", copy, "--truncate-at", str(good), "--yes")
    assert refused.exit_code == 2 and "was opened elsewhere before" in refused.output
    assert contents(copy) == before
    assert cli("recover", copy, "--truncate-at", str(good), "--adopt", "--yes").exit_code == 0
    assert cli("resume", copy).exit_code == 0


def test_an_effect_whose_line_can_not_be_verified_is_named(folder: Path) -> None:
    """The line before it in its group is damaged, checksum included."""
    good = commit_of(folder, "1")
    started = next(line for line in lines(folder)[good:] if isinstance(line.record, StepStarted))
    assert started.commit < started.seq
    rows = journal(folder).read_bytes().splitlines(keepends=True)[: started.seq]
    rows[started.seq - 2] = b"x" * 20 + b"\n"
    journal(folder).write_bytes(b"".join(rows))
    cut = recovery.plan_cut(DiskStore(folder), good)
    assert cut.effects == (f"{started.record.step}{started.record.call}",)


@pytest.mark.parametrize("where", ["before the good ones end", "at the end", "after it"])
def test_a_cut_in_the_wrong_place_leaves_less_than_there_was(folder: Path, cli: Cli, where: str) -> None:
    good = commit_of(folder, "1")
    last = lines(folder)[-1].seq
    if where == "before the good ones end":
        spoil(folder, good)
    before = contents(folder)
    seq = {"before the good ones end": good + 1, "at the end": last, "after it": last + 5}[where]
    refused = cli("recover", folder, "--truncate-at", str(seq), "--yes")
    assert refused.exit_code != 0 and contents(folder) == before
    said = " ".join(refused.output.split())
    assert {"before the good ones end": f"last valid record is {good}", "at the end": "nothing after"}.get(
        where, f"the last is {last}"
    ).lower() in said.lower()


def test_a_cut_that_was_itself_cut_off_by_a_crash_is_made_again(
    folder: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = commit_of(folder, "1")
    spoil(folder, good)
    remove, calls = DiskStore.replace, list[str]()

    def dies(self: DiskStore, path: str, *args: object, **options: object) -> object:
        calls.append(path)
        if path.startswith("journal/"):
            raise KeyboardInterrupt
        return remove(self, path, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DiskStore, "replace", dies)
    CliRunner().invoke(group, ["recover", str(folder), "--truncate-at", str(good), "--yes"])
    assert any(path.startswith("journal/") for path in calls)
    monkeypatch.undo()
    assert cli("recover", folder, "--truncate-at", str(good), "--yes").exit_code == 0
    assert cli("resume", folder).exit_code == 0


@pytest.mark.parametrize("name", ["state.json", "checkpoints/*.json"])
def test_a_power_failure_takes_a_removal_back_and_nothing_can_be_cut_off_any_more(
    folder: Path, cli: Cli, name: str
) -> None:
    """The journal was cut off, durably: it had nothing more behind the record."""
    good = commit_of(folder, "1")
    store = DiskStore(folder)
    kept = folder / recovery.cut_off(store, recovery.plan_cut(store, good))
    back = max(kept.glob(name))
    (folder / back.relative_to(kept)).write_bytes(back.read_bytes())
    assert cli("resume", folder).exit_code == 2
    assert cli("recover", folder, "--truncate-at", str(good), "--yes").exit_code == 0
    assert cli("resume", folder).exit_code == 0
    assert json.loads((folder / "state.json").read_text())["data"] == {"a": "a", "b": "b", "c": "c"}


@pytest.mark.parametrize(("seq", "why"), [(-1, "the first is 1"), (0, "the first is 1"), (10_000, "the last is")])
def test_a_record_that_a_sound_journal_lacks(folder: Path, seq: int, why: str) -> None:
    before = contents(folder)
    with pytest.raises(UsageError, match=f"(?i)the journal has no record {seq}.*{why}"):
        satchel.open(folder).plan_cut(seq)
    assert contents(folder) == before
