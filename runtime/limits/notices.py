"""Notices to people and programs: each is sent in its own thread, and the run never waits long for it.

A notice that can't be sent stops and delays nothing. Messages about it never contain the address's password.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field

from ...workspace.base import time_text
from ...workspace.formats import Webhook

Event = Literal["paused", "waiting", "failed", "completed", "cancelled", "window", "budget", "test"]

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


class TriedNotice(Struct, frozen=True):
    """What became of a test notice. `place`: what may be said of its address; `problem`: why it was not sent."""

    place: str
    problem: str


def try_all(run_id: str, url: str, places: Sequence[str | Webhook]) -> list[TriedNotice]:
    """Send a test notice to each place, and wait for the results, LIMIT seconds at most."""
    notices, said = Notices(lambda: places), f"{run_id}: a test"
    notices.send(Notice("test", said, f"This is a test of `notify:`.\n\n{url}", {"run_id": run_id, "workspace": url}))
    tried = []
    for sending in notices._under_way:
        sending.thread.join(max(0.0, sending.until - time.monotonic()))
        late = "it took too long" if sending.thread.is_alive() else ""
        tried.append(TriedNotice(sending.place, sending.problem or late))
    return tried + [TriedNotice("the other addresses of `notify:`", problem) for problem in notices._problems]


def _payload(notice: Notice, at: str) -> bytes:
    facts = {"title": notice.title, "text": notice.body, **notice.facts}
    return msgspec.json.encode({"type": f"run.{notice.event}", "timestamp": at, "data": facts})


def _post(sending: _Sending, place: Webhook, id: str, body: bytes) -> None:
    """In the notice's own thread. Errors are only noted."""
    from . import webhook

    try:
        url = webhook.resolved(place.webhook)
        sending.place = f"the webhook at {webhook.host_of(url)}"
        webhook.deliver(url, webhook.keys_of(place), id, body, until=sending.until, failed=sending.failed)
        sending.problem = ""
    except KeyError as error:
        sending.problem = f"the environment has no variable {error.args[0]}"
    except webhook.NotSent as error:
        sending.problem = str(error)
    except Exception as error:
        sending.problem = type(error).__name__  # its text may quote the address


def _deliver(sending: _Sending, written: str, notice: Notice) -> None:
    """In the notice's own thread. Errors are only noted."""
    from .webhook import resolved

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
