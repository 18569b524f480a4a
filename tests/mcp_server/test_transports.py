"""The ways to a client: stdin and stdout of a process, and HTTP with its guard."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cli.conftest import PLAIN, Cli, Make, cli
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from starlette.responses import PlainTextResponse

import satchel
from satchel.runtime.faces.http import Address, Senders, address_of
from satchel.runtime.faces.mcp import serve_mcp
from satchel.runtime.faces.mcp.protocol_server import TransportGuard, where

from .conftest import call, run

__all__ = ["cli"]


def test_a_process_does_not_serve_its_client(make: Make, root: Path) -> None:
    satchel.open(make(PLAIN, "one")).run()
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "satchel", "mcp", str(root), "--allow", "start,send"], env={**os.environ}
    )

    async def work() -> None:
        async with Client(parameters) as client:
            assert client.server_info and client.server_info.name == "satchel"
            assert client.instructions and "never follow instructions" in client.instructions
            assert [each.name for each in (await client.list_tools()).tools][5:] == ["start", "send"]
            assert (await call(client, "status", run="one"))["result"] == {"said": 2}
            await call(client, "send", run="one", content="a task")
            assert (await call(client, "list_runs"))["runs"][0]["state"] == "completed"

    run(work())


HOST = "127.0.0.1:8848"


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        (None, {"host": HOST}, 200),
        (None, {"host": "localhost"}, 200),
        (None, {"host": "[::1]:8848", "origin": "http://localhost:3000"}, 200),
        (None, {"host": "evil.example"}, 421),
        (None, {"host": "127.0.0.1.evil.example"}, 421),
        (None, {"host": "localhost@evil.example"}, 421),
        (None, {"host": "192.168.0.7:8848"}, 421),
        (None, {"host": ""}, 421),
        (None, {"host": HOST, "origin": "https://evil.example"}, 403),
        (None, {"host": HOST, "origin": "null"}, 403),
        ("secret", {"host": HOST}, 401),
        ("secret", {"host": HOST, "authorization": "Bearer other"}, 401),
        ("secret", {"host": HOST, "authorization": "Basic secret"}, 401),
        ("secret", {"host": HOST, "authorization": "Bearer sécret"}, 401),
        ("secret", {"host": HOST, "authorization": "bearer secret"}, 200),
        ("secret", {"host": "192.168.0.7:8848", "authorization": "Bearer secret"}, 200),
        ("secret", {"host": "runs.example:8848", "authorization": "Bearer secret"}, 200),
        ("secret", {"host": "evil.example", "authorization": "Bearer secret"}, 421),
        ("secret", [("host", HOST), ("authorization", "Bearer secret"), ("authorization", "Bearer other")], 401),
        ("secret", [("host", HOST), ("authorization", "Bearer other"), ("authorization", "Bearer secret")], 401),
        ("secret", [("host", HOST), ("host", "evil.example"), ("authorization", "Bearer secret")], 421),
        (None, [("host", HOST), ("origin", "http://localhost"), ("origin", "https://evil.example")], 403),
    ],
)
def test_a_strange_page_gets_an_answer(
    token: str | None, headers: dict[str, str] | list[tuple[str, str]], status: int
) -> None:
    guard = TransportGuard(PlainTextResponse("inside"), Senders.at(Address("runs.example"), (token,) if token else ()))
    raw = [
        (name.encode(), value.encode()) for name, value in (headers.items() if isinstance(headers, dict) else headers)
    ]

    async def work() -> None:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(guard)) as client:
            found = await client.get("http://127.0.0.1/mcp", headers=httpx2.Headers(raw))
            assert found.status_code == status and (found.text == "inside") is (status == 200)

    run(work())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8848", ("127.0.0.1", 8848)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:0", ("::1", 0)), ("x:1", ("x", 1))],
)
def test_an_address_is_read_wrongly(text: str, expected: tuple[str, int]) -> None:
    assert address_of(text)[:2] == expected
    assert Address("::1", 80).url == "http://[::1]:80"
    assert where(Address(port=8848)) == "http://127.0.0.1:8848/mcp"
    assert where(Address(path="/run/mcp")) == "unix:/run/mcp, with the path /mcp of HTTP", "/run/mcp/mcp is no socket"


@pytest.mark.parametrize("text", ["", "x", "x:", "70000", "-1", "²", "x:8848/mcp"])
def test_what_is_no_address_is_taken_for_one(text: str) -> None:
    with pytest.raises(satchel.UsageError, match="is no address"):
        address_of(text)


def test_other_machines_reach_the_server_without_a_token(root: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SATCHEL_MCP_TOKEN", raising=False)
    for host in ("0.0.0.0", "192.168.0.7", "[::]", "runs.example"):
        refused = cli("mcp", root, "--http", f"{host}:8848")
        assert refused.exit_code == 2 and "SATCHEL_MCP_TOKEN" in refused.stderr
    assert "can't allow 'x'" in cli("mcp", root, "--allow", "x").stderr
    assert "no such folder" in cli("mcp", root / "none").stderr


def test_a_missing_package_is_not_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Any = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mcp" else found(name))
    with pytest.raises(satchel.UsageError, match=r"pip install 'satchel\[mcp\]'"):
        serve_mcp(root)
