"""The proxy does to requests what it is told, and nothing else."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    IncompleteReadError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from servers import BUCKET, KEY, SECRET, Server
from waits import PATIENCE

from faults.faults import (
    delayed,
    drip,
    drop_after,
    drop_before,
    expired_token,
    hang,
    internal_error,
    late,
    partition,
    shortened,
    slow_down,
    truncated,
    unconditional,
)
from faults.proxy import Proxy, proxying

BODY = bytes(range(256)) * 40
CUT = (IncompleteReadError, ResponseStreamingError, ConnectionClosedError)


_session = functools.cache(boto3.session.Session)
"""One for all: each reads the descriptions of S3 again."""


def client(endpoint: str, timeout: float = PATIENCE) -> Any:
    """boto3 without retries: what happens to a request is what its caller sees."""
    return _session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=timeout,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


@pytest.fixture
def through(proxy: Proxy) -> Any:
    return client(proxy.url)


@pytest.fixture
def key(seaweedfs: Server) -> str:
    """A key in a place of its own."""
    return f"{seaweedfs.place().removeprefix(f's3://{BUCKET}/')}/state.json"


def there(server: Server, key: str) -> bytes | None:
    """What the server has, looked at past the proxy."""
    found = server.client.list_objects_v2(Bucket=BUCKET, Prefix=key).get("Contents", [])
    return server.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() if found else None


def code_of(error: pytest.ExceptionInfo[ClientError]) -> tuple[int, str]:
    answer = error.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def test_signed_requests_go_through_unchanged(through: Any, seaweedfs: Server, proxy: Proxy, key: str) -> None:
    """SeaweedFS checks the signatures, and the Host header is signed."""
    through.put_object(Bucket=BUCKET, Key=key, Body=BODY, IfNoneMatch="*")
    assert through.get_object(Bucket=BUCKET, Key=key)["Body"].read() == BODY == there(seaweedfs, key)
    assert [each["Key"] for each in through.list_objects_v2(Bucket=BUCKET, Prefix=key)["Contents"]] == [key]
    assert through.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == len(BODY)
    with pytest.raises(ClientError) as error:
        through.put_object(Bucket=BUCKET, Key=key, Body=BODY, IfNoneMatch="*")
    assert code_of(error)[0] == 412
    through.delete_object(Bucket=BUCKET, Key=key)
    assert there(seaweedfs, key) is None
    assert [(each.method, each.status) for each in proxy.seen] == [
        ("PUT", 200),
        ("GET", 200),
        ("LIST", 200),
        ("HEAD", 200),
        ("PUT", 412),
        ("DELETE", 204),
    ]


def test_a_wrong_signature_is_refused_behind_it(proxy: Proxy, key: str) -> None:
    other = _session().client(
        "s3", endpoint_url=proxy.url, aws_access_key_id=KEY, aws_secret_access_key="another", region_name="us-east-1"
    )
    with pytest.raises(ClientError) as error:
        other.get_object(Bucket=BUCKET, Key=key)
    assert code_of(error) == (403, "SignatureDoesNotMatch")


def test_it_counts_by_what_of_a_workspace_a_request_is_about(through: Any, proxy: Proxy, key: str) -> None:
    run = key.rpartition("/")[0]
    through.put_object(Bucket=BUCKET, Key=f"{run}/workspace.yaml", Body=b"1")
    with proxy.tallying() as found:
        for name in (
            "journal/000000000001.jsonl",
            "journal/000000000002.jsonl",
            "checkpoints/1.json",
            "todo.md",
            ".satchel/lease.json",
            ".satchel/blobs/1",
            ".satchel/run.log",
            "agents/a/state.json",
        ):
            through.put_object(Bucket=BUCKET, Key=f"{run}/{name}", Body=b"12345")
        through.list_objects_v2(Bucket=BUCKET, Prefix=f"{run}/")
        through.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": f"{run}/todo.md"}]})
    (tally,) = found
    assert tally.requests == {
        ("PUT", "journal"): 2,
        ("PUT", "checkpoints"): 1,
        ("PUT", "projections"): 2,
        ("PUT", "lease"): 1,
        ("PUT", "blobs"): 1,
        ("PUT", "internal"): 1,
        ("LIST", "bucket"): 1,
        ("DELETE", "several"): 1,
    }
    assert (tally.count("PUT"), tally.count(kind="journal"), tally.count()) == (8, 2, 10)
    assert tally.up >= 8 * 5 and tally.down > 200
    assert proxy.tally().count() == 11


@pytest.mark.parametrize("fault, arrived", [(drop_before, False), (drop_after, True)])
def test_a_dropped_connection(
    through: Any, seaweedfs: Server, proxy: Proxy, key: str, fault: Any, arrived: bool
) -> None:
    proxy.plant(fault, method="PUT")
    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    assert (there(seaweedfs, key) == BODY) is arrived
    through.put_object(Bucket=BUCKET, Key=key, Body=b"again")  # it strikes once
    assert there(seaweedfs, key) == b"again"
    assert [(each.fault, each.status) for each in proxy.seen] == [(fault.__name__, None), ("", 200)]


@pytest.mark.parametrize("arrives", [False, True])
def test_what_hangs_is_given_up_by_the_client(seaweedfs: Server, proxy: Proxy, key: str, arrives: bool) -> None:
    with proxy.plant(hang(arrives=arrives), method="PUT") as planted:
        with pytest.raises(ReadTimeoutError):
            client(proxy.url, timeout=0.3).put_object(Bucket=BUCKET, Key=key, Body=BODY)
        planted.await_strike()
        if arrives:
            proxy.await_answer(proxy.seen[-1])  # the client may have given up before that
    assert (there(seaweedfs, key) == BODY) is arrives


def test_what_hangs_goes_when_it_is_lifted(proxy: Proxy, key: str, through: Any) -> None:
    planted = proxy.plant(delayed(), method="PUT")
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(through.put_object(Bucket=BUCKET, Key=key, Body=BODY)))
    thread.start()
    planted.await_strike()
    assert not done
    planted.lift()
    thread.join(PATIENCE)
    assert len(done) == 1


def test_a_late_request_arrives_after_those_that_came_after_it(
    through: Any, seaweedfs: Server, proxy: Proxy, key: str
) -> None:
    with proxy.plant(late, method="PUT"):
        with pytest.raises(ConnectionClosedError):
            through.put_object(Bucket=BUCKET, Key=key, Body=b"first")
        through.put_object(Bucket=BUCKET, Key=key, Body=b"second")
        assert there(seaweedfs, key) == b"second"
    proxy.await_answer(proxy.seen[0])
    assert there(seaweedfs, key) == b"first"


@pytest.mark.parametrize(
    "fault, expected, retry_after",
    [
        (internal_error(), (500, "InternalError"), None),
        (slow_down(), (503, "SlowDown"), None),
        (slow_down(retry_after=7), (503, "SlowDown"), "7"),
        (expired_token(), (403, "ExpiredToken"), None),
    ],
)
def test_an_error_of_the_server(
    through: Any,
    seaweedfs: Server,
    proxy: Proxy,
    key: str,
    fault: Any,
    expected: tuple[int, str],
    retry_after: str | None,
) -> None:
    proxy.plant(fault, method="PUT")
    with pytest.raises(ClientError) as error:
        through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    assert code_of(error) == expected
    headers = error.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers.get("retry-after") == retry_after
    assert there(seaweedfs, key) is None


def test_an_error_after_it_was_done(through: Any, seaweedfs: Server, proxy: Proxy, key: str) -> None:
    proxy.plant(internal_error(done=True), method="PUT")
    with pytest.raises(ClientError):
        through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    assert there(seaweedfs, key) == BODY


def test_throttled_until_it_is_lifted(through: Any, proxy: Proxy, key: str) -> None:
    with proxy.plant(slow_down(), times=None) as planted:
        for _ in range(3):
            with pytest.raises(ClientError):
                through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    assert planted.struck == 3


def test_a_body_that_breaks_off_and_one_that_was_shortened(through: Any, proxy: Proxy, key: str) -> None:
    through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    proxy.plant(truncated(), method="GET")
    with pytest.raises(CUT):
        through.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    proxy.plant(shortened(), method="GET")
    assert through.get_object(Bucket=BUCKET, Key=key)["Body"].read() == BODY[: len(BODY) // 2]


def test_a_slow_answer_is_whole(through: Any, proxy: Proxy, key: str) -> None:
    through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    proxy.plant(drip(size=1024, seconds=0.01), method="GET")
    began = time.monotonic()
    assert through.get_object(Bucket=BUCKET, Key=key)["Body"].read() == BODY
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("silent", [True, False])
def test_one_client_is_cut_off_and_the_other_is_not(seaweedfs: Server, key: str, silent: bool) -> None:
    with proxying(seaweedfs.endpoint) as one, proxying(seaweedfs.endpoint) as other:
        mine, theirs, impatient = client(one.url), client(other.url), client(one.url, timeout=0.3)
        mine.put_object(Bucket=BUCKET, Key=key, Body=b"mine")
        with partition(one, silent=silent):
            with pytest.raises((ReadTimeoutError, ConnectionClosedError, EndpointConnectionError)):
                impatient.put_object(Bucket=BUCKET, Key=key, Body=b"mine again")
            theirs.put_object(Bucket=BUCKET, Key=key, Body=b"theirs")
        assert mine.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"theirs"


@pytest.mark.slow  # starts a second server; tests/workspace/store/test_probe.py has the same from a server between
def test_a_bucket_that_knows_no_conditions(moto: Server, key: str) -> None:
    with proxying(moto.endpoint) as proxy:
        through = client(proxy.url)
        with proxy.plant(unconditional(), times=None):
            for data in (b"one", b"two"):
                through.put_object(Bucket=BUCKET, Key=key, Body=data, IfNoneMatch="*")
        with pytest.raises(ClientError):
            through.put_object(Bucket=BUCKET, Key=key, Body=b"three", IfNoneMatch="*")
        assert through.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"two"


def test_a_seeded_fault_strikes_the_same_requests_again(through: Any, proxy: Proxy, key: str) -> None:
    def struck() -> list[bool]:
        found = []
        with proxy.plant(slow_down(), times=None, chance=0.5, seed=7):
            for _ in range(12):
                try:
                    through.head_object(Bucket=BUCKET, Key=key)
                except ClientError as error:
                    found.append(error.response["ResponseMetadata"]["HTTPStatusCode"] == 503)
        return found

    first = struck()
    assert first == struck() and 0 < sum(first) < 12


def test_a_server_that_is_gone_is_a_broken_connection(key: str) -> None:
    from servers import free_ports

    with proxying(f"http://127.0.0.1:{free_ports(1)[0]}") as proxy, pytest.raises(ConnectionClosedError):
        client(proxy.url).head_object(Bucket=BUCKET, Key=key)


def test_the_server_may_end_an_idle_connection(seaweedfs: Server, through: Any, proxy: Proxy, key: str) -> None:
    """The proxy keeps its connections to the server; one that has ended in the meantime is opened again."""
    through.put_object(Bucket=BUCKET, Key=key, Body=BODY)
    for connection in list(proxy._connections):
        if connection._server:
            connection._server.shutdown(2)
    assert through.get_object(Bucket=BUCKET, Key=key)["Body"].read() == BODY
