"""A conflict is settled by a person's word, never by a file that is missing, empty or older; and no word of theirs is
deleted before it is kept elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from satchel.runtime.cli.group import group as cli
from satchel.workspace.base.errors import Conflicting, SatchelError
from satchel.workspace.base.names import OF_A_RUN
from satchel.workspace.inbound.findings import ConflictPlace, FileConflict
from satchel.workspace.inbound.rejection import put_question
from satchel.workspace.inspect.load import look
from satchel.workspace.lifecycle import opening
from satchel.workspace.store import DiskStore

from .folder import Place, world
from .test_conflicts import back, settle, stale

__all__ = ["stale"]

PATHS = ["todo.md", "state.json", "agents/bob/todo.md"]


def contradict(place: Place, path: str) -> bytes:
    """Save a file without a stamp that has a word of its own and lacks something."""
    if path.endswith(".md"):
        text = place.without_stamp(path).decode()
        lines = [line for line in text.splitlines(keepends=True) if not line.startswith("- [x]")]
        place.put(path, "".join([*lines, "- [ ] Ring Ann\n"]))
    else:
        whole = json.loads(place.without_stamp(path))
        whole["data"] |= {"words": [], "notes": {"a": "Ring Ann"}}
        place.put(path, json.dumps(whole))
    return place.get(path)


def version_of(path: str, side: str) -> str:
    stem, _, extension = path.rpartition(".")
    return f"conflicts/{stem}.{side}.{extension}"


def rejected(place: Place) -> list[bytes]:
    return [place.get(path) for path in place.there("**/*.rejected*") if not path.endswith(".txt")]


def asked(place: Place, path: str, theirs: bytes) -> str:
    before = place.substance()
    with pytest.raises(Conflicting) as question:
        place.run()
    assert question.value.path == path and place.substance() == before and world.fresh() == []
    assert place.get(version_of(path, "theirs")) == theirs, "what a person wrote"
    return str(question.value)


def remove(place: Place, path: str) -> None:
    (place.folder / path).unlink()


GONE: dict[str, Callable[[Place, str], None]] = {
    "missing": remove,
    "empty": lambda place, path: place.put(path, ""),
    "blank": lambda place, path: place.put(path, " \n\0\n"),
    "older": lambda place, path: place.put(path, place.get(f"aside/{path}")),
    "the run's version": lambda place, path: place.put(path, place.get(version_of(path, "ours"))),
}


@pytest.fixture
def torn(stale: Place) -> Place:
    """What is aside is older than the run, which has stopped; the sub-agent's plan, too."""
    stale.put("aside/agents/bob/todo.md", stale.get("agents/bob/todo.md"))
    stale.run("three")
    world.fresh()
    return stale


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("how", GONE)
def test_a_conflict_is_settled_by_a_file_that_says_nothing(torn: Place, path: str, how: str) -> None:
    mine = contradict(torn, path)
    asked(torn, path, mine)
    GONE[how](torn, path)
    told = asked(torn, path, mine)
    assert f"kept in {version_of(path, 'theirs')}" in told and "satchel merge --use ours" in told
    told = CliRunner().invoke(cli, ["merge", str(torn.folder)]).output
    assert "Ring Ann" in told and "--use ours" in told, "it is shown as before"
    settle(torn, **{path.replace("/", "__").replace(".", "_"): "theirs"})
    assert "Ring Ann" in torn.text(path) and torn.is_at_the_moment() and not torn.there("conflicts/*")
    assert not rejected(torn)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_gone", [False, True])
def test_what_a_person_discards_is_deleted(torn: Place, path: str, is_gone: bool) -> None:
    mine = contradict(torn, path)
    asked(torn, path, mine)
    if is_gone:
        remove(torn, path)
    said = settle(torn, **{path.replace("/", "__").replace(".", "_"): "ours"})
    stem, _, extension = path.rpartition(".")
    assert torn.get(f"{stem}.rejected.{extension}") == mine and len(rejected(torn)) == 1
    assert any(f"{path} is kept as {stem}.rejected.{extension}" in line for line in said)
    assert torn.is_at_the_moment() and not torn.there("conflicts/*")


@pytest.mark.parametrize("path", PATHS)
def test_an_edited_file_that_merges_leaves_the_question_or_deletes_the_other_words(torn: Place, path: str) -> None:
    before = torn.get(path)
    mine = contradict(torn, path)
    asked(torn, path, mine)
    torn.put(path, before)
    if path.endswith(".md"):
        torn.put(path, before + b"- [ ] Ring Bob\n")
    else:
        torn.set_data(lambda data: data["notes"].update(a="Ring Bob"))
    said = torn.recover()
    stem, _, extension = path.rpartition(".")
    assert "Ring Bob" in torn.text(path) and "Ring Ann" not in torn.text(path)
    assert rejected(torn) == [mine] and not torn.there("conflicts/*")
    assert any(f"{path} that was asked about is kept as {stem}.rejected.{extension}" in line for line in said)


def test_an_edit_that_says_what_the_run_says_deletes_the_other_words(torn: Place) -> None:
    before = torn.without_stamp("todo.md")
    mine = contradict(torn, "todo.md")
    asked(torn, "todo.md", mine)
    torn.put("todo.md", before)
    torn.recover()
    assert rejected(torn) == [mine] and not torn.there("conflicts/*") and torn.is_at_the_moment()


@pytest.mark.parametrize("path", PATHS)
def test_a_second_conflict_overwrites_the_words_of_the_first(torn: Place, path: str) -> None:
    first = contradict(torn, path)
    asked(torn, path, first)
    second = first.replace(b"Ann", b"Bob")
    torn.put(path, second)
    asked(torn, path, second)
    asked(torn, path, second)
    assert rejected(torn) == [first], "once"
    remove(torn, path)
    asked(torn, path, second)


def test_a_refused_file_settles_a_conflict(torn: Place) -> None:
    mine = contradict(torn, "state.json")
    asked(torn, "state.json", mine)
    torn.put("state.json", "{")
    with pytest.raises(SatchelError, match=r"state\.rejected\.json"):
        torn.run()
    asked(torn, "state.json", mine)
    assert rejected(torn) == [b"{"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("left", [b"- [", b"- [ ] Ring A"])
@pytest.mark.parametrize("path", ["todo.md", "agents/bob/todo.md"])
def test_a_cut_off_version_of_the_file_settles_a_conflict(torn: Place, path: str, left: bytes) -> None:
    """A copy or a save was cut off after the conflict was asked about, and the answer was for the whole file."""
    mine = contradict(torn, path)
    asked(torn, path, mine)
    cut = mine[: mine.index(left) + len(left)]
    choose = path.replace("/", "__").replace(".", "_")
    for side in ("theirs", "edited"):
        torn.put(path, cut)
        with pytest.raises(SatchelError, match="ends in the middle"):
            settle(torn, **{choose: side})
        assert rejected(torn) == [cut]
        torn.put(path, mine)
        asked(torn, path, mine)
    torn.put(path, mine.rstrip())
    settle(torn, **{choose: "theirs"})
    assert "Ring Ann" in torn.text(path) and not torn.there("conflicts/*"), "its last line ends with the file"


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("name", ["todo.ours.md", "todo.base.md", "todo.theirs.md", "state.ours.json", "notes.md"])
def test_what_a_person_writes_among_the_versions_is_deleted(torn: Place, name: str) -> None:
    """Somebody may prepare the merged file there."""
    path = "state.json" if name.endswith("json") else "todo.md"
    if "base" in name:
        back(torn, path, ("[ ] two", "[-] two"))
    else:
        contradict(torn, path)
    asked(torn, path, torn.get(path))
    words = (torn.get(f"conflicts/{name}") if name != "notes.md" else b"") + b"\n- [ ] Ring Cleo\n"
    torn.put(f"conflicts/{name}", words)
    settle(torn, **{path.replace(".", "_"): "ours"})
    left = [torn.get(each) for each in torn.there("conflicts/*")]
    assert words in rejected(torn) + left and (left == [words]) == (name == "notes.md")


def test_a_settled_conflict_is_asked_about_again_after_a_crash(torn: Place) -> None:
    """It is on record, and the process ends before it has cleared the versions away."""
    mine = contradict(torn, "todo.md")
    asked(torn, "todo.md", mine)
    versions = {path: torn.get(path) for path in torn.there("conflicts/*")}
    settle(torn, todo_md="theirs")
    for path, data in versions.items():
        torn.put(path, data)
    torn.recover()
    assert not torn.there("conflicts/*") and not rejected(torn) and torn.text().count("Ring Ann") == 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_crash_on_the_way_deletes_what_a_person_discards(
    torn: Place, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    mine = contradict(torn, "todo.md")
    asked(torn, "todo.md", mine)
    if is_gone:
        remove(torn, "todo.md")
    record = opening._record_opening

    def recorded(*args: object) -> None:
        record(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "_record_opening", recorded)
    with pytest.raises(KeyboardInterrupt):
        settle(torn, todo_md="ours")
    monkeypatch.undo()
    assert torn.get("todo.rejected.md") == mine
    torn.recover()
    assert rejected(torn) == [mine] and not torn.there("conflicts/*") and torn.is_at_the_moment()


def test_a_save_is_overwritten_by_an_earlier_one_that_is_put_back(torn: Place) -> None:
    """It comes while an opening puts back what an editor saved into a displaced file."""
    entry = f".satchel/displaced/1-1-1-1-1-{'todo.md'}"
    torn.put(entry, torn.get("todo.md") + b"- [ ] Ring Ann\n")
    later = torn.get("todo.md") + b"- [ ] Ring Bob\n"

    class Saving(DiskStore):
        def replace(self, path: str, data: bytes, **how: object) -> str:  # type: ignore[override]
            if path == "todo.md" and b"Ring Ann" in data:
                torn.put("todo.md", later)
            return super().replace(path, data, **how)  # type: ignore[arg-type]

    torn.store = Saving(torn.folder)
    settle(torn)
    assert "Ring Bob" in torn.text() and torn.there(entry)
    torn.store = DiskStore(torn.folder)
    torn.recover()
    assert "Ring Ann" in torn.text() + "".join(map(bytes.decode, rejected(torn)))


def test_a_save_into_a_version_is_overwritten_by_the_next_question(torn: Place) -> None:
    """It comes when the next conflict is about to be written there."""
    theirs = version_of("todo.md", "theirs")
    asked(torn, "todo.md", contradict(torn, "todo.md"))
    torn.put("todo.md", torn.get(theirs) + b"- [ ] Ring Cyd\n")

    left = [b"- [ ] Ring Dan\n"]

    class Saving(DiskStore):
        def replace(self, path: str, data: bytes, **how: object) -> str:  # type: ignore[override]
            if path == theirs and left:
                torn.put(theirs, left.pop())
            return super().replace(path, data, **how)  # type: ignore[arg-type]

    store = Saving(torn.folder)
    put_question(
        store, look(store).moment, FileConflict("todo.md", (ConflictPlace("here"),), None, b"ours", b"theirs, later")
    )
    assert torn.get(theirs) == b"theirs, later" and any("Ring Dan" in kept.decode() for kept in rejected(torn))


def test_a_template_takes_over_a_conflict_of_another_run() -> None:
    assert "conflicts" in OF_A_RUN
