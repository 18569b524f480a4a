"""Finding and reading documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def sources(module: Callable[[str], ModuleType]) -> Any:
    return module("sources")


def write(path: Path, text: str = "Text.") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_folder_is_read_to_its_depths_in_a_fixed_order_without_what_is_hidden(sources: Any, tmp_path: Path) -> None:
    for name in ("b.md", "a.txt", "deep/er/c.rst", ".git/config", "deep/.d.md", "node_modules/x.md", "e"):
        write(tmp_path / name)
    listing = sources.find([str(tmp_path)], 10, "/")
    assert list(listing.documents) == ["a.txt", "b.md", "e", "deep/er/c.rst"]
    assert listing.documents["deep/er/c.rst"] == str(tmp_path / "deep/er/c.rst")


def test_what_is_named_twice_is_read_once(sources: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "a.md")
    assert list(sources.find([str(file), str(tmp_path), "a.md"], 10, str(tmp_path)).documents) == ["a.md"]


def test_two_documents_of_one_name_are_told_apart(sources: Any, tmp_path: Path) -> None:
    one, two = write(tmp_path / "one" / "a.md"), write(tmp_path / "two" / "a.md")
    listing = sources.find([str(one), str(two)], 10, "/")
    assert listing.documents == {"a.md": str(one), "a.md (2)": str(two)}


def test_a_name_with_a_line_break_becomes_one_line(sources: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "a\nb.md")
    assert sources.find([str(tmp_path)], 10, "/").documents == {"a b.md": str(file)}


def test_a_name_that_is_not_text_is_not_looked_at(sources: Any, tmp_path: Path) -> None:
    """Linux has such names, macOS has none."""
    assert not sources._is_nameable(tmp_path / "\udcff.md")
    assert sources._is_nameable(tmp_path / "ÿ.md")


def test_documents_beyond_the_limit_are_counted_and_what_is_left_out_does_not_count(
    sources: Any, tmp_path: Path
) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.md", "" if number == 0 else "Text.")
    listing = sources.find([str(tmp_path)], 2, "/")
    assert (list(listing.documents), listing.left_out, listing.not_read) == (["1.md", "2.md"], {"0.md": "empty"}, 2)


def test_a_relative_path_starts_at_the_workspace_and_a_tilde_is_home(
    sources: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "run" / "notes" / "a.md")
    monkeypatch.setenv("HOME", str(tmp_path / "run"))
    listing = sources.find(["notes"], 10, str(tmp_path / "run"))
    assert listing == sources.find(["~/notes"], 10, "/")


def test_a_page_is_read_without_tags_scripts_and_styles(sources: Any, tmp_path: Path) -> None:
    page = "<html><head><title>T</title><body><h1>Head</h1><script>x = '<p>'</script><p>One <b>two</b> &amp; 3.<p>Four."
    text = sources.read(str(write(tmp_path / "a.html", page))).text
    assert text.split() == ["Head", "One", "two", "&", "3.", "Four."]
    assert "One two & 3." in text


def test_a_byte_order_mark_is_no_part_of_the_text(sources: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfText.")
    assert sources.read(str(tmp_path / "a.txt")).text == "Text."


def test_what_is_gone_is_told_from_what_can_not_be_read(sources: Any, tmp_path: Path) -> None:
    assert sources.read(str(tmp_path / "a.md")).problem == "the document is gone"
    assert sources.read(str(tmp_path)).problem.startswith("can't be read: ")
    assert sources.read("distribution:there-is-no-such-thing").problem == "the document is gone"


def test_a_distribution_is_read_with_its_version(sources: Any) -> None:
    document = sources.read("distribution:pytest")
    assert document.source.startswith("the description of the installed distribution pytest ")
    assert "pytest" in document.text
