"""`pause` and `stop` of a run that is paused already: what lasts longer, or is stronger, counts from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.workspace.base import Mode
from satchel.workspace.formats import pause_file
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

from .conftest import Cli, Make, contents, data_of

PAST, FUTURE = "2026-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"


def paused(folder: Path, reason: str, until: str = "", mode: Mode = "drain") -> None:
    """The run is at rest for that."""
    request = PauseRequested(reason=reason, by="somebody", until=until, mode=mode)
    with opened(DiskStore(folder), "pause", Report()) as workspace:
        pausing.stop(workspace, pausing.PauseWish(), request)
        workspace.close("paused", reason)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(("reason", "until"), [("signal", ""), ("lunch", PAST), ("lunch", FUTURE)])
@pytest.mark.parametrize("command", ["pause", "stop"])
def test_a_pause_that_ends_by_itself_outlives_the_word_of_a_person(
    make: Make, cli: Cli, command: str, reason: str, until: str
) -> None:
    folder = make()
    paused(folder, reason, until)
    with (folder / "pause.yaml").open("a") as file:
        file.write("x-note: mine  # kept\n")
    done = cli(command, folder, "--reason", "stay there")
    assert done.exit_code == 0 and "already" not in done.stdout, done.output
    file = pause_file.parse((folder / "pause.yaml").read_bytes())
    assert (file.status, file.reason, file.until) == ("paused", "stay there", "")
    assert "x-note: mine  # kept" in (folder / "pause.yaml").read_text()
    status = data_of(cli("status", folder, "--json"))
    assert status["state"] == "paused" and status["reason"] == "stay there" and not status["pause"].get("until")
    ran = cli("run", folder)
    assert ran.exit_code == 3 and "stay there" in ran.output, ran.output
    assert cli("resume", folder).exit_code == 0


def test_a_later_end_of_a_pause_is_passed_over(make: Make, cli: Cli) -> None:
    folder = make()
    paused(folder, "lunch", PAST)
    assert "already" not in cli("pause", folder, "--until", FUTURE).stdout
    assert cli("run", folder).exit_code == 3
    assert "already" in cli("pause", folder, "--until", FUTURE).stdout


def test_instructions_that_a_pause_is_to_wait_for_are_passed_over(make: Make, cli: Cli) -> None:
    folder = make()
    paused(folder, "lunch")
    assert "already paused (lunch, by somebody)" in cli("pause", folder).stdout
    assert "already" not in cli("pause", folder, "--resume", "await_instructions").stdout
    assert "waits for instructions" in cli("resume", folder).output


@pytest.mark.parametrize("mode", ["emergency", "cancel"])
def test_a_pause_weakens_what_is_stronger(make: Make, cli: Cli, mode: Mode) -> None:
    folder = make()
    paused(folder, "wrong recipients", mode=mode)
    done = cli("pause", folder, "--until", FUTURE)
    assert done.exit_code == 0 and "wrong recipients" in done.stdout, done.output
    pause = look(DiskStore(folder)).moment.pause
    assert pause is not None and pause.mode == mode
    assert f"mode: {mode}" in (folder / "pause.yaml").read_text()


def test_an_emptied_file_lets_the_run_go_on(make: Make, cli: Cli) -> None:
    folder = make()
    paused(folder, "signal")
    (folder / "pause.yaml").write_text("")
    assert data_of(cli("status", folder, "--json"))["state"] == "paused"
    assert [cli("run", folder).exit_code for _ in range(2)] == [3, 3]
    assert cli("resume", folder).exit_code == 0


@pytest.mark.parametrize("text", ["mod: drain\n", "mode: [\n"])
@pytest.mark.parametrize("command", [("pause",), ("cancel", "--yes")])
def test_a_damaged_file_is_written_into(make: Make, cli: Cli, text: str, command: tuple[str, ...]) -> None:
    folder = make()
    (folder / "pause.yaml").write_text(text)
    before = contents(folder)
    refused = cli(command[0], folder, *command[1:])
    assert refused.exit_code == 2 and "did not change the file" in refused.stderr.lower(), refused.output
    assert contents(folder) == before


def test_a_run_that_never_started_is_to_be_resumed_over_a_damaged_file(make: Make, cli: Cli) -> None:
    folder = make()
    (folder / "pause.yaml").write_text("mod: drain\n")
    status = cli("status", folder).stdout
    assert "found the unknown key `mod`" in status and f"next      satchel run {folder}" in status
    assert cli("ls", folder.parent).stdout.splitlines()[1].rstrip().endswith(" run")


def test_a_completed_run_with_a_damaged_file_is_told_in_two_ways(make: Make, cli: Cli) -> None:
    folder = make()
    assert cli("run", folder).exit_code == 0
    (folder / "pause.yaml").write_text("mod: drain\n")
    ran, status = cli("run", folder), cli("status", folder).stdout
    said = "the run has completed and starts no new work"
    assert (
        ran.exit_code == 2
        and said in ran.stderr.lower()
        and said in status.lower()
        and "stays paused" not in ran.stderr
    )
    (folder / "pause.yaml").unlink()
    assert cli("run", folder).exit_code == 0


def test_a_conflict_that_is_settled_is_to_be_settled_again(make: Make, cli: Cli) -> None:
    folder = make()
    paused(folder, "conflict: todo.md conflicts with the run; `satchel merge` resolves it")
    status = cli("status", folder).stdout
    assert "it is resolved; `satchel resume` continues" in status and "satchel merge" not in status
