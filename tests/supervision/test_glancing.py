"""What a supervisor makes of pause.yaml: all that YAML allows, and nothing again that it has read before."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.runtime.supervision.forced_stop import Glance
from satchel.workspace.formats import pause_file
from satchel.workspace.store import DiskStore

FORMS = [
    "{}: {}\n",
    "{} : {}\n",
    '"{}": {}\n',
    "'{}': {}\n",
    "{}:\n  {}\n",
    "{{{}: {}}}\n",
    '{{"{}": "{}"}}\n',
    "{{\n  {}: {},\n}}\n",
    "? {}\n: {}\n",
    "---\n{}: {}\n",
    "{}: '{}'  # now\r\nreason: smoke\r\n",
    "\ufeff{}: {}\n",
]
"""Ways to write one key and its value."""

BROKEN = [
    "mode: emergency\nreason: smoke: in the lab\n",
    "reason: smoke: in the lab\nmode: emergency\n",
    "mode: emergency\nexpected_until: soon\n",
    "{mode: emergency, status: stopp}\n",
    "mode: 'emergency' # now\nreason: [\n",
]


def is_emergency(glance: Glance) -> bool:
    """As a supervisor asks."""
    return glance.has_changed() and glance.file is not None and glance.file.asks_for_emergency


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_yaml_is_not_understood(tmp_path: Path, form: str) -> None:
    glance, file = Glance(DiskStore(tmp_path)), tmp_path / "pause.yaml"
    assert not is_emergency(glance) and not glance.is_stopped()
    file.write_text(form.format("mode", "emergency"), newline="")
    assert is_emergency(glance) and glance.is_stopped()
    assert not is_emergency(glance), "it is told again"
    file.write_text(form.format("status", "resume"), newline="")
    assert not glance.is_stopped()


@pytest.mark.parametrize("text", BROKEN)
def test_a_typing_error_keeps_a_run_alive_in_an_emergency(tmp_path: Path, text: str) -> None:
    glance = Glance(DiskStore(tmp_path))
    (tmp_path / "pause.yaml").write_text(text)
    assert is_emergency(glance)


@pytest.mark.parametrize(
    "text", ["reason: [\n", "reason: |\n  mode: emergency\nmode: [\n", "# mode: emergency\n[\n", "status: resume\n[\n"]
)
def test_what_can_not_be_read_is_an_emergency_or_lets_a_run_start(tmp_path: Path, text: str) -> None:
    glance = Glance(DiskStore(tmp_path))
    (tmp_path / "pause.yaml").write_text(text)
    assert not is_emergency(glance) and glance.is_stopped()


@pytest.mark.parametrize(("status", "asks"), [("requested", True), ("draining", True), ("paused", False)])
def test_an_emergency_that_is_over_is_one_again(tmp_path: Path, status: str, asks: bool) -> None:
    glance = Glance(DiskStore(tmp_path))
    (tmp_path / "pause.yaml").write_text(f"status: {status}\nmode: emergency\n")
    assert is_emergency(glance) == asks and glance.is_stopped()


def test_a_file_that_nobody_has_changed_is_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pause.yaml").write_text("reason: mine\n")
    parsed = []
    monkeypatch.setattr(pause_file, "parse", lambda data, parse=pause_file.parse: parsed.append(data) or parse(data))
    glance = Glance(DiskStore(tmp_path))
    for _ in range(3):
        assert glance.is_stopped() and not is_emergency(glance)
    assert len(parsed) == 1
    (tmp_path / "pause.yaml").write_text("status: resume\n")
    assert not glance.is_stopped() and not is_emergency(glance) and len(parsed) == 2


def test_a_folder_in_the_place_of_the_file_lets_a_run_start(tmp_path: Path) -> None:
    glance = Glance(DiskStore(tmp_path))
    (tmp_path / "pause.yaml").mkdir()
    assert glance.is_stopped() and not is_emergency(glance)
