"""A run that is killed while it closes is repaired by the next start, whatever it stopped for; a start with nothing to
do writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, agent, run, step
from satchel.workspace.formats import yamltext
from satchel.workspace.lifecycle import opening, pausing
from satchel.workspace.lifecycle.acquire import Owned
from satchel.workspace.views.projector import Projector

Kill = Callable[[pytest.MonkeyPatch], None]


@step
def read(text: str) -> str:
    return text.upper()


def stopping(status: str) -> Any:
    """An agent whose second item stops as `status` says."""

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        run.state[item.text] = await read(item.text)
        if item.text == "one" or status == "completed":
            return
        if status == "waiting":
            await run.ask("Continue?", ["yes", "no"], wait_for=0)
        elif status == "sleeping":
            await run.sleep(timedelta(hours=1))
        elif status == "paused":
            await run.pause("a look")
        else:
            raise ValueError("no")

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    return main


def at_the_call(target: type, name: str, crash: type[BaseException]) -> Kill:
    """Ends the process at the first call of a method after the stop is on record."""

    def kill(monkeypatch: pytest.MonkeyPatch) -> None:
        whole = getattr(target, name)

        def call(self: Any, *args: Any) -> Any:
            if any(
                b'"type":"closed"' in path.read_bytes() or b'"type":"paused"' in path.read_bytes()
                for path in Path(kill.folder).glob("journal/*")
            ):  # type: ignore[attr-defined]
                raise crash
            return whole(self, *args)

        monkeypatch.setattr(target, name, call)

    return kill


POINTS = {
    "before its checkpoint": (opening.Workspace, "_checkpoint"),
    "before its files": (Projector, "write_all"),
    "before it gives up its lease": (Owned, "end"),
}


def written(folder: Path) -> dict[str, bytes]:
    """Every file, to see that nothing has changed."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("status", ["waiting", "paused", "sleeping", "completed"])
def test_a_kill_while_a_run_closes_leaves_no_stale_file(
    workspace: Path, crash: type[BaseException], status: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = at_the_call(*POINTS[point], crash)
    kill.folder = workspace  # type: ignore[attr-defined]
    with monkeypatch.context() as patched, pytest.raises(crash):
        kill(patched)
        run(workspace, stopping(status))

    assert run(workspace, stopping(status)).status == status

    assert json.loads((workspace / "state.json").read_text())["status"] == status
    assert json.loads((workspace / "state.json").read_text())["data"]["one"] == "ONE"
    assert "[x] one" in (workspace / "todo.md").read_text()
    assert not (workspace / ".satchel/lease.json").exists()
    if status == "paused":
        assert yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value["status"] == "paused"
    if status == "waiting":
        assert (workspace / "approvals/a1.yaml").exists()
    before = written(workspace)
    assert run(workspace, stopping(status)).entered is False
    assert written(workspace) == before


def test_a_pause_that_was_killed_before_pause_yaml_was_brought_up_says_so_after_the_next_start(
    workspace: Path, crash: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(crash):
        patched.setattr(pausing, "restore", lambda *_: (_ for _ in ()).throw(crash))
        run(workspace, stopping("paused"))
    assert "status: draining" in (workspace / "pause.yaml").read_text()

    assert run(workspace, stopping("paused")).status == "paused"

    assert "status: paused" in (workspace / "pause.yaml").read_text()


@pytest.mark.parametrize("status", ["waiting", "paused", "sleeping", "completed"])
def test_a_start_with_nothing_to_do_writes_nothing(workspace: Path, status: str) -> None:
    run(workspace, stopping(status))
    before = written(workspace)

    assert [run(workspace, stopping(status)).status for _ in range(3)] == [status] * 3

    assert written(workspace) == before


def test_a_completed_run_with_an_edit_is_opened(workspace: Path) -> None:
    run(workspace, stopping("completed"))
    path = workspace / "todo.md"
    path.write_text(path.read_text().replace("- [x] two", "- [x] two\n- [ ] three", 1))

    assert run(workspace, stopping("completed")).entered is True

    assert json.loads((workspace / "state.json").read_text())["data"]["three"] == "THREE"


@pytest.mark.parametrize("found", [None, b"", b'{"seq":'])
def test_a_completed_run_without_its_messages_stays_without_them(workspace: Path, found: bytes | None) -> None:
    async def say(run: Run[Any]) -> None:
        run.messages.add("user", "hello")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("say", say, run)

    run(workspace, main)
    path = workspace / "messages.jsonl"
    messages = path.read_bytes()
    path.unlink() if found is None else path.write_bytes(found)

    assert run(workspace, main).entered is False

    assert messages and path.read_bytes() == messages
