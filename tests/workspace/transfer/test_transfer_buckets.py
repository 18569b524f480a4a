"""Moving between kinds of storage: a folder and a bucket are only two places."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest
from properties import pairs
from servers import BUCKET, Server

import satchel
from satchel.workspace import transfer as moving
from satchel.workspace.base.errors import LeaseHeld, StorageFailed, UsageError
from satchel.workspace.inspect import define, lease, transfer_file
from satchel.workspace.inspect.load import look
from satchel.workspace.lifecycle import acquire
from satchel.workspace.lifecycle.acquire import owned
from satchel.workspace.store import DiskStore, Store, open_store
from satchel.workspace.store.bucket import BucketStore
from satchel.workspace.transfer import copy_files, transfer
from satchel.workspace.transfer import transfer as transferring

AGENT = """
from satchel import agent

async def work(run, item):
    await run.output(f"{item.id}.txt", item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Demo", ["say a", "say b"])
    await run.todo.each(work)
"""
Open = Callable[[str], Store]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: moved-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(AGENT)
    assert satchel.run(folder).status == "completed"
    shutil.rmtree(folder / ".satchel/schemas")  # they are many, and every opening writes them
    return folder


@pytest.fixture
def place(seaweedfs: Server) -> str:
    return seaweedfs.place()


@pytest.fixture
def at(seaweedfs: Server) -> Open:
    return lambda url: open_store(url, seaweedfs.storage_options())


def hashes(store: Store) -> dict[str, str]:
    from satchel.workspace.transfer.copy_files import hashes

    return {each.path: hashes(store.read(each.path).data)[0] for each in copy_files.carried(store)}


def keys(server: Server, place: str) -> dict[str, bytes]:
    """What is there, seen without Satchel."""
    prefix = place.removeprefix(f"s3://{BUCKET}/") + "/"
    found = server.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
    return {
        each["Key"].removeprefix(prefix): server.client.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
        for each in found
    }


def test_a_run_does_not_survive_its_way_into_a_bucket_and_back(
    folder: Path, place: str, at: Open, seaweedfs: Server, tmp_path: Path
) -> None:
    before = hashes(DiskStore(folder))
    result = moving.move(DiskStore(folder), at(place), by="me")
    assert result.copied == len(before) and hashes(at(place)) == before
    assert define(at(place)).run_id == "moved-1"
    with pytest.raises(UsageError, match=f"moved it to {place}"):
        look(DiskStore(folder))
    (tmp_path / "c").mkdir()
    moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
    after = hashes(DiskStore(tmp_path / "c"))
    fences = {path for path in after if path.startswith("journal/")} - before.keys()
    assert len(fences) == 1, "the way out of a bucket begins with a fence"
    assert {path: sha for path, sha in after.items() if path not in fences} == before
    left = keys(seaweedfs, place)
    assert {path for path, data in left.items() if data} == {"moved.yaml"}
    assert all(path.startswith("journal/") for path, data in left.items() if not data)
    assert satchel.run(tmp_path / "c", adopt=True).status == "completed"
    moving.move(DiskStore(tmp_path / "c"), at(place), by="me")
    assert define(at(place)).run_id == "moved-1"


@pytest.mark.slow
def test_bucket_to_bucket_is_not_possible(folder: Path, place: str, at: Open, seaweedfs: Server) -> None:
    other = seaweedfs.place()
    moving.copy(DiskStore(folder), at(place), by="me")
    moving.move(at(place), at(other), by="me")
    stone = transfer_file.read_tombstone(at(place))
    assert stone and stone.to == other and define(at(other)).run_id == "moved-1"
    assert moving.move(at(place), at(other), by="me").was_done


def test_a_copy_of_a_bucket_needs_permission_to_write_there(
    folder: Path, place: str, at: Open, seaweedfs: Server, tmp_path: Path
) -> None:
    moving.copy(DiskStore(folder), at(place), by="me")
    before = keys(seaweedfs, place)
    (tmp_path / "c").mkdir()
    moving.copy(at(place), DiskStore(tmp_path / "c"), by="me")
    assert keys(seaweedfs, place) == before


@pytest.mark.slow
def test_a_move_that_was_killed_leaves_its_lease(
    folder: Path, place: str, at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.move(DiskStore(folder), at(place), by="me")
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.3")
    (tmp_path / "c").mkdir()

    def killed(beats: acquire.Heartbeat) -> None:
        beats._over.set()
        beats._thread.join()

    def tell(phase: str, done: int, total: int) -> None:
        if phase == "clearing":
            raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(acquire.Heartbeat, "end", killed)
        moving.move(at(place), DiskStore(tmp_path / "c"), by="me", tell=tell)
    assert lease.read(at(place)) is not None
    assert moving.move(at(place), DiskStore(tmp_path / "c"), by="me").resumed
    assert lease.read(at(place)) is None


@pytest.mark.slow
def test_a_frozen_process_goes_on_where_the_run_was(
    folder: Path, place: str, at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had the run in the bucket, was frozen, and its lease ran out before the run was moved away."""
    moving.move(DiskStore(folder), at(place), by="me")
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.3")
    zombie = at(place)
    seen = look(zombie)
    with owned(zombie, seen) as frozen:
        assert frozen.heartbeat and frozen.segments
        frozen.heartbeat._over.set()
        frozen.heartbeat._thread.join()
        (tmp_path / "c").mkdir()
        planted = lease.mine(at(place), "moved-1", frozen.epoch, 0.3)
        at(place).replace(lease.PATH, lease.encode(_of_another_machine(planted)))
        moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
        name = f"journal/{seen.tail.next_seq:012d}.jsonl"
        with pytest.raises(FileExistsError):
            zombie.create(name, b"what it would have gone on with")


def _of_another_machine(mine: lease.Lease) -> lease.Lease:
    import msgspec

    return msgspec.structs.replace(mine, host="elsewhere")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("kind", [moving.move, moving.copy], ids=["move", "copy"])
def test_a_run_that_is_going_in_a_bucket_is_torn_apart(
    kind: Any, folder: Path, place: str, at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving.move(DiskStore(folder), at(place), by="me")
    monkeypatch.setenv(acquire.TTL_VARIABLE, "1")
    (tmp_path / "c").mkdir()
    with owned(running := at(place), look(running)), pytest.raises(LeaseHeld):
        monkeypatch.setattr(lease, "has_died", lambda found: False)
        kind(at(place), DiskStore(tmp_path / "c"), by="me")
    assert define(at(place)).run_id == "moved-1" and not [*copy_files.carried(DiskStore(tmp_path / "c"))]


@pytest.mark.slow
def test_who_begins_to_run_it_under_the_tombstone_is_lost(folder: Path, place: str, at: Open, tmp_path: Path) -> None:
    """Another process puts up its fence between the last look of the move and its tombstone."""
    moving.move(DiskStore(folder), at(place), by="me")
    rival = at(place)
    seen = look(rival)

    class Slow(BucketStore):
        def create(self, path: str, data: bytes) -> None:
            if path == transfer_file.MOVED:
                tail = look(at(place)).tail
                at(place).create(f"journal/{tail.next_seq:012d}.jsonl", b"a rival's fence")
            super().create(path, data)

    (tmp_path / "c").mkdir()
    source = at(place)
    source.__class__ = Slow
    with pytest.raises(LeaseHeld, match="began to run"):
        moving.move(source, DiskStore(tmp_path / "c"), by="me")
    assert transfer_file.read_tombstone(at(place)) is None and not DiskStore(tmp_path / "c").version("workspace.yaml")
    assert seen.moment.run_id == "moved-1"


STONE = transfer_file.Tombstone(run_id="moved-1", to="/else", at="2026-01-01T00:00:00Z", by="x", satchel="0")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("what", "is_new"), pairs(["all of it", "the rest", "and clears it"], [False, True], every=2))
def test_who_is_about_to_run_it_when_the_tombstone_comes_sees_it(
    what: str, is_new: bool, folder: Path, place: str, at: Open
) -> None:
    """It comes behind the first look, so only what is listed behind the fence tells of it: what a move leaves there, or
    that nothing was there before."""
    if is_new:
        at(place).replace("workspace.yaml", (folder / "workspace.yaml").read_bytes())
    else:
        moving.move(DiskStore(folder), at(place), by="me")
    mover = at(place)

    class Slow(BucketStore):
        def create(self, path: str, data: bytes) -> None:
            if path.startswith("journal/"):
                if what == "all of it":
                    transfer_file.write_leaving(mover, {"todo.md": "0"})
                mover.replace(transfer_file.MOVED, transfer_file.encode_tombstone(STONE))
                if what == "and clears it":
                    transfer_file.write_leaving(mover, hashes(mover))
                    transfer.clear(mover, {}, lambda *_: None)
            super().create(path, data)

    if what == "the rest":
        transfer_file.write_leaving(mover, {"todo.md": "0"})
    rival = at(place)
    seen = look(rival)
    rival.__class__ = Slow
    with pytest.raises(UsageError, match="is at another place"), owned(rival, seen, take_over=True):
        pass


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("is_new", [False, True])
def test_who_begins_to_run_it_is_not_carried_away(
    is_new: bool, folder: Path, place: str, at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come while the files are copied, and are quiet then: all that they have written is carried, too."""
    if is_new:
        at(place).replace("workspace.yaml", (folder / "workspace.yaml").read_bytes())
    else:
        moving.move(DiskStore(folder), at(place), by="me")
    transfer = transferring.transfer
    (tmp_path / "c").mkdir()
    with ExitStack() as stack:

        def late(*given: Any) -> Any:
            rival = at(place)
            stack.enter_context(owned(rival, look(rival), take_over=True))
            return transfer(*given)

        monkeypatch.setattr(transferring, "transfer", late)
        with pytest.raises(LeaseHeld, match="began to run"):
            moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
    assert lives(at(place)) and not lives(DiskStore(tmp_path / "c"))


@pytest.mark.slow
def test_a_move_that_is_gone_on_with_sees_who_began_to_run_it(
    folder: Path, place: str, at: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their fence came before the tombstone, and the first call was killed before it looked for one."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.5")
    moving.move(DiskStore(folder), at(place), by="me")
    leave = transferring._leave

    def killed(*given: Any, **options: Any) -> None:
        rival = at(place)
        with owned(rival, look(rival), take_over=True):
            pass
        leave(*given, **options)
        raise Killed

    (tmp_path / "c").mkdir()
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(transferring, "_leave", killed)
        moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
    assert not lives(at(place))
    with pytest.raises(LeaseHeld, match="began to run"):
        moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
    assert lives(at(place)) and not lives(DiskStore(tmp_path / "c"))
    moving.move(at(place), DiskStore(tmp_path / "c"), by="me")
    assert not lives(at(place)) and lives(DiskStore(tmp_path / "c"))


@pytest.mark.slow
def test_a_run_that_has_come_back_is_not_removed_by_who_has_slept(
    folder: Path, place: str, at: Open, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of clearing; the files are the same again, byte for byte."""
    moving.move(DiskStore(folder), at(place), by="me")
    there = seaweedfs.place()
    slept: list[float] = []

    class Sleeper(BucketStore):
        def remove(self, path: str, *, if_version: str | None = None) -> None:
            super().remove(path, if_version=if_version)
            if path == "workspace.yaml" and not slept:
                slept.append(3600)
                moving.move(at(there), at(place), by="me")

    monkeypatch.setattr(copy_files, "clock", lambda: acquire.clock() + sum(slept))
    before = hashes(at(place))
    sleeper = at(place)
    sleeper.__class__ = Sleeper
    with pytest.raises(LeaseHeld, match="continued this transfer"):
        moving.move(sleeper, at(there), by="me")
    assert slept and lives(at(place)) and not lives(at(there))
    assert before.items() <= hashes(at(place)).items()


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("where", ["copying", "copied", "left", "defined"])
def test_who_has_slept_does_not_spoil_what_another_call_has_brought(
    where: str, is_new: bool, folder: Path, place: str, at: Open, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command was typed again elsewhere, and is through."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.5")
    if is_new:
        for name in ("agent.py", "workspace.yaml"):
            at(place).replace(name, (folder / name).read_bytes())
    else:
        moving.move(DiskStore(folder), at(place), by="me")
    there, before = seaweedfs.place(), hashes(at(place))
    slept: list[float] = []

    def sleep() -> None:
        if not slept:
            slept.append(0)
            with monkeypatch.context() as elsewhere:
                elsewhere.setattr(acquire, "until_free", lambda store: ())  # by its clock the first has died long ago
                moving.move(at(place), at(there), by="me")
            slept[0] = 3600  # not before: its other threads sleep, too, and have looked at nothing meanwhile

    class Sleeper(BucketStore):
        def replace(self, path: str, data: bytes, **options: Any) -> str:
            if where == "copying" and path == "agent.py":
                sleep()
            return super().replace(path, data, **options)

        def create(self, path: str, data: bytes) -> None:
            if where == "defined" and path == "workspace.yaml":
                sleep()
            super().create(path, data)

    real = {name: getattr(transferring, name) for name in ("transfer", "_leave")}

    def transfer(*given: Any) -> Any:
        sent = real["transfer"](*given)
        if where == "copied":
            sleep()
        return sent

    def leave(*given: Any, **options: Any) -> None:
        if where == "left":
            sleep()
        real["_leave"](*given, **options)

    monkeypatch.setattr(copy_files, "clock", lambda: acquire.clock() + sum(slept))
    monkeypatch.setattr(transferring, "transfer", transfer)
    monkeypatch.setattr(transferring, "_leave", leave)
    to = at(there)
    to.__class__ = Sleeper
    with pytest.raises((LeaseHeld, UsageError)):
        moving.move(at(place), to, by="me")
    assert slept and lives(at(there)) and not lives(at(place))
    assert before.items() <= hashes(at(there)).items()


@pytest.mark.slow
def test_the_empty_journal_of_a_cleared_place_is_not_brought(
    folder: Path, place: str, at: Open, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call has brought the run and cleared this place, all since the last look at the new one."""
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.5")
    moving.move(DiskStore(folder), at(place), by="me")
    there, before = seaweedfs.place(), hashes(at(place))
    copying = threading.Event()

    class Slow(BucketStore):
        def read(self, path: str, **options: Any) -> Any:
            if copying.is_set() and path.startswith("journal/"):
                copying.clear()
                with monkeypatch.context() as elsewhere:
                    elsewhere.setattr(acquire, "until_free", lambda store: ())
                    moving.move(at(place), at(there), by="me")
                self.refresh()
            return super().read(path, **options)

    def tell(phase: str, done: int, total: int) -> None:
        if phase == "copying" and done:
            copying.set()

    source = at(place)
    source.__class__ = Slow
    with pytest.raises(LeaseHeld, match="continued this transfer"):
        moving.move(source, at(there), by="me", tell=tell)
    assert lives(at(there)) and not lives(at(place))
    assert before.items() <= hashes(at(there)).items()


def test_a_bucket_whose_tags_say_nothing_is_believed(folder: Path, place: str, at: Open) -> None:
    """With SSE-KMS an ETag is no MD5, and what a store remembers of its own writes proves nothing."""

    class Lying(BucketStore):
        def version(self, path: str) -> str | None:
            tag = super().version(path)
            return tag and f'"kms-{tag[1:]}'

        def replace(self, path: str, data: bytes, **options: Any) -> str:
            tag = super().replace(path, data, **options)
            if path == "agent.py":
                key = self._key(path)
                self._requests.call("put_object", "can't be written", path, Key=key, Body=data[:-1])
            return tag

    to = at(place)
    to.__class__ = Lying
    with pytest.raises(StorageFailed, match=r"agent\.py"):
        moving.move(DiskStore(folder), to, by="me")
    assert define(DiskStore(folder)).run_id == "moved-1"


@pytest.mark.slow
def test_what_a_disk_can_not_hold_is_found_out_in_the_middle(folder: Path, moto: Server, tmp_path: Path) -> None:
    place = moto.place()
    prefix = place.removeprefix(f"s3://{BUCKET}/")

    def put(name: str) -> None:
        moto.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"x")

    _copied_in_vain(folder, lambda: open_store(place, moto.storage_options()), put, tmp_path / "c")


def test_what_a_disk_can_not_hold_is_found_out_in_the_middle_of_a_memory(folder: Path, tmp_path: Path) -> None:
    def put(name: str) -> None:
        fsspec.filesystem("memory").pipe_file(f"{tmp_path}/{name}", b"x")

    _copied_in_vain(folder, lambda: open_store(f"memory:/{tmp_path}"), put, tmp_path / "c")


def _copied_in_vain(folder: Path, at: Callable[[], Store], put: Callable[[str], None], to: Path) -> None:
    moving.copy(DiskStore(folder), at(), by="me")
    to.mkdir()
    for name in ("outputs", "n" * 300):
        put(name)
        with pytest.raises(UsageError, match="can't be transferred"):
            moving.copy(at(), DiskStore(to), by="me")
        assert not copy_files.carried(DiskStore(to))
        at().remove(name)


class Place(NamedTuple):
    open: Callable[[], Store]
    put: Callable[[str], object]
    """Puts a file there, seen by no store that has looked before."""


@pytest.fixture(params=["memory", pytest.param("seaweedfs", marks=pytest.mark.slow)])
def held(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Place:
    """Where the run is."""
    if request.param == "memory":
        files = fsspec.filesystem("memory")
        found = Place(
            lambda: open_store(f"memory:/{tmp_path}"), lambda name: files.pipe_file(f"{tmp_path}/{name}", b"x")
        )
    else:
        server = request.getfixturevalue("seaweedfs")
        url, bucket = server.place(), server.client
        prefix = url.removeprefix(f"s3://{BUCKET}/")
        found = Place(
            lambda: open_store(url, server.storage_options()),
            lambda name: bucket.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=b"x"),
        )
    moving.copy(DiskStore(folder), found.open(), by="me")
    return found


@pytest.mark.parametrize("do", [moving.copy, moving.move])
def test_a_name_that_no_disk_need_take_stays_behind_in_silence(do: Any, held: Place, tmp_path: Path) -> None:
    to = tmp_path / "c"
    to.mkdir()
    held.put("trail.")
    held.put("outputs/two\nlines\x1b[2J.txt")
    before = hashes(held.open())
    with pytest.raises(UsageError) as refused:
        do(held.open(), DiskStore(to), by="me")
    assert "trail.: can't be transferred" in str(refused.value), "not named"
    assert r"outputs/two\nlines\x1b[2J.txt" in str(refused.value)
    assert not copy_files.carried(DiskStore(to)), "something was copied"
    after = hashes(held.open())
    assert before.items() <= after.items() and all("journal/" in path for path in after.keys() - before.keys())


def test_a_name_that_no_disk_need_take_and_that_came_meanwhile_is_left_in_silence(held: Place, tmp_path: Path) -> None:
    to = tmp_path / "c"
    to.mkdir()

    def tell(phase: str, done: int, total: int) -> None:
        if phase == "verifying" and not done:
            held.put("trail.")

    assert moving.move(held.open(), DiskStore(to), by="me", tell=tell).left == ["trail."]
    with pytest.raises(UsageError, match=r"is not empty: there is trail\."):
        moving.move(DiskStore(to), held.open(), by="me")


def test_what_marks_a_folder_for_a_console_is_taken_for_a_file(
    folder: Path, place: str, at: Open, seaweedfs: Server, tmp_path: Path
) -> None:
    moving.copy(DiskStore(folder), at(place), by="me")
    for name in ("/", "/outputs/", "/new/"):
        key = place.removeprefix(f"s3://{BUCKET}/") + name
        seaweedfs.client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    (tmp_path / "c").mkdir()
    assert moving.copy(at(place), DiskStore(tmp_path / "c"), by="me").files == len(hashes(DiskStore(folder)))


def test_a_copy_with_other_tools_is_not_the_run(
    folder: Path, place: str, at: Open, seaweedfs: Server, tmp_path: Path
) -> None:
    """As `aws s3 sync` does it, there and back."""
    before = hashes(DiskStore(folder))
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    for path in folder.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(folder).as_posix()}"
            seaweedfs.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    assert look(at(place)).moment.status == "completed" and hashes(at(place)) == before
    for name, data in keys(seaweedfs, place).items():
        (tmp_path / "c" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / name).write_bytes(data)
    assert hashes(DiskStore(tmp_path / "c")) == before and satchel.run(tmp_path / "c", adopt=True).status == "completed"


CALLS = (
    "read",
    "version",
    "list",
    "folders",
    "replace",
    "exchange",
    "create",
    "settle",
    "remove",
    "remove_many",
    "refresh",
)


class Killed(BaseException):
    """As a kill: nothing catches it, and no later call happens."""


class Fuse:
    """Counts calls to both places; they may come from several threads."""

    def __init__(self, left: int):
        self.left = left

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


class Dying:
    fuse: Fuse

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in CALLS:
            self.fuse.tick()
        return found


class DyingDisk(Dying, DiskStore):
    pass


class DyingBucket(Dying, BucketStore):
    pass


def dying(store: Store, fuse: Fuse) -> Store:
    store.fuse = fuse  # type: ignore[attr-defined]
    store.__class__ = DyingDisk if isinstance(store, DiskStore) else DyingBucket
    return store


def lives(store: Store) -> bool:
    try:
        return define(store).run_id == "moved-1"
    except UsageError:
        return False


@pytest.mark.slow
@pytest.mark.filterwarnings(r"ignore:(?s)Exception in thread satchel-heartbeat.*\bKilled\b")  # killed like the others
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_kill_between_a_folder_and_a_bucket_leaves_two_or_none(
    seed: int, folder: Path, at: Open, seaweedfs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and back, killed at random calls until it is through."""
    print(f"seed {seed}")
    monkeypatch.setenv(acquire.TTL_VARIABLE, "0.5")  # this process lives on, so whoever comes next has to watch
    rng = random.Random(seed)
    before = hashes(DiskStore(folder))
    here, kills = str(folder), 0
    began = time.monotonic()
    for number in range(6):
        there = seaweedfs.place() if number % 2 == 0 else str(tmp_path / f"back{number}")
        if number % 2:
            os.mkdir(there)
        after = rng.randrange(150)
        while True:
            try:
                moving.move(dying(at(here), fuse := Fuse(after)), dying(at(there), fuse), by="me")
                break
            except Killed:
                kills += 1
            both = lives(at(here)), lives(at(there))
            assert both != (True, True)
            if both[1]:
                assert before.items() <= hashes(at(there)).items()
            else:
                assert before.items() <= hashes(at(here)).items()
            after += rng.randrange(10, 150)
        assert lives(at(there)) and not lives(at(here))
        assert before.items() <= hashes(at(there)).items()
        assert at(here).version(lease.PATH) is None
        here = there
        if time.monotonic() - began > 25:
            break
    assert kills
    print(f"{number + 1} moves, {kills} kills")
