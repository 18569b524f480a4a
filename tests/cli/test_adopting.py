"""`--adopt` says what is at the other place, asks at a terminal, and ends the run there only if a person says so."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from servers import BUCKET, Server

from satchel.workspace.base.errors import LeaseHeld, UsageError
from satchel.workspace.inspect import transfer_file
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle import end_other
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, open_store

from .conftest import Cli, Make

ASKING = """
from satchel import agent

@agent
async def main(run):
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
"""


@pytest.fixture
def two(make: Make, cli: Cli, tmp_path: Path) -> tuple[Path, Path]:
    """A run that waits, and a copy of its folder."""
    one = make(ASKING)
    assert cli("run", one, "--quiet").exit_code == 4
    return one, shutil.copytree(one, tmp_path / "copy")


def test_an_adoption_stops_the_original_by_itself(two: tuple[Path, Path], cli: Cli) -> None:
    one, copy = two
    told = cli("resume", copy, "--adopt", "--in-process")
    assert told.exit_code == 4 and f"The run at {one} is left as it is, and can go on." in told.output, told.output
    assert cli("run", one, "--in-process", "--quiet").exit_code == 4
    assert not (one / "moved.yaml").exists()


def test_the_original_goes_on_although_a_person_has_ended_it(two: tuple[Path, Path], cli: Cli) -> None:
    one, copy = two
    files = {path.name for path in one.iterdir()}
    told = cli("resume", copy, "--adopt", "--end-other", "--in-process")
    assert told.exit_code == 4 and f"ended the run at {one}" in told.output, told.output
    refused = cli("run", one, "--in-process")
    assert refused.exit_code == 2 and "is at another place now" in refused.output and str(copy) in refused.output
    assert {path.name for path in one.iterdir()} == files | {"moved.yaml"}
    assert cli("answer", copy, "yes").exit_code == 0
    assert cli("resume", copy, "--in-process", "--quiet").exit_code == 0


@pytest.mark.usefixtures("holder_stays")
def test_a_run_that_is_active_on_a_disk_is_ended(two: tuple[Path, Path], cli: Cli) -> None:
    one, copy = two
    before = (copy / "state.json").read_bytes(), sorted(os.listdir(copy / "journal"))
    with DiskStore(one).lock():
        told = cli("resume", copy, "--adopt", "--end-other", "--in-process")
    assert told.exit_code == 6 and not (one / "moved.yaml").exists(), told.output
    assert ((copy / "state.json").read_bytes(), sorted(os.listdir(copy / "journal"))) == before


def test_ending_another_place_without_an_adoption_does_something(two: tuple[Path, Path], cli: Cli) -> None:
    one, copy = two
    assert cli("resume", copy, "--end-other").exit_code == 2 and not (one / "moved.yaml").exists()
    with pytest.raises(UsageError, match="no other place is known"):
        end_other(DiskStore(one), by="me")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("typed", "code", "ends"), [("n\n", 2, False), ("y\nn\n", 4, False), ("y\ny\n", 4, True)])
def test_a_person_at_a_terminal_is_not_asked(two: tuple[Path, Path], typed: str, code: int, ends: bool) -> None:
    one, copy = two
    words = [sys.executable, "-m", "satchel", "resume", str(copy), "--adopt", "--in-process", "--quiet"]
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    done = subprocess.run(words, stdin=theirs, capture_output=True, text=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code and "Continue the run here?" in done.stderr, done.stderr
    assert (one / "moved.yaml").exists() == ends and f"{one} still has it" in done.stderr


@pytest.mark.slow
def test_the_run_in_a_bucket_goes_on_beside_its_downloaded_copy(
    make: Make, cli: Cli, seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    place = seaweedfs.place()
    assert cli("new", make(ASKING), place).exit_code == 0 and cli("run", place, "--in-process").exit_code == 4
    prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
    for each in seaweedfs.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["Contents"]:
        target = tmp_path / "copy" / each["Key"].removeprefix(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(seaweedfs.client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read())
    with pytest.raises(LeaseHeld), opened(open_store(place), "run", Report(), take_over=True) as workspace:
        told = cli("resume", tmp_path / "copy", "--adopt", "--end-other", "--in-process")
        assert told.exit_code == 4 and f"ended the run at {place}" in told.output, told.output
        workspace.close()  # as a process that was active there
    stone = transfer_file.read_tombstone(open_store(place))
    assert stone is not None and stone.to == str(tmp_path / "copy")
    assert "is at another place now" in cli("run", place, "--in-process").output


def test_a_place_that_can_not_be_reached_passes_for_one_that_was_ended(
    two: tuple[Path, Path], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, copy = two
    with opened(DiskStore(copy), "recover", Report(), adopt=True):
        pass  # not closed
    further = shutil.copytree(copy, copy.parent / "further")
    monkeypatch.setattr("socket.gethostname", lambda: "another-machine")
    told = cli("resume", further, "--adopt", "--end-other", "--in-process")
    assert told.exit_code == 2 and "That place can't be reached, so nothing stops the run there" in told.output
    told = cli("resume", further, "--adopt", "--in-process")
    assert told.exit_code == 4 and "make sure that it never runs" in told.output, told.output
