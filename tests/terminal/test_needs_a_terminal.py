"""Elsewhere than in a terminal the command says what to use."""

from __future__ import annotations

import sys

import pytest
from cli.conftest import PLAIN, Cli, Make, cli

from satchel.runtime.faces.watch import watch
from satchel.workspace.base import UsageError

__all__ = ["cli"]


def test_without_a_terminal_the_command_names_those_for_programs(make: Make, cli: Cli) -> None:
    result = cli("watch", make(PLAIN))
    assert result.exit_code == 2
    assert "there is no terminal to draw on" in result.stderr
    assert "satchel log -f WS" in result.stderr and "satchel status --json WS" in result.stderr


@pytest.mark.parametrize("kind", ["dumb", "unknown", None])
def test_a_dumb_terminal_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch, kind: str | None) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", kind) if kind else monkeypatch.delenv("TERM")
    with pytest.raises(UsageError, match="no terminal to draw on"):
        watch(str(make(PLAIN)))


def test_without_textual_the_command_says_how_to_get_it(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = cli("watch", make(PLAIN))
    assert result.exit_code == 2 and "pip install 'satchel[watch]'" in result.stderr
