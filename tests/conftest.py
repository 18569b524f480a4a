"""What tests of every folder may ask for."""

import os
import shutil
import sys
from contextlib import suppress

import properties
from elsewhere import sftp, sshfs, webdav
from servers import moto, seaweedfs

# Many tests start Python. Without a bytecode cache each of those processes compiles all of Satchel again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

properties.load()

# Where there is room, `tmp_path` is in memory: of what is synced there nobody could tell whether it is on a disk.
# places.py has a `tmp_path` for tests of the disk itself.
with suppress(OSError):
    if shutil.disk_usage("/dev/shm").free > 2 << 30:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

__all__ = ["moto", "seaweedfs", "sftp", "sshfs", "webdav"]
