"""A listing that was asked for before a write ended must not hide that write, however slowly its answer comes."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

import pytest
from waits import PATIENCE

from satchel.workspace.store.remote_store import Bodies, ListedFile, View


def known(version: object) -> ListedFile:
    return ListedFile(str(version), 1, "")


class Bucket:
    """What is there, and a listing that stops in its middle until it is told to go on."""

    def __init__(self) -> None:
        self.files: dict[str, ListedFile] = {}
        self.in_between: Callable[[], None] = lambda: None
        self.listings = 0

    def take(self, folder: str) -> Iterable[tuple[str, ListedFile]]:
        self.listings += 1
        found = [row for row in self.files.items() if not folder or row[0].startswith(f"{folder}/")]
        self.in_between()
        yield from found


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def view(bucket: Bucket) -> View:
    return View(bucket.take)


@pytest.mark.parametrize("looked_before", [True, False])
def test_a_write_that_ends_during_a_listing_stays(bucket: Bucket, view: View, looked_before: bool) -> None:
    bucket.files = {"f/old": known(1), "f/gone": known(1), "f/changed": known(1)}
    if looked_before:
        assert view.get("f/old")

    def write() -> None:
        view.wrote("f/new", known(2))
        view.wrote("f/changed", known(2))
        view.wrote("f/gone", None)

    bucket.in_between = write
    view.refresh()
    assert {entry.path for entry in view.files("f")} == {"f/old", "f/new", "f/changed"}
    assert view.get("f/changed") == known(2)


def test_a_write_that_ended_before_a_listing_is_replaced_by_what_that_shows(bucket: Bucket, view: View) -> None:
    view.wrote("a", known(1))
    view.wrote("b", known(1))
    bucket.files = {"a": known("theirs")}
    view.refresh()
    assert view.get("a") == known("theirs") and view.get("b") is None


def test_the_answer_to_an_older_look_does_not_hide_a_write(view: View) -> None:
    view.refresh()
    with view.look() as since:
        view.wrote("a", known(2))
        view.seen("a", known(1), since)
    assert view.get("a") == known(2)
    with view.look() as since:
        view.seen("a", known(3), since)
    assert view.get("a") == known(3)


def test_a_write_nobody_knows_the_end_of_is_looked_up_and_others_stay(bucket: Bucket, view: View) -> None:
    bucket.files = {"a": known(1), "b": known(1)}
    view.refresh()

    def write() -> None:
        bucket.in_between = lambda: None
        bucket.files = {"a": known(1), "b": known(2)}
        view.wrote("b", known(2))
        view.forget("a")

    bucket.in_between = write
    view.refresh()
    assert view.get("b") == known(2)
    bucket.files["a"] = known("after all")
    view.forget("a")
    assert view.get("a") == known("after all")


def test_a_folder_by_itself_is_looked_at_and_the_rest_stays(bucket: Bucket, view: View) -> None:
    bucket.files = {"f/in/a": known(1), "f/b": known(1), "g/a": known(1)}
    view.refresh()
    bucket.files = {"f/c": known(2), "g/a": known("not looked at")}

    def write() -> None:
        view.wrote("f/mine", known(3))
        view.wrote("g/mine", known(3))

    bucket.in_between = write
    view.refresh("f")
    assert {entry.path for entry in view.files("f")} == {"f/c", "f/mine"} and view.folders("f") == []
    assert view.get("g/a") == known(1) and view.get("g/mine") == known(3)
    bucket.in_between = lambda: None
    view.refresh("f/nowhere")
    assert {entry.path for entry in view.files("f")} == {"f/c", "f/mine"}


def test_where_nothing_is_known_a_folder_is_not_enough(bucket: Bucket, view: View) -> None:
    bucket.files = {"f/a": known(1), "g/a": known(1)}
    view.refresh("f")
    assert view.get("g/a") == known(1)

    def write() -> None:
        bucket.in_between = lambda: None
        bucket.files["g/b"] = known(2)
        view.forget("g/b")

    bucket.in_between = write
    view.refresh("f")
    assert view.get("g/b") == known(2)


def test_folders_are_there_as_long_as_something_is_in_them(view: View) -> None:
    view.refresh()
    view.wrote("a/b/c/1", known(1))
    view.wrote("a/2", known(1))
    assert view.folders("") == ["a"] and view.folders("a") == ["a/b"] and view.folders("a/b") == ["a/b/c"]
    view.wrote("a/b/c/1", None)
    view.wrote("a/b/c/never", None)
    assert view.folders("a") == [] and view.folders("") == ["a"] and view.files("a/b/c") == []
    view.wrote("a/2", None)
    assert view.folders("") == []


def test_threads_that_want_a_listing_at_once_share_one_that_began_after_they_asked(bucket: Bucket, view: View) -> None:
    began, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert go_on.wait(PATIENCE)

    bucket.in_between = wait
    threads = [threading.Thread(target=view.refresh)]
    threads[0].start()
    assert began.wait(PATIENCE)
    bucket.files = {"late": known(1)}
    threads += [threading.Thread(target=view.refresh) for _ in range(5)]
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert view.get("late") and 2 <= bucket.listings <= 6


def test_any_interleaving_ends_with_the_last_own_write_of_each_path() -> None:
    """Random writes of one store's own, each at once in the bucket, with listings of any age between them."""
    for seed in range(300):
        rng = random.Random(seed)
        bucket = Bucket()
        view = View(bucket.take)

        def write(bucket: Bucket = bucket, view: View = view, rng: random.Random = rng) -> None:
            for _ in range(rng.randrange(4)):
                path, version = f"f{rng.randrange(2)}/{rng.randrange(3)}", known(rng.random())
                if rng.random() < 0.3:
                    bucket.files.pop(path, None)
                    view.wrote(path, None)
                else:
                    bucket.files[path] = version
                    with view.look() as since:
                        view.wrote(path, version)
                        view.seen(path, known("older"), since)
                if rng.random() < 0.1:
                    view.forget(f"f0/{rng.randrange(3)}")

        bucket.in_between = write
        for _ in range(6):
            write()
            view.refresh(rng.choice(("", "f0", "f1")))
        bucket.in_between = lambda: None
        shown = {entry.path: view.get(entry.path) for folder in view.folders("") for entry in view.files(folder)}
        assert shown == bucket.files, f"seed {seed}"


def test_bodies_are_bounded_and_belong_to_a_version() -> None:
    bodies = Bodies()
    bodies.keep("a", b"1", "v1")
    assert bodies.find("a", "v1") == b"1" and bodies.find("a", "v2") is None
    bodies.keep("a", b"x" * (9 << 20), "v2")
    assert bodies.find("a", "v1") is None and bodies.find("a", "v2") is None
    for number in range(40):
        bodies.keep(f"b/{number}", b"x" * (1 << 20), "v")
    assert bodies.find("b/7", "v") is None and bodies.find("b/8", "v") is not None
