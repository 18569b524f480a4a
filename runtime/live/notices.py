"""Notices to people and programs: what each says, and its delivery.

Each notice is sent in its own thread, and the run never waits long for it. A notice that can't be sent stops and delays
nothing. Messages about it never contain the address's password.

A webhook is a signed HTTP request by the scheme of https://www.standardwebhooks.com: the receiver can tell who has sent
it, when, and whether it has got it before. Every attempt has the same id, and the time and signature of its own. A
redirect counts as a refusal: another host would get what this one is trusted with.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import importlib.util
import logging
import os
import re
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct, field

from ...schemas import Problem
from ...workspace.base import DEFINITION, InvalidFile, SatchelError, time_text, version
from ...workspace.formats import Definition, Webhook
from ...workspace.formats import definition as definition_file
from ...workspace.inbound import Question, open_questions
from ...workspace.inspect import report
from ...workspace.journal import EndStatus
from ...workspace.lifecycle import Workspace
from ...workspace.state import Moment
from ...workspace.store import Store
from .limits import BUDGET, check_times

Event = Literal["paused", "waiting", "failed", "completed", "cancelled", "window", "budget", "backup", "test"]

LIMIT = 10.0
"""Seconds after which a notice counts as lost."""

AT_THE_END = 5.0
"""Seconds that a process waits for the notices of its end."""

_MISSING = (
    "notices are not sent: addresses in `notify:` of workspace.yaml need the library apprise. "
    "Install it with `pip install 'satchel[notify]'`"
)
_THREAD = "satchel-notice"
_WORD = re.compile(r"[^/:@?&=,;#\s]+")


class _Sending(Struct, eq=False):
    thread: threading.Thread
    place: str  # what may be said of the address
    until: float
    problem: str = ""  # why it was not sent, or not yet
    logged: list[str] = field(default_factory=list)

    def failed(self, why: str) -> None:
        """An attempt has failed."""
        self.problem = why


class Notice(Struct, frozen=True):
    """`title` and `body` are for people, `facts` for programs."""

    event: Event
    title: str
    body: str
    facts: dict[str, Any] = {}


class Notices:
    """For one run. `places` is called at each notice, so that a change of workspace.yaml counts."""

    def __init__(self, places: Callable[[], Sequence[str | Webhook]]):
        self._places = places
        self._under_way: list[_Sending] = []
        self._problems: list[str] = []
        self._is_missing_told = False

    def send(self, notice: Notice) -> None:
        """Start to send a notice to every place. Returns at once; `problems` has the results."""
        id = f"msg_{uuid.uuid4().hex}"
        at = time_text(datetime.now(UTC))
        for number, place in enumerate(self._places(), 1):
            name = f"notice {number} of `notify:`"
            sending = _Sending(threading.current_thread(), name, time.monotonic() + LIMIT)
            if isinstance(place, Webhook):
                self._start(sending, _post, place, id, _payload(notice, at))
            elif importlib.util.find_spec("apprise") is not None:
                self._start(sending, _deliver, place, notice)
            elif not self._is_missing_told:
                self._is_missing_told = True
                self._problems.append(_MISSING)

    def _start(self, sending: _Sending, work: Callable[..., None], *arguments: Any) -> None:
        sending.thread = threading.Thread(target=work, args=(sending, *arguments), name=_THREAD, daemon=True)
        self._under_way.append(sending)
        sending.thread.start()

    def problems(self) -> Iterator[str]:
        """The failures since the last call, one line each."""
        found, self._problems = self._problems, []
        yield from found
        now = time.monotonic()
        for sending in list(self._under_way):
            if not sending.thread.is_alive():
                self._under_way.remove(sending)
                if sending.problem:
                    yield f"a notice was not sent to {sending.place}: {sending.problem}"
            elif now >= sending.until:
                self._under_way.remove(sending)
                yield f"a notice was not sent to {sending.place}: {sending.problem or 'it took too long'}"

    @property
    def is_sending(self) -> bool:
        return any(sending.thread.is_alive() for sending in self._under_way)

    def wait(self) -> None:
        """The process ends: give unsent notices a few seconds. The rest counts as lost."""
        deadline = time.monotonic() + AT_THE_END
        for sending in self._under_way:
            sending.thread.join(max(0.0, deadline - time.monotonic()))
            sending.until = 0.0


class NoticeCheck(Struct, frozen=True):
    """What became of a test notice. `place`: what may be said of its address; `problem`: why it was not sent."""

    place: str
    problem: str


def try_all(run_id: str, url: str, places: Sequence[str | Webhook]) -> list[NoticeCheck]:
    """Send a test notice to each place, and wait for the results, LIMIT seconds at most."""
    notices, said = Notices(lambda: places), f"{run_id}: a test"
    notices.send(Notice("test", said, f"This is a test of `notify:`.\n\n{url}", {"run_id": run_id, "workspace": url}))
    tried = []
    for sending in notices._under_way:
        sending.thread.join(max(0.0, sending.until - time.monotonic()))
        late = "it took too long" if sending.thread.is_alive() else ""
        tried.append(NoticeCheck(sending.place, sending.problem or late))
    return tried + [NoticeCheck("the other addresses of `notify:`", problem) for problem in notices._problems]


def _payload(notice: Notice, at: str) -> bytes:
    facts = {"title": notice.title, "text": notice.body, **notice.facts}
    return msgspec.json.encode({"type": f"run.{notice.event}", "timestamp": at, "data": facts})


def _post(sending: _Sending, place: Webhook, id: str, body: bytes) -> None:
    """In the notice's own thread. Errors are only noted."""

    try:
        url = resolved(place.webhook)
        sending.place = f"the webhook at {host_of(url)}"
        deliver(url, keys_of(place), id, body, until=sending.until, failed=sending.failed)
        sending.problem = ""
    except KeyError as error:
        sending.problem = f"the environment has no variable {error.args[0]}"
    except NotSent as error:
        sending.problem = str(error)
    except Exception as error:
        sending.problem = type(error).__name__  # its text may quote the address


def _deliver(sending: _Sending, written: str, notice: Notice) -> None:
    """In the notice's own thread. Errors are only noted."""

    try:
        url = resolved(written)
    except LookupError as error:
        sending.problem = f"the environment has no variable {error.args[0]}"
        return
    try:
        import apprise

        _listen()
        _heard.sending = sending
        kind = apprise.NotifyType.FAILURE if notice.event == "failed" else apprise.NotifyType.INFO
        target = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if target is None:
            sending.problem = "apprise does not know this address; see https://github.com/caronc/apprise/wiki"
            return
        masked: str = target.url(privacy=True)  # type: ignore[no-untyped-call]
        sending.place = masked.partition("?")[0]
        if not target.notify(body=notice.body, title=notice.title, notify_type=kind):
            sending.problem = _why(sending.logged, url, sending.place)
    except Exception as error:
        sending.problem = type(error).__name__  # its text may quote the address


_heard = threading.local()
"""The notice of the current thread."""

_listening = threading.Lock()


def _listen() -> None:
    """Catch what apprise logs while it sends our notices. It would go to stderr with the addresses."""
    logger = logging.getLogger("apprise")
    with _listening:  # two threads must not both add it
        if _keep not in logger.filters:
            logger.addFilter(_keep)


def _keep(record: logging.LogRecord) -> bool:
    sending: _Sending | None = getattr(_heard, "sending", None)
    if sending is None:
        return True  # not ours
    if record.levelno >= logging.WARNING:
        sending.logged.append(record.getMessage())
    return False


def _why(logged: list[str], url: str, place: str) -> str:
    """The reason that apprise gives, without the secret parts of the address."""
    secret = {word for text in (url, unquote(url)) for word in _WORD.findall(text)} - set(_WORD.findall(place))
    for line in logged:
        if not any(word in line for word in secret):
            return line.rstrip(".")
    return "it was refused"


PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds between the attempts."""

_PATIENCE = 5.0  # seconds without a byte in an attempt
_PREFIX = "whsec_"
_AGAIN = (408, 425, 429)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class NotSent(Exception):
    """Why, in words that have nothing secret."""


class Malformed(NotSent):
    """The secret is none."""


def resolved(written: str) -> str:
    """A text with each `${NAME}` replaced from the environment. KeyError if a name is missing there."""
    return _VARIABLE.sub(lambda found: os.environ[found[1]], written)


def check(store: Store, definition: Definition) -> None:
    """InvalidFile if `windows:`, `schedule:` or a webhook in `notify:` can't work as it is written. What this machine
    lacks, a variable or a file, is told when a notice is sent."""
    check_times(store, definition)
    wrong = []
    for number, place in enumerate(definition.notify):
        for key, said in _malformed(place) if isinstance(place, Webhook) else ():
            wrong.append((("notify", number, key), said))
    if wrong:
        place_of = definition_file.places(store.read(DEFINITION).data)
        raise InvalidFile(DEFINITION, [said._replace(place=place_of(where)) for where, said in wrong])


def _malformed(webhook: Webhook) -> Iterator[tuple[str, Problem]]:
    """Its wrong keys. Neither the URL nor the secret is shown."""
    with suppress(KeyError):
        try:
            host_of(resolved(webhook.webhook))
        except NotSent:
            yield "webhook", Problem("", "another address", "an http or https URL without a user name", "Correct it")
    with suppress(KeyError, NotSent):
        try:
            keys_of(webhook)
        except Malformed:
            remedy = f"Make one with `echo {_PREFIX}$(openssl rand -base64 32)`"
            yield "secret", Problem("", "a secret of another form", f"{_PREFIX} and base64", remedy)


def host_of(url: str) -> str:
    """The part of the URL that may be shown."""
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError
        return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError:
        raise NotSent("a webhook has an http or https URL without a user name") from None


def deliver(url: str, keys: list[bytes], id: str, body: bytes, *, until: float, failed: Callable[[str], None]) -> None:
    """Send it, again after a failure that may pass, until the time `until` (time.monotonic). NotSent if it was not
    accepted. `failed` is called with the reason before it is sent again."""
    import http.client  # slow, and most runs send nothing
    import urllib.error
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    opener = urllib.request.build_opener(NoRedirects)
    for pause in (*PAUSES, None):
        try:
            _send_request(opener, url, signed(keys, id, int(time.time()), body), body, until)
            return
        except urllib.error.HTTPError as error:
            error.close()
            why = f"it answered {error.code}"
            may_pass = error.code >= 500 or error.code in _AGAIN
        except (http.client.InvalidURL, ValueError):
            why, may_pass = "its URL has a space, or characters besides ASCII", False
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            why, may_pass = getattr(cause, "strerror", None) or type(cause).__name__, True
        if not may_pass or pause is None or time.monotonic() + pause >= until:
            raise NotSent(why)
        failed(why)
        time.sleep(pause)


def _send_request(opener: Any, url: str, headers: dict[str, str], body: bytes, until: float) -> None:
    import urllib.request

    request = urllib.request.Request(url, body, headers, method="POST")
    patience = max(0.1, min(_PATIENCE, until - time.monotonic()))
    with opener.open(request, timeout=patience):
        pass  # what it says is of no interest


def signed(keys: list[bytes], id: str, at: int, body: bytes) -> dict[str, str]:
    """The headers: one signature for each key, so that a receiver may change its key."""
    said = b"%s.%d.%s" % (id.encode(), at, body)
    signatures = (base64.b64encode(hmac.digest(key, said, "sha256")).decode() for key in keys)
    return {
        "content-type": "application/json",
        "user-agent": f"satchel/{version()}",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(f"v1,{each}" for each in signatures),
    }


def keys_of(webhook: Webhook) -> list[bytes]:
    """The keys that its secret names, read now: several secrets have spaces between them. KeyError if the variable is
    missing, NotSent if they can't be used."""
    if webhook.secret.startswith("$"):
        text = resolved(webhook.secret)
    else:
        try:
            with open(os.path.expanduser(webhook.secret), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise NotSent(f"the file with its secret can't be read: {why}") from None
    try:
        keys = [base64.b64decode(each.removeprefix(_PREFIX), validate=True) for each in text.split()]
    except binascii.Error:
        keys = []
    if not keys or not all(each.startswith(_PREFIX) for each in text.split()) or not all(keys):
        raise Malformed(f"its secret is not {_PREFIX} and base64")
    return keys


class NoticeReceiver(Protocol):
    """The receiver of lines about a run while it is active."""

    def noticed(self, kind: str, text: str) -> None: ...


class Announcer:
    """For one opening of a run. `is_silent`: only the watch is told, because nothing may leave a replay."""

    def __init__(self, workspace: Workspace, watch: NoticeReceiver | None, *, is_silent: bool = False):
        self._workspace, self._watch = workspace, watch
        self._notices = Notices(lambda: () if is_silent else workspace.definition.notify)

    def tell(self, event: Event, text: str) -> None:
        """A message about an active run."""
        moment, text = self._workspace.moment, self._workspace.redactor.text(text)
        if self._watch:
            self._watch.noticed(event, text)
        url = self._workspace.store.url
        self._notices.send(Notice(event, f"{moment.run_id}: {text}", f"{text}\n\n{url}", _facts(moment, url)))

    def ended(self, status: EndStatus) -> None:
        """The run has stopped, durably. Its caller gets the outcome; this is for other people."""
        moment, url = self._workspace.moment, self._workspace.store.url
        if status != "sleeping":
            body, facts = "\n".join(told(status, moment, url)), _facts(moment, url) | _ending(status, moment, url)
            self._notices.send(Notice(status, f"{moment.run_id}: {status}", body, facts))

    def say_problems(self) -> None:
        """Report which notices were not sent."""
        for problem in self._notices.problems():
            self._workspace.report.add("done", problem)
            if self._watch:
                self._watch.noticed("notice", problem)

    async def finish(self, rest: Callable[[bool], None] | None = None) -> None:
        """Give the last notices a few seconds. Another process may own the workspace by now. `rest` is called with True
        before these seconds, in which the run needs no place among others, and with False after them."""
        if self._notices.is_sending:
            rest = rest or (lambda rests: None)
            rest(True)
            await asyncio.to_thread(self._notices.wait)
            rest(False)
        known = len(self._workspace.report.remarks)
        self.say_problems()
        if len(self._workspace.report.remarks) > known:
            with suppress(SatchelError):  # only its words for `status` are lost
                report.amend(self._workspace.store, self._workspace.report)


def told(status: EndStatus, moment: Moment, url: str) -> Iterator[str]:
    """The text of a notice: why the run stopped, and how to resume it."""
    settled, leaves = moment.root.plan.progress
    match status:
        case "paused" if moment.pause is not None:
            until = f", until {moment.pause.until}" if moment.pause.until else ""
            yield f"Paused: {moment.pause.reason}, by {moment.pause.by}{until}."
            if moment.pause.by == BUDGET:
                yield "Raise the budget in workspace.yaml first."
            yield f"To resume: satchel resume {url}"
        case "waiting":
            yield "Waiting for a person:"
            for question in open_questions(moment):
                choices = f" ({', '.join(question.choices)})" if question.choices else ""
                yield f"{question.id}: {question.text}{choices}\n    answer in {url}/{question.path}"
        case "failed":
            why = f"{moment.error.kind}: {moment.error.message}" if moment.error else moment.reason
            yield f"Failed: {why}"
            yield f"To try again: satchel resume {url}"
        case _:
            yield f"{status.capitalize()}{f': {moment.reason}' if moment.reason else ''}."
    if leaves:
        yield f"{settled} of {leaves} items done."


def _facts(moment: Moment, url: str) -> dict[str, Any]:
    """What a webhook says of the run at any time."""
    settled, leaves = moment.root.plan.progress
    return {"run_id": moment.run_id, "workspace": url, "items": {"done": settled, "total": leaves}}


def _ending(status: EndStatus, moment: Moment, url: str) -> dict[str, Any]:
    """What a webhook says of a stop. `command` is the command line that continues the run, or answers the question if a
    decision is added."""
    resume = {"command": shlex.join(["satchel", "resume", url])}
    match status:
        case "paused" if moment.pause is not None:
            pause = moment.pause
            return {"reason": pause.reason, "by": pause.by, "until": pause.until or None, **resume}
        case "waiting":
            return {"questions": [_asked(question, url) for question in open_questions(moment)]}
        case "failed":
            error = {"kind": moment.error.kind, "message": moment.error.message} if moment.error else None
            return {"reason": moment.reason, "error": error, **resume}
        case _:
            return {"reason": moment.reason}


def _asked(question: Question, url: str) -> dict[str, Any]:
    return {
        "id": question.id,
        "text": question.text,
        "choices": question.choices,
        "schema": question.schema,
        "arguments": question.arguments,
        "context": question.facts.get("context"),
        "file": f"{url}/{question.path}",
        "command": shlex.join(["satchel", "answer", url, question.id]),
    }
