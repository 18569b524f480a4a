"""Documents to read, and what undoes an import of the sample's modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from . import folder

NAMES = tuple(path.stem for path in folder.DIGEST.parent.glob("*/*.py"))

SUBJECTS = ("rivers", "bridges", "harbours", "lighthouses")


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks a model that the machine happens to have a key for."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(autouse=True)
def _imports_undone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A run in this process leaves its folder in sys.path and its modules in sys.modules."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the sample as its agent does."""

    def load(name: str) -> ModuleType:
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        monkeypatch.syspath_prepend(folder.DIGEST)
        return importlib.import_module(name)

    return load


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder of four documents, of which each has sentences to choose from."""
    place = tmp_path / "documents"
    place.mkdir()
    for number, subject in enumerate(SUBJECTS):
        (place / f"{number}-{subject}.md").write_text(_about(subject))
    return place


def _about(subject: str) -> str:
    return f"""# About {subject}

Old maps show {subject} in great detail, because the people who drew the maps lived from {subject}. Some are wrong.
Whoever repairs {subject} today begins with those maps, and with the letters of the people who drew them.

- a list, which is not a sentence
- `code`, which is not one either

The letters say how {subject} were paid for, who kept them, and which of the maps were drawn too late. The weather
was often bad. In the end the maps and the letters agree about most {subject}, e.g. about the oldest, and that is
why both are kept in one place. Visitors may look at the maps of {subject} there on any day but Monday.
"""
