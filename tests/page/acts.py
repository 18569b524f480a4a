"""A person at the forms of a page in this process, without JavaScript."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any

from starlette.testclient import TestClient

from satchel.runtime.api import Overview
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site

OURS = {"origin": "http://127.0.0.1"}


class Person:
    """Reads pages of one root, and sends their forms as a browser does."""

    def __init__(self, root: Path | str, name: str = ""):
        self.site = Site(Overview(root))
        self.client = TestClient(make_app(self.site), base_url="http://127.0.0.1", follow_redirects=True)
        self.name = name
        self.status = 0
        self.text = ""

    def __enter__(self) -> Person:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()

    def read(self, below: str = "", **query: str) -> str:
        """A page of the run."""
        found = self.client.get(f"/run/{self.name}" + (f"/-/{below}" if below else ""), params=query)
        self.status, self.text = found.status_code, found.text
        return self.text

    def field(self, name: str) -> str:
        """What the page has put into a field."""
        found = re.search(rf'<textarea[^>]* name="{name}"[^>]*>\n(.*?)</textarea>', self.text, re.DOTALL)
        found = found or re.search(rf'<input[^>]* name="{name}"[^>]* value="([^"]*)"', self.text)
        assert found, f"no field {name} in {self.text}"
        return unescape(found[1])

    def act(self, act: str, **fields: str) -> str:
        """Send the form on the page that was read last. Returns what the page says then."""
        if "form_token" not in self.text:
            self.read()
        form: dict[str, Any] = {"form_token": self.field("form_token"), **fields}
        found = self.client.post(f"/run/{self.name}/-/act/{act}", data=form, headers=OURS)
        self.status, self.text = found.status_code, found.text
        said = re.findall(r'id="(?:note|problem)">(.*?)</div>', self.text, re.DOTALL)
        return unescape(re.sub(r"<[^>]*>", " ", " ".join(said)))
