"""`satchel export`: a zip that people can read, that holds no secret, and that is no second living run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server

import satchel
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import transfer_file
from satchel.workspace.lifecycle import acquire

from .conftest import SLOW, Cli, Make, contents, data_of

SECRET = "correct-horse-battery"

TALKING = f"""
from satchel import Run, agent, step

@step
async def login(text: str) -> str:
    return "{SECRET} " + text * 40_000

async def work(run: Run, item):
    run.messages.add("user", "{SECRET}")
    long = await login(item.text)
    run.state[item.text] = len(long)
    await run.output("made.txt", "{SECRET}")

@agent
async def main(run: Run):
    if not run.todo.items:
        await run.plan("Work", ["one", "two"])
    await run.todo.each(work)
    answer = await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
"""


@pytest.fixture
def folder(make: Make, cli: Cli) -> Path:
    """A run whose secrets were named only after they had been recorded."""
    made = make(TALKING)
    assert cli("run", made).exit_code == 4
    definition = made / "workspace.yaml"
    definition.write_text(definition.read_text() + "redact: {patterns: ['correct-[a-z-]+']}\n")
    return made


def unpacked(file: Path, to: Path) -> Path:
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        archive.extractall(to)
    (found,) = to.iterdir()
    return found


def test_a_secret_is_in_a_name(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(
        TALKING.replace('"one"', f'"log in with {SECRET}"').replace(
            "    long =", "    await run.ask('?', wait_for=0)\n    long ="
        )
    )
    assert cli("run", folder).exit_code == 4
    assert [*folder.glob(f"checkpoints/*{SECRET}/todo.md")]
    definition = folder / "workspace.yaml"
    definition.write_text(definition.read_text() + "redact: {patterns: ['correct-[a-z-]+']}\n")
    satchel.open(folder).files.export(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert not [name for name in archive.namelist() if SECRET in name or SECRET.encode() in archive.read(name)]
        assert "files with a secret in their names: " in archive.read("demo-1a2b/export.json").decode()


def test_an_export_of_a_fork_has_no_history(make: Make, cli: Cli, tmp_path: Path) -> None:
    """Its first records are those of the first run, and a file in journal/ says so."""
    folder = make(TALKING)
    cli("run", folder)
    fork = satchel.open(satchel.open(folder).history.fork(tmp_path / "fork").to)
    fork.files.export(tmp_path / "a.zip")
    copy = satchel.open(unpacked(tmp_path / "a.zip", tmp_path / "there"))
    assert [row.data for row in copy.history.log()] == [row.data for row in fork.history.log()]
    assert not copy.check().problems


def test_an_export_can_not_be_read(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TALKING)
    cli("run", folder)
    (folder / ".satchel/run.log").write_text("a log")
    before = contents(folder)
    told = data_of(cli("export", "--json", folder, tmp_path / "a.zip"))
    assert contents(folder) == before
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    names = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    assert {"todo.md", "state.json", "workspace.yaml", "agent.py", "export.json", "EXPORT.md"} <= names
    assert not names & {".satchel/lock", ".satchel/lease.json", ".satchel/run.log"}
    note = json.loads((copy / "export.json").read_text())
    assert note == {key: told[key] for key in note} and note["redacted"] == []
    here, there = satchel.open(folder), satchel.open(copy)
    assert note["seq"] == [*here.history.log()][-1].line.seq and note["at"] == [*here.history.log()][-1].line.at
    assert [row.data for row in there.history.log()] == [row.data for row in here.history.log()]
    assert there.result.status == "waiting" and there.history.show().agents == here.history.show().agents
    assert there.result.state == here.result.state
    for command in ("status", "log", "show", "check", "blame"):
        assert cli(command, copy).exit_code in (0, 4), command


def test_a_secret_leaves_with_an_export(folder: Path, cli: Cli, tmp_path: Path) -> None:
    handle = satchel.open(folder)
    done = handle.files.export(tmp_path / "a.zip")
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert any(SECRET.encode() in data for data in contents(folder).values())
    leaks = {path for path, data in contents(copy).items() if SECRET.encode() in data}
    assert leaks == set()
    assert {"messages.jsonl", "outputs/made.txt"} <= set(done.redacted)
    assert any(path.startswith("journal/") for path in done.redacted)
    assert any(path.startswith(".satchel/blobs/") for path in done.redacted)
    there = satchel.open(copy)
    assert [row.line.seq for row in there.history.log()] == [row.line.seq for row in handle.history.log()]
    assert there.result.status == "waiting" and there.result.state == handle.result.state
    first = there.history.steps("^1").work[0].calls[0]
    blob = (copy / first.result_in).read_bytes()
    name = Path(first.result_in).name
    assert blob.startswith(b'"[redacted] one') and name.startswith(hashlib.sha256(blob).hexdigest())
    assert done.not_set == [] and [each.file for each in there.check().problems] == ["outputs/made.txt"]


def test_a_variable_that_is_not_set_is_not_missed(make: Make, cli: Cli, tmp_path: Path) -> None:
    """What it held when the run was active may be in the files, and nothing can find it here."""
    folder = make(extra="redact: {env: [SATCHEL_NOT_SET_HERE]}\n")
    assert cli("run", folder).exit_code == 0
    shown = cli("export", folder, tmp_path / "a.zip").stdout
    assert "not redacted: the value of SATCHEL_NOT_SET_HERE, which is not set here" in shown
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert json.loads((copy / "export.json").read_text())["not_set"] == ["SATCHEL_NOT_SET_HERE"]


def test_equal_workspaces_make_different_bytes(folder: Path, cli: Cli, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    handle = satchel.open(folder)
    handle.files.export(tmp_path / "a.zip", progress=lambda *told: seen.append(told))
    handle.files.export(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert seen and seen[-1][0] == "copying" and seen[-1][1] == seen[-1][2] > 0
    with pytest.raises(UsageError, match="exists already"):
        handle.files.export(tmp_path / "a.zip")
    with pytest.raises(UsageError, match="inside the workspace"):
        handle.files.export(folder / "a.zip")
    with pytest.raises(UsageError, match="no file of this machine"):
        handle.files.export("s3://bucket/a.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zip", "b.zip", "demo"]


def test_a_rule_that_matches_itself_makes_an_export_unreadable(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TALKING, extra=f"redact: {{patterns: [{SECRET}]}}\n")
    cli("run", folder)
    assert satchel.open(folder).files.export(tmp_path / "a.zip").redacted == ["agent.py", "workspace.yaml"]
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert satchel.open(copy).result.status == "waiting" and SECRET not in (copy / "workspace.yaml").read_text()


def test_a_failed_export_leaves_something_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: zipfile.ZipFile, *_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with pytest.raises(satchel.errors.StorageFailed, match="no space left"):
        satchel.open(folder).files.export(tmp_path / "a.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]


def test_a_running_run_is_exported_from_several_moments(
    make: Make, started: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    folder = make(SLOW)
    started(folder)
    done = satchel.open(folder).files.export(tmp_path / "a.zip")
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert json.loads((copy / "state.json").read_text())["at"]["seq"] == done.seq
    assert f"<!-- satchel {done.seq}." in (copy / "todo.md").read_text()
    assert [*satchel.open(copy).history.log()][-1].line.seq == done.seq
    assert not satchel.open(copy).check().problems


def test_an_export_runs_as_a_second_copy(make: Make, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(TALKING)
    cli("run", folder)
    cli("export", folder, tmp_path / "a.zip")
    copy = satchel.open(unpacked(tmp_path / "a.zip", tmp_path / "there"))
    with pytest.raises(UsageError, match="still has it"):
        copy.answer("yes")
    monkeypatch.setattr(acquire, "_look_at", lambda *_: acquire._Old("unseen"))  # on another machine
    with pytest.raises(UsageError, match="is a copy, made by `satchel copy` or `satchel export`"):
        copy.recover()
    copy.recover(adopt=True)
    assert f"exported from {folder}" in [*copy.history.log(type="opened")][-1].record["arrived"]
    assert not transfer_file.read_tombstone(copy.store)


def test_a_damaged_run_is_not_exported(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TALKING)
    cli("run", folder)
    (segment,) = (folder / "journal").iterdir()
    rows = segment.read_bytes().split(b"\n")
    rows[3] = b"broken"
    segment.write_bytes(b"\n".join(rows))
    for path in (folder / "checkpoints").glob("*.json"):
        path.unlink()
    result = cli("export", folder, tmp_path / "a.zip")
    assert result.exit_code == 0 and "left out: what the journal says in its damaged parts" in result.stdout
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert (copy / "journal" / segment.name).read_bytes() == segment.read_bytes()


def test_a_bucket_is_not_exported(
    seaweedfs: Server, make: Make, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    folder, url = make(TALKING), seaweedfs.place()
    cli("run", folder)
    satchel.open(folder).move(url)
    done = satchel.open(url).files.export(tmp_path / "a.zip")
    copy = satchel.open(unpacked(tmp_path / "a.zip", tmp_path / "there"))
    assert done.url == url and copy.result.status == "waiting" and len([*copy.history.log()]) == done.seq


def test_a_redacted_run_of_a_bucket_leaves_without_its_history(
    seaweedfs: Server, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments repeat records."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = seaweedfs.place()
    satchel.open(folder).move(url)
    handle = satchel.open(url)
    handle.pause(reason="a look")
    handle.run()
    done = handle.files.export(tmp_path / "a.zip")
    copy = unpacked(tmp_path / "a.zip", tmp_path / "there")
    assert not [text for text in done.left_out if "journal and the checkpoints" in text], done.left_out
    assert not {path for path, data in contents(copy).items() if SECRET.encode() in data}
    assert [row.line.seq for row in satchel.open(copy).history.log()] == [row.line.seq for row in handle.history.log()]
