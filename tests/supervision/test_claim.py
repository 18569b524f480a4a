"""The claim to start a run: two processes make it, or one that is left over keeps a run from being started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace
from servers import Server as S3

from satchel.runtime.supervision import known_run
from satchel.runtime.supervision.known_run import Claim
from satchel.workspace.inspect import lease
from satchel.workspace.store import Store, open_store

Again = Callable[[], Store]


@pytest.fixture(params=["disk", "bucket"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Again:
    """Another store of the place of a workspace."""
    if request.param == "disk":
        return lambda: open_store(str(tmp_path))
    s3: S3 = request.getfixturevalue("seaweedfs")
    url = s3.place()
    return lambda: open_store(url, s3.storage_options())


def test_two_have_the_claim_or_it_stays_taken(again: Again) -> None:
    first, second = Claim(again()), Claim(again())
    assert first.take("a")
    assert not Claim(again()).take("a") and not second.take("a")
    first.release()
    first.release()
    assert Claim(again()).take("a")


def test_two_that_have_seen_no_claim_both_get_it(again: Again) -> None:
    one, other = again(), again()
    assert one.version(lease.CLAIM) is None and other.version(lease.CLAIM) is None
    assert Claim(one).take("a") and not Claim(other).take("a")


@pytest.mark.parametrize("of", ["a dead process", "no process"])
def test_a_claim_that_is_left_over_holds_a_run_up(again: Again, of: str) -> None:
    store = again()
    left = replace(lease.mine(store, "a", 0), pid=2**31 - 1)
    store.create(lease.CLAIM, lease.encode(left) if of == "a dead process" else b"[" * 9000)
    assert Claim(again()).take("a")


def test_a_claim_of_a_lost_machine_holds_a_run_up_for_ever(again: Again, monkeypatch: pytest.MonkeyPatch) -> None:
    store = again()
    store.create(lease.CLAIM, lease.encode(replace(lease.mine(store, "a", 0), host="lost")))
    waiting, late = Claim(again()), Claim(again())
    assert not waiting.take("a") and not late.take("a")
    later = time.monotonic() + 61
    monkeypatch.setattr(known_run, "time", mock.Mock(monotonic=lambda: later))
    assert waiting.take("a") and not late.take("a"), "one of two takes it over"


def test_a_claim_of_another_process_is_released(again: Again) -> None:
    mine, store = Claim(again()), again()
    assert mine.take("a")
    others = store.replace(lease.CLAIM, lease.encode(replace(lease.mine(store, "a", 0), host="other")))
    mine.release()
    assert again().version(lease.CLAIM) == others
