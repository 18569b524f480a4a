"""The names that a server is reached by.

A site can lead a name of its own to this machine (DNS rebinding), so that its scripts may read what a server here
answers. Their requests have that name as `Host`. So a server answers only to names that are its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from msgspec import Struct

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Names(Struct, frozen=True):
    """`known`: the names besides those of this machine for itself. `any_address`: the server listens on all addresses
    of this machine, and each may be its name: no site can lead an address anywhere."""

    known: tuple[str, ...] = ()
    any_address: bool = False

    def have(self, host: str) -> bool:
        """Whether a `Host` header, or the network location of a URL, names this server. The port does not matter, since
        a tunnel has another one."""
        name = _without_port(host.strip().lower())
        if name in _LOOPBACK or name in (each.lower() for each in self.known):
            return True
        return self.any_address and is_address(name)

    def are_named(self, hosts: Sequence[str]) -> bool:
        """Whether the `Host` headers of a request are one, and it names this server."""
        return len(hosts) == 1 and self.have(hosts[0])


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() and (":" not in name or name.endswith("]")) else host


def is_address(name: str) -> bool:
    """Whether it is an address, and not a name."""
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
