"""Buckets that don't keep two writers apart are refused, and it is said why."""

from __future__ import annotations

import pytest
from between import Answer, Meddling, Request, between
from servers import Server

from satchel.workspace.base.errors import UsageError
from satchel.workspace.store import Store, open_store
from satchel.workspace.store.registry import check_conditional_puts, check_exclusive


@pytest.fixture(params=["seaweedfs", pytest.param("moto", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Server:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, Server)
    return server


def test_a_bucket_with_conditional_writes_passes_and_keeps_nothing_of_it(server: Server) -> None:
    with between(server.endpoint) as way:
        store = open_store(server.place(), server.storage_options(way.endpoint))
        check_conditional_puts(store)
        assert way.count() <= 9
    assert list(store.list(".satchel")) == []
    store.create("a", b"1")
    check_exclusive(store, "a", b"1")
    assert store.read("a").data == b"1"


def forgetting(header: str, server: Server) -> Meddling:
    """A server that does not know a condition. SeaweedFS checks a signature over it, so there only the answer lies, to
    the second that is asked: the first is one that holds."""
    asked: list[Request] = []

    def lie(request: Request) -> Answer | None:
        if header in request.headers:
            asked.append(request)
        return Answer(200, headers={"ETag": '"0"'}, body="<Done/>") if asked[1:] == [request] else None

    return lie if server.kind != "moto" else lambda request: request.headers.pop(header, None) and None


@pytest.mark.parametrize("dropped", ["if-none-match", "if-match"])
def test_a_server_that_answers_200_to_a_condition_that_does_not_hold_is_refused(server: Server, dropped: str) -> None:
    with between(server.endpoint, forgetting(dropped, server)) as way:
        store = open_store(server.place(), server.storage_options(way.endpoint))
        with pytest.raises(UsageError, match="two writers") as refused:
            check_conditional_puts(store)
        assert way.endpoint.removeprefix("http://") in str(refused.value) and dropped in str(refused.value).lower()
        assert refused.value.remedy and "412" in refused.value.remedy
        assert list(store.list(".satchel")) == []


@pytest.mark.slow
def test_the_file_that_was_tried_with_is_put_right(moto: Server) -> None:
    with between(moto.endpoint, forgetting("if-none-match", moto)) as way:
        store: Store = open_store(moto.place(), moto.storage_options(way.endpoint))
        store.create("journal/1", b"fence")
        with pytest.raises(UsageError):
            check_exclusive(store, "journal/1", b"fence")
        assert open_store(store.url, moto.storage_options()).read("journal/1").data == b"fence"
