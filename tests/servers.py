"""Real S3 servers for tests: SeaweedFS and moto, on free loopback ports, started when a test first asks for one.

One of each serves all tests of a process, every test in a place of its own (`Server.place`). A test that stops or kills
its server starts one itself (`Server.started`).
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

_GRACE = 15.0
"""Seconds that a server has to end by itself. Then it is killed."""
KEY, SECRET = "satchel-test", "an-unlikely-secret-3fe1"  # what no error, log line or file may ever show
BUCKET = "workspaces"
_GUARD = """
exec 3<&0
"$@" </dev/null & server=$!
echo $server
exec >/dev/null 2>&1
(cat <&3 >/dev/null; kill -KILL $server) & watcher=$!
wait $server
kill -KILL $watcher
"""
"""Ends the server when this process is gone, however it went: then the pipe to its standard input is closed."""


class Server:
    """One process that speaks S3 on 127.0.0.1. Stopping keeps what it holds, if it holds it on the disk."""

    kind = ""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port = 0
        self.pid = 0
        self._ports: list[int] = []
        self._guard: subprocess.Popen[str] | None = None
        self._places = itertools.count(1)
        self._client: Any = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self, ports: list[int]) -> list[str]:
        raise NotImplementedError

    @classmethod
    def started(cls, folder: Path) -> Server:
        """A new server with an empty bucket."""
        server = cls(folder)
        server.start()
        return server

    def start(self) -> None:
        """Start, or start again on the same port with what is there. Returns when it answers."""
        deadline = time.monotonic() + PATIENCE
        while not self._start(deadline):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} does not start:\n{self.log()[-3000:]}")

    def _start(self, deadline: float) -> bool:
        again = bool(self.port)
        if not again:  # another process may take one of them before the server does: then others are tried
            self._ports = free_ports(10)
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "log", "ab") as log:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *self.command(self._ports)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env=self._environment(),
            )
        assert self._guard.stdout
        self.pid, self.port = int(self._guard.stdout.readline()), self._ports[0]
        while self._guard.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(0.05)
        self.stop()
        if not again:
            self.port, self._client = 0, None
        return False

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "S3_"))}
        return {**kept, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "TMPDIR": str(self.folder)}

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                pass
            self.client.create_bucket(Bucket=BUCKET)
        except OSError:
            return False
        except (BotoCoreError, ClientError) as error:
            if "BucketAlready" not in str(error):
                return False
        try:  # a server may answer before it can store anything
            self.client.put_object(Bucket=BUCKET, Key="ready", Body=b"yes")
        except (BotoCoreError, ClientError):
            return False
        return True

    def stop(self, signal_: int = signal.SIGTERM) -> None:
        """End it, and wait until it is gone."""
        guard, self._guard = self._guard, None
        if guard is None:
            return
        assert guard.stdin and guard.stdout
        if guard.poll() is None:
            os.kill(self.pid, signal_)
        try:
            guard.wait(_GRACE)
        except subprocess.TimeoutExpired:
            guard.stdin.close()
            guard.wait(PATIENCE)
        guard.stdin.close()
        guard.stdout.close()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def client(self) -> Any:
        """boto3's, to work behind Satchel's back. One for all tests."""
        if self._client is None:
            import boto3
            from botocore.config import Config

            self._client = boto3.session.Session().client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id=KEY,
                aws_secret_access_key=SECRET,
                region_name="us-east-1",
                config=Config(
                    retries={"max_attempts": 1},
                    connect_timeout=5,
                    read_timeout=60,
                    s3={"addressing_style": "path"},
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                ),
            )
        return self._client

    def place(self) -> str:
        """The URL of a new, empty place."""
        return f"s3://{BUCKET}/{os.getpid()}/{next(self._places)}"

    def storage_options(self, endpoint: str | None = None) -> dict[str, Any]:
        """For `open_store`; `endpoint` if it is to be reached through a proxy."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": endpoint or self.endpoint}

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """The same for a process that is given nothing but the URL."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
        }


class SeaweedFS(Server):
    """Keeps everything in `folder`, so it can be killed and started again."""

    kind = "seaweedfs"

    def command(self, ports: list[int]) -> list[str]:
        names = [
            "s3.port",
            "s3.port.grpc",
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "admin.port",
            "admin.port.grpc",
        ]
        return [
            os.path.join(sysconfig.get_path("scripts"), "weed"),
            "mini",
            f"-dir={self.folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-admin.ui=false",
            "-webdav=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            f"-filer.localSocket={self.folder}/filer.sock",
            f"-s3.localSocket={self.folder}/s3.sock",
            *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
        ]


class Moto(Server):
    """Keeps everything in its memory."""

    kind = "moto"

    def command(self, ports: list[int]) -> list[str]:
        return [os.path.join(sysconfig.get_path("scripts"), "moto_server"), "-H", "127.0.0.1", "-p", str(ports[0])]


def free_ports(count: int) -> list[int]:
    """Nobody listens there now. All different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _serving(SeaweedFS, tmp_path_factory)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from _serving(Moto, tmp_path_factory)


def _serving(kind: type[Server], factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = kind.started(factory.mktemp(kind.kind))
    try:
        with _one_class_of_clients():
            yield server
    finally:
        server.kill()


@contextmanager
def _one_class_of_clients() -> Iterator[None]:
    """Each client has a class of its own, all alike, and to make it takes as long as some requests. Tests make
    thousands."""
    from aiobotocore.client import AioClientCreator

    make, made = AioClientCreator._create_client_class, dict[str, type]()

    async def once(creator: AioClientCreator, name: str, model: Any) -> type:
        if name not in made:
            made[name] = await make(creator, name, model)
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AioClientCreator, "_create_client_class", once)
        yield
