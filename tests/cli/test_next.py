"""The `next` of a status is a command that a start takes, with what a person has to do before it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

import satchel
from satchel.runtime.faces.mcp.descriptions import next_of
from satchel.runtime.status.run_status import wanted

from .conftest import Cli, Make, data_of
from .test_merge import torn

__all__ = ["torn"]

ASKING = """
from satchel import agent, step

@step
async def read(n: int) -> int:
    return n

async def work(run, item):
    for number in range(3):
        await read(number)
    if item.text != "read":
        await run.ask("Go on?", ["yes", "no"], wait_for=0)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["read", "ask"])
    await run.todo.each(work)
"""

SLEEPING = """
from satchel import agent

@agent
async def main(run):
    await run.sleep(3600)
"""


def test_a_start_is_proposed_of_a_workspace_that_programs_hold(cli: Cli, tmp_path: Path) -> None:
    talk, safe, new = tmp_path / "talk", tmp_path / "safe", tmp_path / "new"
    with satchel.hold(talk, kind="conversation") as held:
        held.append([{"role": "user", "content": "hello"}, {"role": "user", "content": "hello?"}])
    assert cli("replicate", talk, safe, "--once").exit_code == 0
    restored = cli("restore", safe, new)
    assert restored.stderr == f"next: satchel status {new}\n" and "effect" not in restored.stdout
    for told, folder in ((cli("recover", new), new), (cli("messages", "cut", talk, "--after", "2"), talk)):
        assert told.exit_code == 0 and told.stderr == f"next: satchel status {folder}\n", told.output


def next_said(folder: Path, cli: Cli) -> str:
    """What `status` says, and `--json` and Python, too."""
    said: str = data_of(cli("status", "--json", folder))["next"]
    assert satchel.open(folder).status().next == said and f"next {said}" in " ".join(
        cli("status", folder).stdout.split()
    )
    return said


def type_it(said: str, cli: Cli) -> int:
    """Type the last command of it."""
    name, *words = shlex.split(said[said.rindex("satchel ") :])[1:]
    result = cli(name, *words, *(["--in-process", "--quiet"] if name in ("run", "resume") else []))
    assert result.exit_code in (0, 3, 4), result.output
    return result.exit_code


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("how", ["waiting", "paused", "interrupted", "completed"])
def test_a_copy_is_told_to_start_without_its_adoption(make: Make, cli: Cli, tmp_path: Path, how: str) -> None:
    one = make(ASKING)
    assert cli("run", one, "--quiet").exit_code == 4
    if how == "paused":
        cli("pause", one, "--reason", "lunch")
    if how == "completed":
        cli("answer", one, "a1", "yes")
        assert cli("resume", one, "--quiet").exit_code == 0
    copy = shutil.copytree(one, tmp_path / "copy")
    if how == "interrupted":
        shutil.rmtree(copy / ".satchel")
    if how == "completed":
        (copy / "todo.md").write_text((copy / "todo.md").read_text() + "- [ ] read\n")
    assert next_said(copy, cli) == f"satchel resume {copy} --adopt"
    status = satchel.open(copy).status()
    assert wanted(status) == "resume --adopt"
    assert next_of("demo", status, frozenset({"resume", "answer", "start"})) == (
        "It may be a copy. A person has to say that it continues here: `satchel resume demo --adopt`."
    )
    type_it(next_said(copy, cli), cli)
    assert "--adopt" not in satchel.open(copy).status().next


def test_a_copy_that_sleeps_is_told_to_start_without_its_adoption(make: Make, cli: Cli, tmp_path: Path) -> None:
    one = make(SLEEPING)
    cli("run", one, "--quiet")
    copy = shutil.copytree(one, tmp_path / "copy")
    run, resume = f"satchel run {copy} --adopt", f"satchel resume {copy} --adopt"
    assert next_said(copy, cli) == f"{run} when it is time, {resume} to continue at once"


def test_a_copy_with_a_conflict_is_told_to_merge_first(torn: Path, cli: Cli, tmp_path: Path) -> None:
    copy = shutil.copytree(torn, tmp_path / "copy")
    assert cli("merge", copy, "--use", "theirs").exit_code == 2, "it may be a copy"
    while "--adopt" in (said := next_said(copy, cli)) or "merge" not in said:
        type_it(said, cli)
    assert said == f"satchel merge {copy}"


def test_a_run_whose_budget_is_used_up_is_told_to_resume(make: Make, cli: Cli) -> None:
    folder = make(ASKING, extra="budget: {steps: 2}\n")
    ended = cli("run", folder, "--in-process")
    raised = f"raise `budget: steps:` in workspace.yaml, then satchel resume {folder}"
    assert next_said(folder, cli) == raised and f"next: {raised}" in ended.stderr
    (folder / "workspace.yaml").write_text((folder / "workspace.yaml").read_text().replace("2}", "200}"))
    assert next_said(folder, cli) == f"satchel resume {folder}"
    type_it(next_said(folder, cli), cli)


def test_a_pause_that_waits_for_instructions_is_told_to_resume(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder, "--quiet")
    cli("pause", folder, "--resume", "await_instructions")
    assert next_said(folder, cli) == f"write `instructions:` into pause.yaml, then satchel resume {folder}"
    with (folder / "pause.yaml").open("a") as file:
        file.write("instructions: be brief\n")
    assert next_said(folder, cli) == f"satchel resume {folder}"
    type_it(next_said(folder, cli), cli)


def test_a_run_that_was_paused_for_its_changed_code_is_told_to_resume(make: Make, cli: Cli) -> None:
    folder = make(ASKING.replace('["read", "ask"]', '["read"]'), extra="on_drift: refuse\n")
    assert cli("run", folder, "--quiet").exit_code == 0
    (folder / "agent.py").write_text(ASKING)
    (folder / "todo.md").write_text((folder / "todo.md").read_text() + "- [ ] read\n")
    assert cli("resume", folder, "--quiet", "--in-process").exit_code == 2
    accepts = f"satchel resume {folder} --accept-drift"
    assert next_said(folder, cli) == f"undo the changes of code and settings, or {accepts}"
    type_it(next_said(folder, cli), cli)


@pytest.mark.parametrize("name", ["pause.yaml", "state.json", "todo.md"])
def test_a_file_that_the_next_start_refuses_is_not_named(make: Make, cli: Cli, name: str) -> None:
    folder = make(ASKING)
    cli("run", folder, "--quiet")
    if name == "pause.yaml":
        cli("pause", folder, "--reason", "lunch")
    was = (folder / name).read_text()
    (folder / name).write_text({"todo.md": "- [y] z\n"}.get(name, "reason: {"))
    resume = f"satchel resume {folder}"
    then = resume if name == "pause.yaml" else f"answer, then {resume}"
    assert next_said(folder, cli) == f"correct {name}, {'then ' if then == resume else ''}{then}"
    (folder / name).write_text(was)
    assert next_said(folder, cli) == then
    type_it(next_said(folder, cli), cli)


def test_a_run_whose_journal_is_lost_is_told_to_resume(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder, "--quiet")
    for name in ("journal", "checkpoints"):
        shutil.rmtree(folder / name)
    assert next_said(folder, cli) == f"mark the begun items in todo.md, then satchel resume {folder}"
    (folder / "todo.md").write_text((folder / "todo.md").read_text().replace("[/]", "[ ]"))
    assert next_said(folder, cli) == f"satchel resume {folder}"
    type_it(next_said(folder, cli), cli)
