"""A copy of a run is opened where it is now, or a person is asked: never do two act that nobody knows of."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace
from servers import BUCKET, Server

from satchel.workspace import transfer
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import transfer_file
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Line, Opened, encode
from satchel.workspace.lifecycle.acquire import Adoption, judge
from satchel.workspace.lifecycle.opening import Why, opened
from satchel.workspace.store import DiskStore, Store

AGENT = """
from satchel import agent

@agent
async def main(run):
    pass
"""
HERE = socket.gethostname()
OPENED = Opened(
    format=1, run_id="copied-1", satchel="0", python="3", host=HERE, pid=1, url="", why="run", found="clean"
)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A run that was closed."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: copied-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(AGENT)
    with opened(DiskStore(folder), "run", Report()) as workspace:
        workspace.close()
    return folder


def crash(folder: Path, *, adopt: bool = False) -> None:
    with opened(DiskStore(folder), "recover", Report(), adopt=adopt):
        pass  # left without closing it


def judged(store: Store | Path, url: object, host: str = HERE, *, adopt: bool = False) -> Adoption:
    store = DiskStore(store) if isinstance(store, Path) else store
    return judge(store, look(store).moment, str(url), host, adopt=adopt)


def asked(store: Store | Path, url: object, host: str = HERE) -> str:
    with pytest.raises(UsageError) as raised:
        judged(store, url, host)
    assert "--adopt" in str(raised.value.remedy) and "satchel move" in str(raised.value.remedy)
    assert judged(store, url, host, adopt=True).says
    return str(raised.value)


def cp(folder: Path, to: str = "b") -> Path:
    """`cp -r`"""
    return shutil.copytree(folder, folder.parent / to)


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_same_place_is_taken_for_another(is_clean: bool, closed: Path, tmp_path: Path) -> None:
    if not is_clean:
        crash(closed)
    (tmp_path / "link").symlink_to(closed)
    for url, host in (
        (closed, HERE),
        (f"{closed}/", HERE),
        (closed, "another-container"),
        ("", ""),
        (tmp_path / "link", HERE),
    ):
        assert judged(closed, url, host) == Adoption("")


@pytest.mark.parametrize("is_clean", [True, False])
def test_one_that_was_renamed_is_asked_about(is_clean: bool, closed: Path, tmp_path: Path) -> None:
    if not is_clean:
        crash(closed)
    closed.rename(tmp_path / "b")
    found = judged(tmp_path / "b", closed)
    assert "is no longer there" in found.says


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_place_that_holds_something_else_by_now_counts(is_clean: bool, closed: Path, tmp_path: Path) -> None:
    if not is_clean:
        crash(closed)
    closed.rename(tmp_path / "b")
    closed.mkdir()
    assert judged(tmp_path / "b", closed).says
    (closed / "workspace.yaml").write_text("format: 1\nrun_id: other-1\nagent: agent.py:main\n")
    assert judged(tmp_path / "b", closed).says


def test_a_copy_of_a_closed_run_goes_on_next_to_its_original(closed: Path) -> None:
    copy = cp(closed)
    assert f"{closed} still has it; if both copies continue, both act" in asked(copy, closed)
    with pytest.raises(UsageError, match="--adopt"), opened(DiskStore(copy), "run", Report()):
        pass
    shutil.rmtree(closed)
    assert "is no longer there" in judged(copy, closed).says


def test_a_command_that_looks_at_no_bucket_adopts_what_a_bucket_may_still_hold(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next `run` would not look any more."""
    with opened(DiskStore(closed), "recover", Report()) as workspace:
        workspace.journal.add(replace(OPENED, url="s3://bucket/a"))
        workspace.close()
    for _ in range(2):
        with opened(DiskStore(closed), "recover", report := Report()) as workspace:
            workspace.close()
        assert "`satchel resume` checks" in str(report.remarks)
        assert workspace.moment.url == "s3://bucket/a"
    monkeypatch.setattr("satchel.workspace.lifecycle.acquire.open_store", lambda url: DiskStore(closed))
    with pytest.raises(UsageError, match="still has it"), opened(DiskStore(closed), "run", Report(), reaches_out=True):
        pass


def test_a_copy_of_a_crashed_run_acts_beside_it(closed: Path) -> None:
    crash(closed)
    text = asked(cp(closed), closed)
    assert f"{closed} still has it" in text and "did not close it" in text


def test_a_copy_acts_beside_one_that_has_gone_on(closed: Path) -> None:
    copy = cp(closed)
    with opened(DiskStore(closed), "recover", Report()) as workspace:
        workspace.close()
    assert "has continued since" in asked(copy, closed)


def test_a_copy_acts_beside_one_that_is_at_work(closed: Path) -> None:
    with opened(DiskStore(closed), "run", Report()) as workspace:
        copy = cp(closed)
        assert "a process runs it" in asked(copy, closed)
        workspace.close()


def test_a_copy_acts_beside_one_that_can_not_be_read(closed: Path) -> None:
    copy = cp(closed)
    (closed / "workspace.yaml").write_text("a: b: c\n")
    assert "can't be read" in asked(copy, closed)


def test_a_place_on_another_machine_is_looked_at_on_this_one(closed: Path) -> None:
    copy = cp(closed)
    shutil.rmtree(closed)
    assert "on far-away" in judged(copy, closed, "far-away").says
    crash(copy)
    assert f"{closed} on far-away can't be reached from here" in asked(copy, closed, "far-away")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "sftp://host/x", "memory://x", "nonsense://"])
def test_a_stranger_s_journal_makes_this_machine_talk_to_an_address(
    url: str, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.workspace.lifecycle.acquire.open_store", lambda url: pytest.fail(f"{url} was opened"))
    assert judged(closed, url).says
    crash(closed)
    asked(closed, url)


@pytest.mark.parametrize("why", ["recover", "pause", "answer"])
def test_a_stranger_s_journal_makes_a_command_send_signed_requests(
    why: Why, closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was carried from a bucket looks there; a command that runs nothing does not."""
    opened_places: list[str] = []
    monkeypatch.setattr("satchel.workspace.lifecycle.acquire.open_store", opened_places.append)
    crash(closed)
    line = Line(9, 9, "2026-11-01T00:00:00.000Z", 9, replace(OPENED, url="s3://bucket/theirs"))
    journal = max((closed / "journal").iterdir())
    there = look(DiskStore(closed)).moment
    line = replace(line, seq=there.seq + 1, prev=there.crc)
    journal.write_bytes(journal.read_bytes() + encode(replace(line, commit=line.seq)))
    with pytest.raises(UsageError, match="can't be reached from here"), opened(DiskStore(closed), why, Report()):
        pass
    assert not opened_places
    with pytest.raises(UsageError), opened(DiskStore(closed), "run", Report(), reaches_out=True):
        pass
    assert opened_places == ["s3://bucket/theirs"]


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_satchel_has_moved_is_asked_about(is_clean: bool, closed: Path, tmp_path: Path) -> None:
    if not is_clean:
        crash(closed)
    for name in ("b", "c"):
        (tmp_path / name).mkdir()
    transfer.move(DiskStore(closed), DiskStore(tmp_path / "b"), by="me")
    for host in (HERE, "far-away"):
        assert judged(tmp_path / "b", closed, host).says.startswith(f"it was moved here from {closed}, by me at 2")
    transfer.move(DiskStore(tmp_path / "b"), DiskStore(tmp_path / "c"), by="me")
    assert judged(tmp_path / "c", closed).says.startswith(f"it was moved here from {closed}, by me at 2")


def test_a_copy_of_what_was_moved_passes_for_it(closed: Path, tmp_path: Path) -> None:
    """The note about the move goes along with `cp -r`, and a tombstone may lead elsewhere."""
    crash(closed)
    (tmp_path / "b").mkdir()
    transfer.move(DiskStore(closed), DiskStore(tmp_path / "b"), by="me")
    copy = cp(tmp_path / "b", "c")
    assert f"{tmp_path / 'b'} still has it" in asked(copy, closed)
    shutil.rmtree(tmp_path / "b")
    assert judged(copy, closed).says


def test_tombstones_that_lead_in_a_circle_are_followed_for_ever(closed: Path, tmp_path: Path) -> None:
    crash(closed)
    copy = cp(closed, "z")
    (tmp_path / "b").mkdir()
    transfer.move(DiskStore(closed), DiskStore(tmp_path / "b"), by="me")
    stone = (closed / "moved.yaml").read_bytes()
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/moved.yaml").write_bytes(
        stone.replace(b"to: " + str(tmp_path / "b").encode(), b"to: " + str(closed).encode())
    )
    asked(copy, closed)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_copy_by_satchel_acts_beside_its_original(is_clean: bool, closed: Path, tmp_path: Path) -> None:
    if not is_clean:
        crash(closed)
    (tmp_path / "b").mkdir()
    transfer.copy(DiskStore(closed), DiskStore(tmp_path / "b"), by="me")
    assert "made by `satchel copy` or `satchel export`" in asked(tmp_path / "b", closed)
    asked(tmp_path / "b", closed, "far-away")
    shutil.rmtree(closed)
    assert judged(tmp_path / "b", closed).says, "a backup is good for something"


def test_a_note_of_a_stranger_is_believed(closed: Path) -> None:
    """One that is about another place or another run says nothing, and what is no note does not either."""
    crash(closed)
    copy = cp(closed)
    note = transfer_file.Manifest(run_id="copied-1", kind="move", source=str(closed), to="/else", began="", by="")
    for data in (transfer_file.encode(note), transfer_file.encode(note).replace(b"copied-1", b"other-1"), b"{", b"[]"):
        DiskStore(copy).replace(transfer_file.PATH, data)
        asked(copy, closed)


@pytest.mark.slow
def test_a_copy_in_a_bucket_is_not_seen_from_a_folder(
    closed: Path, seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`aws s3 sync` up, gone on with there, and `aws s3 sync` down again, with the bucket still holding it."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    place = seaweedfs.place()
    prefix = place.removeprefix(f"s3://{BUCKET}/")
    for path in closed.rglob("*"):
        if path.is_file():
            key = f"{prefix}/{path.relative_to(closed).as_posix()}"
            seaweedfs.client.put_object(Bucket=BUCKET, Key=key, Body=path.read_bytes())
    from satchel.workspace.store import open_store

    assert f"{closed} still has it" in asked(open_store(place), closed)
    copy = cp(closed)
    assert f"{place} still has it" in asked(copy, place, "a-server")
    crash(copy, adopt=True)
    assert f"{place} still has it" in asked(copy, place, "a-server")
    seaweedfs.client.delete_object(Bucket=BUCKET, Key=f"{prefix}/workspace.yaml")
    assert "is no longer there" in judged(copy, place, "a-server").says
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("satchel.workspace.lifecycle.acquire.open_store", _unreachable)
    assert "can't be reached from here" in asked(copy, place, "a-server")


def _unreachable(url: str) -> Store:
    raise OSError("no route to host")
