"""A storage of fsspec that can't be used says what is wrong, where, and what to do."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from clouds import Cloud
from servers import free_ports

import satchel
from satchel.workspace.base.errors import StorageFailed, UsageError
from satchel.workspace.store import Store, open_store
from satchel.workspace.store.registry import check_conditional_puts, check_writes


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """A web server that only gives files."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    (tmp_path / "a.txt").write_text("here")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="the driver of hdfs:// is installed")
def test_a_driver_that_is_not_installed_is_not_named() -> None:
    with pytest.raises(UsageError, match="hdfs:// needs a package that is not installed") as raised:
        open_store("hdfs://127.0.0.1:9/runs/trip")
    assert "`pip install 'pyarrow'`" in str(raised.value)


def test_an_option_that_a_driver_needs_is_not_named() -> None:
    with pytest.raises(UsageError, match="the storage option base_url is missing") as raised:
        open_store("webdav://runs/trip")
    assert "--storage-option base_url=" in str(raised.value) and "FSSPEC_WEBDAV_BASE_URL" in str(raised.value)


def test_an_option_that_a_driver_does_not_know_is_not_named() -> None:
    with pytest.raises(UsageError, match="there is no option colour") as raised:
        open_store("webdav://runs/trip", {"base_url": "http://127.0.0.1:9", "colour": "s3cret-blue"})
    assert "s3cret-blue" not in str(raised.value)


WRITES: list[Callable[[Store], object]] = [
    lambda store: store.create("b.txt", b"x"),
    lambda store: store.replace("b.txt", b"x"),
    lambda store: store.append("b.txt", b"x"),
    check_writes,
]


@pytest.mark.parametrize("act", [lambda store: [*store.list("")], *WRITES])
def test_a_web_server_that_is_gone_passes_for_an_empty_place(act: Callable[[Store], object]) -> None:
    (port,) = free_ports(1)
    with pytest.raises(StorageFailed, match=r"no connection to 127\.0\.0\.1") as raised:
        act(open_store(f"http://127.0.0.1:{port}/runs/trip"))
    assert "check the address" in str(raised.value.remedy)


def test_a_place_that_a_web_server_does_not_have_is_an_error(web: str) -> None:
    assert not [*open_store(f"{web}/nothing/here").list("")]


@pytest.mark.parametrize("write", WRITES)
def test_a_web_server_that_takes_no_writes_is_not_called_one(web: str, write: Callable[[Store], object]) -> None:
    store = open_store(web)
    assert store.read("a.txt").data == b"here"
    with pytest.raises(StorageFailed, match=r"the server answered 501 \(Not Implemented\)") as raised:
        write(store)
    assert "most web servers only give files" in str(raised.value)


@pytest.fixture(params=["gcs", pytest.param("azure", marks=pytest.mark.slow)])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Cloud)
    return server


@pytest.mark.parametrize("act", [lambda store: [*store.list("")], *WRITES])
def test_a_missing_bucket_passes_for_an_empty_place(cloud: Cloud, act: Callable[[Store], object]) -> None:
    store = open_store(cloud.url("runs/trip", bucket="nowhere"), cloud.storage_options())
    with pytest.raises(UsageError, match="there is no such bucket") as raised:
        act(store)
    assert cloud.url("runs/trip", bucket="nowhere") in str(raised.value) and "Make the bucket" in str(raised.value)


def test_a_bucket_that_creates_exclusively_is_refused(cloud: Cloud) -> None:
    store = open_store(cloud.place(), cloud.storage_options())
    check_conditional_puts(store)
    check_writes(store)
    assert [*store.list(".satchel")] == []


def test_an_agent_in_the_memory_of_this_process_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: here-1\nagent: agent.py:main\n")
    (tmp_path / "agent.py").write_text("from satchel import agent\n@agent\nasync def main(run):\n    return 1\n")
    url = f"memory://{tmp_path.name}/run"
    satchel.new(tmp_path, url)
    assert satchel.run(url).result == 1
