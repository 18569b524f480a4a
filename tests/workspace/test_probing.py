"""Buckets that don't keep two writers apart are refused, and it is said why."""

from __future__ import annotations

import pytest
from between import Request, between
from servers import Server

from satchel.workspace.errors import UsageError
from satchel.workspace.store import Store, open_store
from satchel.workspace.store.probing import check_conditional_puts, check_exclusive


@pytest.fixture(params=["seaweedfs", "moto"])
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


@pytest.mark.parametrize("dropped", ["if-none-match", "if-match"])
def test_a_server_that_answers_200_to_a_condition_that_does_not_hold_is_refused(moto: Server, dropped: str) -> None:
    def forget(request: Request) -> None:
        request.headers.pop(dropped, None)

    with between(moto.endpoint, forget) as way:
        store = open_store(moto.place(), moto.storage_options(way.endpoint))
        with pytest.raises(UsageError, match="two writers") as refused:
            check_conditional_puts(store)
        assert way.endpoint.removeprefix("http://") in str(refused.value) and dropped in str(refused.value).lower()
        assert refused.value.remedy and "412" in refused.value.remedy
        assert list(store.list(".satchel")) == []


def test_the_file_that_was_tried_with_is_put_right(moto: Server) -> None:
    def forget(request: Request) -> None:
        request.headers.pop("if-none-match", None)

    with between(moto.endpoint, forget) as way:
        store: Store = open_store(moto.place(), moto.storage_options(way.endpoint))
        store.create("journal/1", b"fence")
        with pytest.raises(UsageError):
            check_exclusive(store, "journal/1", b"fence")
        assert open_store(store.url, moto.storage_options()).read("journal/1").data == b"fence"
