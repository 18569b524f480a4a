"""What tests of every folder may ask for."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import properties
import pytest
from _pytest.assertion import rewrite
from clouds import azure, gcs
from elsewhere import sftp, sshfs, webdav
from servers import moto, seaweedfs
from transitions import Noted, noting
from waits import NOBODY_SAVES

from satchel.workspace.inspect import lease
from satchel.workspace.views import guarded_files

# Many tests start Python. Without a bytecode cache each of those processes compiles all of Satchel again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

properties.load()

HERE = Path(__file__).parent
MAKING_RECORDS = ("fuzz", "hostile", "schemas", "workspace")
"""The folders of tests that make records which no run writes."""

# Where there is room, `tmp_path` is in memory: of what is synced there nobody could tell whether it is on a disk.
# places.py has a `tmp_path` for tests of the disk itself.
with suppress(OSError):
    if shutil.disk_usage("/dev/shm").free > 2 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    properties.spread(items)


def pytest_sessionstart(session: pytest.Session) -> None:
    """In a new clone each worker would rewrite the assertions of all tests, at the same time. So each has a part."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:
        mine, every = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        for path in sorted(HERE.rglob("test_*.py"))[mine::every]:
            cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(path, cached) is None:
                source, code = rewrite._rewrite_test(path, session.config)
                cached.parent.mkdir(exist_ok=True)
                rewrite._write_pyc(session.config.stash[rewrite.assertstate_key], code, source, cached)


# The collector would look at 11,000 tests and all packages of all adapters, again and again.
@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def nobody_saves() -> Iterator[None]:
    """Nobody is in the middle of saving a file, so no test waits until one has settled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guarded_files, "WAITS", NOBODY_SAVES)
        yield


@pytest.fixture
def somebody_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may be half saved: it counts when it has settled."""
    monkeypatch.setattr(guarded_files, "WAITS", guarded_files.Waits())


@pytest.fixture
def holder_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a lock that this process holds, and will not release."""
    monkeypatch.setattr(lease, "_DYING", 0.0)


@pytest.fixture(autouse=True)
def options_do_not_stay() -> Iterator[None]:
    """`storage_options` are for the rest of a process, and so for every test that comes later."""
    before = _storage_options()
    yield
    assert _storage_options() == before, "storage options of this test stay for the next"


@pytest.fixture(autouse=True)
def transitions(request: pytest.FixtureRequest) -> Iterator[Noted]:
    """Only what the table of statuses knows happens to a run, in whichever test makes one."""
    with noting() as noted:
        yield noted
    if not {*request.path.relative_to(HERE).parts[:2]} & {*MAKING_RECORDS}:
        assert not noted.unknown(), "not in TRANSITIONS of workspace/state/statuses.py"


def _storage_options() -> object:
    config = sys.modules.get("fsspec.config")
    return (
        {name: value for name, value in os.environ.items() if name.startswith(("FSSPEC_", "AWS_"))},
        dict(config.conf.get("s3") or {}) if config else {},
    )


__all__ = ["azure", "gcs", "moto", "seaweedfs", "sftp", "sshfs", "webdav"]
