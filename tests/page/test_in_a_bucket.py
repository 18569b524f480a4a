"""The page of runs in a bucket, with a real server: the same pages, and few requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from api.test_answering import GRANTING
from servers import Server
from starlette.testclient import TestClient

import satchel
from satchel.runtime.api import Latest, Overview
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site
from satchel.workspace.store.s3 import Requests

from .acts import OURS, Person


@pytest.mark.slow
def test_a_bucket_is_asked_for_each_run_and_browser(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = seaweedfs.place()
    bucket, _, prefix = root.removeprefix("s3://").partition("/")
    for run in ("mail/letters", "mail/other", "third"):
        run_id = run.rpartition("/")[2]
        files = {"workspace.yaml": f"format: 1\nrun_id: {run_id}\nagent: agent.py:main\n", "agent.py": GRANTING}
        for path, text in files.items():
            seaweedfs.client.put_object(Bucket=bucket, Key=f"{prefix}/{run}/{path}", Body=text.encode())
    satchel.open(f"{root}/mail/letters").run()

    asked: list[str] = []
    answer = Requests._answer

    async def counted(requests: Requests, method: str, arguments: Any, seconds: float) -> Any:
        asked.append(method)
        return await answer(requests, method, arguments, seconds)

    monkeypatch.setattr(Requests, "_answer", counted)
    overview = Overview(root)
    client = TestClient(make_app(Site(overview)), base_url="http://127.0.0.1", raise_server_exceptions=False)
    overview.look()
    monkeypatch.setattr(overview, "_due", float("inf"))
    first = client.get("/").text
    assert 'href="/run/mail/letters"' in first and "Grant?" in first and root in first
    asked.clear()
    for _ in range(5):
        assert client.get("/").text.count('scope="row"') == 3
    assert not asked, "browsers share a look"
    overview.look(now=True)
    assert len(asked) == 1, "one listing shows that no run has changed"

    page = client.get("/run/mail/letters").text
    assert 'id="question-a1"' in page and "Grant?" in page
    for path in ("log", "at/latest", "at/3", "diff?old=3", "plan", "messages", "files", "blame"):
        assert client.get(f"/run/mail/letters/-/{path}").status_code == 200, path
    latest = Latest(satchel.open(f"{root}/mail/letters"))
    shot = latest.look()
    asked.clear()
    assert latest.look() is shot and len(asked) == 1 and latest.rest >= 1.5


@pytest.mark.slow
def test_a_new_run_in_a_bucket_is_made_elsewhere(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From a sample, since a run in a bucket is no template. What its process prints is on this machine."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Person(seaweedfs.place(), "mine") as person:
        client = person.client
        person.text = client.get("/-/new?sample=digest").text
        typed = {"form_token": person.field("form_token"), "sample": "digest", "name": "mine", "set.limit": "1"}
        typed |= {"set.words_per_second": "0", "set.sources": str(tmp_path / "a.md")}
        (tmp_path / "a.md").write_text("The harbour is open. The tide is high. The ships wait for the wind.")
        made = client.post("/-/act/new", data=typed, headers=OURS)
        assert made.status_code == 200 and "was made from the sample digest" in made.text, made.text
        handle = satchel.open(f"{person.site.overview.url}/mine")
        assert handle.wait().status == "completed"
        assert "start of a process" in person.read("process")
        assert "From a run" not in client.get("/-/new").text
        assert client.get("/-/new?run=mine").status_code == 400
