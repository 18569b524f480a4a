"""The path to a model, over real HTTP: what is asked for once is not asked for again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import Outcome

from . import folder
from .endpoint import Endpoint, Request, answer_for, half, serving

NAMES = ["0-rivers.md", "1-bridges.md", "2-harbours.md", "3-lighthouses.md"]
ANSWERS = {name: answer_for(name) for name in NAMES}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with serving() as endpoint:
        for name, value in endpoint.environment.items():
            monkeypatch.setenv(name, value)
        yield endpoint


@pytest.fixture
def path(tmp_path: Path, documents: Path) -> Path:
    return folder.make(tmp_path / "run", sources=str(documents), model="a-model")


def completed(outcome: Outcome) -> bool:
    if outcome.error:
        raise outcome.error
    return outcome.status == "completed"


def test_each_document_is_asked_about_once(endpoint: Endpoint, path: Path) -> None:
    assert completed(satchel.run(path))
    assert endpoint.asked() == NAMES
    assert folder.summaries(path) == ANSWERS
    assert f"\nSummaries: the model a-model at {endpoint.url}.\n" in folder.brief(path)
    request = endpoint.requests[0]
    assert (request.body["model"], request.body["stream"]) == ("a-model", True)
    assert request.headers["authorization"] == "Bearer a-key"
    assert "Old maps show rivers in great detail" in request.texts[0]
    assert "3 sentences" in request.texts[0]


@pytest.mark.slow
def test_after_a_kill_the_model_gets_the_marker_and_its_own_text_and_goes_on(endpoint: Endpoint, path: Path) -> None:
    is_killed = threading.Event()

    def stop_halfway(reply: Any, request: Request) -> None:
        reply.begin()
        reply.say(half(request))
        is_killed.wait(folder.PATIENCE)
        reply.drop()

    endpoint.faults.extend([None, stop_halfway])
    first_half = half_of(NAMES[1])
    try:
        folder.run_and_kill(path, lambda: folder.partial_of(path, 2) == first_half, endpoint.environment)
    finally:
        is_killed.set()
    outcome = folder.run_to_end(path, endpoint.environment)
    assert outcome == {"status": "completed", "error": "None", "recovered": len(first_half)}
    assert endpoint.asked() == [NAMES[0], NAMES[1], NAMES[1], NAMES[2], NAMES[3]]
    again = endpoint.requests[2]
    (recovered,) = path.glob("recovered/2-*/*.md")
    marker = recovered.read_text().splitlines()[-1]
    assert marker.startswith(f"[recovered: the answer of attempt 1 was cut off after {len(first_half)} characters")
    assert again.so_far == first_half
    assert again.texts[-1].startswith(marker + "\nContinue the answer exactly where it stops")
    assert folder.summaries(path) == ANSWERS
    assert folder.calls_done_twice(path) == []


def test_a_connection_that_drops_in_mid_stream_is_continued_with_the_marker(endpoint: Endpoint, path: Path) -> None:
    expected = half_of(NAMES[2])

    def drop(reply: Any, request: Request) -> None:
        reply.begin()
        reply.say(half(request))
        # A reset may take with it what has been sent and not read.
        folder.wait_until(lambda: folder.partial_of(path, 3) == expected)
        reply.drop()

    endpoint.faults.extend([None, None, drop])
    assert completed(satchel.run(path))
    assert endpoint.asked() == [*NAMES[:3], NAMES[2], NAMES[3]]
    again = endpoint.requests[3]
    assert again.so_far == expected
    assert f"was cut off after {len(expected)} characters by " in again.texts[-1]
    assert folder.summaries(path) == ANSWERS


def test_an_answer_without_its_end_does_not_pass_for_a_whole_one(endpoint: Endpoint, path: Path) -> None:
    def end_early(reply: Any, request: Request) -> None:
        reply.begin()
        reply.say(half(request))
        reply.end(None)

    endpoint.faults.append(end_early)
    assert completed(satchel.run(path))
    assert endpoint.requests[1].so_far == half_of(NAMES[0])
    assert "Incomplete: the answer stopped before its end" in endpoint.requests[1].texts[-1]
    assert folder.summaries(path) == ANSWERS


def test_a_rate_limit_is_waited_for_as_long_as_the_server_asks(endpoint: Endpoint, path: Path) -> None:
    def limit(reply: Any, request: Request) -> None:
        reply.refuse(429, "slow down", {"Retry-After": "2"})

    endpoint.faults.append(limit)
    assert completed(satchel.run(path))
    assert endpoint.asked() == [NAMES[0], *NAMES]
    assert endpoint.requests[1].at - endpoint.requests[0].at >= 2.0
    assert endpoint.requests[1].so_far == ""


def test_a_wrong_key_fails_at_once_and_says_so(endpoint: Endpoint, path: Path) -> None:
    def refuse(reply: Any, request: Request) -> None:
        reply.refuse(401, "Incorrect API key provided: a-key")

    endpoint.faults.append(refuse)
    outcome = satchel.run(path)
    assert outcome.status == "failed"
    assert "401" in str(outcome.error)
    assert "Incorrect API key provided" in str(outcome.error)
    assert len(endpoint.requests) == 1
    # With the right key it goes on.
    assert completed(satchel.run(path))
    assert endpoint.asked() == [NAMES[0], *NAMES]


def test_another_model_does_not_go_on_with_the_answer_of_the_first(endpoint: Endpoint, path: Path) -> None:
    folder.change(path, words_per_second=300)
    folder.run_until_it_dies(path, 2, 50)
    assert completed(satchel.run(path))
    assert endpoint.asked() == NAMES[1:]
    assert all(request.so_far == "" for request in endpoint.requests)
    assert folder.brief(path).count("\nSummaries: ") == 2


def test_without_the_client_it_says_what_to_install(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.setitem(sys.modules, "openai", None)
    outcome = satchel.run(path)
    assert outcome.status == "failed"
    assert "pip install 'satchel[openai]'" in str(outcome.error)


def half_of(name: str) -> str:
    return ANSWERS[name][: len(ANSWERS[name]) // 2]
