"""A failing example is found again: by anybody, whichever tests they run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def _drawn() -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []

    @settings(max_examples=300)
    @given(st.integers(), st.text())
    def draw(number: int, text: str) -> None:
        found.append((number, text))

    draw()
    return found


def test_the_examples_depend_on_the_day_or_on_what_else_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _drawn()
    (tmp_path / "imported_later.py").write_text(f"NUMBERS = {[*range(1000, 1200)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("imported_later")
    assert _drawn() == before
