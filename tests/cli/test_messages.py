"""`satchel messages cut`: what the shell completes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import satchel
from satchel.runtime.cli.group import group

from .conftest import Make

TALKING = """
from satchel import agent

@agent
async def child(run):
    await run.scope("say", lambda: run.messages.add("user", "of the child"))

@agent
async def main(run):
    async def talk():
        run.messages.add("user", "Good morning")
        run.messages.add("assistant", "Hello\\n" * 40)
    await run.scope("talk", talk)
    await run.spawn(child, "child")
"""


@pytest.fixture
def folder(make: Make) -> Path:
    folder = make(TALKING)
    assert satchel.open(folder).run().status == "completed"
    return folder


def completed(incomplete: str, *words: str) -> list[tuple[str, str | None]]:
    found = ShellComplete(group, {}, "satchel", "_SATCHEL_COMPLETE").get_completions([*words], incomplete)
    return [(item.value, item.help) for item in found]


def test_messages_are_not_completed_from_elsewhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    said = satchel.open(folder).history.show().agents
    own, of_child = ([str(each["seq"]) for each in agent.messages] for agent in said)
    words = ("messages", "cut", str(folder), "--after")
    (first, morning), (second, hello) = completed("", *words)
    assert [first, second] == own and morning == 'user: "Good morning"'
    assert hello and hello.startswith('assistant: "Hello') and len(hello) <= 60
    assert completed(second, *words) == [(second, hello)]
    in_child = completed("", "messages", "cut", str(folder), "--agent", "child", "--after")
    assert in_child == [(of_child[0], 'user: "of the child"')]
    after_it = completed("", "messages", "cut", "--agent", "child", str(folder), "--after")
    assert after_it == in_child


def test_a_key_press_fails_or_asks_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for named in ("s3://bucket/run", "missing"):
        assert completed("", "messages", "cut", named, "--after") == []
