"""What a crash left in partials/: offered to the next attempt once, and never destroyed before it is safe."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from satchel.workspace import journal
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.journal import Line, ScopeBegun, ScopeCommitted, StepCompleted
from satchel.workspace.lifecycle import recovery
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore, FileContent
from satchel.workspace.views import partial_files
from satchel.workspace.views.partial_files import PartialHead

HEAD = PartialHead(run_id="r", scope="1", no=1, step="write", args="a", n=0, attempt=1, at="2026-11-01T00:00:00.000Z")
PATH = "partials/1-one/01-write.md"


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


def moment(*records: journal.AnyRecord) -> Moment:
    found = Moment(run_id="r")
    apply(found, ScopeBegun(scope="1", title="One"), *records)
    return found


def apply(found: Moment, *records: journal.AnyRecord) -> None:
    found.apply(Line(found.seq + n, found.seq + n, "x", 1, each) for n, each in enumerate(records, start=1))


def promoted(store: DiskStore, found: Moment) -> list[journal.PartialPromoted]:
    """What an opening does: promote, record, remove."""
    records = []
    for leftover in [*recovery.leftovers(store, found)]:
        made = recovery.promote(store, leftover, found, "a crash")
        if made:
            apply(found, made)
            records.append(made)
        store.remove(leftover.path)
    return records


def test_a_partial_is_promoted_once_and_its_text_is_in_the_file_that_the_record_names(store: DiskStore) -> None:
    store.replace(PATH, partial_files.encode_partial(HEAD, "so far"))
    found = moment()
    [made] = promoted(store, found)
    assert partial_files.parse_recovered(store.read(made.file).data)[1] == "so far"  # type: ignore[index]
    assert store.version(PATH) is None and promoted(store, found) == []


def test_a_partial_whose_step_returns_while_one_looks_is_passed_over(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` looks while a process works. That one removes the file between the listing and the reading."""
    store.replace(PATH, partial_files.encode_partial(HEAD, "so far"))
    store.replace("partials/1-one/02-write.md", partial_files.encode_partial(replace(HEAD, no=2), "more"))
    read = DiskStore.read

    def late(self: DiskStore, path: str, **how: int) -> FileContent:
        if path == PATH:
            self.remove(path)
        return read(self, path, **how)

    monkeypatch.setattr(DiskStore, "read", late)
    assert [each.text for each in recovery.leftovers(store, moment())] == ["more"]


def test_an_empty_partial_is_signalled_too(store: DiskStore) -> None:
    store.replace(PATH, partial_files.encode_partial(HEAD, ""))
    [made] = promoted(store, moment())
    assert made.characters == 0


def test_a_partial_that_a_power_failure_brings_back_is_not_offered_again(store: DiskStore) -> None:
    old = partial_files.encode_partial(HEAD, "so far")
    store.replace(PATH, old)
    found = moment()
    [made] = promoted(store, found)
    store.replace(PATH, old)
    assert promoted(store, found) == [] and store.version(PATH) is None
    store.replace(PATH, partial_files.encode_partial(replace(HEAD, attempt=2), "so far and on"))
    [second] = promoted(store, found)
    assert second.file != made.file and store.version(made.file) is not None


def test_a_crash_between_the_file_and_the_record_promotes_the_same_again(store: DiskStore) -> None:
    store.replace(PATH, partial_files.encode_partial(HEAD, "so far"))
    found = moment()
    [leftover] = recovery.leftovers(store, found)
    first = recovery.promote(store, leftover, found, "a crash")
    [second] = promoted(store, found)
    assert second == first


@pytest.mark.parametrize(
    ("head", "later"),
    [
        (HEAD, [StepCompleted(scope="1", no=1, step="write", args="a", n=0, result=Raw(b'"x"'))]),
        (HEAD, [ScopeCommitted(scope="1")]),
        (replace(HEAD, run_id="another"), []),
    ],
    ids=["completed", "committed", "another run"],
)
def test_a_stale_partial_is_removed_and_never_offered(
    store: DiskStore, head: PartialHead, later: list[journal.AnyRecord]
) -> None:
    store.replace(PATH, partial_files.encode_partial(head, "so far"))
    assert promoted(store, moment(*later)) == []
    assert store.version(PATH) is None and [*store.folders("recovered")] == []


@pytest.mark.parametrize("damage", [b"text without a head", b"\0" * 50 + b"the end", b"---\nformat: 1\n"])
def test_what_is_too_damaged_to_tell_whose_it_is_is_kept_for_people(store: DiskStore, damage: bytes) -> None:
    store.replace(PATH, damage)
    assert promoted(store, moment()) == []
    [kept] = store.list("recovered/1-one")
    assert damage.strip(b"\0") in store.read(kept.path).data


def test_a_second_damaged_one_does_not_replace_the_first(store: DiskStore) -> None:
    for text in (b"first", b"second"):
        store.replace(PATH, text)
        promoted(store, moment())
    assert {store.read(entry.path).data for entry in store.list("recovered/1-one")} == {b"first", b"second"}


def test_an_empty_file_of_a_power_failure_is_just_removed(store: DiskStore) -> None:
    store.replace(PATH, b"\0" * 4096)
    assert promoted(store, moment()) == [] and store.version(PATH) is None


def test_a_promotion_that_fails_leaves_the_partial(store: DiskStore, tmp_path: Path) -> None:
    store.replace(PATH, partial_files.encode_partial(HEAD, "so far"))
    (tmp_path / "recovered").write_text("in the way")
    with pytest.raises(StorageFailed):
        promoted(store, moment())
    assert store.version(PATH) is not None


def test_what_lies_beside_is_not_touched(store: DiskStore, tmp_path: Path) -> None:
    store.replace("partials/notes.md", b"mine")
    (tmp_path / "partials/link").symlink_to(tmp_path)
    promoted(store, moment())
    assert store.read("partials/notes.md").data == b"mine" and (tmp_path / "partials/link").is_symlink()
