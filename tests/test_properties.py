"""A failing example is found again: by anybody, whichever tests they run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
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


TIERS = """
import pytest

@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("number", range(6))
def test_kinds(number): ...

@pytest.mark.sampled(every=3, rest="soak")
@pytest.mark.parametrize("number", range(6))
def test_seeds(number): ...

@pytest.mark.long
@pytest.mark.soak
def test_again(): ...
"""

TELLING = """
import properties

def pytest_collection_modifyitems(items):
    properties.spread(items)
    for item in items:
        print("case", item.name, *sorted({mark.name for mark in item.iter_markers()} & {"slow", "soak"}))
"""


def test_a_case_is_in_the_wrong_tier_or_in_none(tmp_path: Path) -> None:
    (tmp_path / "test_tiers.py").write_text(TIERS)
    (tmp_path / "conftest.py").write_text(TELLING)
    words = ["-m", "pytest", "--collect-only", "-p", "no:cacheprovider", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, env=environment)
    told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("case test_")]

    def collected(*marks: str) -> list[str]:
        return [name.removeprefix("test_") for name, *found in told if found == [*marks]]

    assert collected() == ["kinds[0]", "kinds[3]", "seeds[0]", "seeds[3]"]
    assert collected("slow") == ["kinds[1]", "kinds[2]", "kinds[4]", "kinds[5]", "seeds[1]", "seeds[4]"]
    assert collected("slow", "soak") == ["again", "seeds[2]", "seeds[5]"], "what takes long begins late"
