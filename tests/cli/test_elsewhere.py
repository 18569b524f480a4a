"""A run on a WebDAV server and on an sftp server: begun there by the command line, moved to a folder and back."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path

import fsspec.config
import pytest
from elsewhere import Elsewhere
from waits import PATIENCE

from satchel.workspace.store import DiskStore, Store, open_store
from satchel.workspace.transfer import copy_files
from satchel.workspace.transfer.copy_files import hashes

from .conftest import Cli, Make

AGENT = """
from satchel import agent, step

@step
def shout(text):
    return text.upper()

async def work(run, item):
    run.state["said"] = await shout(item.text)
    await run.output(f"{item.id}.txt", run.state["said"])

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Demo", ["say a", "say b"])
    await run.todo.each(work)
    await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
"""


@pytest.fixture(params=["sftp", "sshfs", "webdav"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """The URL of a place on a real server, for which no options are needed, and the folder where it lies."""
    server: Elsewhere = request.getfixturevalue(request.param)
    url, folder = server.place()
    monkeypatch.setitem(fsspec.config.conf, url.partition("://")[0], server.options)
    return url, folder


def held(store: Store) -> dict[str, str]:
    return {entry.path: hashes(store.read(entry.path).data)[0] for entry in copy_files.carried(store)}


@pytest.mark.slow
def test_a_run_on_a_server_that_is_no_bucket_dies_or_does_not_come_back(
    place: tuple[str, Path], cli: Cli, make: Make, tmp_path: Path
) -> None:
    url, behind = place
    assert cli("new", make(AGENT), url).exit_code == 0
    ran = cli("run", url, "--quiet")
    assert ran.exit_code == 4, ran.output
    state = json.loads((behind / "state.json").read_text())
    assert (state["status"], state["data"]) == ("waiting", {"said": "SAY B"})
    assert {path.name for path in (behind / "outputs").iterdir()} == {"1.txt", "2.txt"}
    assert not [*(behind / ".satchel/tmp").glob("*")], "temporary files are left"

    before = held(open_store(url))
    moved = cli("move", url, tmp_path / "c")
    assert moved.exit_code == 0, moved.output
    here = held(DiskStore(tmp_path / "c"))
    assert before.items() <= here.items() and all("journal/" in path for path in here.keys() - before.keys())
    left = {path.relative_to(behind).as_posix() for path in behind.rglob("*") if path.is_file() and path.stat().st_size}
    assert left == {"moved.yaml"}, "half cleared"

    assert cli("answer", tmp_path / "c", "yes").exit_code == 0
    back = cli("move", tmp_path / "c", url)
    assert back.exit_code == 0, back.output
    assert cli("resume", url, "--quiet").exit_code == 0
    assert json.loads((behind / "state.json").read_text())["status"] == "completed"
    assert "completed" in cli("status", url).output and cli("check", url).exit_code == 0


@pytest.mark.slow
def test_a_link_on_a_server_is_left_behind_in_silence(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cli: Cli, make: Make, tmp_path: Path
) -> None:
    server: Elsewhere = request.getfixturevalue("sftp")
    url, behind = server.place()
    monkeypatch.setitem(fsspec.config.conf, "sftp", server.options)
    assert cli("new", make(AGENT), url).exit_code == 0
    (behind / "link").symlink_to("agent.py")
    refused = cli("copy", url, tmp_path / "c")
    assert refused.exit_code == 2 and "link: can't be transferred: neither file nor folder" in refused.output
    assert not copy_files.carried(DiskStore(tmp_path / "c")), "something was copied"
    gc.collect()
    for thread in threading.enumerate():
        if type(thread).__name__ == "Transport":
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a store that is gone keeps its connection, and a thread"
