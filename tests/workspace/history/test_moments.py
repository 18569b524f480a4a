"""The state of a run at any of its records, and what can be said of records that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from fuzz.bases import AT, BEGINNING, ENDED, RUN
from linked import linked

from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, UsageError
from satchel.workspace.history import moment_at, records_of, seq_of
from satchel.workspace.journal import AnyRecord, Edited, Line, ScopeBegun, ScopeCommitted
from satchel.workspace.state import Moment, checkpoint
from satchel.workspace.store import DiskStore, FileContent

RECORDS = [*BEGINNING, *ENDED]
LAST = len(RECORDS)


def lay_out(folder: Path, records: Iterable[AnyRecord] = RECORDS, segment: int = 10) -> DiskStore:
    """A workspace whose segments have so many records each."""
    (folder / "journal").mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {RUN}\nagent: agent.py:main\n")
    lines = [Line(seq, seq, AT, 1, each) for seq, each in enumerate(records, 1)]
    crc = "00000000"
    for first in range(0, len(lines), segment):
        part = linked(lines[first : first + segment], crc)
        (folder / journal.segment_path(first + 1)).write_bytes(part.data)
        crc = part.lines[-1].crc
    return DiskStore(folder)


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return lay_out(tmp_path / "run")


def told(moment: Moment) -> object:
    return msgspec.json.decode(checkpoint.encode(moment, {}))


def naive(store: DiskStore, seq: int) -> object:
    moment = Moment(run_id=RUN)
    moment.apply(journal.read(store, after=0).lines[:seq])
    return told(moment)


def save(store: DiskStore, *positions: int) -> None:
    for seq in positions:
        checkpoint.write(store, moment_at(store, seq), {})


def test_the_moment_of_a_record_is_not_that_of_a_replay(store: DiskStore) -> None:
    expected = {seq: naive(store, seq) for seq in range(1, LAST + 1)}
    assert expected[1] != expected[LAST]
    for _ in range(2):
        assert {seq: told(moment_at(store, seq)) for seq in expected} == expected
        save(store, 7, 20, 21, LAST)


def test_a_record_that_does_not_exist_has_a_moment(store: DiskStore, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"there is no record {LAST + 1} yet: the newest is record {LAST}"):
        moment_at(store, LAST + 1)
    with pytest.raises(UsageError, match=r"there is no record 0\. The first is 1"):
        moment_at(store, 0)
    new = lay_out(tmp_path / "new", [])
    for call in (lambda: moment_at(new, 1), lambda: seq_of(new, "latest")):
        with pytest.raises(UsageError, match="the run has not begun"):
            call()
    with pytest.raises(UsageError, match="is not a workspace"):
        moment_at(DiskStore(tmp_path), 1)


def test_a_removed_record_is_not_called_gone(store: DiskStore) -> None:
    """As retention leaves it: the journal begins in the middle, and a checkpoint has the state before it."""
    save(store, 5, 12, 20, 25)
    expected = {seq: naive(store, seq) for seq in (5, 12, 20, 21, 25, LAST)}
    for first in (1, 11):
        store.remove(journal.segment_path(first))
    for seq in (1, 13, 19):
        with pytest.raises(UsageError, match=f"record {seq} is gone: the journal is kept from record 20 on .`keep:`"):
            moment_at(store, seq)
    assert {seq: told(moment_at(store, seq)) for seq in expected} == expected, "a checkpoint counts for itself"
    assert (records_of(store).first, records_of(store).last) == (21, LAST)
    store.remove(checkpoint.paths(store)[2])
    with pytest.raises(UsageError, match="record 21 is gone: the journal is kept from record 25 on"):
        moment_at(store, 21)
    with pytest.raises(UsageError, match="no item '\\^1' has begun: the journal is kept from record 21 on"):
        seq_of(store, "^1")


def test_a_damaged_checkpoint_of_a_kept_journal_is_called_gone(store: DiskStore) -> None:
    save(store, 20, 30)
    for first in (1, 11):
        store.remove(journal.segment_path(first))
    store.replace(checkpoint.paths(store)[0], b"{}")
    with pytest.raises(Damaged, match=r"the state at record 22 can't be made: .* can't be used"):
        moment_at(store, 22)
    assert moment_at(store, LAST).seq == LAST


def test_damage_hides_what_came_before_it(store: DiskStore) -> None:
    save(store, 25)
    path = journal.segment_path(11)
    rows = store.read(path).data.splitlines(keepends=True)
    store.replace(path, b"".join([*rows[:4], b"broken\n", *rows[5:]]))
    assert [moment_at(store, seq).seq for seq in (3, 14)] == [3, 14]
    with pytest.raises(Damaged, match="line 5 is damaged"):
        moment_at(store, 15)
    assert [moment_at(store, seq).seq for seq in (25, 27, LAST)] == [25, 27, LAST]
    found = records_of(store)
    assert found.last == 14 and isinstance(found.problem, Damaged)
    assert seq_of(store, "^1") == 6
    with pytest.raises(Damaged):
        seq_of(store, "_late")


def test_a_torn_end_is_damage(store: DiskStore) -> None:
    path = journal.segment_path(41 if LAST > 40 else 31)
    store.replace(path, store.read(path).data[:-9])
    assert moment_at(store, LAST - 1).seq == LAST - 1
    with pytest.raises(UsageError, match=f"the newest is record {LAST - 1}"):
        moment_at(store, LAST)


def test_a_mistake_in_the_definition_hides_the_past(store: DiskStore) -> None:
    store.replace("workspace.yaml", b"format: [\n")
    assert told(moment_at(store, 8)) == naive(store, 8)


def test_files_that_its_owner_removes_meanwhile_are_missed(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint is dropped after it was listed, and with it the segments before the next one."""
    save(store, 15, 30)
    read = DiskStore.read
    dropped = [*checkpoint.paths(store)[:1], journal.segment_path(1), journal.segment_path(11)]

    def read_late(self: DiskStore, path: str, **limit: int) -> FileContent:
        while dropped and path == dropped[0]:
            for each in dropped[:]:
                self.remove(each)
                dropped.remove(each)
        return read(self, path, **limit)

    monkeypatch.setattr(DiskStore, "read", read_late)
    with pytest.raises(UsageError, match="record 17 is gone: the journal is kept from record 30 on"):
        moment_at(store, 17)
    assert not dropped and moment_at(store, 31).seq == 31


def test_an_item_is_not_found_by_its_names(store: DiskStore) -> None:
    begun = {each.scope: seq for seq, each in enumerate(RECORDS, 1) if isinstance(each, ScopeBegun) and not each.agent}
    assert {name: seq_of(store, name) + 1 for name in ("^1", "1-read", "^2", "2-mail", "_late")} == {
        "^1": begun["1"],
        "1-read": begun["1"],
        "^2": begun["2"],
        "2-mail": begun["2"],
        "_late": begun["_late"],
    }
    assert seq_of(store, "helper/^1") == seq_of(store, "helper/1-look") > seq_of(store, "^1")
    assert (seq_of(store, 17), seq_of(store, "17"), seq_of(store, "latest")) == (17, 17, LAST)
    assert moment_at(store, seq_of(store, "^2")).root.scopes.keys() == {""}
    for wrong, said in (("^7", r"no item '\^7' has begun"), ("2-mial", "mean '2-mail'"), ("", "Name an item")):
        with pytest.raises(UsageError, match=said):
            seq_of(store, wrong)


def test_an_item_that_was_done_again_has_begun_only_once(tmp_path: Path) -> None:
    """A record of its beginning while it is open, because its mark was changed, is not a beginning."""
    begun, done = ScopeBegun(scope="1", title="read"), ScopeCommitted(scope="1")
    redone = Edited(file="todo.md", by="ann", sha="", redone=("1",))
    first = [*BEGINNING[:7], begun]
    assert seq_of(lay_out(tmp_path / "a", first), "^1") == 6
    assert seq_of(lay_out(tmp_path / "b", [*first, done, begun, begun]), "^1") == 9
    assert seq_of(lay_out(tmp_path / "c", [*first, redone, begun, begun, done]), "^1") == 9


def test_a_checkpoint_is_not_found_by_its_names(store: DiskStore) -> None:
    save(store, 12, 20)
    path = checkpoint.paths(store)[1]
    name = path.removeprefix("checkpoints/").removesuffix(".json")
    for named in (path, name, f"{name}.json", f"checkpoints/{name}", f"run/checkpoints/{name}/"):
        assert seq_of(store, named) == 20
    with pytest.raises(UsageError, match=f"there is no checkpoint 000000000099-x: the newest are .*{name}"):
        seq_of(store, "checkpoints/000000000099-x.json")
