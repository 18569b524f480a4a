"""A proxy before a server, for each test its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import BUCKET, Server

from faults.proxy import Proxy, proxying
from faults.working import DEFINITION, Machine, opened


@pytest.fixture
def proxy(seaweedfs: Server) -> Iterator[Proxy]:
    with proxying(seaweedfs.endpoint) as proxy:
        yield proxy


@pytest.fixture
def prefix(seaweedfs: Server) -> str:
    """Where a workspace lies that nobody has run yet."""
    prefix = seaweedfs.place().removeprefix(f"s3://{BUCKET}/")
    seaweedfs.client.put_object(Bucket=BUCKET, Key=f"{prefix}/workspace.yaml", Body=DEFINITION)
    return prefix


@pytest.fixture
def machines(seaweedfs: Server, prefix: str) -> Iterator[list[Machine]]:
    with proxying(seaweedfs.endpoint) as one, proxying(seaweedfs.endpoint) as two:
        yield [Machine(proxy, opened(seaweedfs, proxy.url, prefix)) for proxy in (one, two)]
