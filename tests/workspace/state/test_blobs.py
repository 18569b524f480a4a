"""Large results: in a file of their own, durable before anything refers to it, and checked when they are read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec import Raw

from satchel.workspace.base.errors import Damaged, InvalidFile, SatchelError, StorageFailed
from satchel.workspace.journal import Kept, blobs
from satchel.workspace.journal.blobs import INLINE_BYTES
from satchel.workspace.store import DiskStore, Syscalls

LARGE = b'"' + b"x" * INLINE_BYTES + b'"'


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


def test_a_small_result_stays_in_the_record_and_a_large_one_does_not(store: DiskStore) -> None:
    small = LARGE[:1] + LARGE[3:]
    assert len(small) == INLINE_BYTES and blobs.keep(store, small, 1) == Kept(Raw(small))
    kept = blobs.keep(store, LARGE, 3)
    assert kept == Kept(blob=f"{hashlib.sha256(LARGE).hexdigest()}-3") and blobs.fetch(store, kept) == LARGE


def test_no_result_at_all_is_null(store: DiskStore) -> None:
    assert blobs.fetch(store, Kept()) == b"null"


def test_a_name_of_an_earlier_owner_is_not_used_again(store: DiskStore) -> None:
    assert blobs.keep(store, LARGE, 1).blob != blobs.keep(store, LARGE, 2).blob


@pytest.mark.parametrize("broken", ["sync", "write", "rename", "sync_folder"])
def test_a_result_is_not_referred_to_before_it_is_durable(tmp_path: Path, broken: str) -> None:
    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    syscalls = Syscalls()
    store = DiskStore(tmp_path, syscalls)
    store.replace(f"{blobs.BLOBS}/x", b"")
    setattr(syscalls, broken, fail)
    with pytest.raises(StorageFailed):
        blobs.keep(store, LARGE, 1)


@pytest.mark.parametrize("data", [b"", LARGE[:-1], LARGE + b" ", LARGE.replace(b"x", b"y", 1), b"\0" * len(LARGE)])
def test_a_damaged_result_is_never_returned(store: DiskStore, data: bytes) -> None:
    kept = blobs.keep(store, LARGE, 1)
    store.replace(f"{blobs.BLOBS}/{kept.blob}", data)
    with pytest.raises(Damaged, match="not what was recorded"):
        blobs.fetch(store, kept)


def test_a_missing_result_is_damage_and_not_null(store: DiskStore) -> None:
    kept = blobs.keep(store, LARGE, 1)
    store.remove(f"{blobs.BLOBS}/{kept.blob}")
    with pytest.raises(Damaged, match="a result is missing") as damaged:
        blobs.fetch(store, kept)
    assert damaged.value.remedy and kept.blob in str(damaged.value)


@pytest.mark.parametrize(
    "name", ["../../workspace.yaml", "/etc/passwd", "x", "0" * 64, "0" * 64 + "-1\n", "0" * 64 + "-٣", "A" * 64 + "-1"]
)
def test_a_name_that_is_no_blobs_is_never_opened(store: DiskStore, name: str) -> None:
    with pytest.raises(Damaged, match="not the name of a blob"):
        blobs.fetch(store, Kept(blob=name))


def test_a_link_in_the_place_of_a_blob_is_not_followed(store: DiskStore, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(LARGE)
    name = f"{hashlib.sha256(LARGE).hexdigest()}-1"
    (tmp_path / blobs.BLOBS).mkdir(parents=True)
    (tmp_path / blobs.BLOBS / name).symlink_to(tmp_path / "other")
    with pytest.raises((SatchelError, InvalidFile)):
        blobs.fetch(store, Kept(blob=name))
