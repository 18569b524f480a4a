"""`run` and `resume`: what they print where, and with which exit code they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waits import PATIENCE

from satchel import open as open_workspace
from satchel.results import Report, RunResult
from satchel.runtime.cli import summary

from .conftest import ASKING, PLAIN, SLOW, Cli, Make, contents, data_of, satchel

Started = Callable[..., subprocess.Popen[str]]


def test_a_run_does_not_complete_or_mixes_up_its_streams(make: Make, cli: Cli) -> None:
    folder = make()
    result = cli("run", folder)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first.startswith("completed: 2 of 2 items done, 2 steps in ")
    assert rest[-1] == '  result: {"said": 2}'
    assert str(folder / "outputs/1.txt") in result.stdout
    told = result.stderr.splitlines()
    assert told[0] == "found   a new run"
    assert [line.split("(")[0].rstrip() for line in told[1:]] == [
        "begin  1 of 2  say a",
        "end    1 of 2  say a",
        "begin  2 of 2  say b",
        "end    2 of 2  say b",
    ]
    assert " left" in told[2] and " left" not in told[4]


def test_quiet_is_not_quiet(make: Make, cli: Cli) -> None:
    result = cli("run", "--quiet", make())
    assert result.stderr == "" and result.stdout.startswith("completed: ")


def test_a_completed_run_is_run_again(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    records = cli("log", folder, "--type", "step.completed").stdout
    for word in ("run", "resume"):
        again = cli(word, folder)
        assert again.exit_code == 0
        first, second = again.stdout.splitlines()
        assert first == "completed: demo-1a2b is already completed; there is nothing to do"
        assert second == '  result: {"said": 2}'
    assert cli("log", folder, "--type", "step.completed").stdout == records


def test_resume_starts_a_new_run(make: Make, cli: Cli) -> None:
    folder = make()
    before = contents(folder)
    result = cli("resume", folder)
    assert result.exit_code == 2
    assert "nothing to resume yet" in result.stderr and f"satchel run {folder}" in result.stderr
    assert contents(folder) == before


def test_a_question_is_not_asked_or_exits_otherwise_than_4(make: Make, cli: Cli) -> None:
    result = cli("run", make(ASKING))
    assert result.exit_code == 4
    assert "Has it happened?" in result.stdout and "satchel answer" in result.stdout and "d1 redo" in result.stdout


def test_json_is_not_one_object_even_if_the_agent_prints(make: Make) -> None:
    folder = make(PLAIN.replace("async def work(run, item):", "async def work(run, item):\n    print('{}noise')"))
    result = satchel("run", "--json", folder)
    assert result.returncode == 0
    told = json.loads(result.stdout)
    assert (told["status"], told["exit_code"], told["result"]) == ("completed", 0, {"said": 2})
    assert told["items"] == {"settled": 2, "leaves": 2} and told["outputs"] == ["outputs/1.txt", "outputs/2.txt"]
    assert "{}noise" in result.stderr


def test_json_of_a_question_lacks_it(make: Make, cli: Cli) -> None:
    told = data_of(cli("run", "--json", make(ASKING)))
    assert told["status"] == "waiting" and told["questions"][0]["id"] == "d1"


def test_json_of_a_refusal_is_empty(make: Make, cli: Cli) -> None:
    result = cli("resume", "--json", make())
    assert data_of(result)["status"] == "refused" and result.exit_code == 2


def test_ctrl_c_leaves_a_crash_behind(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any(line.startswith("stopping  signal, by SIGINT, after think(") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3, err
    assert out.startswith("paused by a signal: 1 of 2 items done") and "Traceback" not in err
    assert f"satchel resume {folder}" in err
    assert data_of(cli("status", "--json", folder))["state"] == "paused"
    assert cli("check", folder).exit_code == 0
    assert not (folder / ".satchel/lease.json").exists()


def test_after_a_kill_work_is_done_again(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    process.kill()
    process.communicate()
    (folder / "agent.py").write_text(SLOW.replace("asyncio.sleep(60)", "asyncio.sleep(0)"))
    result = cli("resume", folder)
    assert result.exit_code == 0, result.output
    assert "1 step and 1 item were not done again" in result.stdout
    assert "characters of a cut-off answer were continued" in result.stdout
    assert "crashed or was killed" in result.stderr and "characters of an unfinished answer" in result.stderr


def test_two_processes_run_one_workspace(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    result = cli("run", folder)
    assert result.exit_code == 6
    assert f"process {process.pid} on " in result.stderr and len(result.stderr.splitlines()) == 1
    assert data_of(cli("run", "--json", folder))["exit_code"] == 6
    assert cli("recover", folder).exit_code == 6


BROKEN = PLAIN.replace("return text.upper()", "return {}[text]")


def test_an_exception_of_the_agent_is_a_wall_of_text(make: Make, cli: Cli) -> None:
    folder = make(BROKEN)
    result = cli("run", "--quiet", folder)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "satchel: the agent failed: KeyError: 'say a'"
    assert any("agent.py:6 in shout" in line for line in lines) and len(lines) <= 6
    assert result.stdout.startswith("failed: 0 of 2 items done")
    assert data_of(cli("run", "--json", folder))["failure"]["kind"] == "KeyError"


def test_traceback_shows_less_than_all(make: Make) -> None:
    result = satchel("run", "--traceback", make(BROKEN))
    assert result.returncode == 1 and "Traceback (most recent call last)" in result.stderr


def test_an_exception_group_says_only_how_many(make: Make, cli: Cli) -> None:
    source = """
import asyncio
from satchel import agent

async def boom():
    raise ValueError("the real reason")

@agent
async def main(run):
    async with asyncio.TaskGroup() as group:
        group.create_task(boom())
"""
    assert "ValueError: the real reason" in cli("run", make(source)).stderr


@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("def main(:\n", 1, "SyntaxError"),
        ("x = 1\n", 2, "there is no 'main' in agent.py"),
        ("main = 1\n", 2, "is not an agent"),
        ("import no_such_module_here\n", 1, "No module named 'no_such_module_here'"),
        ("raise ValueError('at import')\n", 1, "ValueError: at import"),
        ("from satchel import agent\n@agent\nasync def main(run):\n    raise SystemExit(5)\n", 1, "ended the process"),
        ("raise SystemExit\n", 1, "ended the process"),
    ],
)
def test_a_mistake_in_the_agent_is_a_traceback(make: Make, cli: Cli, source: str, code: int, said: str) -> None:
    result = cli("run", make(source))
    assert result.exit_code == code, result.output
    assert said in result.stderr


@pytest.mark.parametrize(
    ("module", "extra"), [("langgraph.graph", "langgraph"), ("agents", "openai-agents"), ("pydantic_ai", "pydantic-ai")]
)
def test_a_missing_framework_does_not_say_how_to_install_it(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, module: str, extra: str
) -> None:
    class Missing:
        def find_spec(self, name: str, *_: object) -> None:
            if name == module.partition(".")[0]:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [each for each in sys.modules if each.partition(".")[0] == module.partition(".")[0]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])
    result = cli("run", make(f"from {module} import Agent\n{PLAIN}"))
    assert result.exit_code == 1 and f"pip install 'satchel[{extra}]'" in result.stderr, result.output


LOOP = "from satchel import agent\n@agent(on_cancel=print)\nasync def main(run):\n    pass\n"


@pytest.mark.parametrize(
    ("source", "said"),
    [("x = 1\n", "there is no 'main' in agent.py"), (LOOP, "must be `async def`"), (None, "a symbolic link")],
)
def test_status_does_not_say_why_the_agent_can_not_be_loaded(
    make: Make, cli: Cli, tmp_path: Path, source: str | None, said: str
) -> None:
    """It said only 'interrupted: repaired after a crash', after each start."""
    folder = make(source or PLAIN)
    if source is None:
        (folder / "agent.py").rename(tmp_path / "agent.py")
        (folder / "agent.py").symlink_to(tmp_path / "agent.py")
    for _ in range(2):
        started = cli("run", folder)
        assert started.exit_code == 2 and said in started.stderr
        status = cli("status", folder).stdout
        assert said in status[status.index("wanted") :]
    (folder / "agent.py").unlink()
    (folder / "agent.py").write_text(PLAIN)
    assert cli("run", folder).exit_code == 0 and said not in cli("status", folder).stdout


def test_a_missing_agent_file_fails_the_run(make: Make, cli: Cli) -> None:
    folder = make(PLAIN)
    definition = folder / "workspace.yaml"
    for named, meant in (("agnt.py", "Did you mean agent.py?"), ("other/code.py", "Correct `agent`, or put the file")):
        definition.write_text(re.sub("agent: .*", f"agent: {named}:main", definition.read_text()))
        result = cli("run", folder)
        assert result.exit_code == 2 and f"workspace.yaml: there is no {named}. {meant}" in result.stderr
    definition.write_text(re.sub("agent: .*", "agent: agent.py:main", definition.read_text()))
    assert cli("run", folder).exit_code == 0


def test_open_items_of_a_completed_run_are_kept_quiet(make: Make, cli: Cli) -> None:
    result = cli("run", make(PLAIN.replace("await run.todo.each(work)", "pass")))
    assert result.exit_code == 0 and "todo.md still has 2 items to do" in result.stderr


def test_an_edit_is_merged_silently_or_lost(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    state = folder / "state.json"
    state.write_text(state.read_text().replace('"data": {}', '"data": {"a": 1}'))
    result = cli("run", folder)
    assert result.exit_code == 4 and "edited  state.json: data.a is now 1" in result.stderr
    assert '"a": 1' in state.read_text()


def test_what_is_edited_meanwhile_is_not_mentioned(make: Make, cli: Cli) -> None:
    touch = "    import pathlib; pathlib.Path(run.folder, 'state.json').write_text('{}')\n"
    result = cli("run", make(PLAIN.replace("async def work(run, item):\n", "async def work(run, item):\n" + touch)))
    assert "edited  state.json was saved; the run reads it at the next safe point" in result.stderr
    assert "state.json had lost its `data`; it is restored" in result.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_a_traceback(make: Make, cli: Cli) -> None:
    folder = make()
    folder.chmod(0o500)
    try:
        result = cli("run", folder)
    finally:
        folder.chmod(0o700)
    assert result.exit_code == 1 and "Permission denied" in result.stderr


def test_the_current_folder_is_not_taken(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(make())
    result = cli("run")
    assert result.exit_code == 0 and "  outputs/1.txt (5 bytes)" in result.stdout
    monkeypatch.chdir(tmp_path)
    assert "the current folder is not a workspace" in cli("run").stderr


@pytest.mark.parametrize("status", ["paused", "sleeping"])
def test_a_reason_is_told_that_there_is_not(make: Make, capsys: pytest.CaptureFixture[str], status: str) -> None:
    """A signal has ended the wait for another process: nothing is on record yet."""
    place = open_workspace(make())
    ended = RunResult(status, Report(), until="2026-11-28T12:00:00Z")  # type: ignore[arg-type]
    summary.print_ended(ended, place, for_programs=False, quiet=True, with_traceback=False)
    assert "()" not in capsys.readouterr().out
