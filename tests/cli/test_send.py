"""`send`: what is sent arrives whole, in order, and whether or not a process runs the workspace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .conftest import Cli, Make, data_of, satchel

TAKING = """
from satchel import agent

async def work(run, task):
    heard = [each.text for each in await run.inbox.take("message")]
    run.state.setdefault("seen", []).append([task.text or task.data, heard])

@agent
async def main(run):
    await run.inbox.each(work)
"""


def sent(folder: Path) -> list[str]:
    return [path.read_text() for path in sorted((folder / "inbox").glob("*.*"))]


def seen(folder: Path) -> object:
    return json.loads((folder / "state.json").read_text())["data"].get("seen")


def test_what_is_sent_is_not_what_arrives(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TAKING)
    (tmp_path / "order.json").write_text('{"customer": 7, "items": ["a", null]}')
    (tmp_path / "Big letter.txt").write_text("Dear Ada\n")
    assert cli("send", folder, "Call Grace").exit_code == 0
    assert cli("send", folder, f"@{tmp_path}/order.json", f"@{tmp_path}/Big letter.txt").exit_code == 0
    assert cli("send", "--message", folder, "no: 22:30\nis text").exit_code == 0
    assert cli("check", folder).exit_code == 0
    assert cli("run", folder).exit_code == 0
    heard = ["no: 22:30\nis text"]
    assert seen(folder) == [["Call Grace\n", heard], [{"customer": 7, "items": ["a", None]}, []], ["Dear Ada\n", []]]


def test_a_path_is_printed_that_is_not_there(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TAKING)
    (tmp_path / "Big letter.txt").write_text("Dear Ada\n")
    result = cli("send", folder, "one", f"@{tmp_path}/Big letter.txt")
    first, second = result.stdout.splitlines()
    assert Path(first).read_text() == "one\n" and Path(second).read_text() == "Dear Ada\n"
    assert re.search(r"/inbox/\d{8}T\d{6}\.\d{6}Z-[0-9a-f]{6}-big-letter\.md$", second)
    (told,) = data_of(cli("send", "--json", "--message", folder, "hello"))
    assert told["kind"] == "message" and (folder / told["file"]).is_file()


def test_a_file_that_happens_to_have_the_name_of_a_text_is_sent(
    make: Make, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(TAKING)
    monkeypatch.chdir(tmp_path)
    Path("report").write_text("something private")
    assert cli("send", folder, "report", "yes/no", "@report").exit_code == 0
    assert sent(folder) == ["report\n", "yes/no\n", "something private\n"]


def test_standard_input_is_taken_for_a_name(make: Make) -> None:
    folder = make(TAKING)
    done = satchel("send", folder, "-", input="two\nlines")
    assert done.returncode == 0 and sent(folder) == ["two\nlines\n"]


def test_many_at_once_collide(make: Make, cli: Cli) -> None:
    folder = make(TAKING)
    words = [f"task {number}" for number in range(50)]
    assert cli("send", folder, *words).exit_code == 0
    assert len(sent(folder)) == 50
    assert cli("run", folder).exit_code == 0
    assert [text for text, _ in seen(folder)] == [f"{word}\n" for word in words]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["@orders/17.yaml"], "no such file"),
        (["@order.md"], "no such file"),
        (["order.md"], "`@order.md` sends what is in it"),
        (["  "], "is empty"),
        ([], "say what to send"),
        (["@."], "is a folder"),
        (["@bad.yaml"], "bad.yaml, line"),
        (["@binary.bin"], "not UTF-8"),
        (["good", "@missing.md"], "no such file"),
        (["--message", "@bad.yaml"], "is data, but a message must be a text"),
    ],
)
def test_wrong_input_is_sent(
    make: Make, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    folder = make(TAKING)
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("a: [1\n")
    Path("binary.bin").write_bytes(b"\xff\x00")
    result = cli("send", folder, *words)
    assert result.exit_code == 2 and why in result.stderr, result.stderr
    assert not (folder / "inbox").exists()


def test_a_folder_that_is_no_workspace_gets_mail(cli: Cli, tmp_path: Path) -> None:
    result = cli("send", tmp_path, "hello")
    assert result.exit_code == 2 and not (tmp_path / "inbox").exists()


def test_waiting_tasks_are_not_told(make: Make, cli: Cli, tmp_path: Path) -> None:
    folder = make(TAKING)
    assert "inbox" not in cli("status", folder).stdout
    cli("send", folder, "one", "two")
    assert re.search(r"inbox +2 waiting\n", cli("status", folder).stdout)
    assert data_of(cli("status", "--json", folder))["inbox"] == {"waiting": 2, "taken": 0}
    (row,) = [line for line in cli("ls", tmp_path).stdout.splitlines() if "demo-1a2b" in line]
    assert row.split()[4] == "2"
    cli("run", folder)
    assert re.search(r"inbox +0 waiting, 2 done\n", cli("status", folder).stdout)
    cli("send", folder, "three")
    status = cli("status", folder).stdout
    assert "1 waiting" in status and f"satchel resume {folder}" in status
    assert "resume" in cli("ls", tmp_path).stdout
    cli("send", "--message", folder, "nobody asks for it")
    cli("resume", folder)
    status = cli("status", folder).stdout
    assert "satchel resume" not in status


def test_a_task_that_can_not_be_taken_passes_the_check(make: Make, cli: Cli) -> None:
    folder = make(TAKING)
    (folder / "inbox").mkdir()
    (folder / "inbox/a.yaml").write_text("kind: order\n")
    (folder / "inbox/b.txt").write_text("a task?")
    (folder / "inbox/.hidden.md.swp").write_text("")
    result = cli("check", folder)
    assert result.exit_code == 2
    assert "inbox/a.yaml, line 1 (kind)" in result.stdout and "inbox/b.txt" in result.stdout
    assert "2 problems" in result.stdout


def test_a_cancelled_run_gets_mail(make: Make, cli: Cli) -> None:
    folder = make()
    assert cli("cancel", folder, "--yes").exit_code == 0
    refused = cli("send", folder, "do it")
    assert refused.exit_code == 2 and "was cancelled" in refused.stderr and not refused.stdout
    assert not (folder / "inbox").exists() or sent(folder) == []
