"""The journal: what it gives back after any damage, and what it promises those who wait for it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from itertools import product
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linked import last_crc, linked
from properties import examples

from satchel.workspace import journal
from satchel.workspace.base.errors import (
    AgentError,
    Damaged,
    DoesNotFit,
    InvalidFile,
    NewerFormat,
    SatchelError,
    StorageFailed,
)
from satchel.workspace.journal import Closed, Fenced, Journal, Line, Tail, segment_log
from satchel.workspace.journal import writer as writing_end
from satchel.workspace.store import DiskStore, Entry, FileContent, Syscalls
from satchel.workspace.store.contract import DISK


class Memory:
    """Just enough of a store to read a journal from."""

    abilities = DISK

    def __init__(self, files: dict[str, bytes]):
        self.files = files

    def list(self, folder: str) -> list[Any]:
        return [Entry(path, len(data)) for path, data in sorted(self.files.items())]

    def read(self, path: str, *, limit: int) -> Any:
        return FileContent(self.files[path], "v")


AT = "2026-11-01T00:00:00.000Z"
KNOWN = journal.Before(at=AT, epoch=1)


def line(seq: int, commit: int, before: bytes = b"") -> bytes:
    """A line that follows those of the segment `before`."""
    return journal.encode(Line(seq, commit, AT, 1, Closed(reason=f"record {seq}"), last_crc(before)))


def segment(groups: Sequence[int], first: int = 1, before: bytes = b"") -> bytes:
    """A segment of groups of so many records, that follows the segment `before`. Each could begin one."""
    parts, seq, last = [], first, before
    for size in groups:
        lines = [Line(seq + n, seq, AT, 1, Closed(reason=f"record {seq + n}")) for n in range(size)]
        last = linked(lines, last_crc(last)).data or last
        parts.append(last)
        seq += size
    return b"".join(parts)


def late_fence(seq: int, before: bytes) -> bytes:
    """Put up by a process that knew of no more than `before`."""
    return journal.encode(Line(seq, seq, AT, 2, Fenced(), last_crc(before), "12345678"))


def read(*segments: bytes, after: int = 0) -> Tail:
    files, seq = {}, 1
    for data in segments:
        files[journal.segment_path(seq)] = data
        seq += data.count(b"\n")
    return journal.read(Memory(files), after=after, before=KNOWN)  # type: ignore[arg-type]


def seqs(tail: Tail) -> list[int]:
    return [found.seq for found in tail.lines]


GROUPS = (1, 3, 1, 2)
WHOLE = segment(GROUPS)
ENDS = [at + 1 for at, byte in enumerate(WHOLE) if byte == 10]
LAST_GROUP = ENDS[4]  # where the last group begins
FIRST, SECOND = WHOLE[: ENDS[3]], WHOLE[ENDS[3] :]


def is_prefix_of_what_was_written(tail: Tail) -> bool:
    count = len(tail.lines)
    return seqs(tail) == [*range(1, count + 1)] and all(
        found.record.reason == f"record {found.seq}" for found in tail.lines
    )  # type: ignore[union-attr]


# Reading


def test_no_journal_is_a_new_run_and_not_one_that_lost_it() -> None:
    assert read() == Tail([], 1)
    with pytest.raises(Damaged, match="the journal is missing"):
        read(after=3)


@pytest.mark.parametrize("after", range(8))
def test_only_what_is_behind_the_checkpoint_is_given(after: int) -> None:
    tail = read(FIRST, SECOND, after=after)
    assert seqs(tail) == [*range(after + 1, 8)] and tail.next_seq == 8 and tail.torn is None


def test_a_segment_before_the_checkpoint_need_not_be_there() -> None:
    files = {journal.segment_path(5): SECOND}
    assert seqs(journal.read(Memory(files), after=4, before=KNOWN)) == [5, 6, 7]  # type: ignore[arg-type]
    assert seqs(journal.read(Memory(files), after=6, before=KNOWN)) == [7]  # type: ignore[arg-type]
    with pytest.raises(Damaged, match=r"000000000005.*records 4 to 4 are missing|records 4 to 4"):
        journal.read(Memory(files), after=3, before=KNOWN)  # type: ignore[arg-type]


def test_a_journal_that_ends_before_the_checkpoint_is_refused() -> None:
    for cut in (ENDS[3], ENDS[3] + 5, len(WHOLE) - 1):
        with pytest.raises(Damaged, match="ends before the newest checkpoint"):
            read(WHOLE[:cut], after=7)


def test_a_journal_cut_anywhere_opens_with_the_whole_records_before_the_cut() -> None:
    for cut in range(len(WHOLE) + 1):
        tail = read(WHOLE[:cut])
        assert is_prefix_of_what_was_written(tail)
        assert len(tail.lines) == sum(end <= cut for end in ENDS)
        assert tail.good == WHOLE[: len(tail.good)] and (tail.torn is None) == (cut in (0, *ENDS))
        assert tail.next_seq == len(tail.lines) + 1


def opened_or_refused(*segments: bytes) -> Tail | None:
    try:
        tail = read(*segments)
    except Damaged as error:
        assert error.path and error.path.startswith("journal/") and "line" in error.what and error.remedy
        return None
    assert is_prefix_of_what_was_written(tail)
    return tail


@pytest.mark.parametrize("byte", [0, 10, 0x20, 0x22, 0x39, 0xFF])
def test_a_damaged_byte_is_never_read_and_only_one_in_the_last_group_is_trimmed(byte: int) -> None:
    for at in range(len(WHOLE)):
        if WHOLE[at] != byte:
            tail = opened_or_refused(WHOLE[:at] + bytes([byte]) + WHOLE[at + 1 :])
            if at < LAST_GROUP - 1:
                assert tail is None, f"byte {at} is before the last group, and whole records follow"
            elif at >= LAST_GROUP:
                assert tail is not None and 5 <= len(tail.lines) < 7


def test_any_bit_flipped_is_noticed() -> None:
    for at in range(LAST_GROUP - 1):
        for bit in range(8):
            assert opened_or_refused(WHOLE[:at] + bytes([WHOLE[at] ^ 1 << bit]) + WHOLE[at + 1 :]) is None


@given(st.data())
def test_zeroed_cut_or_repeated_pages_never_change_or_skip_a_record(data: st.DataObject) -> None:
    broken = WHOLE
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(broken)))
        end = data.draw(st.integers(start, len(broken)))
        middle = data.draw(
            st.sampled_from([b"", b"\0" * (end - start), broken[start:end] * 2, b"\n", broken[:start], line(1, 1)])
        )
        broken = broken[:start] + middle + broken[end:]
    opened_or_refused(broken)


@given(st.data())
def test_damage_in_a_segment_that_is_not_the_last_is_refused(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(FIRST) - 1))
    end = data.draw(st.integers(start + 1, len(FIRST)))
    files = {
        journal.segment_path(1): FIRST[:start] + b"\0" * (end - start) + FIRST[end:],
        journal.segment_path(5): SECOND,
    }
    with pytest.raises(Damaged, match="line"):
        journal.read(Memory(files), after=0)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_records_lost_within_the_last_group_are_trimmed_and_before_a_later_group_refused(
    groups: list[int], data: st.DataObject
) -> None:
    whole = segment(groups)
    rows = whole.splitlines(keepends=True)
    lost = data.draw(st.integers(0, len(rows) - 1))
    broken = b"".join([*rows[:lost], b"\0" * (len(rows[lost]) - 1) + b"\n", *rows[lost + 1 :]])
    if lost >= len(rows) - groups[-1]:
        assert seqs(read(broken)) == [*range(1, lost + 1)]
        follows = line(len(rows) + 1, len(rows) + 1, whole)
        with pytest.raises(Damaged, match=f"line {lost + 1} "):
            read(broken + follows)
    else:
        with pytest.raises(Damaged, match=f"line {lost + 1} "):
            read(broken)


@pytest.mark.parametrize("missing", [1, 5, 8])
def test_a_missing_segment_is_refused_by_the_records_that_are_missing(missing: int) -> None:
    third = segment((2,), 8, SECOND)
    files = {
        journal.segment_path(1): FIRST,
        journal.segment_path(5): SECOND,
        journal.segment_path(8): third,
        journal.segment_path(10): segment((1,), 10, third),
    }
    del files[journal.segment_path(missing)]
    with pytest.raises(Damaged, match=rf"records {missing} to \d+ are missing"):
        journal.read(Memory(files), after=0)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [4, 99])
def test_a_renamed_segment_is_refused(name: int) -> None:
    files = {journal.segment_path(1): FIRST, journal.segment_path(name): SECOND}
    with pytest.raises(Damaged):
        journal.read(Memory(files), after=0)  # type: ignore[arg-type]


def test_a_segment_copied_under_a_later_name_is_not_read_as_later_records() -> None:
    files = {journal.segment_path(1): FIRST, journal.segment_path(5): FIRST}
    tail = journal.read(Memory(files), after=0)  # type: ignore[arg-type]
    assert seqs(tail) == [1, 2, 3, 4] and tail.torn and "record 1" in tail.torn


def journal_of(files: dict[int, bytes], after: int = 0) -> tuple[Tail, list[str]]:
    """What is read of these segments, and which of them."""
    memory = Memory({journal.segment_path(first): data for first, data in files.items()})
    fetched: list[str] = []
    read_one = memory.read
    memory.read = lambda path, **options: fetched.append(path) or read_one(path, **options)  # type: ignore[method-assign, func-returns-value]
    return journal.read(memory, after=after, before=KNOWN), fetched  # type: ignore[arg-type]


def test_what_a_segment_repeats_counts_once() -> None:
    rows = WHOLE.splitlines(keepends=True)
    for files in (
        {1: WHOLE, 5: SECOND},  # rolled up, and not removed yet
        {1: FIRST, 6: SECOND},  # begins before its name
        {1: rows[0], 2: b"".join(rows[:4]), 5: SECOND},
    ):
        assert seqs(journal_of(files)[0]) == [*range(1, 8)]


def test_segments_that_the_newest_repeats_are_not_fetched() -> None:
    rows = WHOLE.splitlines(keepends=True)
    files = {first: b"".join(rows[:first]) for first in range(1, 8)}
    tail, fetched = journal_of(files)
    assert seqs(tail) == [*range(1, 8)] and fetched == [journal.segment_path(7)]


def test_what_will_be_read_is_known_before_it_is() -> None:
    """So that it can be fetched at once: the newest, what it does not repeat, and what the rest is rolled up in."""
    rows = segment([1] * 7).splitlines(keepends=True)
    files = {1: b"".join(rows[:3]), 3: rows[2], 4: b"".join(rows[2:5]), 6: rows[5], 7: b"".join(rows[5:])}
    for after, wanted in ((0, [7, 4, 1]), (2, [7, 4]), (5, [7]), (7, [7])):
        memory = Memory({journal.segment_path(first): data for first, data in files.items()})
        assert journal.expected(memory, after=after) == [*map(journal.segment_path, wanted)]  # type: ignore[arg-type]
        fetched = journal_of(files, after)[1]
        assert set(fetched) <= {*map(journal.segment_path, wanted)}, f"read behind {after}"


def test_the_fence_of_somebody_who_was_too_late_is_left_out() -> None:
    """It was put where the owner had just rolled up what lay there."""
    late = late_fence(3, WHOLE[: ENDS[1]])
    for files in ({1: FIRST, 3: late}, {1: FIRST, 3: late, 5: SECOND}, {1: WHOLE, 3: late}):
        tail, _ = journal_of(files)
        whole = 4 if files[1] == FIRST and 5 not in files else 7
        assert seqs(tail) == [*range(1, whole + 1)] and {line.epoch for line in tail.lines} == {1}


def test_what_arrives_late_is_never_the_end() -> None:
    """A fence, or a write that was given up: it lies below the last segment, which a roll-up leaves. The last one may
    begin just behind it, and a checkpoint end just before."""
    data = segment([1] * 7)
    rows = data.splitlines(keepends=True)
    late = late_fence(3, b"".join(rows[:2]))
    for stray, begins, after in product((late, rows[2], b"".join(rows[1:3])), (4, 6), range(8)):
        tail, fetched = journal_of({1: data, 3: stray, 7: b"".join(rows[begins - 1 :])}, after)
        assert seqs(tail) == [*range(after + 1, 8)] and {line.epoch for line in tail.lines} <= {1}
        assert tail.next_seq == 8
        is_covered = after >= begins - 1
        assert (fetched == [journal.segment_path(7)]) == is_covered, "no more than the checkpoint does not cover"


def test_a_fence_does_not_hide_that_records_are_missing() -> None:
    late = late_fence(3, WHOLE[: ENDS[1]])
    with pytest.raises(Damaged, match="records 3 to 4 are missing"):
        journal_of({1: b"".join(WHOLE.splitlines(keepends=True)[:2]), 3: late, 5: SECOND})


def test_an_empty_last_segment_is_a_crash_before_its_first_record() -> None:
    tail = read(FIRST, b"")
    assert seqs(tail) == [1, 2, 3, 4] and tail.good == b"" and tail.last_segment == journal.segment_path(5)


def test_foreign_files_are_nobodys_business() -> None:
    names = (
        "journal/notes.txt",
        "journal/1.jsonl",
        "journal/000000000005.jsonl.bak",
        "journal/000000000005.json",
        "journal/ 000000000005.jsonl",
        "journal/٠٠٠٠٠٠٠٠٠٠٠٥.jsonl",
        "journal/000000000005.jsonl\n",
    )
    files = {journal.segment_path(1): FIRST} | dict.fromkeys(names, b"x")
    assert seqs(journal.read(Memory(files), after=0)) == [1, 2, 3, 4]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_stands_in_the_place_of_a_segment_is_refused_when_read_or_written(tmp_path: Path, kind: str) -> None:
    store = DiskStore(tmp_path)
    path = tmp_path / journal.segment_path(1)
    path.parent.mkdir()
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    writer = Journal(store, epoch=1, next_seq=1, apply=lambda line: None)
    writer.add(Closed())
    with pytest.raises(SatchelError):
        writer.flush()
    if kind != "folder":
        with pytest.raises(InvalidFile):
            journal.read(store, after=0)


def test_a_record_of_a_newer_satchel_is_refused_as_that() -> None:
    newer = line(8, 8, WHOLE).replace(b'"closed"', b'"telepathy"')
    body = newer[: -len(b',"crc":"00000000"}\n')]
    import zlib

    with pytest.raises(NewerFormat):
        read(WHOLE + b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body + b"}")))


def test_a_broken_line_does_not_take_quadratic_time() -> None:
    with pytest.raises(Damaged):
        read(b"x\n" + segment([1] * 20_000, first=2, before=line(1, 1)))


# Mending


def test_mending_leaves_exactly_the_good_part_and_the_journal_goes_on_from_there(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    for cut in (0, 5, ENDS[0], ENDS[1] + 3, len(WHOLE)):
        store.replace(journal.segment_path(1), WHOLE[:cut])
        tail = journal.read(store, after=0)
        journal.mend(store, tail)
        again = journal.read(store, after=0)
        assert seqs(again) == seqs(tail) and again.torn is None
        writer = Journal(store, epoch=2, next_seq=tail.next_seq, prev=tail.crc, apply=lambda line: None)
        writer.add(Closed())
        writer.flush()
        writer.end()
        assert len(journal.read(store, after=0).lines) == len(tail.lines) + 1
        for entry in [*store.list("journal")]:
            store.remove(entry.path)


def test_what_was_read_is_synced_anew_before_it_is_trusted(tmp_path: Path) -> None:
    DiskStore(tmp_path).replace(journal.segment_path(1), WHOLE)
    syscalls = Recording()
    store = DiskStore(tmp_path, syscalls)
    journal.mend(store, journal.read(store, after=0))
    assert [name for name in syscalls.calls if name in ("write", "sync", "rename", "sync_folder")][-4:] == [
        "write",
        "sync",
        "rename",
        "sync_folder",
    ]


def test_a_mend_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    DiskStore(tmp_path).replace(journal.segment_path(1), WHOLE[:-3])
    syscalls = Recording()
    store = DiskStore(tmp_path, syscalls)
    tail = journal.read(store, after=0)
    syscalls.broken = "sync"
    with pytest.raises(StorageFailed):
        journal.mend(store, tail)
    assert (tmp_path / journal.segment_path(1)).read_bytes() == WHOLE[:-3]


# Writing


class Recording(Syscalls):
    """Counts calls; `broken` is the name of one that fails from now on."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken = ""

    def __getattribute__(self, name: str) -> Any:
        real = super().__getattribute__(name)
        if name.startswith("_") or not callable(real):
            return real

        def call(*args: Any) -> Any:
            self.calls.append(name)
            if name == self.broken:
                raise OSError(errno.EIO, "Input/output error")
            return real(*args)

        return call

    @property
    def syncs(self) -> int:
        return self.calls.count("sync_data")


class Writing:
    def __init__(
        self,
        folder: Path,
        on_durable: Callable[[Sequence[Line]], None] | None = None,
        apply: Callable[[Line], None] = lambda line: None,
    ):
        self.syscalls = Recording()
        self.store = DiskStore(folder, self.syscalls)
        self.told: list[list[int]] = []
        self.journal = Journal(self.store, epoch=1, next_seq=1, apply=apply)
        self.journal.on_durable = on_durable or self._tell

    def _tell(self, lines: Sequence[Line]) -> None:
        self.told.append([found.seq for found in lines])

    async def write(self, *, alone: bool = False) -> None:
        self.journal.add(Closed())
        await self.journal.durable(alone=alone)

    def seqs(self) -> list[int]:
        return [found.seq for found in journal.read(DiskStore(self.store.url), after=0).lines]


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path)


def test_nothing_is_told_before_it_is_synced(tmp_path: Path) -> None:
    order: list[str] = []
    writing = Writing(tmp_path, lambda lines: order.extend([*writing.syscalls.calls, "told"]))
    writing.journal.add(Closed())
    assert "write" not in writing.syscalls.calls
    writing.journal.flush()
    writing.syscalls.calls.clear()
    order.clear()
    writing.journal.add(Closed())
    writing.journal.flush()
    assert order == ["write", "sync_data", "is_at", "told"]


def test_a_hundred_concurrent_waiters_share_one_sync(writing: Writing) -> None:
    async def main() -> None:
        await writing.write(alone=True)
        before = writing.syscalls.syncs
        await asyncio.gather(*(writing.write() for _ in range(100)))
        assert writing.syscalls.syncs - before == 1

    asyncio.run(main())
    assert writing.told == [[1], [*range(2, 102)]] and writing.seqs() == [*range(1, 102)]
    tail = journal.read(writing.store, after=0)
    assert {found.commit for found in tail.lines[1:]} == {2}


def test_a_blocked_loop_lets_no_second_group_go(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a network the end of the first was seen only by the loop."""
    monkeypatch.setattr(DiskStore, "abilities", DISK._replace(remote=True))
    writer = Journal(writing.store, epoch=1, next_seq=1, apply=lambda line: None)

    async def main() -> None:
        for seq in (1, 2, 3):
            writer.add(Closed())
            writer.flush_soon()
            assert writer.under_way is not None and writer.durable_seq == seq - 1
            wait([writer.under_way])
            assert writing.seqs()[-1] == seq

    asyncio.run(main())
    writer.end()


def test_a_loop_that_has_other_work_waits_for_a_sync(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    synced_in: list[int] = []
    sync = writing.syscalls.sync_data
    monkeypatch.setattr(writing.syscalls, "sync_data", lambda fd: (synced_in.append(get_ident()), sync(fd)))
    writer = Journal(writing.store, epoch=1, next_seq=1, apply=lambda line: None, in_thread=True)

    async def main() -> None:
        for alone in (True, False):
            writer.add(Closed())
            await writer.durable(alone=alone)

    asyncio.run(main())
    writer.end()
    assert writing.seqs() == [1, 2] and len(synced_in) == 2 and get_ident() not in synced_in


def test_code_that_nobody_awaits_writes_into_the_end_of_a_run(writing: Writing) -> None:
    writer = Journal(writing.store, epoch=1, next_seq=1, apply=lambda line: None, in_thread=True)

    def close() -> None:
        writer.take()
        writer.add(Closed())
        writer.flush()

    async def main() -> None:
        writer.add(Closed())
        await writer.lend()
        assert writer.durable_seq == 1, "what was added before is on record"
        for call in (lambda: writer.add(Closed()), writer.flush, writer.flush_soon, writer.check):
            with pytest.raises(AgentError, match="the run has ended"):
                call()
        with pytest.raises(AgentError, match="the run has ended"):
            await writer.durable(alone=True)
        await asyncio.to_thread(close)
        with pytest.raises(AgentError, match="the run has ended"):
            writer.add(Closed())
        writer.give_back()
        writer.add(Closed())
        writer.flush()

    asyncio.run(main())
    writer.end()
    assert writing.seqs() == [1, 2, 3]


def test_one_who_is_alone_is_flushed_without_a_turn_of_the_loop(writing: Writing) -> None:
    writing.journal.add(Closed())
    with pytest.raises(StopIteration):
        writing.journal.durable(alone=True).send(None)
    assert writing.told == [[1]]


def test_one_who_is_alone_takes_those_who_wait_along(writing: Writing) -> None:
    async def main() -> None:
        others = [asyncio.ensure_future(writing.write()) for _ in range(3)]
        asyncio.get_running_loop().call_soon(lambda: None)
        for other in others:
            asyncio.get_running_loop().call_soon(other.done)
        writing.journal.add(Closed())
        await writing.journal.durable(alone=True)
        await asyncio.gather(*others)

    asyncio.run(main())
    assert sorted(seq for group in writing.told for seq in group) == [1, 2, 3, 4] == writing.seqs()


@pytest.mark.parametrize("broken", ["write", "sync_data"])
def test_a_failed_append_reaches_every_waiter_and_nothing_more_is_written(writing: Writing, broken: str) -> None:
    async def main() -> list[Any]:
        await writing.write(alone=True)
        writing.syscalls.broken = broken
        return await asyncio.gather(*(writing.write() for _ in range(5)), return_exceptions=True)

    outcomes = asyncio.run(main())
    assert len(outcomes) == 5 and all(isinstance(outcome, StorageFailed) for outcome in outcomes)
    assert writing.told == [[1]]
    writing.syscalls.broken = ""
    writing.syscalls.calls.clear()
    for again in (lambda: writing.journal.add(Closed()), writing.journal.flush, lambda: asyncio.run(writing.write())):
        with pytest.raises(StorageFailed):
            again()
    assert not {"write", "sync_data", "open_new"} & set(writing.syscalls.calls)


@pytest.mark.parametrize("broken", ["open_new", "write", "sync_data", "sync_folder", "mkdir"])
def test_a_failed_first_segment_poisons_too(writing: Writing, broken: str) -> None:
    writing.syscalls.broken = broken
    writing.journal.add(Closed())
    with pytest.raises(StorageFailed):
        writing.journal.flush()
    writing.syscalls.broken = ""
    with pytest.raises(StorageFailed):
        writing.journal.flush()
    assert writing.told == []


def test_an_interrupt_in_the_middle_of_applying_a_record_poisons(tmp_path: Path) -> None:
    def interrupt(line: Line) -> None:
        raise KeyboardInterrupt

    writing = Writing(tmp_path, apply=interrupt)
    with pytest.raises(KeyboardInterrupt):
        writing.journal.add(Closed())
    with pytest.raises(SatchelError):
        writing.journal.add(Closed())


def test_a_record_that_does_not_fit_takes_no_place(tmp_path: Path) -> None:
    def refuse(line: Line) -> None:
        if line.record == Closed(reason="bad"):
            raise DoesNotFit("it does not fit")

    writing = Writing(tmp_path, apply=refuse)
    for reason in ("one", "bad", "two"):
        with suppress(DoesNotFit):
            writing.journal.add(Closed(reason=reason))
    writing.journal.flush()
    assert writing.told == [[1, 2]] and writing.seqs() == [1, 2]


def test_a_cancelled_waiter_does_not_take_the_others_along(writing: Writing) -> None:
    async def main() -> None:
        waiters = [asyncio.ensure_future(writing.write()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[1].cancel()
        outcomes = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), asyncio.CancelledError, type(None)]
        await writing.write()

    asyncio.run(main())
    assert writing.seqs() == [1, 2, 3, 4]


def test_all_waiters_cancelled_still_leave_a_journal_that_goes_on(writing: Writing) -> None:
    async def main() -> None:
        waiters = [asyncio.ensure_future(writing.write()) for _ in range(3)]
        await asyncio.sleep(0)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        await writing.write()

    asyncio.run(main())
    assert writing.seqs() == [1, 2, 3, 4]


def test_an_interrupt_in_the_middle_of_a_write_poisons(writing: Writing) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    writing.journal.add(Closed())
    writing.journal.flush()
    writing.syscalls.__dict__["write"] = interrupt
    writing.journal.add(Closed())
    with pytest.raises(KeyboardInterrupt):
        writing.journal.flush()
    with pytest.raises(SatchelError):
        writing.journal.add(Closed())


def test_a_new_segment_starts_at_its_size_and_is_named_by_its_first_record(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES", 300)
    for _ in range(20):
        writing.journal.add(Closed())
        writing.journal.flush()
    names = [entry.path for entry in writing.store.list("journal")]
    assert len(names) > 3
    for name in names:
        first = journal.parse(writing.store.read(name).data.split(b"\n")[0])
        assert name == journal.segment_path(first.seq)
    assert writing.seqs() == [*range(1, 21)]


def test_a_group_is_never_split_over_two_segments(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SEGMENT_BYTES", 10)
    for size in (1, 5, 2, 7):
        for _ in range(size):
            writing.journal.add(Closed())
        writing.journal.flush()
    for entry in writing.store.list("journal"):
        rows = writing.store.read(entry.path).data.splitlines()
        assert len({line.commit for line in journal.parse_each(rows) if line}) == 1


def test_a_record_too_large_is_refused_and_leaves_the_journal_usable(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_end, "RECORD_BYTES", 1000)
    with pytest.raises(SatchelError, match="too large"):
        writing.journal.add(Closed(reason="x" * 1000))
    writing.journal.add(Closed())
    writing.journal.flush()
    assert writing.seqs() == [1]


def test_a_flush_with_nothing_to_write_touches_nothing(writing: Writing) -> None:
    writing.journal.flush()
    assert not {"write", "open_new", "mkdir"} & set(writing.syscalls.calls) and writing.told == []


@examples(30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_any_sequence_of_groups_survives_write_and_read(tmp_path_factory: Any, groups: list[int]) -> None:
    writing = Writing(tmp_path_factory.mktemp("w"))
    for size in groups:
        for number in range(size):
            writing.journal.add(Closed(reason=f"{size}/{number}\n\u2028"))
        writing.journal.flush()
    writing.journal.end()
    tail = journal.read(writing.store, after=0)
    assert [found.record.reason for found in tail.lines] == [  # type: ignore[union-attr]
        f"{size}/{number}\n\u2028" for size in groups for number in range(size)
    ]
    assert tail.torn is None and tail.next_seq == sum(groups) + 1


# Merging what many short openings leave


def short_openings(
    folder: Path, count: int, due: int = 1, crc: str = journal.NO_CRC, syscalls: Syscalls | None = None
) -> DiskStore:
    """Each writes two records, and ends. `crc`: of the record before the first."""
    store, before = DiskStore(folder, syscalls), due
    for epoch in range(1, count + 1):
        added: list[Line] = []
        writer = Journal(store, epoch=before + epoch, next_seq=due, prev=crc, apply=added.append)
        for number in (1, 2):
            writer.add(Closed(reason=f"{epoch}.{number}"))
        writer.flush()
        writer.roll_up()
        writer.end()
        due, crc = due + 2, added[-1].crc
    return store


def reasons(store: DiskStore) -> list[str]:
    return [found.record.reason for found in journal.read(store, after=0).lines]  # type: ignore[union-attr]


WRITTEN = [f"{epoch}.{number}" for epoch in range(1, 101) for number in (1, 2)]


def test_many_short_openings_leave_few_segments(tmp_path: Path) -> None:
    store = short_openings(tmp_path, 100)
    assert len(journal.segments(store)) <= segment_log.MANY + 1
    assert reasons(store) == WRITTEN
    assert journal.segments(store)[-1] == 199  # the newest is as it was written


def test_a_merge_that_is_cut_off_loses_and_doubles_no_record(tmp_path: Path) -> None:
    """At each of its calls: before the rename, and before each removal."""

    class Killed(Exception): ...

    class Dying(Syscalls):
        left = 0

        def _call(self) -> None:
            if self.left == 0:
                raise Killed
            self.left -= 1

        def rename(self, source: str, target: str) -> None:
            self._call()
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            self._call()
            super().unlink(path)

    for calls in range(segment_log.MANY):
        folder = tmp_path / str(calls)
        folder.mkdir()
        short_openings(folder, segment_log.MANY)
        system = Dying()
        store = DiskStore(folder, system)
        due, crc = 2 * segment_log.MANY + 1, journal.read(store, after=0).crc
        writer = Journal(store, epoch=90, next_seq=due, prev=crc, apply=lambda line: None)
        writer.add(Closed(reason="last"))
        writer.flush()
        system.left = calls
        with pytest.raises(Killed):
            writer.roll_up()
        assert reasons(DiskStore(folder)) == [*WRITTEN[: 2 * segment_log.MANY], "last"]
        crc = journal.read(DiskStore(folder), after=0).crc
        later = short_openings(folder, segment_log.MANY, 2 * segment_log.MANY + 2, crc)
        assert reasons(later) == [*WRITTEN[: 2 * segment_log.MANY], "last", *WRITTEN[: 2 * segment_log.MANY]]
        assert len(journal.segments(later)) <= segment_log.MANY + 1


def test_a_merge_leaves_a_damaged_segment_as_it_is(tmp_path: Path) -> None:
    store = short_openings(tmp_path, segment_log.MANY)
    crc = journal.read(store, after=0).crc
    path = tmp_path / journal.segment_path(journal.segments(store)[4])
    path.write_bytes(path.read_bytes().replace(b'"reason":"', b'"reason":"!'))
    damaged = path.read_bytes()
    short_openings(tmp_path, segment_log.MANY, 2 * segment_log.MANY + 1, crc)
    assert path.read_bytes() == damaged
    with pytest.raises(Damaged):
        journal.read(store, after=0)


@pytest.mark.parametrize("kind", ["damaged", "link", "unreadable", "of a bucket"])
def test_one_segment_that_can_not_be_merged_keeps_all_later_ones_from_it_or_a_run_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(segment_log, "MANY", 4)
    crc = journal.read(short_openings(tmp_path, 3), after=0).crc
    path = tmp_path / journal.segment_path(3)
    if kind == "damaged":
        path.write_bytes(b"!" + path.read_bytes())
    elif kind == "link":
        path.rename(tmp_path / "old.jsonl")
        path.symlink_to(tmp_path / "old.jsonl")
    elif kind == "of a bucket":
        before = (tmp_path / journal.segment_path(1)).read_bytes()
        fence = journal.encode(Line(3, 3, AT, 1, Fenced(), last_crc(before), "n"))
        path.write_bytes(fence + line(4, 4, fence))
        (tmp_path / journal.segment_path(5)).write_bytes(segment((2,), 5, line(4, 4, fence)))
        crc = last_crc((tmp_path / journal.segment_path(5)).read_bytes())

    class Refusing(Syscalls):
        def read(self, full: str, limit: int) -> tuple[bytes, os.stat_result]:
            if kind == "unreadable" and full == str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO), full)
            return super().read(full, limit)

    store = short_openings(tmp_path, 3 * segment_log.MANY, 7, crc, Refusing())
    assert journal.segments(store)[:3] == [1, 3, 5] and len(journal.segments(store)) <= segment_log.MANY + 3
    assert len(journal.read(store, after=4, before=KNOWN).lines) == 2 * (3 * segment_log.MANY + 1)


def test_a_full_disk_fails_a_run_that_has_ended_since_nothing_can_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_log, "MANY", 4)

    class Full(Syscalls):
        def open_new(self, path: str) -> int:
            if ".satchel/tmp" in path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return super().open_new(path)

    store = short_openings(tmp_path, segment_log.MANY + 5, syscalls=Full())
    assert len(journal.segments(store)) == segment_log.MANY + 5
    assert reasons(store) == WRITTEN[: 2 * segment_log.MANY + 10]


def test_what_lies_where_records_are_repeated_and_says_something_else_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has put it there, such as a program that synchronises folders."""
    monkeypatch.setattr(segment_log, "MANY", 4)
    store = short_openings(tmp_path, segment_log.MANY + 1)
    assert journal.segments(store) == [1, 2 * segment_log.MANY + 1]
    path = tmp_path / journal.segment_path(3)
    path.write_bytes(segment((2,), 3, b"\n".join((tmp_path / journal.segment_path(1)).read_bytes().splitlines()[:2])))
    short_openings(
        tmp_path,
        segment_log.MANY,
        2 * segment_log.MANY + 3,
        journal.read(store, after=2 * segment_log.MANY, before=KNOWN).crc,
    )
    assert path.exists()
    with pytest.raises(Damaged, match="two histories"):
        journal.read(store, after=0)


def test_a_row_of_segments_without_end_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Crashes leave it: only a stop merges."""
    monkeypatch.setattr(segment_log, "MANY", 10**6)
    store = short_openings(tmp_path, 25)
    monkeypatch.setattr(segment_log, "MANY", 4)
    monkeypatch.setattr(segment_log, "SMALL_BYTES", 500)
    segment_log.merge(store)
    merged = max(entry.size for entry in store.list("journal"))
    assert segment_log.SMALL_BYTES < merged <= segment_log.MANY * segment_log.SMALL_BYTES
    assert reasons(store) == WRITTEN[:50]


def test_large_segments_are_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_log, "SMALL_BYTES", 3000)
    store = short_openings(tmp_path, 100)
    large = [entry for entry in store.list("journal") if entry.size >= 3000]
    assert large and all(entry.size < 3000 + segment_log.MANY * 400 for entry in large)
    assert reasons(store) == WRITTEN
