"""Python imports it at the start of each process of tools/make_golden.py: the process then says that it runs on Ada's
laptop, so that no golden folder names the real machine or its user."""

import pwd
import socket

from satchel.workspace.lifecycle import recovery

HOST = "laptop"
BOOT = "11111111-2222-4333-8444-555555555555"
_of_a_number = pwd.getpwuid


def _of_ada(number: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("ada", *_of_a_number(number)[1:]))


socket.gethostname = lambda: HOST
pwd.getpwuid = _of_ada
recovery.boot_id = lambda: BOOT
