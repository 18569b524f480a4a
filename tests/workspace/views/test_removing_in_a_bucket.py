"""A removal in a bucket has no condition, and a listing is some seconds old: what was saved since stays."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
from fencing.bucket import Bucket, opened_store
from fencing.scheduler import Simulation

from satchel.runtime.supervision import kill
from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.inbound import inbox, rejection
from satchel.workspace.inbound.findings import Noticed, version_of
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import PauseRequested
from satchel.workspace.lifecycle import Workspace, opened, pausing
from satchel.workspace.lifecycle.pausing import PauseWish
from satchel.workspace.store import Store
from satchel.workspace.store.bucket import BucketStore
from satchel.workspace.transfer import transfer
from satchel.workspace.transfer.copy_files import TransferredFile, hashes
from satchel.workspace.views import guarded_files
from satchel.workspace.views.guarded_files import ViewGuard

PATH = "steps/1-x/01-read.json"


@pytest.fixture
def objects() -> Bucket:
    return Bucket()


def process(objects: Bucket) -> BucketStore:
    """The store of one process, with its own listing."""
    return opened_store(Simulation(0), objects, None)


@pytest.fixture
def store(objects: Bucket) -> BucketStore:
    store = process(objects)
    store.refresh()
    return store


def save(objects: Bucket, path: str, data: bytes) -> None:
    """As another program does; no listing tells of it yet."""
    objects.put(path, data, "", None, None)


@pytest.mark.parametrize("written", [b"as it was", b""])
def test_a_file_that_was_saved_since_the_listing_stays(objects: Bucket, store: Store, written: bytes) -> None:
    version = store.replace("conflicts/state.theirs.json", written)
    save(objects, "conflicts/state.theirs.json", b"newest words")
    guarded_files.remove(store, "conflicts/state.theirs.json", version)
    assert objects.copy() == {"conflicts/state.theirs.json": b"newest words"}


def test_a_file_that_is_still_that_version_goes_for_one_more_request(objects: Bucket, store: BucketStore) -> None:
    version = store.replace("conflicts/state.theirs.json", b"as it was")
    with mock.patch.object(store._requests, "fetch", wraps=store._requests.fetch) as fetched:
        guarded_files.remove(store, "conflicts/state.theirs.json", version)
        assert fetched.call_count == 1
        guarded_files.remove(store, "conflicts/state.theirs.json", version)
        assert fetched.call_count == 1, "the listing tells that it is gone"
    assert objects.copy() == {}


def test_of_several_files_those_that_were_saved_since_the_listing_stay(objects: Bucket, store: BucketStore) -> None:
    versions = {path: store.replace(path, b"as it was") for path in ("steps/1-x/1.json", "steps/1-x/2.json")}
    save(objects, "steps/1-x/2.json", b"newest words")
    with mock.patch.object(store._requests, "once", wraps=store._requests.once) as asked:
        guarded_files.remove_all(store, versions)
    assert objects.copy() == {"steps/1-x/2.json": b"newest words"}
    assert [call.args[0] for call in asked.call_args_list] == ["list_objects_v2", "delete_object"]


def test_no_version_removes_nothing(objects: Bucket, store: Store) -> None:
    save(objects, "pause.yaml", b"mode: emergency\n")
    guarded_files.remove(store, "pause.yaml", None)
    assert objects.copy() == {"pause.yaml": b"mode: emergency\n"}


def test_a_step_file_that_was_saved_since_the_listing_is_left_to_be_merged(objects: Bucket, store: Store) -> None:
    guard = ViewGuard(store)
    guard.replace(PATH, b'{"result": 1}')
    save(objects, PATH, b'{"result": 2}')
    guard.remove(PATH)
    assert (objects.copy(), guard.theirs) == ({PATH: b'{"result": 2}'}, (PATH,))


def test_a_step_file_that_a_person_has_removed_and_written_again_is_left(objects: Bucket, store: Store) -> None:
    guard = ViewGuard(store)
    guard.replace(PATH, b'{"result": 1}')
    guard.lose(PATH)
    store.remove(PATH)
    save(objects, PATH, b'{"result": 2}')
    guard.remove(PATH)
    assert objects.copy() == {PATH: b'{"result": 2}'}


def test_a_task_that_was_saved_again_while_it_was_refused_is_another_task(objects: Bucket, store: Store) -> None:
    store.replace("inbox/a.yaml", b"[")
    with mock.patch.object(inbox, "reject", lambda *_: save(objects, "inbox/a.yaml", b"[mended]") or "a.rejected.yaml"):
        inbox.refuse(store, InvalidFile("inbox/a.yaml", []))
    assert objects.copy() == {"inbox/a.yaml": b"[mended]"}


def test_a_version_in_conflicts_that_was_saved_since_it_was_kept_stays(objects: Bucket, store: Store) -> None:
    kept = version_of("state.json", "theirs")
    store.replace(kept, b"as it was")
    noticed = Noticed(kept={"state.json": b"as it was"})
    with mock.patch.object(rejection, "_keep", lambda *_: save(objects, kept, b"2") or "x"):
        rejection.set_aside(store, noticed)
    assert objects.copy() == {"conflicts/state.theirs.json": b"2"}


def test_a_file_that_was_saved_since_it_was_carried_stays_where_it_was(objects: Bucket, store: Store) -> None:
    version = store.replace("outputs/a.md", b"as it was")
    save(objects, "outputs/a.md", b"newest")
    sent = TransferredFile("outputs/a.md", 9, *hashes(b"as it was"), version, was_there=False)
    transfer._remove(store, "outputs/a.md", {"outputs/a.md": sent.sha256}, {"outputs/a.md": sent})
    assert objects.copy() == {"outputs/a.md": b"newest"}


def test_a_step_file_of_the_run_goes(objects: Bucket, store: Store) -> None:
    guard = ViewGuard(store)
    guard.replace(PATH, b'{"result": 1}')
    guard.remove(PATH)
    assert (objects.copy(), guard.theirs) == ({}, ())


@pytest.mark.parametrize("lift", [pausing.lift, pausing.clear])
def test_a_stop_that_came_since_the_listing_outlives_the_pause_before_it(
    objects: Bucket, lift: Callable[[Workspace, PauseWish], None]
) -> None:
    save(objects, "workspace.yaml", b"format: 1\nrun_id: r-1\nagent: a.py:main\n")
    store = process(objects)
    with opened(store, "run", Report()) as workspace:
        workspace.journal.add(PauseRequested(reason="lunch", by="ann", mode="drain", until="2026-01-01T00:00:00Z"))
        workspace.journal.flush()
        assert workspace.moment.pause is not None
        pausing.announce(store, workspace.moment.pause)
        pausing.settle(workspace)
        store.refresh()
        wanted = pausing.wish(store, workspace.moment)
        assert wanted is not None and wanted.is_lifted
        kill._write(process(objects), "stop it", "bob")
        lift(workspace, wanted)
        file = lease.read_pause(process(objects))
    assert file is not None and file.asks_for_emergency
