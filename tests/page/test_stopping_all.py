"""The stop of all runs below the root: what it says before and after, and whom it kills."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import PLAIN

import satchel
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.formats import pause_file

pytest.importorskip("starlette")

from satchel.runtime.faces.web import listing
from satchel.runtime.supervision import StopResult
from satchel.runtime.supervision.child import is_alive

from .acts import OURS, Person
from .conftest import make

HOLDING = """
import asyncio
from satchel import agent, step

@step
async def hold():
    await asyncio.sleep(1000)

@agent
async def main(run):
    await hold()
"""


def ask(person: Person) -> str:
    found = person.client.get("/-/stop-all")
    person.status, person.text = found.status_code, found.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found.text)).split())


def press(person: Person, **fields: str) -> list[str]:
    """Send the form. Returns the lines of what was done."""
    form = {"form_token": person.field("form_token"), **fields}
    found = person.client.post("/-/act/stop-all", data=form, headers=OURS)
    person.status, person.text = found.status_code, found.text
    note = found.text.partition('id="note">')[2].partition("</div>")[0]
    return [unescape(line) for line in re.findall("<p>(.*?)</p>", note)]


def test_not_all_are_dead_or_one_outside_is(tmp_path: Path) -> None:
    """On a disk they are dead when the page answers, and it says so for each."""
    outside = make(tmp_path / "outside/c")
    (tmp_path / "runs/team").mkdir(parents=True)
    (tmp_path / "runs/link").symlink_to(tmp_path / "outside")
    active = make(tmp_path / "runs/team/active", HOLDING)
    make(tmp_path / "runs/done").run()
    make(tmp_path / "runs/fresh")
    started = active.detach()
    try:
        holder = active.status(brief=True).holder
        assert started.exit_code is None and holder
        with Person(tmp_path / "runs") as person:
            assert 'href="/-/stop-all"' in person.client.get("/").text
            asked = ask(person)
            assert "1 active run team/active" in asked and "Kill 1 active run and stop all" in asked
            assert "The 2 other runs get a pause.yaml" in asked and active.status(brief=True).holder
            first, *each = press(person, reason="wrong <recipients>")
            assert not any(is_alive(each.pid, each.process_started) for each in (holder, holder.supervisor) if each)
            assert active.status(brief=True).holder is None
            assert first == "Of 3 runs: 1 stopped, 1 not running, 1 never begun and left alone."
            assert each[0].startswith("team/active: Stopped: 2 processes killed")
            assert sorted(line.partition(": Nothing was running")[0] for line in each[1:]) == ["done"]
            assert "No run is active" in person.text and "Resume" in person.client.get("/run/team/active").text
        paused = pause_file.parse((tmp_path / "runs/team/active/pause.yaml").read_bytes())
        assert paused.reason == "wrong <recipients>" and not (tmp_path / "runs/fresh/pause.yaml").exists()
    finally:
        active.stop()
    assert not (tmp_path / "outside/c/pause.yaml").exists() and outside.status().state == "new"


def test_a_run_is_stopped_by_a_look_or_by_another_site(tmp_path: Path) -> None:
    make(tmp_path / "runs/a")
    with Person(tmp_path / "runs") as person:
        ask(person)
        assert person.client.get("/-/act/stop-all").status_code in (404, 405)
        assert person.client.post("/-/stop-all", headers=OURS).status_code in (403, 405, 415)
        assert person.client.post("/-/act/stop-all", data={"reason": "x"}, headers=OURS).status_code == 403
        form = {"form_token": person.field("form_token")}
        evil = {"origin": "https://evil.example"}
        assert person.client.post("/-/act/stop-all", data=form, headers=evil).status_code == 403
    assert not (tmp_path / "runs/a/pause.yaml").exists()


def test_what_a_person_typed_is_lost_or_an_error_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs/a")
    with Person(tmp_path / "runs") as person:
        ask(person)

        def fails(root: str) -> list[satchel.Handle]:
            raise StorageFailed("does not answer", path=root)

        monkeypatch.setattr(listing.api, "open_all", fails)
        assert press(person, reason="fire & flood") == [] and person.status == 422
        assert "does not answer" in person.text and "Nothing was done" in person.text
        assert person.field("reason") == "fire & flood"


def test_a_run_that_may_still_be_active_is_not_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other machines obey within one poll, and some can't be stopped: a person has to know which."""
    made = [make(tmp_path / f"runs/{name}", PLAIN) for name in ("a", "b", "c", "d", "e")]
    urls = [each.url for each in made]
    hows: Any = ("idle", "stopped", "failed", "elsewhere", "draining")
    said = ("", "", "the disk is full", "process 7 on far runs it", "")

    def stop_all(places: Iterable[object], *, reason: str) -> list[StopResult]:
        assert len([*places]) == 5 and reason == "emergency"
        return [
            StopResult(url, how, (3,) if how == "stopped" else (), why)
            for url, how, why in zip(urls, hows, said, strict=True)
        ]

    monkeypatch.setattr(listing.api, "stop_all", stop_all)
    with Person(tmp_path / "runs") as person:
        ask(person)
        lines = press(person)
        assert 'class="notice bad"' in person.text
    assert lines[0] == (
        "Of 5 runs: 1 not stopped, 1 asked to stop on another machine, 1 stopping, 1 stopped, 1 not running."
    )
    assert lines[1] == "c: Not stopped (the disk is full)."
    assert lines[2].startswith("d: Asked to stop") and "one poll" in lines[2] and "process 7 on far" in lines[2]
    assert [line[:2] for line in lines[3:]] == ["e:", "b:", "a:"] and "1 process killed" in lines[4]


def test_many_runs_make_a_huge_page(tmp_path: Path) -> None:
    make(tmp_path / "runs/a")
    with Person(tmp_path / "runs") as person:
        several = [StopResult(f"{person.site.overview.url}/r{n}", "idle") for n in range(2000)]
        lines = listing._outcomes(person.site, several)
    assert len(lines) == 502 and lines[0] == "Of 2,000 runs: 2,000 not running." and "1500 more" in lines[-1]
