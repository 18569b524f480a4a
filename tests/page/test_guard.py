"""What a strange site, a strange name and a stranger without the token can't do."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from satchel.runtime.faces.http import Address, Names, access, bound, given_token
from satchel.runtime.faces.web import server
from satchel.runtime.faces.web import site as site_module
from satchel.runtime.faces.web.server import Access, Guard, Rules
from satchel.workspace.base.errors import UsageError

TOKEN = "correct-horse-battery"
OURS = {"origin": "http://127.0.0.1:8420", "sec-fetch-site": "same-origin"}
ENVIRONMENT = Environment(
    loader=FileSystemLoader(site_module.FOLDER / "templates"), autoescape=True, undefined=StrictUndefined
)
ENVIRONMENT.filters.update(site_module.FILTERS)


class Page:
    """An app that notes each form that reaches it, behind a guard."""

    def __init__(self, rules: Rules | None = None, base: str = "http://127.0.0.1:8420"):
        self.done: list[list[tuple[str, str]]] = []
        self.base = base
        self.start(rules or Rules())
        self.client: Any = self.browser()

    def start(self, rules: Rules) -> None:
        routes = [Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT"])]
        self.app = Guard(
            Starlette(routes=routes), rules, lambda name, **facts: ENVIRONMENT.get_template(name).render(facts)
        )

    def browser(self) -> Any:
        return TestClient(self._call, base_url=self.base, follow_redirects=False)

    async def _call(self, *arguments: Any) -> None:
        await self.app(*arguments)

    async def _answer(self, request: Request) -> Response:
        if request.method == "POST":
            assert await request.body(), "the app can read the body, too"
            self.done.append([each for each in request.state.form if each[0] != "form_token"])
            return PlainTextResponse("done")
        return PlainTextResponse(request.state.form_token)

    def form(self, **fields: str) -> dict[str, str]:
        """A form that this page has shown."""
        return {"form_token": self.client.get("/").text, **fields}


def test_a_form_of_the_page_is_refused() -> None:
    page = Page()
    assert page.client.post("/act", data=page.form(text="a\r\nb & ü"), headers=OURS).text == "done"
    assert page.done == [[("text", "a\nb & ü")]]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:8420.evil.example"},
        {"origin": "http://[", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8420"},
        {"sec-fetch-site": "none", "origin": "http://127.0.0.1:8420"},
        {"sec-fetch-site": "cross-site", "origin": "null"},
        {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    ],
)
def test_a_form_of_another_site_is_done(headers: dict[str, str]) -> None:
    page = Page()
    assert page.client.post("/act", data=page.form(), headers=headers).status_code == 403
    assert not page.done


@pytest.mark.parametrize("headers", [{"origin": OURS["origin"]}, {"sec-fetch-site": "same-origin", "origin": "null"}])
def test_a_browser_that_says_less_is_locked_out(headers: dict[str, str]) -> None:
    page = Page()
    assert page.client.post("/act", data=page.form(), headers=headers).status_code == 200


def test_a_form_without_its_token_is_done() -> None:
    page, other = Page(), Page()
    own = page.form()["form_token"]
    for token in ("", "0" * 64, own[:-1], own.upper(), "ü", other.form()["form_token"]):
        assert page.client.post("/act", data={"form_token": token}, headers=OURS).status_code == 403
    assert page.client.post("/act", data={"x": "y"}, headers=OURS).status_code == 403
    stranger = page.browser()
    assert stranger.post("/act", data={"form_token": own}, headers=OURS).status_code == 403, "of another browser"
    assert not page.done


def test_what_was_typed_is_lost_when_the_page_restarts() -> None:
    page = Page()
    typed = 'a "quoted" </textarea><script>alert(1)</script>\nline & more'
    form = page.form(text=typed, file="todo.md")
    page.start(Rules())
    again = page.client.post("/run/a%20b/-/act/edit", data=form, headers=OURS)
    assert again.status_code == 403 and not page.done and "<script>alert" not in again.text
    assert re.search('action="([^"]*)"', again.text)[1] == "/run/a%20b/-/act/edit"  # type: ignore[index]
    from html import unescape

    fields = {name: unescape(value) for name, value in re.findall('name="([^"]*)" value="([^"]*)"', again.text)}
    assert page.client.post("/act", data=fields, headers=OURS).text == "done"
    assert sorted(page.done[0]) == [("file", "todo.md"), ("text", typed)]


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("127.0.0.1:8420", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8420", True),
        ("[::1]", True),
        ("runs.example.org", True),
        ("runs.example.org:443", True),
        ("evil.example", False),
        ("evil.example:8420", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("localhost.evil.example", False),
        ("192.0.2.7", False),
        ("[2001:db8::1]:8420", False),
        ("localhost:x", False),
        ("runs.example.org.", False),
        ("localhost@evil.example", False),
        ("::1", False),
    ],
)
def test_a_strange_name_leads_here(host: str, is_served: bool) -> None:
    page = Page(Rules(Names(("Runs.example.org",))))
    assert page.client.get("/", headers={"host": host}).status_code == (200 if is_served else 421)


def test_an_address_of_this_machine_is_no_name_of_it() -> None:
    page = Page(Rules(Names(any_address=True), TOKEN))
    known = [page.client.get("/", headers={"host": host}).status_code for host in ("192.0.2.7:80", "[2001:db8::1]")]
    assert known == [401, 401] and page.client.get("/", headers={"host": "evil.example"}).status_code == 421


def test_two_hosts_are_taken_for_one() -> None:
    page = Page()
    found = page.client.get("/", headers=[("host", "127.0.0.1"), ("host", "evil.example")])
    assert found.status_code == 421


def test_another_site_reads_the_page_or_makes_it_work() -> None:
    page = Page()
    for site in ("cross-site", "same-site"):
        assert page.client.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}).status_code == 403
        linked = page.client.get("/", headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"})
        assert linked.status_code == 200, "a link may lead here"


@pytest.mark.parametrize("path", ["/", "/static/page.css", "/nothing"])
def test_an_answer_lets_others_in(path: str) -> None:
    headers = Page().client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and "base-uri 'none'" in policy and "form-action 'self'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == ("no-cache" if "static" in path else "no-store")
    assert headers["referrer-policy"] == "same-origin" and "server" not in headers


def test_a_refusal_lacks_the_policy() -> None:
    page = Page(Rules(token=TOKEN))
    for found in (page.client.get("/"), page.client.get("/", headers={"host": "x"}), page.client.put("/")):
        assert found.status_code in (401, 421, 405) and "default-src 'none'" in found.headers["content-security-policy"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "BREW"])
def test_an_unknown_method_reaches_the_app(method: str) -> None:
    found = Page().client.request(method, "/")
    assert (found.status_code, found.headers["allow"]) == (405, "GET, HEAD, POST")


def test_a_huge_or_odd_form_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    form = page.form()
    monkeypatch.setattr(server, "BODY_LIMIT", 500)
    assert page.client.post("/", data={**form, "text": "x" * 500}, headers=OURS).status_code == 413
    assert page.client.post("/", json=form, headers=OURS).status_code == 415
    assert page.client.post("/", files={"a": b"x"}, data=form, headers=OURS).status_code == 415
    kind = {**OURS, "content-type": "application/x-www-form-urlencoded"}
    for body in (b"form_token=\xff", b"&".join([b"a=b"] * 300), b"a=%ff"):
        monkeypatch.setattr(server, "BODY_LIMIT", 5000)
        assert page.client.post("/", content=body, headers=kind).status_code == 403
    assert not page.done


def test_a_form_that_never_comes_is_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "FORM_PATIENCE", 0.0)
    headers = [(b"host", b"127.0.0.1:8420"), (b"content-type", b"application/x-www-form-urlencoded")]
    headers += [(name.encode(), value.encode()) for name, value in OURS.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    sent: list[Any] = []

    async def visit() -> None:
        never = asyncio.Event()

        async def receive() -> Any:
            if not sent:
                sent.append(None)
                return {"type": "http.request", "body": b"form_token=", "more_body": True}
            await never.wait()

        async def send(message: Any) -> None:
            sent.append(message)

        await Page().app(scope, receive, send)

    asyncio.run(visit())
    assert sent[1]["status"] == 408 and (b"connection", b"close") in sent[1]["headers"]


def test_a_stranger_sends_more_than_a_token() -> None:
    page = Page(Rules(token=TOKEN))
    long = page.client.post("/-/login", data={"token": "x" * server.LOGIN_LIMIT}, headers=OURS)
    assert long.status_code == 413


def test_the_page_is_open_without_its_token() -> None:
    page = Page(Rules(token=TOKEN))
    asked = page.client.get("/run/a?b=c")
    assert asked.status_code == 401 and 'value="/run/a?b=c"' in asked.text and TOKEN not in asked.text
    assert page.client.get("/static/page.css").status_code == 200, "the form has a style"
    for given in ("", "wrong", f"{TOKEN}x", TOKEN[:-1], "ü"):
        wrong = page.client.post("/-/login", data={"token": given}, headers=OURS)
        assert wrong.status_code == 401 and not wrong.headers.get("set-cookie", "").startswith("satchel-0")
        assert page.client.get("/", params={"token": given}).status_code == 401
    assert page.client.post("/act", data={"token": TOKEN}, headers=OURS).status_code == 401, "only by the login form"
    assert page.client.get("/", headers={"cookie": f"satchel-00000000={TOKEN}; a[b]=c; =; x"}).status_code == 401
    assert not page.done


@pytest.mark.parametrize("by", ["link", "form", "cookie"])
def test_tokens_can_be_guessed_as_fast_as_they_are_sent(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page, waited = Page(Rules(token=TOKEN)), list[float]()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(access, "PAUSE", 1000.0)  # so that no time passes between two
    monkeypatch.setattr(access, "sleep", sleep)
    assert page.client.get(f"/?token={TOKEN}").status_code == 303
    (cookie,) = [each for each in page.client.cookies if each != "satchel-form"]
    assert page.client.get("/").status_code == 200

    def show(token: str) -> int:
        stranger = page.browser()
        if by == "link":
            return stranger.get("/", params={"token": token}).status_code
        if by == "form":
            return stranger.post("/-/login", data={"token": token}, headers=OURS).status_code
        shown = page.client.cookies[cookie] if token == TOKEN else token
        return stranger.get("/", headers={"cookie": f"{cookie}={shown}"}).status_code

    assert [show("the-old-token-of-a-tab") for _ in range(50)] == [401] * 50 and not waited
    tries = access.FREE + access.WAITING - 1
    assert [show(f"wrong-{number}") for number in range(tries)] == [401] * tries
    assert len(waited) == access.WAITING and waited == sorted(waited) and waited[-1] > 9000
    assert [show("wrong"), show(TOKEN)] == [429, 429], "another try would be free"
    assert page.client.get("/").status_code == 200, "who is at work already can't go on"
    monkeypatch.setattr(access, "PAUSE", 10_000.0)  # as if time had passed
    assert show(TOKEN) in (200, 303)


@pytest.mark.parametrize("by", ["link", "form"])
def test_the_token_opens_no_page(by: str) -> None:
    page = Page(Rules(token=TOKEN))
    if by == "link":
        found = page.client.get(f"/run/a%20b?q=x&token={TOKEN}")
        assert found.headers["location"] == "/run/a%20b?q=x"
    else:
        found = page.client.post("/-/login", data={"token": f" {TOKEN}\n", "next": "/run/a%20b"}, headers=OURS)
        assert found.headers["location"] == "/run/a%20b"
    assert found.status_code == 303
    (cookie,) = [each for each in found.headers.get_list("set-cookie") if "satchel-form" not in each]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie and "Path=/" in cookie
    assert page.client.get("/?q=token=1").status_code == 200
    assert page.client.post("/act", data=page.form(), headers=OURS).text == "done"
    assert page.client.get("/-/login").headers["location"] == "/"
    page.start(Rules(token=TOKEN))
    assert page.client.get("/").status_code == 200, "a restart forgets nobody"
    page.start(Rules(token="another-token-of-today"))
    assert page.client.get("/").status_code == 401


def test_a_cookie_over_tls_is_sent_without_tls() -> None:
    page = Page(Rules(token=TOKEN), base="https://127.0.0.1:8420")
    assert all("secure" in each.lower() for each in page.client.get(f"/?token={TOKEN}").headers.get_list("set-cookie"))


def test_a_link_on_another_site_asks_for_the_token_again() -> None:
    """The browser sends no strict cookie with it, but does so when the page asks again."""
    page = Page(Rules(token=TOKEN))
    found = page.client.get("/run/a", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert found.status_code == 200 and 'http-equiv="refresh"' in found.text


@pytest.mark.parametrize(
    "next_", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\r\nx: y"]
)
def test_the_login_leads_elsewhere(next_: str) -> None:
    page = Page(Rules(token=TOKEN))
    found = page.client.post("/-/login", data={"token": TOKEN, "next": next_}, headers=OURS)
    assert found.headers["location"] == "/" and "x" not in found.headers


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "runs.example.org"])
def test_other_machines_need_no_token(host: str) -> None:
    with pytest.raises(UsageError, match="needs a token"):
        Access(Address(host))
    with pytest.raises(UsageError, match="16 characters"):
        Access(Address(host), token="short")
    rules = Access(Address(host), token=TOKEN, names=("other.example",)).rules
    assert rules.token == TOKEN and rules.names.have("other.example:80") and not rules.names.have("evil.example")
    assert rules.names.have("198.51.100.1") == (host in ("0.0.0.0", "::"))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "there is no token"), (b" \n", "there is no token"), (bytes(range(256)), "other characters than ASCII")],
)
def test_a_token_that_is_none_lets_everybody_in(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("SATCHEL_PAGE_TOKEN", TOKEN)
    with pytest.raises(UsageError, match=said), open(tmp_path / "token", "rb") as file:
        given_token("SATCHEL_PAGE_TOKEN", file)
    assert "SATCHEL_PAGE_TOKEN" not in os.environ, "runs that it starts don't get it"
    if b"\0" not in content:
        monkeypatch.setenv("SATCHEL_PAGE_TOKEN", content.decode())
        with pytest.raises(UsageError, match=said):
            given_token("SATCHEL_PAGE_TOKEN", None)


def test_this_machine_needs_a_token() -> None:
    for host in ("127.0.0.1", "127.3.2.1", "::1", "localhost"):
        assert Access(Address(host)).rules.names.have(f"[{host}]" if ":" in host else host)


def test_others_can_open_the_socket_or_a_dead_one_stays(tmp_path: Path) -> None:
    place = Address(path=str(tmp_path / "page"))
    with bound(place):
        assert os.stat(place.path).st_mode & 0o777 == 0o600
        with pytest.raises(UsageError, match="can't listen"), bound(place):
            raise AssertionError
        assert os.path.exists(place.path)
    (tmp_path / "text").write_text("mine")
    with pytest.raises(UsageError), bound(Address(path=str(tmp_path / "text"))):
        raise AssertionError
    assert (tmp_path / "text").read_text() == "mine"
