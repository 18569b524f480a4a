from __future__ import annotations

from pathlib import Path

import pytest

from .folder import Place, World, world


@pytest.fixture(autouse=True)
def fresh_world() -> World:
    world.__init__()  # type: ignore[misc]
    return world


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "w")


@pytest.fixture
def finished(place: Place) -> Place:
    assert place.run().status == "completed"
    world.fresh()
    return place


@pytest.fixture
def stopped(place: Place) -> Place:
    """In the middle of its second item: both steps and the effect of it are done."""
    assert place.run("two").status == "failed"
    world.fresh()
    return place
