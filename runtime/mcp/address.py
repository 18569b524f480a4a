"""Where the server listens for HTTP."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from ...workspace.base import UsageError

PATH = "/mcp"

_HOST = "127.0.0.1"


class Address(NamedTuple):
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{PATH}"


def address(text: str) -> Address:
    """`8848`, `127.0.0.1:8848`, `[::1]:8848`; port 0 is any free one. UsageError for anything else."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise UsageError(f"{text!r} is no address", remedy="write a port, or HOST:PORT, such as 127.0.0.1:8848")
    return Address(host.removeprefix("[").removesuffix("]") or _HOST, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host.lower() == "localhost" or (is_number(host) and ipaddress.ip_address(host).is_loopback)


def is_number(host: str) -> bool:
    """Whether it is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
