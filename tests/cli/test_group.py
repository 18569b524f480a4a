"""The commands as a whole: help, mistakes, what is imported when, and how long it takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from servers import Server

from satchel.runtime import api
from satchel.runtime import cli as package
from satchel.runtime.cli.group import COMMANDS, GROUPS, SYNONYMS, group, plugin_names
from satchel.workspace.inspect import Report
from satchel.workspace.lifecycle import opened
from satchel.workspace.store import open_store

from .conftest import ASKING, Cli, Make, satchel

SLOW_IMPORTS = ("rich", "jsonschema", "markdown_it", "pydantic", "tenacity", "filelock")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_example(cli: Cli, command: str) -> None:
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert "Example" in result.stdout and f"satchel {command}" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_command_module_is_not_listed() -> None:
    folder = Path(package.__file__).parent
    made = {
        (path.stem, name)
        for path in folder.glob("commands/[!_]*.py")
        for name in re.findall(r'^@click\.(?:command|group)\("(\w+)"', path.read_text(), re.M)
    }
    assert made == {(module, name) for name, (module, _) in COMMANDS.items()}


def test_the_overview_forgets_a_command(cli: Cli) -> None:
    for words in (["--help"], ["-h"], []):
        result = cli(*words)
        assert all(f"  {command} " in result.output for command in COMMANDS)


def test_commands_are_one_long_list_again(cli: Cli) -> None:
    """Those of plugins are in the groups, too, and each name stands in one line of its own."""
    parts = re.split(r"^(\w+):\n", cli("--help").stdout, flags=re.M)
    titles, bodies = parts[1::2], parts[2::2]
    assert titles == ["Options", *GROUPS]
    found = {title: re.findall(r"^  (\w+) ", body, re.M) for title, body in zip(titles, bodies, strict=True)}
    assert found["Look"] == [*GROUPS["Look"], "page", "watch"] and found["Serve"] == ["serve", "keeper", "fleet", "mcp"]
    assert sum(map(len, GROUPS.values())) == len(COMMANDS), "a name is in two groups"


@pytest.mark.parametrize("words", ["ls", "status", "pause", "answer", "rewind", "fork", "move", "page", "messages cut"])
def test_the_help_begins_with_what_all_commands_have(cli: Cli, words: str) -> None:
    listed = re.findall(r"^  (?:-\w, )?--([a-z-]+)", cli(*words.split(), "--help").stdout, re.M)
    common = ["by", "yes", "json", "storage-option", "help"]
    has = [each for each in common if each in listed]
    assert listed[-len(has) :] == has and len(has) > 1


_OF_A_RUN = {
    "run": "",
    "resume": "",
    "send": "hello",
    "stop": "",
    "show": "1",
    "diff": "1 2",
    "steps": "",
    "blame": "state.json",
    "check": "",
    "recover": "",
    "prune": "",
    "answer": "a1 yes",
    "rewind": "--to 1",
    "redo": "^1",
    "replay": "^1 --into other",
    "merge": "",
    "move": "other",
    "copy": "other",
    "fork": "other",
    "export": "a.zip",
    "log": "",
}


_OTHERS = {"new", "pause", "cancel", "status", "ls", "serve", "keeper", "rehearse", "replicate", "restore", "schema"}


def test_a_command_of_a_run_is_left_out_of_these_tests() -> None:
    ctx = click.Context(group)
    commands = {name: group.get_command(ctx, name) for name in COMMANDS}
    with_json = {name for name, each in commands.items() if each and any("--json" in one.opts for one in each.params)}
    assert with_json == {*_OF_A_RUN, *_OTHERS}, "add it to `_OF_A_RUN`, with the words that it takes behind a workspace"


@pytest.mark.parametrize("command", _OF_A_RUN)
def test_a_refusal_is_no_json(cli: Cli, tmp_path: Path, command: str) -> None:
    """A program that asked for JSON would have to read sentences."""
    result = cli(command, tmp_path, *_OF_A_RUN[command].split(), "--json")
    told = json.loads(result.stdout)
    assert told.get("status") == "refused", "it takes a folder that is no workspace"
    assert (told["exit_code"], result.exit_code) == (2, 2)
    assert told["error"]["kind"] == "NoWorkspace" and "is not a workspace" in told["error"]["message"]
    assert "is not a workspace" in result.stderr


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("command", [*_OF_A_RUN, "status", "pause", "cancel"])
def test_a_command_prints_no_document_or_two(
    cli: Cli, make: Make, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About a run that waits for an answer. `log` prints a document for each record."""
    monkeypatch.chdir(tmp_path)
    folder = make(ASKING)
    assert cli("run", folder, "--quiet").exit_code == 4
    result = cli(command, folder, *_OF_A_RUN.get(command, "").split(), "--json")
    documents = result.stdout.splitlines() if command == "log" else [result.stdout]
    assert documents and all(json.loads(each) for each in documents), result.output


def test_a_run_that_is_not_taken_over_has_no_json(
    cli: Cli, seaweedfs: Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No person is there to be asked."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = seaweedfs.place()
    api.new(make(ASKING), url)
    with opened(open_store(url), "run", Report()):
        for command in ("run", "recover"):
            result = cli(command, url, "--take-over", "--json")
            told = json.loads(result.stdout)
            assert (told["status"], told["exit_code"], result.exit_code) == ("refused", 6, 6)
            assert "was not taken over" in told["error"]["message"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that takes nothing")
def test_a_refusal_that_stdout_does_not_take_is_an_internal_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "satchel", "steps", str(tmp_path), "--json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 8 and "No space left" in done.stderr and "Traceback" not in done.stderr


def _imported(*words: str, cwd: Path) -> set[str]:
    code = (
        "import sys, json\n"
        "from satchel.runtime.cli import main\n"
        f"sys.argv = ['satchel', *{list(words)!r}]\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "finally:\n    print('\\n' + json.dumps([*sys.modules]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=60)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("words", [["--version"], ["status"], ["log"], ["status", "--json"]])
def test_something_slow_is_imported_before_it_is_needed(make: Make, cli: Cli, words: list[str]) -> None:
    folder = make()
    cli("run", folder)
    imported = _imported(*words, cwd=folder)
    unwanted = [name for name in SLOW_IMPORTS if name in imported]
    assert unwanted == []
    assert not any(name.startswith("satchel_agent_") for name in imported), "the agent's code was run"
    others = {name for name in imported if name.startswith("satchel.runtime.cli.commands.")}
    assert others <= {f"satchel.runtime.cli.commands.{COMMANDS[words[0]][0]}" for _ in words if words[0] in COMMANDS}


@pytest.mark.slow
def test_a_command_needs_what_another_has_imported(make: Make, tmp_path: Path) -> None:
    """All of them in processes that have just begun; the other tests' have imported everything."""
    demo, moved, new, copied = make(ASKING), tmp_path / "moved", tmp_path / "new", tmp_path / "copy"
    covered = set[str]()
    for words, code in (
        (["run", demo], 4),
        (["status", demo], 0),
        (["ls", tmp_path], 0),
        (["log", demo], 0),
        (["check", demo], 0),
        (["answer", demo, "d1", "done", "--result", "sent"], 0),
        (["resume", demo], 0),
        (["send", demo, "a task"], 0),
        (["merge", demo], 0),
        (["recover", demo], 0),
        (["move", demo, moved], 0),
        (["copy", moved, copied], 0),
        (["blame", moved, "state.json"], 0),
        (["prune", moved, "--dry-run"], 0),
        (["export", moved, tmp_path / "z"], 0),
        (["fork", moved, tmp_path / "fork"], 0),
        (["rehearse", moved], 0),
        (["redo", moved, "^1"], 0),
        (["rewind", moved, "--to", "2"], 0),
        (["new", moved, new], 0),
        (["messages", "cut", new, "--after", "0"], 0),
        (["pause", new], 0),
        (["cancel", new, "--yes"], 0),
        (["stop", new], 0),
        (["show", new], 0),
        (["diff", new, "1"], 0),
        (["steps", new], 0),
        (["schema", "data"], 0),
        (["completion", "bash"], 0),
        (["serve", "--once", tmp_path], 0),
        (["skill"], 0),
        (["keeper", new, "--", "true"], 0),
        (["replicate", "--once", copied, tmp_path / "backup"], 0),
        (["restore", tmp_path / "backup", tmp_path / "restored"], 0),
        *(([name, tmp_path / "none"], 2) for name in ("page", "mcp", "watch", "fleet")),
        (["replay", copied, "^1", "--into", tmp_path / "replayed"], 0),
    ):
        done = satchel(*words, is_cold=True)
        assert done.returncode == code and "Traceback" not in done.stderr, (words, done.stdout, done.stderr)
        covered.add(str(words[0]))
    assert covered == {*COMMANDS, "fleet", "page", "mcp", "watch"}


def test_a_wrong_command_says_nothing_useful(cli: Cli) -> None:
    for words in (["frobnicate"], ["run", "--frobnicate"], ["new", "a", "b", "c"], ["answer"], ["log", "-n", "0"]):
        result = cli(*words)
        assert result.exit_code == 2 and result.stderr.startswith("satchel: ")
        assert len(result.stderr.splitlines()) <= 2 and result.stdout == ""


def test_a_mistyped_command_is_left_to_be_guessed(cli: Cli) -> None:
    for typed, meant in (("pasue", "pause"), ("stauts", "status"), ("Resume", "resume"), ("anser", "answer")):
        assert f"no such command '{typed}'. Did you mean '{meant}'?" in cli(typed).stderr
    assert "mean" not in cli("frobnicate").stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("kill", "stop"),
        ("list", "ls"),
        ("ps", "ls"),
        ("logs", "log"),
        ("tail", "log -f"),
        ("start", "run"),
        ("init", "new"),
        ("approve", "answer"),
        ("deny", "answer"),
        ("retry", "redo"),
        ("Rollback", "rewind"),
        ("describe", "status"),
        ("audit", "log --audit"),
        ("ui", "page"),
        ("version", "--version"),
        ("help", "--help"),
        ("help fork", "fork --help"),
    ],
)
def test_a_word_of_other_programs_is_taken_for_a_typing_error(cli: Cli, typed: str, meant: str) -> None:
    result = cli(*typed.split())
    assert result.exit_code == 2
    assert f"no such command '{typed.split()[0]}'. Did you mean '{meant}'?" in result.stderr


def test_a_suggestion_is_no_command(cli: Cli) -> None:
    for typed, meant in SYNONYMS.items():
        assert typed not in COMMANDS, "it would never be looked up"
        assert meant.split()[0] in (*COMMANDS, *plugin_names()) or cli(meant).exit_code == 0
        assert cli(*meant.split()[:1], "--help").exit_code == 0
    assert "delete the folder" in cli("rm", "my-run").stderr and "satchel cancel WS" in cli("delete").stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("answer approve WS", "answer WS approve"),
        ("answer a1 WS", "answer WS a1"),
        ("answer a1 approve WS", "answer WS a1 approve"),
        ("answer WS approve a1", "answer WS a1 approve"),
        ("send hello WS", "send WS hello"),
        ("redo ^1 WS", "redo WS '^1'"),
        ("replay ^1 WS --into b", "replay WS '^1' ..."),
        ("fork b WS", "fork WS b"),
        ("export b.zip WS", "export WS b.zip"),
        ("move b WS", "move WS b"),
        ("show 3 WS", "show WS 3"),
        ("diff 1 2 WS", "diff WS 1 2"),
        ("steps ^1 WS", "steps WS '^1'"),
        ("blame state.json WS", "blame WS state.json"),
        ("new b digest", "new digest b"),
    ],
)
def test_words_in_another_order_look_like_a_missing_folder(
    make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch, typed: str, meant: str
) -> None:
    monkeypatch.chdir(make(ASKING).parent)
    (name,) = (each.parent.name for each in Path().glob("*/workspace.yaml"))
    result = cli(*typed.replace("WS", name).split())
    assert result.exit_code == 2 and f"first: `satchel {meant.replace('WS', name)}`" in result.stderr.replace(
        "before the answer", "first"
    )


@pytest.mark.parametrize(
    ("typed", "option"),
    [("rewind WS 3", "--to"), ("fork WS b 3", "--at"), ("merge WS ours", "--use"), ("log WS ^1", "--item")],
)
def test_a_word_without_an_option_is_only_refused(cli: Cli, typed: str, option: str) -> None:
    result = cli(*typed.split())
    assert result.exit_code == 2 and f" follows {option}" in result.stderr


def test_a_bare_call_is_told_as_an_error(cli: Cli) -> None:
    """It shows the help, as `--help` does. The exit code says that nothing was done."""
    result = cli()
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", cli("--help").stdout)


def test_hostile_places_are_tracebacks(cli: Cli, tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.write_text("x")
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "missing", a_file, tmp_path / "empty", "s4://bucket/x", "s3:/bucket/x", "", "\udcff"):
        for command in ("run", "resume", "recover", "status", "log", "check"):
            result = cli(command, place)
            assert result.exit_code == 2, (command, place, result.output)
            assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["run", "resume", "recover", "status", "log", "check"])
def test_a_broken_definition_is_not_explained(make: Make, cli: Cli, command: str) -> None:
    folder = make()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: demo-1a2b\nagent: agent.py:main\nsettings:\n  a: b: c\n")
    result = cli(command, folder)
    assert result.exit_code == 2 and "line 5" in result.output


@pytest.mark.parametrize("command", ["run", "resume", "recover", "status", "check"])
def test_a_newer_workspace_is_touched(make: Make, cli: Cli, command: str) -> None:
    folder = make()
    (folder / "workspace.yaml").write_text("format: 7\nrun_id: demo-1a2b\nagent: agent.py:main\n")
    result = cli(command, folder)
    assert result.exit_code == 2 and "pgrade Satchel" in result.output
    assert sorted(os.listdir(folder)) == ["agent.py", "workspace.yaml"]


def test_version_needs_a_workspace() -> None:
    result = satchel("--version")
    assert result.returncode == 0 and result.stdout.startswith("satchel ")


def test_a_closed_pipe_is_complained_of(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    command = f"{sys.executable} -m satchel log --json {folder} | head -c 1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""


def test_a_terminal_without_the_letters_breaks_it(make: Make) -> None:
    folder = make('from satchel import agent\n@agent\nasync def main(run):\n    return "Größe 日本"\n')
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    result = satchel("run", "--in-process", folder, env=environment, encoding="latin-1")
    assert result.returncode == 0 and "Größe \\u65e5" in result.stdout


def test_no_color_is_coloured(make: Make, cli: Cli) -> None:
    folder = make()
    assert "\x1b" not in cli("status", folder, env={"NO_COLOR": "1"}).output
    assert "\x1b" not in satchel("status", folder).stdout


def test_completion_knows_no_commands_or_folders() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_SATCHEL_COMPLETE" in satchel("completion", shell).stdout
    words = {**os.environ, "_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": "satchel re", "COMP_CWORD": "1"}
    found = satchel(env=words).stdout.split()
    assert found == [
        "plain,resume",
        "plain,rewind",
        "plain,redo",
        "plain,replay",
        "plain,rehearse",
        "plain,recover",
        "plain,replicate",
        "plain,restore",
    ]
    words |= {"COMP_WORDS": "satchel status ", "COMP_CWORD": "2"}
    assert satchel(env=words).stdout.startswith("dir,")


def test_a_bug_is_shown_as_a_traceback(cli: Cli, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("satchel.runtime.status.run_status.stand", broken)
    result = cli("status", make())
    assert result.exit_code == 1 and "ZeroDivisionError: oops" in result.stderr and "report the error" in result.stderr


def test_ctrl_c_while_looking_is_a_traceback(cli: Cli, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("satchel.runtime.status.run_status.stand", interrupted)
    result = cli("status", make())
    assert result.exit_code == 130 and result.stderr.strip() == "satchel: interrupted"


# What is loaded. Counted and not timed: a module takes about a third of a millisecond


LOADS_NOT = {
    "aiohttp",
    "asyncio",
    "filelock",
    "fsspec",
    "importlib.metadata",
    "jsonschema",
    "markdown_it",
    "rich",
    "watchdog",
}


def loaded(*words: str) -> list[str]:
    """The modules that a command imports in its own process; the names only of what `import` statements ask for."""
    command = [sys.executable, "-X", "importtime", "-m", "satchel", *words]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return [line.rpartition("|")[2].strip() for line in told.splitlines() if line.startswith("import time:")]


def ours(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("satchel.")]


def test_the_list_of_commands_loads_the_commands() -> None:
    assert len(ours(loaded("--help"))) <= 24


def test_a_look_at_a_run_loads_what_changes_one(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    names = loaded("status", str(folder))
    assert not {*LOADS_NOT, "satchel.workspace.lifecycle.opening", "satchel.workspace.transfer"} & {*names}
    assert "satchel.workspace.inspect.load" in names and len(ours(names)) <= 178


def test_a_supervisor_loads_what_runs_an_agent(make: Make) -> None:
    """Its child does, at that moment."""
    names = loaded("run", "--quiet", str(make()))
    assert not {
        *LOADS_NOT,
        "satchel.workspace.lifecycle.opening",
        "satchel.workspace.inspect.load",
        "satchel.runtime.execution.running",
        "ctypes",
    } & {*names}
    assert "satchel.runtime.supervision.child" in names and len(ours(names)) <= 81


ONE_STEP = """
from satchel import Run, agent, step

@step
def answer() -> int:
    return 42

@agent
async def main(run: Run):
    await run.scope("one", answer)
"""


def test_a_small_run_loads_what_only_others_need(make: Make) -> None:
    names = {*loaded("run", "--in-process", "--quiet", str(make(ONE_STEP)))}
    unwanted = LOADS_NOT - {"asyncio", "filelock", "watchdog"} | {"email", "importlib.resources", "tenacity", "zipfile"}
    assert not unwanted & names and "satchel.workspace.lifecycle.opening" in names


FROZEN = """
import gc
from satchel import Run, agent

@agent
async def main(run: Run):
    return gc.get_freeze_count()
"""


def test_what_was_imported_is_looked_through_for_garbage(make: Make) -> None:
    """An interpreter does so again and again before it ends. What an agent makes is looked at."""
    folder = make(FROZEN)
    code = (
        "import atexit, gc, sys\nfrom satchel.__main__ import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count(), len(gc.get_objects())))\n"
        f"sys.argv = ['satchel', 'run', '--json', {str(folder)!r}]\nmain()"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    outcome, _, last = told.rstrip().rpartition("\n")
    frozen, rest = map(int, last.split())
    assert frozen > 10_000 and rest < 1_000
    assert json.loads(outcome)["result"] > 20_000
