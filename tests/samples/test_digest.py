"""The sample runs to its end, and its brief says what was read, by what, and what was left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import satchel
from satchel import Outcome

from . import folder


def run(path: Path, **settings: Any) -> Outcome:
    return satchel.run(folder.make(path, words_per_second=0, **settings))


def test_documents_become_a_brief(tmp_path: Path, documents: Path) -> None:
    path = tmp_path / "run"
    outcome = run(path, sources=str(documents))
    assert (outcome.status, outcome.error) == ("completed", None)
    brief = folder.brief(path)
    assert brief.startswith("# Digest of 4 documents\n\nSummaries: extractive, ")
    assert "no language model" in brief.splitlines()[2]
    for name, summary in folder.summaries(path).items():
        assert f"\n## {name}\n\n{summary}\n\nSource: {documents / name}\n" in brief
    assert (path / "todo.md").read_text().count("- [x] ") == 5
    assert not list(path.glob("partials/*/*"))


def test_the_plan_has_an_item_for_each_document_and_one_for_the_brief(tmp_path: Path, documents: Path) -> None:
    path = tmp_path / "run"
    run(path, sources=[str(documents / "3-lighthouses.md"), str(documents / "0-rivers.md")])
    todo = (path / "todo.md").read_text()
    assert [line[6:].split(" ^")[0] for line in todo.splitlines() if line.startswith("- ")] == [
        "Summarise 3-lighthouses.md",
        "Summarise 0-rivers.md",
        "Write the brief",
    ]


def test_equal_documents_make_an_equal_brief(tmp_path: Path, documents: Path) -> None:
    for name in ("one", "two"):
        run(tmp_path / name, sources=str(documents))
    assert folder.brief(tmp_path / "one") == folder.brief(tmp_path / "two")


def test_without_sources_the_installed_distributions_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert run(path, limit=3).status == "completed"
    brief = folder.brief(path)
    assert brief.count("\nSource: the description of the installed distribution ") == 3
    assert "beyond the limit in workspace.yaml" in brief


def test_a_run_that_has_completed_does_nothing_when_run_again(tmp_path: Path, documents: Path) -> None:
    path = tmp_path / "run"
    run(path, sources=str(documents))
    before = folder.brief(path)
    outcome = satchel.run(path)
    assert (outcome.status, outcome.skipped) == ("completed", 5)
    assert folder.brief(path) == before
    assert folder.calls_done_twice(path) == []


def test_a_document_that_disappears_after_planning_is_skipped_and_the_brief_says_so(
    tmp_path: Path, documents: Path
) -> None:
    path = folder.make(tmp_path / "run", words_per_second=5, sources=str(documents))
    folder.run_and_kill(path, lambda: bool(folder.partial_of(path, 1)))
    (documents / "2-harbours.md").unlink()
    folder.change(path, words_per_second=0)
    assert folder.run_to_end(path)["status"] == "completed"
    assert "- [-] Summarise 2-harbours.md ^3" in (path / "todo.md").read_text()
    assert folder.brief(path).startswith("# Digest of 3 documents\n")
    assert folder.brief(path).endswith("\n## Left out\n\n- 2-harbours.md: the document is gone\n")


def test_a_document_that_changes_while_it_is_summarised_is_summarised_as_it_was_read(
    tmp_path: Path, documents: Path
) -> None:
    run(tmp_path / "expected", sources=str(documents))
    path = folder.make(tmp_path / "run", words_per_second=5, sources=str(documents))
    folder.run_and_kill(path, lambda: bool(folder.partial_of(path, 1)))
    (documents / "0-rivers.md").write_text("Something else altogether. It has two sentences of five words.")
    folder.change(path, words_per_second=0)
    folder.run_to_end(path)
    assert folder.summaries(path) == folder.summaries(tmp_path / "expected")


def test_what_can_not_be_read_is_left_out_with_its_reason(tmp_path: Path, documents: Path) -> None:
    (documents / "4-picture.png").write_bytes(b"\x89PNG\0\0")
    (documents / "5-latin.txt").write_bytes("Füße".encode("latin-1"))
    (documents / "6-huge.csv").write_text("1,2\n" * 60_000)
    (documents / "7-empty.txt").write_text(" \n")
    (documents / ".hidden.md").write_text("Nobody is to read this.")
    path = tmp_path / "run"
    assert run(path, sources=str(documents)).status == "completed"
    assert folder.brief(path).partition("## Left out\n\n")[2].splitlines() == [
        "- 4-picture.png: not text",
        "- 5-latin.txt: not UTF-8 text",
        "- 6-huge.csv: larger than 200 kB",
        "- 7-empty.txt: empty",
    ]


def test_a_source_that_is_not_there_names_the_setting(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", sources="notes")
    assert outcome.status == "failed"
    assert str(outcome.error) == (
        "`sources` in workspace.yaml names 'notes', and there is no such file or folder "
        f"at {tmp_path / 'run' / 'notes'}: a relative path starts at the workspace's folder"
    )


def test_a_source_without_documents_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    outcome = run(tmp_path / "run", sources="../notes")
    assert outcome.status == "failed"
    assert "nothing to read in ../notes: set `sources` in workspace.yaml" in str(outcome.error)


def test_a_setting_that_is_wrong_is_named(tmp_path: Path) -> None:
    outcome = run(tmp_path / "run", limit=0)
    assert (outcome.status, str(outcome.error)) == (
        "failed",
        "settings in workspace.yaml: Expected `int` >= 1 - at `$.limit`",
    )


def test_an_item_of_a_persons_own_is_taken_as_a_path_or_skipped(tmp_path: Path, documents: Path) -> None:
    extra = tmp_path / "extra.md"
    extra.write_text("This one stands in a plan that a person wrote. It is summarised like all the others.")
    path = folder.make(tmp_path / "run", words_per_second=0, sources=str(documents))
    (path / "todo.md").write_text(f"- [ ] Summarise {extra}\n- [ ] Water the plants\n")
    outcome = satchel.run(path)
    assert outcome.status == "completed", outcome.error
    todo = (path / "todo.md").read_text()
    assert f"- [x] Summarise {extra} ^1\n- [-] Water the plants ^2\n" in todo
    assert len(folder.summaries(path)) == 5
    assert f"\n## {extra}\n" in folder.brief(path)
