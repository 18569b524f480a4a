"""`resolve`: an answer that counts once, to a question that is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import ASKING, Cli, Make, contents, data_of


@pytest.fixture
def asking(make: Make, cli: Cli) -> Path:
    folder = make(ASKING.replace(" -> str", ""))
    assert cli("run", folder).exit_code == 4
    return folder


def _answer(folder: Path, cli: Cli) -> Any:
    assert cli("resume", folder).exit_code == 0
    return json.loads((folder / "state.json").read_text())["data"]["answer"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--done", "sent, id 4711"], "sent, id 4711"),
        (["--done", '"4711"'], "4711"),
        (["--done", "4711"], 4711),
        (["--done=-5"], -5),
        (["--done", '{"a":\n  [1, "é"]}'], {"a": [1, "é"]}),
        (["--done"], None),
        (["--done", "null"], None),
        (["--done", "x" * 100_000], "x" * 100_000),
    ],
)
def test_an_answer_is_not_what_was_typed(asking: Path, cli: Cli, words: list[str], expected: Any) -> None:
    result = cli("resolve", asking, "d1", *words)
    assert result.exit_code == 0 and result.stdout == "d1 is answered: it counts as done\n"
    assert f"satchel resume {asking}" in result.stderr
    assert data_of(cli("status", "--json", asking))["state"] == "waiting"
    assert _answer(asking, cli) == expected


def test_redo_does_not_do_it(asking: Path, cli: Cli) -> None:
    source = (asking / "agent.py").read_text()
    assert cli("resolve", asking, "d1", "--redo", "--by", "me").exit_code == 0
    assert "answered    d1 by me: it has not happened" in cli("log", asking).stdout
    (asking / "agent.py").write_text(source.replace('raise TimeoutError("no answer")', 'return "done now"'))
    assert _answer(asking, cli) == "done now"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["d7", "--redo"], "there is no open question 'd7': open: d1 (send("),
        (["d1"], "say one of --done and --redo"),
        (["d1", "--redo", "--done"], "say one of --done and --redo"),
        ([], "say which question: open: d1"),
        (["d1", "--done", "\udcff"], "can't be kept"),
    ],
)
def test_a_wrong_answer_changes_something(asking: Path, cli: Cli, words: list[str], said: str) -> None:
    before = contents(asking)
    result = cli("resolve", asking, *words)
    assert result.exit_code == 2 and said in result.stderr
    assert contents(asking) == before


def test_one_question_can_be_answered_twice(asking: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asking)
    assert cli("resolve", "d1", "--redo").exit_code == 0
    again = cli("resolve", "d1", "--done")
    assert again.exit_code == 2 and "none is open" in again.stderr


def test_completion_does_not_know_the_questions(asking: Path) -> None:
    import os

    from .conftest import satchel

    words = {"_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": f"satchel resolve {asking} ", "COMP_CWORD": "3"}
    assert satchel(env={**os.environ, **words}).stdout == "plain,d1\n"
