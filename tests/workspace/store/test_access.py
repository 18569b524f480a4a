"""Files are private, a mode that a person set stays, and a run as root locks nobody out."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from satchel import Item, Run, agent, run, step
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.store import DiskStore, Syscalls

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@step
def shout(text: str) -> str:
    return text.upper()


async def work(run: Run, item: Item) -> None:
    run.messages.add("user", item.text)
    await run.output(f"{item.id}.txt", await shout(item.text))
    run.state["long"] = "x" * 70_000


@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan(None, ["one", "two"])
    await run.todo.each(work)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o755)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: access-1\nagent: agent.py:main\n")
    before = os.umask(0o022)
    yield folder
    os.umask(before)


def modes(folder: Path, *, of_folders: bool) -> set[int]:
    paths = [path for path in folder.rglob("*") if path.name != "workspace.yaml" and path.is_dir() == of_folders]
    assert len(paths) > 5
    return {stat.S_IMODE(path.stat().st_mode) for path in paths}


def test_what_a_run_writes_can_be_read_by_others(folder: Path) -> None:
    assert run(folder, main).status == "completed"
    assert modes(folder, of_folders=False) == {0o600}
    assert modes(folder, of_folders=True) == {0o700}


@pytest.mark.parametrize("mode", [0o2750, 0o775])
def test_a_folder_that_is_shared_with_a_group_shuts_it_out(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    assert run(folder, main).status == "completed"
    assert modes(folder, of_folders=False) == {0o660}
    assert {each & 0o777 for each in modes(folder, of_folders=True)} == {0o770}


@pytest.mark.parametrize("mode", [0o2770, 0o770])
@as_root
def test_a_run_in_a_folder_of_a_group_leaves_files_of_another_group(folder: Path, mode: int) -> None:
    os.chown(folder, -1, NOBODY)
    folder.chmod(mode)
    assert run(folder, main).status == "completed"
    paths = [path for path in folder.rglob("*") if path.name != "workspace.yaml"]
    assert {path.stat().st_gid for path in paths} == {NOBODY}
    assert {path.stat().st_mode & stat.S_ISGID for path in paths if path.is_dir()} == {mode & stat.S_ISGID}


@pytest.mark.parametrize("owner", [-1, NOBODY])
def test_a_file_system_without_modes_and_owners_takes_no_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    """Such as a disk of Windows that Linux has mounted: every folder seems to be everybody's."""

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, owner, owner)
    for name in ("chmod", "fchmod", "chown", "fchown"):
        monkeypatch.setattr(os, name, refuse)
    assert run(folder, main).status == "completed"


def test_a_mode_that_a_person_set_is_lost_when_the_file_is_replaced(folder: Path) -> None:
    run(folder, main)
    (folder / "state.json").chmod(0o640)
    (folder / "todo.md").chmod(0o444)
    path = folder / "todo.md"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("- [x] two", "- [x] two\n- [ ] three", 1))
    assert run(folder, main).entered
    assert stat.S_IMODE((folder / "state.json").stat().st_mode) == 0o640
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@as_root
def test_a_run_as_root_leaves_files_that_the_folders_owner_can_not_write(folder: Path) -> None:
    for path in (folder, folder / "workspace.yaml"):
        os.chown(path, NOBODY, NOBODY)
    assert run(folder, main).status == "completed"
    owners = {path.stat().st_uid for path in folder.rglob("*") if "__pycache__" not in str(path)}
    assert owners == {NOBODY}


def refusing(path: Path, monkeypatch: pytest.MonkeyPatch, uid: int) -> StorageFailed:
    class Refusing(Syscalls):
        def read(self, full: str, limit: int) -> tuple[bytes, os.stat_result]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), full)

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(StorageFailed) as caught:
        DiskStore(path.parent, Refusing()).read(path.name)
    return caught.value


def test_a_file_of_another_user_is_refused_without_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = str(refusing(folder / "workspace.yaml", monkeypatch, NOBODY))
    owner = os.stat(folder / "workspace.yaml").st_uid
    name = "root" if owner == 0 else ""
    assert "workspace.yaml" in told and f"belongs to {name}" in told and "chown -R nobody" in told


@pytest.mark.parametrize(
    ("call", "mode", "told"),
    [
        (lambda store: store.replace("mine/g", b""), 0o500, "/mine is yours: `chmod u+rwx` it"),
        (lambda store: store.replace("mine/f", b""), 0o500, "/mine is yours: `chmod u+rwx` it"),
        (lambda store: store.append("mine/f", b"x"), 0o700, "/mine/f is yours: `chmod u+rw` it"),
        (lambda store: store.remove("mine/f"), 0o500, "/mine is yours: `chmod u+rwx` it"),
        (lambda store: store.read("mine/f"), 0o600, "/mine is yours: `chmod u+rwx` it"),
        (lambda store: store.replace("theirs/g", b""), 0o700, "/theirs belongs to root, and you are nobody"),
    ],
)
@as_root
def test_the_wrong_file_is_said_to_be_in_the_way(call: Callable[[DiskStore], object], mode: int, told: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # the others are of a folder that nobody may enter
        folder = Path(name)
        for path in (folder / "mine", folder / "theirs"):
            path.mkdir()
        (folder / "mine/f").touch()
        for path in (folder, folder / "mine", folder / "mine/f"):
            os.chown(path, NOBODY, NOBODY)
        (folder / "mine/f").chmod(0o444)
        (folder / "mine").chmod(mode)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(StorageFailed) as failed:
                call(DiskStore(folder))
        finally:
            os.seteuid(0)
    assert told in (failed.value.remedy or "")


def test_a_file_of_ones_own_is_said_to_be_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = str(refusing(folder / "workspace.yaml", monkeypatch, os.stat(folder / "workspace.yaml").st_uid))
    assert "chmod u+rw" in told and "chown" not in told
