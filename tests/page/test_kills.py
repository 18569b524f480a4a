"""`satchel page` is killed in the middle of acts: what it has confirmed is there once, and nothing is half done."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from html import unescape
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlencode

import pytest
from api.test_answering import GRANTING

pytest.importorskip("starlette")

from .chrome import Served
from .conftest import make

pytestmark = pytest.mark.slow

KILLS = 12


class Browser:
    """Sends forms, each in a connection of its own."""

    def __init__(self, served: Served):
        self._served = served
        self._cookie = self._token = ""

    def read(self) -> None:
        found = self._ask("GET", "/run/a", None)
        self._cookie = found[1]["set-cookie"].partition(";")[0]
        self._token = found[2].partition('name="form_token" value="')[2].partition('"')[0]

    def act(self, act: str, **fields: str) -> int:
        """The status; 0 if there was no answer."""
        try:
            return self._ask("POST", f"/run/a/-/act/{act}", {"form_token": self._token, **fields})[0]
        except (OSError, HTTPException):
            return 0

    def add(self, item: str) -> int:
        """Append an item to todo.md in the editor of the page. The status; 0 if there was no answer."""
        try:
            page = self._ask("GET", "/run/a/-/edit?file=todo.md", None)[2]
        except (OSError, HTTPException):
            return 0
        text = unescape(page.partition('name="text"')[2].partition(">\n")[2].partition("</textarea>")[0])
        version = unescape(page.partition('name="version" value="')[2].partition('"')[0])
        begin, stamp, rest = text.partition("\n<!-- satchel")
        assert stamp, text
        return self.act("edit", file="todo.md", version=version, text=f"{begin}- [ ] {item}\n{stamp}{rest}")

    def _ask(self, method: str, path: str, form: dict[str, str] | None) -> tuple[int, dict[str, str], str]:
        connection = HTTPConnection("127.0.0.1", self._served.port, timeout=60)
        headers = {"cookie": self._cookie, "origin": self._served.url}
        if form is not None:
            headers["content-type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, path, urlencode(form) if form is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()


def test_a_kill_loses_or_doubles_an_act(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a", GRANTING)
    made.run()
    seed = int(os.environ.get("SATCHEL_SEED", "20261124"))
    print("seed", seed)
    chance = random.Random(seed)
    confirmed: list[str] = []
    tried: list[str] = []
    added: list[str] = []
    with Served(str(tmp_path / "runs")) as served:
        for kill in range(KILLS):
            browser = Browser(served)
            browser.read()
            kill_at = chance.randint(0, 6)
            timer: threading.Timer | None = None
            process = served.process
            assert process is not None
            for number in range(8):
                if number == kill_at:
                    timer = threading.Timer(chance.random() * 0.03, process.send_signal, [signal.SIGKILL])
                    timer.start()
                tried.append(f"task {kill}.{number}")
                if browser.act("send", text=tried[-1]) == 303:
                    confirmed.append(tried[-1])
                if kill % 3 == 1:
                    browser.act("pause", reason=tried[-1])
                if kill % 3 == 2 and browser.add(f"item {kill}.{number}") == 303:
                    added.append(f"- [ ] item {kill}.{number}\n")
            assert timer is not None
            timer.join()
            served.end(signal.SIGKILL)
            served.start()
        browser = Browser(served)
        browser.read()
        assert browser.act("answer", question="a1", decision="deny") == 303
    found = Counter(path.read_text().strip() for path in (tmp_path / "runs/a/inbox").iterdir())
    assert confirmed and all(found[each] == 1 for each in confirmed)
    assert set(found) <= set(tried) and max(found.values()) == 1
    plan = (tmp_path / "runs/a/todo.md").read_text()
    assert added and [each for each in added if each not in plan] == []
    assert not made.check().problems
    assert [row.record["decision"] for row in made.history.log(type="approval.answered")] == ["deny"]
