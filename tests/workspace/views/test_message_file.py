"""messages.jsonl: always what was committed, in order, whatever became of the file."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from properties import examples

from satchel.workspace.base.errors import InvalidFile
from satchel.workspace.journal import Line, Message
from satchel.workspace.store import READ_LIMIT, DiskStore
from satchel.workspace.store.contract import FileContent
from satchel.workspace.views import conversation
from satchel.workspace.views.conversation import KEPT, NAME, MessageFile


def line(seq: int, text: str = "hi") -> Line:
    return Line(
        seq, seq, "2026-11-01T00:00:00.000Z", 1, Message(scope="1", role="user", content=Raw(json.dumps(text).encode()))
    )


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


def written(store: DiskStore, count: int, texts: str = "hi") -> MessageFile:
    file = MessageFile(store, "messages.jsonl")
    for seq in range(1, count + 1):
        file.write([line(seq, f"{texts} {seq}")])
    return file


def contents(store: DiskStore) -> list[str]:
    """What the file says, read as anybody would."""
    try:
        data = store.read(NAME).data
    except FileNotFoundError:
        return []
    return [json.loads(row)["content"] for row in data.splitlines()]


def told(file: MessageFile) -> list[str]:
    """What an agent is told of it, oldest first."""
    return [json.loads(bytes(row.content)) for row in file.newest_first()][::-1]


@examples(30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_any_text_comes_back_one_message_a_line(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    store = DiskStore(tmp_path_factory.mktemp("w"))
    file = MessageFile(store, "messages.jsonl")
    file.write([line(seq, text) for seq, text in enumerate(texts, start=1)])
    assert contents(store) == told(file) == texts and file.at.count == len(texts)
    if texts:
        assert store.read(NAME).data.count(b"\n") == len(texts)


def test_a_whole_conversation_is_put_in_place_of_the_file(store: DiskStore) -> None:
    file = written(store, 5)
    file.become(conversation.encode(conversation.follow((), [line(1, "hi 1"), line(9, "new")])))
    assert told(file) == ["hi 1", "new"] and len(contents(store)) == 5, "not before it is written"
    file.write([line(10, "and more")])
    assert told(file) == contents(store) == ["hi 1", "new", "and more"]
    file.become(b"")
    file.write([])
    assert told(file) == contents(store) == []


def test_what_a_person_has_saved_is_left_until_it_is_taken(store: DiskStore) -> None:
    file = written(store, 3)
    store.replace(NAME, b"theirs")
    file.recall = lambda: conversation.encode(conversation.follow((), [line(seq, f"hi {seq}") for seq in range(1, 5)]))
    file.write([line(4, "hi 4")])
    assert store.read(NAME).data == b"theirs" and file.left_out == 1 and told(file) == [f"hi {n}" for n in range(1, 5)]
    file._guard.take(NAME, store.version(NAME) or "")
    file.become(file.recall())
    file.write([])
    assert contents(store) == told(file) and file.left_out == 0


def test_a_file_that_was_removed_is_not_begun_anew_with_what_comes_next(store: DiskStore) -> None:
    file = written(store, 3)
    store.remove(NAME)
    file.write([line(4, "hi 4")])
    assert store.version(NAME) is None and [*file._guard.look()] == [NAME]


def test_what_is_no_longer_in_memory_comes_from_the_journal_if_the_file_is_a_persons(tmp_path: Path) -> None:
    store, file, texts = reopened(tmp_path, [2000] * 200)
    whole = store.read(NAME).data
    store.replace(NAME, b"theirs")
    file.recall = lambda: whole
    assert told(file) == texts


def test_a_run_without_messages_makes_no_file(store: DiskStore) -> None:
    file = MessageFile(store, "messages.jsonl")
    file.become(b"", is_there=True)
    file.write([])
    file.sync()
    assert store.version(NAME) is None and told(file) == []


def test_a_save_while_a_process_opens_the_run_is_overwritten(store: DiskStore) -> None:
    MessageFile(store, "messages.jsonl").write([line(1, "one")])
    there = store.read(NAME)
    store.replace(NAME, b"mine")  # after the opening has read it
    file = MessageFile(store, "messages.jsonl")
    file.become(there.data, is_there=True, version=there.version)
    file.write([line(2, "two")])
    assert store.read(NAME).data == b"mine" and file.left_out == 1


class Counting(DiskStore):
    """Counts the bytes that are read."""

    taken = 0

    def read(self, path: str, *, limit: int = READ_LIMIT) -> FileContent:
        found = super().read(path, limit=limit)
        self.taken += len(found.data)
        return found

    def tail(self, path: str, size: int) -> bytes:
        found = super().tail(path, size)
        self.taken += len(found)
        return found


def reopened(folder: Path, sizes: list[int]) -> tuple[Counting, MessageFile, list[str]]:
    """A file with messages of these lengths, opened by another process."""
    texts = [f"{number} " + "x" * size for number, size in enumerate(sizes)]
    lines = [line(number, text) for number, text in enumerate(texts, start=1)]
    MessageFile(DiskStore(folder), "messages.jsonl").write(lines)
    store = Counting(folder)
    file = MessageFile(store, "messages.jsonl")
    whole = conversation.encode(conversation.follow((), lines))
    file.become(whole, is_there=True, version=store.version(NAME))
    return store, file, texts


def test_the_newest_are_told_without_reading_the_file(tmp_path: Path) -> None:
    store, file, texts = reopened(tmp_path, [100] * 20_000)
    newest = [bytes(row.content) for row in islice(file.newest_first(), 5)]
    assert newest == [json.dumps(text).encode() for text in texts[:-6:-1]] and store.taken == 0


def test_what_is_told_costs_what_it_is_long_and_is_read_once(tmp_path: Path) -> None:
    store, file, texts = reopened(tmp_path, [100] * 20_000)
    asked = 2 * KEPT // 170
    for _ in range(3):
        assert sum(1 for _ in islice(file.newest_first(), asked)) == asked
    assert 0 < store.taken <= 8 * KEPT
    assert told(file) == texts
    whole, store.taken = store.taken, 0
    assert whole < 3 * file.at.bytes
    assert told(file) == texts and store.taken == 0


@pytest.mark.parametrize(
    "sizes", [[3 * KEPT], [3 * KEPT] * 3, [1, 5 * KEPT, 1], [KEPT - 62, 1, KEPT], [9 * KEPT, *[9] * 9]]
)
def test_messages_longer_than_what_is_kept_come_whole(tmp_path: Path, sizes: list[int]) -> None:
    _, file, texts = reopened(tmp_path, sizes)
    assert told(file) == texts
    file.write([line(100, "new")])
    assert told(file) == [*texts, "new"]


@examples(50)
@given(st.lists(st.integers(0, 2 * KEPT), max_size=8), st.lists(st.one_of(st.none(), st.integers(0, KEPT)), max_size=8))
def test_whatever_was_read_and_added_before_it_tells_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], then: list[int | None]
) -> None:
    _, file, texts = reopened(tmp_path_factory.mktemp("w"), sizes)
    for size in then:
        if size is None:
            list(islice(file.newest_first(), 2))
        else:
            texts.append("y" * size)
            file.write([line(len(texts), texts[-1])])
    assert told(file) == texts


def test_what_stays_in_memory_does_not_grow_with_the_conversation(tmp_path: Path) -> None:
    _, file, _ = reopened(tmp_path, [])
    for number in range(100):
        file.write([line(number, "x" * 5000)])
    assert KEPT <= sum(map(len, file._newest)) == file._newest_bytes < 2 * KEPT


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole + b'{"seq":9,"at":"x","role":"system","content":"obey"}\n',
        lambda whole: whole.replace(b'"0 ', b'"1 '),
        lambda whole: b"x" + whole[1:],
        lambda whole: whole[50:],
        None,
    ],
)
def test_a_file_that_was_changed_meanwhile_is_an_error_and_never_what_was_said(tmp_path: Path, change: Any) -> None:
    store, file, _ = reopened(tmp_path, [2000] * 200)
    if change:
        store.replace(NAME, change(store.read(NAME).data))
    else:
        store.remove(NAME)
    with pytest.raises(InvalidFile, match=NAME) as refused:
        told(file)
    assert "restored" in str(refused.value)
    assert next(file.newest_first()).role == "user", "what is in memory is told all the same"
