"""Real servers of other kinds than S3, for tests: WebDAV (wsgidav) and sftp (asyncssh), on free loopback ports. sftp is
spoken by two drivers, fsspec's own over paramiko, and sshfs, which takes its place where it is installed.

Each serves a folder of this machine from a thread of the test's own process, so what is behind it can be seen and
changed there. One of each serves all tests of a process, every test in a folder of its own (`Elsewhere.place`).
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
from servers import SECRET

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Elsewhere:
    folder: Path  # what it serves
    driver: str  # the class that fsspec is to use
    prefix: str  # of the URL of a place
    options: dict[str, Any]  # storage options

    def place(self) -> tuple[str, Path]:
        """A new place: its URL, and the folder where it lies."""
        fsspec.register_implementation(self.prefix.partition("://")[0], self.driver, clobber=True)
        name = f"runs/{next(_numbers)}"
        return f"{self.prefix}{name}", self.folder / name


@contextmanager
def serving_webdav(folder: Path) -> Iterator[Elsewhere]:
    from cheroot.wsgi import Server
    from wsgidav.fs_dav_provider import FilesystemProvider
    from wsgidav.wsgidav_app import WsgiDAVApp

    settings = {
        "provider_mapping": {"/": FilesystemProvider(str(folder))},
        "simple_dc": {"user_mapping": {"*": True}},
        "logging": {"enable": False},
        "verbose": 0,
    }
    server = Server(("127.0.0.1", 0), WsgiDAVApp(settings))
    server.prepare()
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.bind_addr[1]}"
        yield Elsewhere(folder, "webdav4.fsspec.WebdavFileSystem", "webdav://", {"base_url": url})
    finally:
        server.stop()
        thread.join(60)


@contextmanager
def serving_sftp(folder: Path, driver: str) -> Iterator[Elsewhere]:
    import asyncssh

    connections: list[Any] = []

    class Door(asyncssh.SSHServer):
        def connection_made(self, connection: Any) -> None:
            connections.append(connection)

        def password_auth_supported(self) -> bool:
            return True

        def validate_password(self, username: str, password: str) -> bool:
            return password == SECRET

    ports: queue.Queue[int] = queue.Queue()
    ended = threading.Event()

    async def serve() -> None:
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=Door,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(folder)),
        )
        async with server:
            ports.put(server.get_port())
            await asyncio.to_thread(ended.wait)
            for connection in connections:
                connection.abort()
                await connection.wait_closed()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        port = ports.get(timeout=60)
        yield Elsewhere(folder, driver, f"sftp://satchel@127.0.0.1:{port}/", {"password": SECRET})
    finally:
        ended.set()
        thread.join(60)


@pytest.fixture(scope="session")
def webdav(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with serving_webdav(tmp_path_factory.mktemp("webdav")) as server:
        yield server


@pytest.fixture(scope="session")
def sftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with serving_sftp(tmp_path_factory.mktemp("sftp"), "fsspec.implementations.sftp.SFTPFileSystem") as server:
        yield server


@pytest.fixture(scope="session")
def sshfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with serving_sftp(tmp_path_factory.mktemp("sshfs"), "sshfs.SSHFileSystem") as server:
        yield server
