"""What the pages must name, and where their links lead. `test_docs.py` plays the pages."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, _, part in re.findall(r"\]\((?!https?://)([^)#]*)(#([^)]+))?\)", page.read_text()):
        to = page.parent / target if target else page
        assert to.exists(), target
        assert not part or to.suffix != ".md" or part in _parts_of(to), f"{target}#{part}"


def _parts_of(page: Path) -> list[str]:
    """The names that GitHub gives to the headings of a page, and those that it has itself."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    named = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
    return [*named, *re.findall(r'<a id="([^"]+)"', text)]


def test_every_command_is_documented() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "satchel", "--help"], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"^  ([a-z]+)  +[A-Z]", listed.partition("Run:")[2], re.MULTILINE)
    assert len(names) >= 35
    text = (ROOT / "docs/commands.md").read_text()
    for name in names:
        assert f"`satchel {name}" in text, name


def test_every_record_type_and_file_is_documented() -> None:
    from satchel import schemas
    from satchel.workspace.journal import AnyRecord

    text = (ROOT / "docs/formats.md").read_text()
    for kind in AnyRecord.__args__:
        assert f"`{kind.__struct_config__.tag}`" in text, kind
    for name in schemas.names():
        assert f"`{name}.json`" in text, name


def test_the_public_face_is_documented() -> None:
    import satchel

    text = (ROOT / "docs/agents.md").read_text() + (ROOT / "docs/python.md").read_text()
    for name in satchel.__all__:
        assert f"`{name}" in text or f"`@{name}" in text or f"`satchel.{name}" in text, name
