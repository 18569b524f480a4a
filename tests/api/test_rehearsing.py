"""New code is tried against an open run, and nothing happens: each change of the code has its verdict."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import warm
from click.testing import CliRunner

import satchel
from satchel import Run, SatchelError, UsageError, agent, step
from satchel.runtime.cli.group import group
from satchel.testing import rehearse

COLD = subprocess.Popen

CODE = """
import os, pathlib
from satchel import Item, Run, agent, effect, step

def note(word: str) -> None:
    with pathlib.Path(os.environ["SATCHEL_TEST_OUTSIDE"], "calls").open("a") as file:
        file.write(word + "\\n")

@step
async def read(name: str, page: int = 1) -> str:
    note("read " + name)
    return name.upper()

@effect
async def send(to: str, text: str) -> str:
    note("send " + to)
    return "sent"

async def work(run: Run, item: Item) -> None:
    text = await read(item.text)
    await send(item.text, text)
    run.state["sent"] = item.text
    if await run.ask("Go on?", ["yes", "no"], wait_for=0) == "yes":
        await send("chief", text)

async def begin(run: Run) -> None:
    run.state["sent"] = ""

@agent
async def main(run: Run) -> None:
    await run.scope("begin", begin, run)
    if not run.todo.items:
        await run.plan("Mails", ["ada", "bob"])
    await run.todo.each(work)
"""

CHANGES: dict[str, tuple[list[tuple[str, str]], str, str]] = {
    "nothing": ([], "same", "ask("),
    "a comment": ([("@agent", "# a comment\n@agent")], "same", "ask("),
    "a new parameter with a default": ([("page: int = 1", "page: int = 1, way: str = 'x'")], "same", "ask("),
    "a new step before": (
        [("    await send(item", "    await read('new')\n    await send(item")],
        "same",
        'read("name":"new","page":1) comes next, before the recorded send("text":"ADA","to":"ada")',
    ),
    "the arguments of a step": ([("read(item.text)", "read(item.text, 2)")], "again", "in place of the recorded read("),
    "the name of a step": (
        [("async def read", "async def fetch"), ("await read", "await fetch")],
        "same",
        'before the recorded read("name":"ada"',
    ),
    "the items are not done any more": ([("    await run.todo.each(work)\n", "")], "leaves", "leaves 2 items open"),
    "the items are not done any more, whose effects were": (
        [("    await run.todo.each(work)\n", "")],
        "leaves",
        'send("text":"ADA","to":"ada") was done and is not called any more; it stays done',
    ),
    "the items are not done any more, strictly": (
        [("    await run.todo.each(work)\n", ""), ("@agent", "@agent(effects='strict')")],
        "asks",
        "is not called any more",
    ),
    "the name of an effect": (
        [("async def send", "async def mail"), ("await send", "await mail")],
        "asks",
        'the effect mail("text":"ADA","to":"ada") would begin, but send("text":"ADA","to":"ada") was done',
    ),
    "the name of an effect, declared": (
        [("@effect", "@effect(formerly='send')"), ("async def send", "async def mail"), ("await send", "await mail")],
        "same",
        "ask(",
    ),
    "an effect that is gone": (
        [("    await send(item.text, text)\n", ""), ("    if await run.ask", "    if False and await run.ask")],
        "gone",
        'send("text":"ADA","to":"ada") was done and is not called any more; it stays done',
    ),
    "an effect that is gone, strictly": (
        [
            ("    await send(item.text, text)\n", ""),
            ("    if await run.ask", "    if False and await run.ask"),
            ("@agent", "@agent(effects='strict')"),
        ],
        "asks",
        "is not called any more",
    ),
    "a question": ([("Go on?", "Really?")], "same", "ask("),
    "an import that fails": ([("import os", "import nothing_of_this_name, os")], "fails", "nothing_of_this_name"),
    "an exception": ([("    await send(item.text, text)", "    raise KeyError('new')")], "fails", "KeyError"),
    "no agent": ([("async def main", "async def other")], "refused", "there is no 'main'"),
}


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that waits for an answer in its first item, after one effect. A warm process rehearses it."""
    monkeypatch.setattr(subprocess, "Popen", warm.Popen)
    monkeypatch.setenv("SATCHEL_TEST_OUTSIDE", str(tmp_path))
    return made(tmp_path / "runs" / "mails")


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(CODE)
    assert satchel.run(folder).status == "waiting"
    return folder


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() + str(path.stat().st_mtime_ns) for path in files}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_code_gets_a_wrong_verdict(waiting: Path, tmp_path: Path, change: str) -> None:
    edits, verdict, said = CHANGES[change]
    code = tmp_path / "new"
    code.mkdir()
    text = CODE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    (code / "agent.py").write_text(text)
    before = content(waiting)
    found = satchel.open(waiting).history.rehearse(code=code)
    assert (found.verdict, found.run_id) == (verdict, "mails"), found
    words = [*(each.words for each in found.findings), found.problem]
    assert any(said in each for each in words), words
    assert content(waiting) == before
    assert calls(tmp_path) == ["read ada", "send ada"], "nothing was done"
    assert str(tmp_path) not in json.dumps(words).replace(str(waiting), "")
    assert really(waiting, text) == ("same" if verdict in ("gone", "leaves") else verdict)
    assert calls(tmp_path).count("send ada") == 1


def really(folder: Path, text: str) -> str:
    """What a start with the code does, in the words of a rehearsal."""
    (folder / "agent.py").write_text(text)
    before = len(calls(folder.parents[1]))
    try:
        outcome = satchel.run(folder, wake=True)
    except SatchelError:
        return "refused"
    if outcome.error is not None:
        return "fails"
    if outcome.doubts:
        return "asks"
    return "again" if "read ada" in calls(folder.parents[1])[before:] and "await read(item.text, 2)" in text else "same"


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_a_secret_of_the_environment_reaches_the_code(
    waiting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setattr(subprocess, "Popen", COLD)
    text = CODE.replace("import os", "import os\nassert 'API_KEY' not in os.environ\nimport os")
    (waiting / "agent.py").write_text(text)
    assert satchel.open(waiting).history.rehearse().verdict == "same"


def test_a_state_type_that_drops_a_key_is_found_by_a_rehearsal(waiting: Path) -> None:
    text = CODE.replace("from satchel", "from dataclasses import dataclass\nfrom satchel").replace(
        "@agent", "@dataclass\nclass State:\n    mails: str = ''\n\n@agent(state=State)"
    )
    (waiting / "agent.py").write_text(text)
    found = satchel.open(waiting).history.rehearse()
    assert found.verdict == "refused" and "has no key `sent`" in found.problem, found


def test_all_runs_under_a_folder(waiting: Path, tmp_path: Path) -> None:
    second = made(waiting.parent / "other")
    (second / "agent.py").write_text(
        CODE.replace("async def send", "async def mail").replace("await send", "await mail")
    )
    done = CliRunner().invoke(group, ["rehearse", str(waiting.parent)])
    lines = done.stdout.splitlines()
    assert done.exit_code == 4, done.output
    said = {" ".join(line.split()[:2]) for line in lines if line[:1].strip()}
    assert said == {f"same {waiting}:", f"asks {second}:"}, "copies have the same run_id"
    assert "1 same, 1 asks" in done.stderr
    told = json.loads(CliRunner().invoke(group, ["rehearse", "--json", str(second)]).stdout)
    assert (told["exit_code"], told["runs"][0]["verdict"]) == (4, "asks")


def test_wrong_words(waiting: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(group, ["rehearse", str(waiting), "--code", str(tmp_path / "nothing")])
    assert isinstance(done.exception, UsageError) or done.exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    done = CliRunner().invoke(group, ["rehearse", str(empty)])
    assert (done.exit_code, done.stderr) == (0, f"there are no runs under {empty}\n")


def test_a_module_that_the_new_code_lacks_is_still_found(waiting: Path, tmp_path: Path) -> None:
    """Without it the deploy would fail."""
    for folder in (waiting, tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        (folder / "agent.py").write_text(f"import mailer\n{CODE}")
    (waiting / "mailer.py").touch()
    assert satchel.open(waiting).history.rehearse().verdict == "same"
    found = satchel.open(waiting).history.rehearse(code=tmp_path / "new")
    assert (found.verdict, found.problem) == ("fails", "ModuleNotFoundError: No module named 'mailer'")
    (tmp_path / "new" / "agent.py").rename(tmp_path / "new" / "other.py")
    assert satchel.open(waiting).history.rehearse(code=tmp_path / "new").verdict == "same", (
        "only a part of the code is new"
    )


def test_a_link_or_a_pipe_ends_the_rehearsal_of_all_runs(waiting: Path, tmp_path: Path) -> None:
    code, shared = tmp_path / "new", tmp_path / "shared"
    made(waiting.parent / "other")
    for folder in (code / "inner", shared):
        folder.mkdir(parents=True)
    for name in ("mailer.py", "inner/deep.txt"):
        (shared / name).parent.mkdir(exist_ok=True)
        (shared / name).touch()
        (code / name).write_text("# new")
    (waiting / "mailer.py").symlink_to(shared / "mailer.py")
    (waiting / "shared").symlink_to(shared / "inner")
    (code / "shared").mkdir()
    (code / "shared" / "deep.txt").write_text("new")
    (waiting / "agent.py").write_text(f"import mailer\n{CODE}")
    (waiting / "up").symlink_to("..")
    (waiting / "data").symlink_to("inner/deep")
    (waiting / "inner" / "deep").mkdir(parents=True)
    (code / "agent.py").write_text(CODE)
    for folder in (waiting, code / "inner"):
        (folder / "nothing").symlink_to("/nowhere")
        os.mkfifo(folder / "pipe")
    before = content(shared)
    for words in ([], ["--code", str(code)]):
        done = CliRunner().invoke(group, ["rehearse", str(waiting.parent), *words])
        lines = [line.partition(": ")[0].rpartition("/")[2] for line in done.stdout.splitlines()[:2]]
        assert (done.exit_code, lines) == (0, ["mails", "other"]), done.output
    assert content(shared) == before


def test_an_agent_is_rehearsed_in_a_test(waiting: Path) -> None:
    @step
    async def read(name: str, page: int = 1) -> str:
        raise AssertionError

    async def nothing() -> None: ...

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("begin", nothing)
        await run.todo.each(work)

    async def work(run: Run[Any], item: Any) -> None:
        assert await read(item.text) == "ADA"

    before = content(waiting)
    found = rehearse(waiting, main)
    assert (found.verdict, [each.kind for each in found.findings]) == ("gone", ["gone", "next"])
    assert content(waiting) == before


def test_a_resource_and_a_branch_that_waits(waiting: Path) -> None:
    text = CODE.replace(
        "    text = await read", "    if item.text == 'ada': run.resources['db']\n    text = await read"
    )
    (waiting / "agent.py").write_text(text)
    found = satchel.open(waiting).history.rehearse()
    assert (found.verdict, [each.words for each in found.findings]) == ("same", ["it uses the resource 'db'"])


def test_a_task_that_begins_later_claims_its_record(tmp_path: Path) -> None:
    """The step of the first task is not on record, that of the second one is: nothing runs in its place."""

    @step
    async def read(name: str) -> str:
        if name == "first":
            await ready.wait()
            raise LookupError("stopped")
        return name

    async def one(name: str) -> None:
        await read(name)
        ready.set()

    async def both() -> None:
        await asyncio.gather(one("first"), one("second"))

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("both", both)

    ready = asyncio.Event()
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: both-1\nagent: agent.py:main\n")
    assert satchel.run(tmp_path, main).status == "failed"
    found = rehearse(tmp_path, main)
    assert (found.verdict, [each.words for each in found.findings]) == ("same", ['read("name":"first") comes next'])
