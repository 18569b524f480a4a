"""What every kind of storage promises. A new kind joins by one more entry in KINDS.

Where kinds differ, `Store.abilities` says so, and only that decides what is tested.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import multiprocessing
import os
import stat
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clouds import Cloud
from elsewhere import Elsewhere
from servers import BUCKET, Server
from waits import PATIENCE

from satchel.workspace.base.errors import AgentError, InvalidFile, LeaseHeld, SatchelError, StorageFailed, UsageError
from satchel.workspace.store import DiskStore, Entry, FileChanged, RemoteStore, Store, Syscalls, open_store

spawning = multiprocessing.get_context("fork")


class Stores(NamedTuple):
    """A kind of store over one place: `open` opens it anew, the others work behind its back."""

    open: Callable[[], Store]
    put: Callable[[str, bytes], None]
    get: Callable[[str], bytes]
    names: Callable[[], set[str]]  # every file but those of .satchel
    fair: bool = True  # False: what is behind it may let several win a race, whatever it says of itself
    any_name: bool = True  # False: no listing comes of a folder with control characters in a name


def on_disk(request: pytest.FixtureRequest) -> Stores:
    folder = request.getfixturevalue("tmp_path") / "w"
    folder.mkdir()
    return over_folder(folder, lambda: DiskStore(folder))


def at_a_file_url(request: pytest.FixtureRequest) -> Stores:
    folder = request.getfixturevalue("tmp_path") / "w"
    folder.mkdir()
    return over_folder(folder, lambda: open_store(f"file://{folder}"))


def over_folder(folder: Path, open_: Callable[[], Store]) -> Stores:
    def put(path: str, data: bytes) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)

    def names() -> set[str]:
        files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return {name for name in files if not name.startswith(".satchel/")}

    return Stores(open_, put, lambda path: (folder / path).read_bytes(), names)


def in_a_bucket(server: Server) -> Stores:
    url = server.place()
    prefix = url.removeprefix(f"s3://{BUCKET}/") + "/"

    def put(path: str, data: bytes) -> None:
        server.client.put_object(Bucket=BUCKET, Key=prefix + path, Body=data)

    def get(path: str) -> bytes:
        data = server.client.get_object(Bucket=BUCKET, Key=prefix + path)["Body"].read()
        assert isinstance(data, bytes)
        return data

    def names() -> set[str]:
        found = server.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", ())
        paths = (each["Key"].removeprefix(prefix) for each in found)
        return {path for path in paths if not path.startswith(".satchel/")}

    # moto looks and writes in two steps, and finds no object whose name has a control character.
    is_real = server.kind != "moto"
    return Stores(lambda: open_store(url, server.storage_options()), put, get, names, fair=is_real, any_name=is_real)


def on_seaweedfs(request: pytest.FixtureRequest) -> Stores:
    return in_a_bucket(request.getfixturevalue("seaweedfs"))


def on_moto(request: pytest.FixtureRequest) -> Stores:
    return in_a_bucket(request.getfixturevalue("moto"))


def in_memory(request: pytest.FixtureRequest) -> Stores:
    import fsspec

    files, root = fsspec.filesystem("memory"), f"/contract/{next(numbers)}"

    def names() -> set[str]:
        paths = (path.removeprefix(f"{root}/") for path in files.find(root))
        return {path for path in paths if not path.startswith(".satchel/")}

    return Stores(
        lambda: open_store(f"memory:/{root}"),
        lambda path, data: files.pipe_file(f"{root}/{path}", data),
        lambda path: bytes(files.cat_file(f"{root}/{path}")),
        names,
    )


def renaming(request: pytest.FixtureRequest) -> Stores:
    """Stands for sftp, smb, webdav: folders, a rename that is one, and errors that are no OSErrors."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    class ResourceNotFound(Exception):
        pass

    class ResourceAlreadyExists(Exception):
        pass

    class Folders(LocalFileSystem):  # type: ignore[misc]
        protocol = "folders"

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(path).removeprefix("folders://").rstrip("/")

        def mv(self, path1: str, path2: str, **kwargs: object) -> None:
            if os.path.exists(path2):  # as smb's
                raise ResourceAlreadyExists(path2)
            os.rename(path1, path2)

        def info(self, path: str, **kwargs: object) -> object:
            try:
                return super().info(path, **kwargs)
            except FileNotFoundError:
                raise ResourceNotFound(path) from None

    fsspec.register_implementation("folders", Folders, clobber=True)
    folder = request.getfixturevalue("tmp_path") / "w"
    return over_folder(folder, lambda: open_store(f"folders://{folder}"))


def by_webdav(request: pytest.FixtureRequest) -> Stores:
    return on_a_server(request.getfixturevalue("webdav"))._replace(any_name=False)  # its answers would be no XML


def by_sftp(request: pytest.FixtureRequest) -> Stores:
    return on_a_server(request.getfixturevalue("sftp"))


def by_sshfs(request: pytest.FixtureRequest) -> Stores:
    return on_a_server(request.getfixturevalue("sshfs"))


def at_google(request: pytest.FixtureRequest) -> Stores:
    return in_a_cloud(request.getfixturevalue("gcs"))


def at_azure(request: pytest.FixtureRequest) -> Stores:
    return in_a_cloud(request.getfixturevalue("azure"))._replace(any_name=False)  # its listings would be no XML


def in_a_cloud(server: Cloud) -> Stores:
    url = server.place()
    prefix = url.removeprefix(server.url("")) + "/"

    def names() -> set[str]:
        paths = (name.removeprefix(prefix) for name in server.names(prefix))
        return {path for path in paths if not path.startswith(".satchel/")}

    return Stores(
        lambda: open_store(url, server.storage_options()),
        lambda path, data: server.put(prefix + path, data),
        lambda path: server.get(prefix + path),
        names,
    )


def on_a_server(server: Elsewhere) -> Stores:
    url, folder = server.place()
    return over_folder(folder, lambda: open_store(url, server.options))


numbers = itertools.count()
KINDS = {
    "azure": at_azure,
    "disk": on_disk,
    "file-url": at_a_file_url,
    "gcs": at_google,
    "memory": in_memory,
    "moto": on_moto,
    "renaming": renaming,
    "seaweedfs": on_seaweedfs,
    "sftp": by_sftp,
    "sshfs": by_sshfs,
    "webdav": by_webdav,
}
_SECOND = ("azure", "file-url", "moto", "sftp", "sshfs", "webdav")  # of their kind: the slow tier tries them, too


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.slow if kind in _SECOND else ()) for kind in KINDS])
def stores(request: pytest.FixtureRequest) -> Stores:
    return KINDS[request.param](request)


def needs(store: Store, *abilities: str) -> None:
    for ability in abilities:
        if not getattr(store.abilities, ability):
            pytest.skip(f"has no {ability}")


@pytest.fixture
def store(stores: Stores) -> Store:
    return stores.open()


# Names


@pytest.mark.parametrize("path", ["n" * 1100, "日" * 400 + ".md", f"{'n' * 1100}/a.md"])
def test_a_name_that_is_too_long_is_a_failure_of_the_storage(store: Store, path: str) -> None:
    """It is a mistake of who gives it. A supervisor starts a run again whose storage fails."""
    if store.url.startswith(("memory://", "az://")):  # Azurite; Azure itself takes 1,024 characters
        pytest.skip("takes any name")
    assert store.version(path) is None and not [*store.list(path)]
    with pytest.raises((FileNotFoundError, UsageError)):
        store.read(path)
    store.remove("a.md")
    store.create("a.md", b"one")
    for write in (
        lambda: store.create(path, b"two"),
        lambda: store.replace(path, b"two"),
        lambda: store.append(path, b"two"),
        lambda: store.rename("a.md", path),
    ):
        with pytest.raises(UsageError):
            write()
    assert store.read("a.md").data == b"one"


# Reading


def test_a_file_written_behind_the_stores_back_is_read(stores: Stores, store: Store) -> None:
    stores.put("a/b.txt", b"one")
    assert store.read("a/b.txt").data == b"one"
    stores.put("a/b.txt", b"two!")
    store.refresh()
    assert store.read("a/b.txt").data == b"two!"
    stores.put("a/new.txt", b"three")  # what no listing has shown yet can be read all the same
    assert store.read("a/new.txt").data == b"three"


def test_a_missing_file_is_an_error_and_not_an_empty_one(stores: Stores, store: Store) -> None:
    stores.put("file", b"x")
    for path in ("a.txt", "no/folder/a.txt", "file/below.txt"):
        with pytest.raises(FileNotFoundError):
            store.read(path)
        assert store.version(path) is None


def test_an_empty_file_is_not_a_missing_one(stores: Stores, store: Store) -> None:
    stores.put("a.txt", b"")
    assert store.read("a.txt").data == b""
    assert store.version("a.txt") is not None


def test_a_file_beyond_the_limit_is_refused_and_one_at_the_limit_is_read(stores: Stores, store: Store) -> None:
    stores.put("a.txt", b"x" * 10)
    assert store.read("a.txt", limit=10).data == b"x" * 10
    with pytest.raises(InvalidFile) as refused:
        store.read("a.txt", limit=9)
    assert refused.value.path == "a.txt" and "at most 9" in str(refused.value)


def test_a_tail_is_the_end_of_the_file_and_never_more_than_there_is(stores: Stores, store: Store) -> None:
    data = bytes(range(256)) * 1000
    stores.put("f/a.txt", data)
    for size in (0, 1, 255, 100_000, len(data) - 1, len(data), len(data) + 1, 1 << 40):
        assert store.tail("f/a.txt", size) == data[max(0, len(data) - size) :], size
    store.append("f/a.txt", b"more")
    assert store.tail("f/a.txt", 6) == b"\xfe\xffmore"
    stores.put("f/a.txt", b"")
    store.refresh()
    assert store.tail("f/a.txt", 10) == b"" and store.tail("f/a.txt", 0) == b""


def test_a_part_has_other_bytes_than_are_there(stores: Stores, store: Store) -> None:
    data = bytes(range(256)) * 40
    stores.put("f/a.txt", data)
    for begin, size in ((0, 0), (0, 1), (3, 300), (256, len(data)), (len(data) - 1, 9), (len(data), 9), (1 << 40, 9)):
        assert store.part("f/a.txt", begin, size) == data[begin : begin + size], (begin, size)
    stores.put("f/empty", b"")
    store.refresh()
    assert store.part("f/empty", 0, 10) == b""
    for path in ("missing.txt", "no/folder/a.txt"):
        with pytest.raises(FileNotFoundError):
            store.part(path, 0, 10)


def test_a_file_that_is_not_open_has_a_writer(stores: Stores, store: Store) -> None:
    stores.put("a.txt", b"x")
    store.refresh()
    assert not store.has_writer("a.txt") and store.has_writer("missing.txt") is None
    with pytest.raises(UsageError):
        store.has_writer("../a.txt")


def test_the_tail_of_a_missing_file_is_an_error_and_not_an_empty_one(stores: Stores, store: Store) -> None:
    stores.put("file", b"x")
    for path in ("a.txt", "no/folder/a.txt", "file/below.txt"):
        with pytest.raises(FileNotFoundError):
            store.tail(path, 10)


def test_a_high_limit_does_not_reserve_that_much_memory(stores: Stores, store: Store) -> None:
    stores.put("a.txt", b"small")
    store.version("a.txt")  # what a driver loads at first is not meant
    tracemalloc.start()
    try:
        store.read("a.txt", limit=1 << 30)
        store.tail("a.txt", 1 << 30)
        store.part("a.txt", 1, 1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 << 20


def test_listings_show_what_is_there_in_order_and_nothing_below(stores: Stores, store: Store) -> None:
    for name in ("f/b.txt", "f/a.txt", "f/sub/c.txt", "top.txt", "g/x"):
        stores.put(name, name.encode())
    assert [(entry.path, entry.size) for entry in store.list("f")] == [("f/a.txt", 7), ("f/b.txt", 7)]
    assert list(store.folders("f")) == ["f/sub"]
    assert [entry.path for entry in store.list("")] == ["top.txt"]
    assert set(store.folders("")) >= {"f", "g"}
    assert list(store.list("nowhere")) == list(store.folders("nowhere")) == list(store.list("top.txt")) == []


def test_names_that_no_listing_shows_are_told_in_a_form_that_can_be_printed(stores: Stores, store: Store) -> None:
    shown = {"trail.": "trail."}
    if stores.any_name:
        shown |= {"a\x01b": r"a\x01b", "two\nlines": r"two\nlines"}
    for name in ("f/good", *(f"f/{name}" for name in shown), "only/odd/what?"):
        stores.put(name, b"x")
    assert [entry.path for entry in store.list("f")] == ["f/good"] and [*store.folders("")] == ["f", "only"]
    assert sorted(store.unusable("f")) == sorted(shown.values())
    assert [*store.unusable("")] == [*store.unusable("only")] == [*store.unusable("nowhere")] == []
    assert [*store.folders("only")] == ["only/odd"] and [*store.unusable("only/odd")] == ["what?"]
    store.remove("f/good")
    assert len([*store.unusable("f")]) == len(shown) and "f" in [*store.folders("")]


def test_listings_show_what_has_come_when_they_are_refreshed(stores: Stores, store: Store) -> None:
    assert list(store.list("f")) == []
    stores.put("f/a", b"")
    store.refresh()
    assert [entry.path for entry in store.list("f")] == ["f/a"]


def test_one_folder_can_be_looked_at_again_by_itself(stores: Stores, store: Store) -> None:
    for path in ("f/in/gone", "f/changed", "g/other"):
        stores.put(path, b"1")
    store.refresh()
    other = stores.open()
    other.remove("f/in/gone")
    for path in ("f/changed", "f/new/er", "ff/not-in-it", "g/late"):
        stores.put(path, b"22")
    store.refresh("f")
    assert [*store.list("f")] == [Entry("f/changed", 2)] and [*store.folders("f")] == ["f/new"]
    assert [*store.list("f/new")] == [Entry("f/new/er", 2)] and store.read("f/changed").data == b"22"
    if isinstance(store, RemoteStore):
        assert "g/late" not in {entry.path for entry in store.list("g")}, "it was asked for it"
    other.remove("f/changed")
    other.remove("f/new/er")
    store.refresh("f")
    assert [*store.list("f"), *store.folders("f")] == [] and "f" not in store.folders("")
    store.refresh()
    assert {entry.path for entry in store.list("g")} == {"g/other", "g/late"}


# Replacing


@pytest.mark.parametrize("sync", ["no", "data", "all"])
def test_replace_makes_folders_and_leaves_exactly_the_content(stores: Stores, store: Store, sync: Any) -> None:
    for data in (b"", b"one", b"x" * 300_000, b"short"):
        store.replace("a/b/c.txt", data, sync=sync)
        assert stores.get("a/b/c.txt") == data
    assert stores.names() == {"a/b/c.txt"}


def test_the_version_returned_is_the_one_that_reading_gives(store: Store) -> None:
    first = store.replace("a.txt", b"1")
    assert first == store.version("a.txt") == store.read("a.txt").version
    second = store.replace("a.txt", b"22")  # some tell nothing but the size and a time in whole seconds
    assert second != first and second == store.version("a.txt") == store.read("a.txt").version


def test_a_file_saved_with_the_same_bytes_has_another_version(folder: Path) -> None:
    store = DiskStore(folder)
    assert store.replace("a.txt", b"1") != store.replace("a.txt", b"1")


def test_a_save_since_the_file_was_read_is_not_overwritten(stores: Stores, store: Store) -> None:
    version = store.replace("a.txt", b"ours")
    stores.put("a.txt", b"theirs!")
    with pytest.raises(FileChanged):
        store.replace("a.txt", b"ours again", if_version=version)
    assert stores.get("a.txt") == b"theirs!"
    store.replace("a.txt", b"merged", if_version=store.read("a.txt").version)
    assert stores.get("a.txt") == b"merged"


def test_an_expected_file_that_is_gone_is_a_change(stores: Stores, store: Store) -> None:
    version = store.replace("a.txt", b"ours")
    store.remove("a.txt")
    with pytest.raises(FileChanged):
        store.replace("a.txt", b"ours again", if_version=version)
    assert stores.names() == set()


# Creating, appending, removing


def test_create_never_replaces(stores: Stores, store: Store) -> None:
    store.create("a/b", b"first")
    with pytest.raises(FileExistsError):
        store.create("a/b", b"second")
    stores.put("a/c", b"behind its back")
    with pytest.raises(FileExistsError):
        store.create("a/c", b"second")
    assert (stores.get("a/b"), stores.get("a/c")) == (b"first", b"behind its back")


def test_another_stores_writes_show_when_this_one_is_refreshed(stores: Stores, store: Store) -> None:
    other = stores.open()
    version = store.replace("a/one", b"1")
    assert other.read("a/one") == (b"1", version)
    other.replace("a/one", b"22")
    other.create("b", b"")
    other.rename("b", "c/d")
    store.refresh()
    assert store.read("a/one").data == b"22" and store.version("a/one") == other.version("a/one")
    assert [(entry.path, entry.size) for entry in store.list("a")] == [("a/one", 2)]
    assert set(store.folders("")) >= {"a", "c"} and store.version("b") is None
    other.remove("c/d")
    store.refresh()
    assert "c" not in set(store.folders(""))


def test_own_writes_show_at_once(store: Store) -> None:
    assert list(store.list("")) == []
    store.create("f/a", b"1")
    store.append("f/b", b"22")
    store.exchange("f/c", b"333", if_version=None)
    assert [(entry.path, entry.size) for entry in store.list("f")] == [("f/a", 1), ("f/b", 2), ("f/c", 3)]
    store.append("f/b", b"2")
    store.rename("f/c", "g/c")
    assert [(entry.path, entry.size) for entry in (*store.list("f"), *store.list("g"))] == [
        ("f/a", 1),
        ("f/b", 3),
        ("g/c", 3),
    ]
    store.remove_many(["f/a", "f/b", "never/was"])
    assert list(store.list("f")) == [] and "f" not in set(store.folders(""))


def test_only_the_version_that_was_seen_is_removed(stores: Stores, store: Store) -> None:
    old = store.replace("f/a", b"one")
    new = store.replace("f/a", b"another")
    with pytest.raises(FileChanged):
        store.remove("f/a", if_version=old)
    assert stores.get("f/a") == b"another"
    store.remove("f/a", if_version=new)
    store.remove("f/a", if_version=new)
    assert stores.names() == set() and "f" not in set(store.folders("")), "what is gone need not be removed"
    stores.put("f/a", b"behind its back")
    store.remove("f/a")
    assert stores.names() == set()
    mine = store.replace("f/a", b"seen")
    stores.put("f/a", b"saved since")
    with pytest.raises(FileChanged):
        store.remove("f/a", if_version=mine)
    assert stores.get("f/a") == b"saved since"
    store.remove("f/a")
    assert stores.names() == set()


def test_an_exchange_is_refused_when_the_file_is_not_what_was_seen(stores: Stores, store: Store) -> None:
    version = store.exchange("a", b"one", if_version=None).version
    assert stores.get("a") == b"one" and version == store.version("a")
    with pytest.raises(FileChanged):
        store.exchange("a", b"two", if_version=None)
    stores.put("a", b"theirs")
    with pytest.raises(FileChanged):
        store.exchange("a", b"two", if_version=version)
    stores.put("b", b"theirs")
    with pytest.raises(FileChanged):
        store.exchange("b", b"two", if_version=None)
    assert (stores.get("a"), stores.get("b")) == (b"theirs", b"theirs")
    store.refresh()
    store.exchange("a", b"two", if_version=store.version("a"))
    assert stores.get("a") == b"two"


def test_what_is_expected_is_only_taken_for_what_is_there_if_it_is(stores: Stores, store: Store) -> None:
    stores.put("a", b"theirs")
    stores.put("b", b"as was said")
    store.expect("a", b"as was said")
    store.expect("b", b"as was said")
    store.expect("c", b"as was said")
    store.refresh()
    assert store.read("a").data == b"theirs" and store.read("b").data == b"as was said"
    with pytest.raises(FileNotFoundError):
        store.read("c")


def test_many_are_removed_at_once(stores: Stores, store: Store) -> None:
    paths = [f"j/{number}" for number in range(20)]
    for path in [*paths, "j/kept"]:
        stores.put(path, b"x")
    store.remove_many([])
    store.remove_many([*paths, "never/was"])
    assert stores.names() == {"j/kept"} and [entry.path for entry in store.list("j")] == ["j/kept"]
    with pytest.raises(UsageError):
        store.remove_many(["j/kept", "../j/kept"])
    assert stores.names() == {"j/kept"}


def in_threads(count: int, work: Callable[[int], object]) -> None:
    start, failed = threading.Barrier(count), []

    def run(number: int) -> None:
        start.wait(PATIENCE)
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed


def test_of_threads_that_race_to_create_exactly_one_wins(stores: Stores, store: Store) -> None:
    needs(store, "exclusive_create")
    both = (store, stores.open())
    for round_ in range(2):
        won: list[int] = []

        def create(number: int, round_: int = round_, won: list[int] = won) -> None:
            try:
                both[number % 2].create(f"race/{round_}", b"same" if round_ == 1 else b"%d" % number)
                won.append(number)
            except FileExistsError:
                pass

        in_threads(8, create)
        assert len(won) == 1 or (won and not stores.fair)
        if not stores.fair:
            assert stores.get(f"race/{round_}") in {b"same", *(b"%d" % number for number in won)}
            continue
        assert stores.get(f"race/{round_}") == (b"same" if round_ == 1 else b"%d" % won[0])


def test_of_threads_that_replace_the_same_version_one_wins(stores: Stores, store: Store) -> None:
    needs(store, "conditional_replace")
    if store.abilities.lock:
        pytest.skip("a lock keeps others away: the look and the replacement are two calls")
    both = (store, stores.open())
    version = store.replace("a", b"before")
    for round_ in range(2):
        won: list[int] = []

        def replace(number: int, round_: int = round_, version: str = version, won: list[int] = won) -> None:
            try:  # with bytes of its own: a version that is a hash would come back with them
                both[number % 2].replace("a", b"%d.%d" % (round_, number), if_version=version)
                won.append(number)
            except FileChanged:
                pass

        in_threads(4, replace)
        assert len(won) == 1 or (won and not stores.fair)
        assert stores.get("a") in {b"%d.%d" % (round_, number) for number in won}
        store.refresh()
        version = store.read("a").version


def test_appends_from_several_threads_are_all_kept(stores: Stores, store: Store) -> None:
    needs(store, "conditional_replace")
    if not stores.fair:
        pytest.skip("its conditions are not")
    both = (store, stores.open())
    in_threads(4, lambda number: [both[number % 2].append("m", b"same\n") for _ in range(3)])
    assert stores.get("m") == b"same\n" * 12


def test_a_store_is_used_where_an_event_loop_runs(store: Store) -> None:
    async def use() -> bytes:
        store.replace("a", b"x")
        store.refresh()
        return store.read("a").data

    assert asyncio.run(use()) == b"x"


def create_when_told(stores: Stores, start: Any, won: Any, mine: int) -> None:
    store = stores.open()
    for round_ in range(20):
        start.wait()
        try:
            store.create(f"race/{round_}", b"%d" % mine)
        except FileExistsError:
            continue
        won.put((round_, mine))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_of_processes_that_race_to_create_exactly_one_wins(stores: Stores, store: Store) -> None:
    needs(store, "exclusive_create", "lock")  # the others' clients don't survive a fork, and have raced in threads
    start, won = spawning.Barrier(4), spawning.Queue()
    racers = [spawning.Process(target=create_when_told, args=(stores, start, won, n)) for n in range(4)]
    for racer in racers:
        racer.start()
    winners = dict(won.get(timeout=PATIENCE) for _ in range(20))
    for racer in racers:
        racer.join(PATIENCE)
    assert len(winners) == 20 and won.empty()
    assert all(stores.get(f"race/{round_}") == b"%d" % mine for round_, mine in winners.items())


def test_a_log_where_files_do_not_grow_is_an_error(store: Store) -> None:
    if store.abilities.append:
        pytest.skip("files grow")
    with pytest.raises(AgentError):
        store.create_log("j/1", b"head")


def test_a_log_only_grows_and_its_name_is_taken(stores: Stores, store: Store) -> None:
    needs(store, "append")
    log = store.create_log("j/1", b"head\n")
    log.append(b"one\n")
    assert stores.get("j/1") == b"head\none\n"
    with pytest.raises(FileExistsError):
        store.create_log("j/1", b"other")
    log.append(b"two\n")
    log.close()
    log.close()
    assert stores.get("j/1") == b"head\none\ntwo\n"


@pytest.mark.parametrize("durable", [False, True])
def test_append_makes_the_file_and_then_adds_to_it(stores: Stores, store: Store, durable: bool) -> None:
    store.append("m/a.jsonl", b"1\n", durable=durable)
    store.append("m/a.jsonl", b"", durable=durable)
    store.append("m/a.jsonl", b"2\n", durable=durable)
    assert stores.get("m/a.jsonl") == b"1\n2\n"


def test_an_append_adds_to_the_version_it_was_meant_for(stores: Stores, store: Store) -> None:
    made = store.create("m/a.jsonl", b"1\n")
    assert made == store.version("m/a.jsonl")
    added = store.append("m/a.jsonl", b"2\n", if_version=made)
    assert added == store.version("m/a.jsonl") != made
    stores.put("m/a.jsonl", b"another length\n")
    store.refresh()
    for old in (made, added):
        with pytest.raises(FileChanged):
            store.append("m/a.jsonl", b"3\n", if_version=old)
    assert stores.get("m/a.jsonl") == b"another length\n"


def test_a_renamed_file_is_in_both_places_or_in_none(stores: Stores, store: Store) -> None:
    stores.put("a/one", b"1")
    stores.put("b/two", b"2")
    store.rename("a/one", "b/c/one")
    store.rename("b/c/one", "b/two")  # in place of what is there
    assert stores.names() == {"b/two"} and stores.get("b/two") == b"1"
    with pytest.raises(FileNotFoundError):
        store.rename("a/one", "b/one")
    with pytest.raises(UsageError):
        store.rename("b/two", "../two")
    assert stores.names() == {"b/two"}


def test_a_folder_that_is_not_there_can_not_be_settled(stores: Stores, store: Store) -> None:
    stores.put("a/one", b"1")
    for folder in ("", "a", "never/was"):
        store.settle(folder)
    with pytest.raises(UsageError):
        store.settle("../w")


def test_remove_takes_the_file_and_folders_left_empty_but_no_more(stores: Stores, store: Store) -> None:
    for path in ("a/b/c/one", "a/b/two"):
        store.replace(path, b"")
    store.remove("a/b/c/one")
    store.remove("a/b/c/one")
    store.remove("never/was/there")
    assert stores.names() == {"a/b/two"} and list(store.folders("a/b")) == []
    store.remove("a/b/two")
    assert "a" not in set(store.folders(""))
    store.replace("a/b/c/one", b"again", sync="all")
    assert stores.get("a/b/c/one") == b"again"


# One writer


def test_a_held_workspace_is_refused_at_once_and_free_when_it_is_left(stores: Stores, store: Store) -> None:
    needs(store, "lock")
    with store.lock(), pytest.raises(LeaseHeld), stores.open().lock():
        pass
    with stores.open().lock():
        pass


def hold(stores: Stores, held: Any, leave: Any) -> None:
    with stores.open().lock():
        held.set()
        leave.wait(PATIENCE)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_lock_holds_between_processes_and_is_free_after_a_kill(stores: Stores, store: Store) -> None:
    needs(store, "lock")
    held = spawning.Event()
    holder = spawning.Process(target=hold, args=(stores, held, spawning.Event()))
    holder.start()
    assert held.wait(PATIENCE)
    with pytest.raises(LeaseHeld), store.lock():
        pass
    holder.kill()
    holder.join(PATIENCE)
    with store.lock():
        pass


def take_when_told(stores: Stores, start: Any, tried: Any, got: Any) -> None:
    start.wait()
    try:
        with stores.open().lock():
            got.put(True)
            tried.wait()  # held until all have tried
    except LeaseHeld:
        got.put(False)
        tried.wait()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_of_processes_that_race_for_the_lock_exactly_one_gets_it(stores: Stores, store: Store) -> None:
    needs(store, "lock")
    start, tried, got = spawning.Barrier(4), spawning.Barrier(4), spawning.Queue()
    racers = [spawning.Process(target=take_when_told, args=(stores, start, tried, got)) for _ in range(4)]
    for racer in racers:
        racer.start()
    outcomes = [got.get(timeout=PATIENCE) for _ in range(4)]
    for racer in racers:
        racer.join(PATIENCE)
    assert sorted(outcomes) == [False, False, False, True]


# Ways out

OUT = [
    "../x",
    "a/../../x",
    "/etc/x",
    "",
    ".",
    "..",
    "a//b",
    "a/",
    "./a",
    "a\\b",
    "c:x",
    "a\0b",
    "a\nb",
    "nul?",
    "a.",
    "a ",
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("path", OUT)
def test_a_name_that_leads_out_is_refused_by_every_method(stores: Stores, store: Store, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.read(path),
        lambda: store.tail(path, 1),
        lambda: store.version(path),
        lambda: store.replace(path, b"x"),
        lambda: store.create(path, b"x"),
        lambda: store.create_log(path, b"x"),
        lambda: store.append(path, b"x"),
        lambda: store.remove(path),
        lambda: store.remove_many([path]),
        lambda: store.rename("a", path),
        lambda: store.exchange(path, b"x", if_version=None),
    ]
    if path:  # the root may be listed
        calls += [lambda: list(store.list(path)), lambda: list(store.folders(path))]
    for call in calls:
        with pytest.raises(UsageError):
            call()
    assert stores.names() == set()


# What only a disk has: links, devices, permissions, failing calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_bytes(b"secret")
    return outside


def test_a_root_that_is_a_link_is_fine(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    store = open_store(str(tmp_path / "link"))
    store.replace("a/b", b"x")
    assert (folder / "a/b").read_bytes() == b"x" and store.url == str(folder.resolve())


@pytest.mark.parametrize("url", ["s3://bucket//x", "s3://k:s@bucket/x", "s3:///x", "/no/such/folder", "nosuch://x"])
def test_a_place_that_is_no_folder_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


def test_a_linked_file_is_not_read_and_not_written_through(folder: Path, outside: Path) -> None:
    (folder / "a.txt").symlink_to(outside / "secret.txt")
    store = DiskStore(folder)
    for read in (lambda: store.read("a.txt"), lambda: store.tail("a.txt", 6)):
        with pytest.raises(InvalidFile, match="symbolic link"):
            read()
    with pytest.raises(StorageFailed):
        store.append("a.txt", b"x")
    with pytest.raises(FileExistsError):
        store.create("a.txt", b"x")
    with pytest.raises(FileExistsError):
        store.create_log("a.txt", b"x")
    store.replace("a.txt", b"mine")  # replaces the link itself
    assert not (folder / "a.txt").is_symlink()
    assert (outside / "secret.txt").read_bytes() == b"secret"


def test_a_linked_folder_is_no_way_out(folder: Path, outside: Path) -> None:
    (folder / "a").symlink_to(outside, target_is_directory=True)
    store = DiskStore(folder)
    for call in (
        lambda: store.read("a/secret.txt"),
        lambda: store.tail("a/secret.txt", 6),
        lambda: store.replace("a/new", b""),
        lambda: store.append("a/new", b""),
        lambda: store.create("a/new", b""),
        lambda: store.create_log("a/new", b""),
        lambda: store.remove("a/secret.txt"),
        lambda: store.replace("a/deep/new", b""),
        lambda: store.version("a/secret.txt"),
    ):
        with pytest.raises(UsageError, match="points outside"):
            call()
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


def test_a_linked_folder_is_not_listed(folder: Path, outside: Path) -> None:
    (folder / "a").symlink_to(outside, target_is_directory=True)
    (folder / "b").mkdir()
    (folder / "b/link").symlink_to(outside, target_is_directory=True)
    assert list(DiskStore(folder).folders("b")) == []
    with pytest.raises(UsageError, match="points outside"):
        list(DiskStore(folder).list("a"))


def test_links_in_a_circle_are_an_error_with_a_name(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    store = DiskStore(folder)
    for call in (
        lambda: store.read("a"),
        lambda: store.read("a/x"),
        lambda: list(store.list("a")),
        lambda: store.version("a/x"),
        lambda: store.replace("a/x", b""),
        lambda: store.remove("a/x"),
    ):
        with pytest.raises(SatchelError):
            call()


def test_a_fifo_does_not_hang_its_reader_or_writer(folder: Path) -> None:
    os.mkfifo(folder / "a.txt")
    store = DiskStore(folder)
    outcomes: list[type[BaseException]] = []

    def use() -> None:
        for call in (lambda: store.read("a.txt"), lambda: store.tail("a.txt", 1), lambda: store.append("a.txt", b"x")):
            try:
                call()
            except SatchelError as error:
                outcomes.append(type(error))

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcomes == [InvalidFile, InvalidFile, StorageFailed]


def test_a_folder_in_the_place_of_a_file_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "a.txt").mkdir()
    store = DiskStore(folder)
    for read in (lambda: store.read("a.txt"), lambda: store.tail("a.txt", 1)):
        with pytest.raises(InvalidFile, match=r"a\.txt"):
            read()
    for call in (
        lambda: store.replace("a.txt", b""),
        lambda: store.append("a.txt", b""),
        lambda: store.remove("a.txt"),
    ):
        with pytest.raises(StorageFailed, match=r"a\.txt"):
            call()


class Failing(Syscalls):
    """Fails the call number `at` of those that change something or that are named, and every later one of its name."""

    CALLS = ("open_new", "open_append", "write", "sync", "sync_data", "sync_folder", "rename", "link", "mkdir", "close")

    def __init__(self, at: int, code: int):
        self.at, self.code, self.count, self.failed = at, code, 0, ""

    def __getattribute__(self, name: str) -> Any:
        real = super().__getattribute__(name)
        if name not in Failing.CALLS:
            return real

        def call(*args: Any) -> Any:
            self.count += 1
            if self.count - 1 == self.at or self.failed == name:
                self.failed = name
                if name == "write":
                    os.write(args[0], args[1][: len(args[1]) // 2])
                if name == "close":
                    real(*args)
                raise OSError(self.code, os.strerror(self.code), "somewhere")
            return real(*args)

        return call


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "replace": lambda store: store.replace("d/a.txt", b"new content"),
    "replace, data only": lambda store: store.replace("d/a.txt", b"new content", sync="data"),
    "create": lambda store: store.create("d/new.txt", b"new content"),
    "create_log": lambda store: store.create_log("d/log", b"new content").close(),
    "append": lambda store: store.append("d/new.txt", b"new content", durable=True),
    "new folders": lambda store: store.replace("e/f/a.txt", b"new content"),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_failing_call_leaves_the_old_content_whole_and_no_temporary_file(
    folder: Path, operation: str, code: int
) -> None:
    for at in range(100):
        DiskStore(folder).replace("d/a.txt", b"old content")
        for name in ("d/new.txt", "d/log", "e/f/a.txt"):
            DiskStore(folder).remove(name)
        syscalls = Failing(at, code)
        try:
            OPERATIONS[operation](DiskStore(folder, syscalls))
        except StorageFailed as error:
            assert error.remedy and error.path and error.why == os.strerror(code)
            assert ("free some space" in error.remedy) == (code == errno.ENOSPC)
            assert ("writable" in error.remedy) == (code in (errno.EACCES, errno.EROFS))
        else:
            if operation == "create_log" and syscalls.failed == "close":
                continue  # all of it is durable already, and nobody can do anything about it
            assert not syscalls.failed, f"the failing {syscalls.failed} was swallowed"
            break
        assert (folder / "d/a.txt").read_bytes() in (b"old content", b"new content")
        if not (operation.startswith("replace") and syscalls.failed == "sync_folder"):
            assert (folder / "d/a.txt").read_bytes() == b"old content"
        temporary = folder / ".satchel/tmp"
        assert not temporary.exists() or not list(temporary.iterdir())
    else:
        pytest.fail("never succeeded")
    assert at > 2


def test_a_file_that_goes_away_while_a_folder_is_listed_takes_all_others_along(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a journal whose segments are being merged seems to be gone, and an inbox to be empty."""
    (folder / "f").mkdir()
    for name in ("a", "b", "c"):
        (folder / "f" / name).write_bytes(b"1")
    entered = os.scandir

    @contextmanager
    def scandir(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with entered(path) as entries:
            found = [*entries]
            (folder / "f/b").unlink()
            yield iter(found)

    monkeypatch.setattr(os, "scandir", scandir)
    assert [*DiskStore(folder).list("f")] == [Entry("f/a", 1), Entry("f/c", 1)]


def test_a_failing_sync_is_never_retried(folder: Path) -> None:
    class Counting(Failing):
        syncs = 0

        def sync(self, fd: int) -> None:
            self.syncs += 1
            raise OSError(errno.EIO, "gone")

    syscalls = Counting(10**6, errno.EIO)
    with pytest.raises(StorageFailed):
        DiskStore(folder, syscalls).replace("a.txt", b"x")
    assert syscalls.syncs == 1


@pytest.mark.parametrize("name", ["read", "stat", "scan", "mkdir", "lock"])
def test_a_folder_that_may_not_be_used_is_a_storage_error(folder: Path, name: str) -> None:
    def refuse(*args: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", "x")

    (folder / "f").mkdir()
    syscalls = Syscalls()
    setattr(syscalls, name, refuse)
    store = DiskStore(folder, syscalls)

    def lock() -> None:
        with store.lock():
            pass

    calls: dict[str, Callable[[], object]] = {
        "read": lambda: store.read("a"),
        "stat": lambda: store.version("a"),
        "scan": lambda: list(store.list("f")),
        "mkdir": lock,
        "lock": lock,
    }
    with pytest.raises(StorageFailed) as failed:
        calls[name]()
    assert failed.value.remedy


def test_a_lock_that_is_a_link_or_a_folder_is_refused_and_nothing_outside_is_touched(
    folder: Path, outside: Path
) -> None:
    (folder / ".satchel").mkdir()
    lock = folder / ".satchel/lock"
    lock.symlink_to(outside / "secret.txt")
    with pytest.raises(SatchelError), DiskStore(folder).lock():
        pass
    assert (outside / "secret.txt").read_bytes() == b"secret"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(SatchelError), DiskStore(folder).lock():
        pass


def test_a_full_disk_does_not_break_the_lock_of_the_next_process(folder: Path) -> None:
    with pytest.raises(StorageFailed), DiskStore(folder, Failing(0, errno.ENOSPC)).lock():
        pass
    with DiskStore(folder).lock():
        pass


def test_files_are_made_for_their_owner_and_readable_by_others(folder: Path) -> None:
    DiskStore(folder).replace("a", b"")
    assert stat.S_IMODE((folder / "a").stat().st_mode) & 0o600 == 0o600
