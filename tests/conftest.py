"""What tests of every folder may ask for."""

import os
import sys

import properties
from elsewhere import sftp, sshfs, webdav
from servers import moto, seaweedfs

# Many tests start Python. Without a bytecode cache each of those processes compiles all of Satchel again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

properties.load()

__all__ = ["moto", "seaweedfs", "sftp", "sshfs", "webdav"]
