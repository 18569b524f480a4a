"""Where it listens: `PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from ...workspace.base import UsageError

_WRITTEN = re.compile(r"(?:(?P<host>[^\[\]:/\s]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
_BACKLOG = 128


class Address(NamedTuple):
    """A port of a host (0: a free one), or the path of a unix socket."""

    host: str = "127.0.0.1"
    port: int = 0
    path: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can connect."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse(written: str) -> Address:
    scheme, colon, path = written.partition(":")
    if scheme == "unix" and colon and path:
        return Address(path=os.path.expanduser(path))
    match = _WRITTEN.fullmatch(written)
    if match is None or int(match["port"]) > 65535:
        raise UsageError(f"can't listen on {written!r}", remedy="write PORT, HOST:PORT, [IPV6]:PORT or unix:PATH")
    return Address((match["host"] or Address().host).strip("[]"), int(match["port"]))


def bound(address: Address) -> socket.socket:
    """A socket that takes connections. The umask decides who may connect to a unix socket. UsageError if the address
    is taken."""
    with ExitStack() as stack:
        try:
            found, place = _made(address)
            stack.callback(found.close)
            found.bind(place)
            found.listen(_BACKLOG)
        except OSError as error:
            raise UsageError(
                f"can't listen on {said(address)}", why=error.strerror or str(error), remedy="choose another address"
            ) from error
        stack.pop_all()
    return found


def _made(address: Address) -> tuple[socket.socket, Any]:
    """A socket, and the place to bind it to."""
    if address.path:
        _remove_left_over(address.path)
        return socket.socket(socket.AF_UNIX), address.path
    family, kind, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found, place


def _remove_left_over(path: str) -> None:
    """A process that was killed leaves its socket. One that answers stays: then `bind` fails."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode):
            return
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)


def said(address: Address, found: socket.socket | None = None) -> str:
    """For people, with the port that was `found`."""
    if address.path:
        return f"unix:{address.path}"
    port = found.getsockname()[1] if found else address.port
    return f"http://[{address.host}]:{port}" if ":" in address.host else f"http://{address.host}:{port}"
