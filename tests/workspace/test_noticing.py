"""What an opening makes of the readable files: restored, rolled forward or refused; never obeyed or lost in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from satchel.workspace import journal, projection, record
from satchel.workspace.errors import Edited, InvalidFile, SatchelError
from satchel.workspace.looking import look
from satchel.workspace.noticing import notice
from satchel.workspace.opening import opened
from satchel.workspace.record import Line, Opened, PlanChanged, ScopeBegun, ScopeCommitted, StepCompleted
from satchel.workspace.report import Report
from satchel.workspace.store import DiskStore

STEP = "steps/1-a/01-read.json"
FILES = ["state.json", "todo.md", STEP]
AT = "2026-11-01T00:00:00.000Z"


def history(run_id: str = "run-1", extra: int = 0) -> bytes:
    """A run whose process was killed while it was in its first item. `extra` records make it older."""
    records: list[record.AnyRecord] = [
        Opened(format=1, run_id=run_id, satchel="0", python="3", host="h", pid=1, why="run", found="new"),
        ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {"n": 1, "who": run_id}}]),
        PlanChanged(plan=((0, 0, "# Plan\n\n- [ ] a\n- [ ] b\n"),), by="agent"),  # type: ignore[arg-type]
        ScopeBegun(scope="1", title="a", plan=((2, 1, "- [/] a ^1\n"),)),  # type: ignore[arg-type]
        StepCompleted(scope="1", no=1, step="read", args="0" * 16, n=0, result=Raw(b'"text"')),
        *(
            StepCompleted(scope="1", no=2 + n, step="more", args=f"{n:016x}", n=0, result=Raw(b"1"))
            for n in range(extra)
        ),
    ]
    return b"".join(record.encode(Line(seq, seq, AT, 1, each)) for seq, each in enumerate(records, start=1))


class Place:
    """A workspace, and what people do to it between two openings."""

    def __init__(self, folder: Path, run_id: str = "run-1", extra: int = 0):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {run_id}\nagent: agent.py:main\n")
        (folder / "journal").mkdir()
        (folder / journal.segment_path(1)).write_bytes(history(run_id, extra))
        self.store = DiskStore(folder)

    def open(self) -> list[str]:
        report = Report()
        with opened(DiskStore(self.folder), "recover", report) as workspace:
            workspace.close()
        return [remark.text for remark in report.remarks]

    def get(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def put(self, path: str, data: bytes) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def snapshot(self) -> dict[str, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in files}

    def refused(self, path: str) -> SatchelError:
        """Open, and see that it is refused with file and remedy, and the file is as it was."""
        before = self.get(path)
        with pytest.raises((Edited, InvalidFile)) as refusal:
            self.open()
        assert refusal.value.path == path
        assert self.get(path) == before
        assert isinstance(refusal.value, InvalidFile) or refusal.value.remedy
        return refusal.value

    def is_at_the_moment(self) -> bool:
        moment = look(self.store).moment
        expected = {"state.json": projection.state_file(moment), "todo.md": projection.todo_file(moment)}
        shown = {file.path: file.record for file in projection.step_files(moment)}
        there = {f"{entry.path}" for folder in self.store.folders("steps") for entry in self.store.list(folder)}
        return all(self.get(path) == data for path, data in expected.items()) and there == shown.keys()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path / "w")
    found.open()
    assert found.is_at_the_moment()
    return found


def test_an_opening_with_nothing_to_notice_notices_nothing(place: Place) -> None:
    noticed = notice(place.store, look(place.store).moment)
    assert not noticed.findings and not noticed.refusals and not noticed.leftovers and noticed.plan is None


def test_after_a_kill_all_files_are_made(tmp_path: Path) -> None:
    place = Place(tmp_path / "w")
    place.open()
    assert place.is_at_the_moment() and json.loads(place.get(STEP))["result"] == "text"


@pytest.mark.parametrize("path", FILES)
def test_a_missing_file_is_restored_and_not_obeyed(place: Place, path: str) -> None:
    before = look(place.store).moment
    (place.folder / path).unlink()
    remarks = place.open()
    after = look(place.store).moment
    assert place.is_at_the_moment() and (after.data, after.plan.text) == (before.data, before.plan.text)
    assert path == STEP or any(path in remark and "missing" in remark for remark in remarks)


@pytest.mark.parametrize("path", FILES)
def test_a_lagging_file_is_rolled_forward_and_reported(place: Place, path: str) -> None:
    old = place.get(path)
    place.open()
    assert old != place.get(path) or path == STEP
    place.put(path, old)
    remarks = place.open()
    assert place.is_at_the_moment()
    assert path == STEP or any(path in remark and "brought to" in remark for remark in remarks)


def reformatted(data: bytes) -> bytes:
    return json.dumps(json.loads(data), indent=7, sort_keys=True).encode()


@pytest.mark.parametrize("path", ["state.json", STEP])
def test_a_reformatted_file_says_the_same_and_is_written_anew(place: Place, path: str) -> None:
    place.put(path, reformatted(place.get(path)))
    place.open()
    assert place.is_at_the_moment()


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_lost_its_stamp_and_says_the_same_is_written_anew(place: Place, path: str) -> None:
    data = place.get(path)
    if path == "todo.md":
        data = data[: data.rindex(b"<!-- satchel")]
    else:
        facts = json.loads(data)
        del facts["at"]
        data = json.dumps(facts).encode()
    place.put(path, data)
    place.open()
    assert place.is_at_the_moment()


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "todo.md": lambda data: data.replace(b"- [ ] b", b"- [x] b"),
    "state.json": lambda data: data.replace(b'"n": 1', b'"n": 2'),
    STEP: lambda data: data.replace(b'"text"', b'"other"'),
}
PLACES = {"todo.md": "line 4", "state.json": "data.n", STEP: "result"}


@pytest.mark.parametrize("path", FILES)
def test_an_edit_is_refused_with_its_place(place: Place, path: str) -> None:
    data = EDITS[path](place.get(path))
    assert data != place.get(path)
    place.put(path, data)
    assert PLACES[path] in str(place.refused(path))


@pytest.mark.parametrize("path", FILES)
def test_an_edit_of_an_unstamped_file_is_refused(place: Place, path: str) -> None:
    data = EDITS[path](place.get(path))
    if path == "todo.md":
        data = data[: data.rindex(b"<!-- satchel")]
    else:
        facts = json.loads(data)
        del facts["at"]
        data = json.dumps(facts).encode()
    place.put(path, data)
    place.refused(path)


BROKEN = [
    b"",
    b"\n",
    b"\0" * 100,
    b"\xff\xfe",
    b"caf\xe9",
    b"[]",
    b"null",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"NaN",
    b"9" * 5000,
]


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: repr(data[:12]))
@pytest.mark.parametrize("path", FILES)
def test_a_broken_file_is_refused_and_kept(place: Place, path: str, data: bytes) -> None:
    place.put(path, data)
    place.refused(path)


@pytest.mark.parametrize("path", FILES)
def test_a_file_cut_anywhere_is_refused_and_kept_or_says_the_same(place: Place, path: str) -> None:
    whole = place.get(path)
    moment = look(place.store).moment
    for cut in range(0, len(whole), 7):
        place.put(path, whole[:cut])
        noticed = notice(place.store, moment)
        body = whole[: whole.rfind(b"<!-- satchel")] if path == "todo.md" else whole
        says_the_same = (path == "todo.md" and whole[:cut].rstrip() == body.rstrip()) or whole[
            :cut
        ].strip() == whole.strip()
        assert bool(noticed.refusals) != says_the_same, cut


@pytest.mark.parametrize("path", FILES)
def test_a_file_from_a_later_moment_is_refused(place: Place, tmp_path: Path, path: str) -> None:
    later = Place(tmp_path / "later", extra=20)
    later.open()
    later.open()
    place.put(path, later.get(path))
    assert "later moment" in str(place.refused(path))


@pytest.mark.parametrize("path", ["state.json", STEP])
def test_a_file_of_another_run_is_refused(place: Place, tmp_path: Path, path: str) -> None:
    other = Place(tmp_path / "other", run_id="run-2")
    other.open()
    place.open()
    place.put(path, other.get(path))
    place.refused(path)


@pytest.mark.parametrize("path", FILES)
def test_what_is_no_file_is_refused(place: Place, path: str) -> None:
    (place.folder / path).unlink()
    (place.folder / path).symlink_to("/etc/passwd")
    with pytest.raises(SatchelError):
        place.open()
    assert (place.folder / path).is_symlink()


def test_several_edits_are_all_counted(place: Place) -> None:
    for path in FILES:
        place.put(path, EDITS[path](place.get(path)))
    with pytest.raises(Edited, match="2 more"):
        place.open()


def test_a_refusal_writes_nothing_but_the_lock(place: Place) -> None:
    place.put("todo.md", EDITS["todo.md"](place.get("todo.md")))
    before = place.snapshot()
    with pytest.raises(Edited):
        place.open()
    assert place.snapshot() == before


def test_a_step_file_of_a_closed_scope_is_removed_and_an_edited_one_is_kept(place: Place) -> None:
    data = place.get(STEP).replace(b'"scope": "1"', b'"scope": "9"')
    place.put("steps/9-x/01-read.json", data)
    place.refused("steps/9-x/01-read.json")


# A plan that a person wrote


def unopened(tmp_path: Path, todo: bytes) -> Place:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    (folder / "todo.md").write_bytes(todo)
    place = Place.__new__(Place)
    place.folder, place.store = folder, DiskStore(folder)
    return place


@pytest.mark.parametrize(
    "todo",
    [b"- [ ] a\n", b"# T\r\n\r\n- [ ] a\r\n", b"\xef\xbb\xbf- [ ] a", b"", b"only prose", "- [ ] ünï 漢".encode()],
)
def test_a_plan_that_was_there_first_is_taken_byte_for_byte(tmp_path: Path, todo: bytes) -> None:
    place = unopened(tmp_path, todo)
    place.open()
    assert place.get("todo.md").startswith(todo) and look(place.store).moment.plan.text.encode() == todo
    place.open()


@pytest.mark.parametrize("todo", [b"- [ ] a\n", b"- [ ] same\n- [ ] same\n"])
def test_a_crash_before_an_adopted_plan_is_stamped_is_no_edit(tmp_path: Path, todo: bytes) -> None:
    place = unopened(tmp_path, todo)
    place.open()
    place.put("todo.md", todo)  # the rename was lost in a power failure, the record was not
    place.open()
    assert place.is_at_the_moment()


def test_a_state_that_was_there_first_is_refused(tmp_path: Path) -> None:
    place = unopened(tmp_path, b"- [ ] a\n")
    place.put("state.json", b'{"data": {"a": 1}}')
    assert "before the first run" in str(place.refused("state.json"))


@pytest.mark.parametrize("path", ["state.json", "todo.md"])
def test_files_without_their_journal_are_refused_and_kept(place: Place, path: str) -> None:
    import shutil

    for folder in ("journal", "checkpoints", "steps"):
        shutil.rmtree(place.folder / folder, ignore_errors=True)
    for other in {"state.json", "todo.md"} - {path}:
        (place.folder / other).unlink()
    assert "journal" in str(place.refused(path))
