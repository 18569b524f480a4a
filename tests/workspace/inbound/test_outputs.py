"""Outputs: what another program has put in the place of one is kept, and what a later owner has made stays."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from satchel.workspace.base.errors import LeaseHeld
from satchel.workspace.inbound.rejection import write_output
from satchel.workspace.journal import Output
from satchel.workspace.store import DiskStore, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return DiskStore(tmp_path)


def nobody() -> None: ...


def inside(store: Store) -> dict[str, bytes]:
    return {entry.path: store.read(entry.path).data for entry in store.list("outputs")}


def test_the_first_output_and_the_next_leave_nothing_else(store: Store) -> None:
    first = write_output(store, "outputs/a.md", b"one", None, nobody)
    second = write_output(store, "outputs/a.md", b"two", first.output, nobody)
    assert inside(store) == {"outputs/a.md": b"two"} and not first.kept + second.kept
    assert second.output.sha256 == hashlib.sha256(b"two").hexdigest() and second.output.bytes == 3
    assert second.output.version == store.version("outputs/a.md")


@pytest.mark.parametrize(
    "name, kept, reasons",
    [
        ("a.md", "a.rejected.md", "a.rejected.txt"),
        ("a.txt", "a.rejected.txt", "a.rejected.reasons.txt"),
        ("a", "a.rejected", "a.rejected.txt"),
        (".env", ".env.rejected", ".env.rejected.txt"),
        ("v1.2/a", "v1.2/a.rejected", "v1.2/a.rejected.txt"),
    ],
)
@pytest.mark.parametrize("was_made", [False, True])
def test_what_a_person_has_saved_is_replaced_unkept(
    store: Store, name: str, kept: str, reasons: str, was_made: bool
) -> None:
    path = f"outputs/{name}"
    last = write_output(store, path, b"one", None, nobody).output if was_made else None
    store.replace(path, b"a person's")
    made = write_output(store, path, b"two", last, nobody)
    assert store.read(path).data == b"two" and made.output.version == store.version(path)
    assert made.kept == f"outputs/{kept}" and store.read(made.kept).data == b"a person's"
    assert b"another program" in store.read(f"outputs/{reasons}").data
    store.replace(path, b"a person's")
    assert write_output(store, path, b"three", made.output, nobody).kept == made.kept, "the same is not kept twice"
    store.replace(path, b"another person's")
    assert write_output(store, path, b"four", made.output, nobody).kept not in ("", made.kept)


def test_the_runs_own_bytes_are_kept_as_a_persons(store: Store) -> None:
    """A copied folder has other versions, and an attempt that was cut off has made the same."""
    made = write_output(store, "outputs/a.md", b"one", None, nobody).output
    elsewhere = Output(made.sha256, made.bytes, "elsewhere")
    assert not write_output(store, "outputs/a.md", b"two", elsewhere, nobody).kept
    assert not write_output(store, "outputs/a.md", b"two", None, nobody).kept
    assert inside(store) == {"outputs/a.md": b"two"}


def test_one_that_was_removed_is_missed(store: Store) -> None:
    made = write_output(store, "outputs/a.md", b"one", None, nobody).output
    store.remove("outputs/a.md")
    assert not write_output(store, "outputs/a.md", b"two", made, nobody).kept
    assert inside(store) == {"outputs/a.md": b"two"}


def test_what_is_there_is_replaced_by_one_who_has_lost_the_workspace(store: Store) -> None:
    def lost() -> None:
        raise LeaseHeld("another process has taken over this run")

    made = write_output(store, "outputs/a.md", b"one", None, lost).output
    store.replace("outputs/a.md", b"the next owner's")
    with pytest.raises(LeaseHeld):
        write_output(store, "outputs/a.md", b"two", made, lost)
    assert inside(store) == {"outputs/a.md": b"the next owner's"}
