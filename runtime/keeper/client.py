"""The keeper, as the process of a run sees it: which answers there are for a step, what they have cost, and that their
step is over.

SDKs find the keeper by variables of the environment, so the agent needs no line for it. Those that use httpx send with
each request which step makes it; the answers of others are told apart by what is asked, and when.
"""

from __future__ import annotations

import asyncio
import functools
import http.client
import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ...workspace.base import KEEPER, StorageFailed
from . import addresses
from .addresses import CALL, ModelStep, Opening, Paid, place

T = TypeVar("T")

_PATIENCE = 10.0
"""Seconds that a keeper gets to answer, or to be started again."""

_TURN = 0.1
_GONE = (
    "start the run with `satchel run`; if SATCHEL_KEEPER was set by hand, start `satchel keeper` again and set what it "
    "prints"
)
_WORDS = 160  # characters of a step's name that are sent


class KeeperLink:
    """For one opening of a run. `here` returns the step whose function runs in the current context."""

    def __init__(self, address: str, run_id: str, epoch: int, here: Callable[[], StepAtKeeper | None]):
        self.address, self.run_id, self.epoch, self.here = address, run_id, epoch, here
        at = urlsplit(address)
        self._host, self._port, self._path = at.hostname or "", at.port or 0, at.path
        self._lock, self._connection = threading.Lock(), None
        self.kept = set[str]()  # the steps that an answer is kept for, at the opening; "": a step that is not known
        self.torn: dict[str, str] = {}  # by step
        self.grown = 0  # so many answers that earlier openings have asked for have come further
        self.under_way: dict[StepAtKeeper, None] = {}
        self.told_of = set[str]()  # the names of steps that made no request here
        self._is_lost = False  # it has not answered in time
        self._is_private = False

    _connection: http.client.HTTPConnection | None

    def open(self, anew_since: int) -> None:
        """Ask what there is. From the epoch `anew_since` on what was asked before is asked again. Blocks."""
        found = addresses.decode_kept(self._ask("open", Opening(self.run_id, self.epoch, anew_since)))
        self.grown = sum(each.grown for each in found)
        self.kept = {each.step for each in found if not each.torn}
        self.torn = {each.step: each.text for each in found if each.torn and each.text}
        _links[self.address] = self
        _hook_all()

    @property
    def _opening(self) -> Opening:
        return Opening(self.run_id, self.epoch)

    async def hide(self) -> None:
        """A step with sealed results begins. From now on answers that name no step are not written."""
        if not self._is_private:
            await asyncio.to_thread(self._ask, "private", self._opening)
            self._is_private = True

    def begin(
        self, step: str, words: str, *, private: bool, may_ask: Callable[[StepAtKeeper], None] | None
    ) -> StepAtKeeper:
        """A step begins. `step` is the digest of its identity, `words` its name for people. `may_ask` is called in a
        thread before a request of it leaves, and raises if it must not."""
        for other in self.under_way:
            other.is_alone = False
        made = StepAtKeeper(self, step, words, private, may_ask, is_alone=not self.under_way)
        self.under_way[made] = None
        return made

    def unused(self) -> list[Paid]:
        """The calls to providers that only earlier openings have asked for. Blocks."""
        found: list[Paid] = addresses.decode_paid(self._ask("unused", self._opening))
        return found

    def end(self, *, is_over: bool) -> None:
        """This process has done with the run. `is_over`: no process will ask for anything any more."""
        _links.pop(self.address, None)
        if is_over:
            with suppress(StorageFailed):  # their age removes them
                self._ask("close", self._opening)
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _ask(self, what: str, body: Struct) -> bytes:
        """Send a message, and return what comes back. StorageFailed if the keeper does not answer."""
        data, end = msgspec.json.encode(body), time.monotonic() + _PATIENCE
        with self._lock:
            while True:
                try:
                    status, found = self._send(what, data)
                    break
                except (OSError, http.client.HTTPException) as error:
                    self._connection = None
                    if self._is_lost or time.monotonic() > end:
                        self._is_lost = True  # no step waits for it again
                        raise StorageFailed("the keeper does not answer", why=str(error), remedy=_GONE) from error
                    time.sleep(_TURN)
            self._is_lost = False
        if status >= 400:
            raise StorageFailed("the keeper has refused a message", why=found.decode(errors="replace")[:300])
        return found

    def _send(self, what: str, data: bytes) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=_PATIENCE)
        self._connection.request("POST", f"{self._path}/-/{what}", data)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


class StepAtKeeper:
    """A call of a step, with all its attempts."""

    def __init__(
        self,
        link: KeeperLink,
        step: str,
        words: str,
        private: bool,
        may_ask: Callable[[StepAtKeeper], None] | None,
        *,
        is_alone: bool,
    ):
        self._link, self.step, self.began, self.is_alone = link, step, time.monotonic(), is_alone
        self.may_ask = may_ask
        self.asked = 0  # requests that said they are of this step
        self._attempts = 0
        told = {"run_id": link.run_id, "epoch": link.epoch, "step": step, "words": words[:_WORDS], "private": private}
        self.header = json.dumps(told)

    async def begins_anew(self) -> bool:
        """An attempt begins: whether an answer is kept for it. Then it must ask like the one before, which had no text
        to continue."""
        self._attempts += 1
        if self._attempts == 1:
            return not self._link.kept.isdisjoint(("", self.step))
        return bool(addresses.decode_bool(await asyncio.to_thread(self._link._ask, "kept", self._told)))

    @property
    def torn(self) -> str:
        """What arrived at a keeper that has died, of the answer that this step was waiting for."""
        return self._link.torn.get(self.step, "")

    async def paid(self) -> list[Paid]:
        """The calls to providers that were made for this step, in all openings since its last result."""
        return await asyncio.to_thread(self.paid_now)

    def paid_now(self) -> list[Paid]:
        """Like `paid`. Blocks."""
        found: list[Paid] = addresses.decode_paid(self._link._ask("paid", self._told))
        return found

    async def forget(self, *, given_up: bool = False) -> None:
        """The result is recorded, or is not wanted any more: a call that is under way is cut off. `given_up`: its
        provider shall not write it to its end either."""
        self.leave()
        told = msgspec.structs.replace(self._told, given_up=given_up)
        with suppress(StorageFailed):  # their age removes them
            await asyncio.to_thread(self._link._ask, "forget", told)

    def leave(self) -> None:
        """It runs no more."""
        self._link.under_way.pop(self, None)

    @property
    def _told(self) -> ModelStep:
        others = (each.began for each in self._link.under_way if each is not self)
        return ModelStep(self.step, self._link.epoch, self.began, min(others, default=time.monotonic()), self.is_alone)


def address_of(url: str) -> str:
    """Where the keeper of this process has the run at `url`. Empty if it has no keeper, or one for another run."""
    address = os.environ.get(KEEPER, "")
    return address if place(urlsplit(address).path.lstrip("/")) == url else ""


# The header

_links: dict[str, KeeperLink] = {}
"""By address: of the runs of this process."""


def _step_of(url: str) -> StepAtKeeper | None:
    """The step that makes a request to `url`. None if that leads to no keeper of this process, or no step makes it."""
    for address, link in [*_links.items()]:
        if url.startswith(f"{address}/"):
            return link.here()
    return None


def _hook_all() -> None:
    """Let httpx say which step makes a request. Only requests to a keeper of this process get the header."""
    for name in ("httpx", "httpx2"):
        with suppress(ImportError):
            module = importlib.import_module(name)
            _hook(module.Client, _in_thread)
            _hook(module.AsyncClient, _on_loop)


def _hook(client: Any, make: Callable[[Any], Any]) -> None:
    if not hasattr(client.send, "_satchel"):
        client.send = make(client.send)
        client.send._satchel = True


def _in_thread(send: Any) -> Any:
    @functools.wraps(send)
    def sent(self: Any, request: Any, **how: Any) -> Any:
        if _links and (step := _step_of(str(request.url))) is not None:
            if step.may_ask is not None:
                step.may_ask(step)
            step.asked += 1
            request.headers[CALL] = step.header
        return send(self, request, **how)

    return sent


def _on_loop(send: Any) -> Any:
    @functools.wraps(send)
    async def sent(self: Any, request: Any, **how: Any) -> Any:
        if _links and (step := _step_of(str(request.url))) is not None:
            if step.may_ask is not None:
                await asyncio.to_thread(step.may_ask, step)
            step.asked += 1
            request.headers[CALL] = step.header
        return await send(self, request, **how)

    return sent


def sums(paid: Iterable[Paid]) -> tuple[int, float]:
    """Tokens and money."""
    found = [*paid]
    return sum(each.tokens for each in found), sum(each.usd for each in found)
