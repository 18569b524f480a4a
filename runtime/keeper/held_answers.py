"""What a keeper has of each run: the answers that arrive, and those that are whole, in memory and in the folder."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple, TypeVar
from weakref import WeakSet

import msgspec
from msgspec import Struct
from multidict import CIMultiDict

from ...workspace.base import ANSWERS, DEFINITION, SatchelError
from ...workspace.inspect import define
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.store import Store, open_store
from . import answer_files, wire
from .addresses import ModelCall, ModelStep, Opening
from .answer_files import AnswerHead

T = TypeVar("T")

HELD = 64 << 20
"""Bytes of answers in memory. What a slow client has not read waits at the provider then."""

EVERY = 0.1
"""Seconds between two writes of an answer that arrives, and between two looks at one that another keeper reads."""


class Listener(Struct, eq=False):
    """A connection that an answer is written to."""

    epoch: int  # the opening of the run that asks
    read: int = 0  # the bytes that were written to it
    pass_on: Callable[[bytes], Awaitable[bool]] | None = None  # while it waits for more: writes that at once, if it can


class ModelAnswer:
    """A call to a provider, and what has come of it so far. Used from one loop."""

    def __init__(self, call: ModelCall | None, request: str, head: AnswerHead | None = None):
        self.call, self.request, self.head = call, request, head
        self.data, self.start = bytearray(), 0  # the bytes from `start` on
        self.is_away = False  # whole, and only in its file
        self.is_done = False
        self.error = ""  # why there is no whole answer
        self.rest: wire.InBackground | None = None  # it is torn, and who asks for it lets the rest be fetched
        self.is_kept = True
        self.is_poll = False  # it may tell the tokens of an answer in background mode
        self.sent: tuple[str, CIMultiDict[str]] | None = None  # in background mode: where it was asked for, with what
        self.asked, self.first, self.ended = time.monotonic(), 0.0, 0.0
        self.taken = 0.0  # when a client last asked for it, in this process
        self.client: Listener | None = None  # that hears it now
        self.given: int | None = None  # the last epoch to which it was given whole
        self.asked_in = -1  # the epoch that has asked for it first
        self.heard_in: int | None = None  # the last epoch that has asked for it
        self.has_grown = False  # between the last two openings, of which the first has waited for it
        self.said: wire.AnswerFacts | None = None
        self.file: answer_files.AnswerFile | None = None
        self.task: asyncio.Task[None] | None = None  # that reads it
        self.saving: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._hearing: list[asyncio.Future[None]] = []
        self._over = asyncio.Event()

    def tell(self, *, is_passed_on: bool = False) -> None:
        """Something has changed. `is_passed_on`: who hears it knows."""
        if self.is_done or not self.is_kept:
            self._over.set()
        waiting, self._waiting = self._waiting, []
        if not is_passed_on:
            waiting, self._hearing = waiting + self._hearing, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def change(self, *, hears: bool = False) -> None:
        """Wait until something changes. `hears`: in the name of a client."""
        future = asyncio.get_running_loop().create_future()
        (self._hearing if hears else self._waiting).append(future)
        await future

    async def wait_to_write(self) -> None:
        """Wait for the time between two writes, or until nothing more comes or is kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY):
                await self._over.wait()

    async def take(self, chunk: bytes) -> None:
        """A chunk is there that has arrived. Its client gets it at once: a turn of its own task costs as much again."""
        client, at, is_passed_on = self.client, self.start + len(self.data) - len(chunk), False
        if client is not None and client.pass_on is not None and client.read == at and len(self._hearing) == 1:
            is_passed_on = await client.pass_on(chunk)
        self.tell(is_passed_on=is_passed_on)

    @property
    def step(self) -> str:
        """The digest of its step. Empty if its request names none."""
        return self.call.step if self.call else ""

    @property
    def is_good(self) -> bool:
        """There is an answer, or there may be one."""
        return self.is_kept and not self.error

    def end(self, error: str = "") -> None:
        """Nothing more comes. `error`: why it is not whole."""
        self.is_done, self.error, self.ended = True, error, time.monotonic()
        self.tell()


class Memory:
    """The bytes of all answers of a keeper."""

    def __init__(self) -> None:
        self._answers = WeakSet[ModelAnswer]()
        self._held = 0  # at most so many

    def add(self, answer: ModelAnswer, chunk: bytes) -> bool:
        """A chunk of an answer arrives. Returns whether there is room for more."""
        if not answer.data:
            self._answers.add(answer)
        answer.data += chunk
        self._held += len(chunk)
        if self._held <= HELD:
            return True
        for each in list(self._answers):
            if each.saving is not None and each.saving.done():
                put_away(each)
        self._held = sum(len(each.data) for each in self._answers)
        return self._held <= HELD


def put_away(answer: ModelAnswer) -> None:
    """Keep it in its file only, if that has all of it and no client reads it."""
    is_saved = answer.file is not None and answer.file.is_whole
    if is_saved and answer.is_done and answer.is_kept and answer.client is None:
        answer.data, answer.is_away = bytearray(), True


class _Found(NamedTuple):
    """An answer in the folder of a run."""

    file: answer_files.KeptAnswer
    said: wire.AnswerFacts | None
    is_read: bool  # by another keeper
    rest: wire.InBackground | None


class RunAnswers:
    """What the keeper has of one run."""

    def __init__(self, url: str, memory: Memory):
        self.url, self.store, self.memory = url, open_store(url), memory
        self.redactor: Redactor = Redactor()
        self._definition: str | None = None  # the version of workspace.yaml that the redactor is of
        self.run_id, self.epoch = "", -1
        self.private: int | None = None  # the epoch in which a step with sealed results has begun
        self.starts: dict[str, int] = {}  # the epoch of each address that has opened the run
        self.opening = asyncio.Lock()  # one opening at a time
        self.opened = 0.0  # when the last one was
        self.all: dict[tuple[str, str], list[ModelAnswer]] = {}

    async def open(self, token: str, opening: Opening) -> list[tuple[ModelAnswer, str]]:
        """A process has taken the run. Returns what in its folder is torn, each with its text."""
        run_id, epoch = opening.run_id, opening.epoch
        async with self.opening:
            if (run_id, epoch) == (self.run_id, self.epoch):
                self.starts[token] = epoch
                return []
            is_next = (run_id, epoch) == (self.run_id, self.epoch + 1)
            others = [each for each in self if run_id != self.run_id or each.asked_in < opening.anew_since]
            known = {answer_files.stem(each.file.path): each for each in self if each.file and each.file.is_there}
            unsaved = [each for each in self if not (each.file and each.file.is_there)]
            found = await asyncio.to_thread(self._look, [*known])
            there = {answer_files.stem(each.file.path) for each in found}
            # Who went back has removed the files. Of what has none, only the next opening knows that none went back.
            gone = [each for path, each in known.items() if path not in there]
            await self.remove([*others, *gone, *([] if is_next else unsaved)])
            self._note_growth()
            self.run_id, self.epoch = run_id, epoch
            self.starts[token] = epoch
            while len(self.starts) > _STARTS:
                del self.starts[next(iter(self.starts))]
            have = {answer_files.stem(each.file.path) for each in self if each.file and each.file.is_there}
            new = [each for each in found if answer_files.stem(each.file.path) not in have]
            return [torn for each in new if (torn := self._loaded(each, opening.anew_since)) is not None]

    def _note_growth(self) -> None:
        """Which answers that earlier openings have asked for have come further since the last one. That has waited for
        them, or it has died before it could: who asks something else each time comes no further."""
        has_asked = any(each.heard_in == self.epoch for each in self)
        for each in self:
            is_waited_for = each.asked_in < self.epoch and (each.heard_in == self.epoch or not has_asked)
            each.has_grown = each.is_good and is_waited_for and (not each.is_done or each.ended > self.opened)
        self.opened = time.monotonic()

    def _look(self, known: list[str]) -> list[_Found]:
        """The answers in its folder. Blocks."""
        self.look_for_secrets()
        self.store.refresh(ANSWERS)
        found = []
        for each in answer_files.kept(self.store, known):
            is_read = not each.is_whole and each.head.is_read_at(self.url)
            if (
                not is_read
                and not each.is_whole
                and (late := answer_files.load(self.store, answer_files.whole(each.path)))
            ):
                each = late  # it was just finished
            rest = None if is_read else each.in_background
            found.append(_Found(each, each.said, is_read, rest))
            if rest is None:
                each.body = b""
        return found

    def look_for_secrets(self) -> None:
        """Know what is to be redacted by now. Blocks."""
        version = self.store.version(DEFINITION)
        if version is None or version != self._definition:
            self.redactor, self._definition = redactor_of(define(self.store)), version

    def _loaded(self, found: _Found, anew_since: int) -> tuple[ModelAnswer, str] | None:
        """Take an answer from the folder. Returns it if it is torn for good."""
        file, said = found.file, found.said
        head = file.head
        call = ModelCall(head.run_id, head.epoch, head.step, head.words) if head.step else None
        answer = ModelAnswer(call, head.request, head)
        answer.file = answer_files.AnswerFile(self.store, head)
        answer.file.path, answer.file.is_there = file.path, True
        answer.asked_in = head.epoch
        self.of(head.step, head.request).append(answer)
        if head.run_id != self.run_id or head.epoch < anew_since or answer_files.is_old(head):
            self.forget(answer)
        elif found.is_read:
            answer.has_grown = True
            answer.head = head if file.has_begun else None
            answer.task = asyncio.create_task(self._follow(answer, file.begins))
        elif found.rest is not None:
            answer.rest, answer.head = found.rest, None
            self.memory.add(answer, file.body[: found.rest.end])
        elif file.is_whole:
            answer.is_done = answer.is_away = True
            answer.said = said
        else:
            answer.end("its keeper died")
            return answer, said.text if said else ""
        return None

    async def _follow(self, answer: ModelAnswer, at: int) -> None:
        """Read an answer that another keeper reads to its end."""
        file = answer.file
        assert file is not None
        error, is_whole = "", False
        if answer.head is None:
            found = await self._begun(file)
            if found is not None:
                answer.head, file.head, file.path = found.head, found.head, found.path
                at, is_whole = found.begins + len(found.body), found.is_whole
                self.memory.add(answer, found.body)
                answer.tell()
            else:
                error = "its keeper has no answer"
        while not is_whole and not error and not answer.is_done:
            lives = await asyncio.to_thread(lambda: file.head.is_read_at(self.url))
            path, data = await asyncio.to_thread(_grown, self.store, file.path, at)
            if data:
                at += len(data)
                self.memory.add(answer, data)
                answer.tell()
            elif path == answer_files.whole(file.path):
                file.path, is_whole = path, True
            elif not lives or not path:
                error = "its keeper died"
            else:
                await asyncio.sleep(EVERY)
        if answer.head is not None and not error:
            answer.said = await asyncio.to_thread(answer_files.understood, answer.head, bytes(answer.data))
        answer.end(error)
        if error or (answer.said is not None and answer.said.failed):
            self.forget(answer)

    async def _begun(self, file: answer_files.AnswerFile) -> answer_files.KeptAnswer | None:
        """Wait until the answer is there that another keeper has asked for. None if there won't be one."""
        while True:
            may_come = await asyncio.to_thread(
                lambda: file.head.is_read_at(self.url) and self.store.version(file.path) is not None
            )
            found = await asyncio.to_thread(answer_files.begun, self.store, answer_files.stem(file.path))
            if found is not None or not may_come:
                return found
            await asyncio.sleep(EVERY)

    async def bring(self, answer: ModelAnswer) -> None:
        """Have the bytes of an answer in memory again."""
        file = answer.file
        assert file is not None
        found = await asyncio.to_thread(answer_files.load, self.store, file.path)
        if not answer.is_away:  # another request was faster
            return
        if found is None:
            self.forget(answer)
        else:
            answer.is_away = False
            self.memory.add(answer, found.body)

    def __iter__(self) -> Iterator[ModelAnswer]:
        return (answer for each in [*self.all.values()] for answer in [*each])

    def of(self, step: str, request: str) -> list[ModelAnswer]:
        """The answers to one request of a step."""
        return self.all.setdefault((step, request), [])

    def of_step(self, step: ModelStep) -> list[ModelAnswer]:
        """The answers of a step. Those that name none belong to it if no other step ran next to it."""
        return [
            answer
            for answer in self
            if (answer.call.step == step.step if answer.call else step.is_alone and answer.taken >= step.began)
        ]

    def may_save(self, answer: ModelAnswer) -> bool:
        """Whether the answer may be written."""
        is_private = answer.call.private if answer.call else self.private == self.epoch
        return answer.is_kept and not is_private

    async def save(
        self, answer: ModelAnswer, file: answer_files.AnswerFile, instead_of: answer_files.AnswerFile | None = None
    ) -> None:
        """Write an answer into the folder of the run while it arrives. Where files can't grow, or what is said may be a
        secret, at its end. `instead_of`: the file of the part of it that was there before."""
        at = 0
        try:
            can_grow = self.store.abilities.append

            def ask() -> None:
                self.look_for_secrets()
                if can_grow and answer.head is None:  # so that the keeper of the next start does not ask for it again
                    file.ask()

            await _named(answer, file, ask)
            grows = can_grow and not self.redactor
            while answer.head is None and not answer.is_done and answer.is_kept:
                await answer.change()
            await answer.wait_to_write()  # its first bytes are on their way meanwhile
            begins = grows and answer.is_good and not answer.is_done
            if begins:
                await _named(answer, file, file.begin)
            if begins and instead_of is not None:
                data, at = bytes(answer.data), len(answer.data)
                await asyncio.to_thread(file.add, data)
                await asyncio.to_thread(instead_of.remove)
            while not answer.is_done and answer.is_kept:
                if at == len(answer.data) or not begins:
                    await answer.change()
                elif self.may_save(answer):
                    data, at = bytes(answer.data[at:]), len(answer.data)
                    await asyncio.to_thread(file.add, data)
                else:
                    break
                await answer.wait_to_write()
            if not answer.is_good or not self.may_save(answer):
                await asyncio.to_thread(file.remove)
            elif begins:
                await asyncio.to_thread(file.finish, bytes(answer.data[at:]))
            elif not self.redactor or await asyncio.to_thread(_is_open, self.redactor, answer):
                await _named(answer, file, lambda: file.write(bytes(answer.data)))
            else:
                await asyncio.to_thread(file.remove)
        except (OSError, SatchelError) as error:
            print(f"satchel keeper: an answer is kept in memory only: {error}", file=sys.stderr)
        if instead_of is not None:
            await asyncio.to_thread(instead_of.remove)
        if not answer.is_kept:
            await asyncio.to_thread(file.remove)

    def count(self, poll: ModelAnswer, said: wire.AnswerFacts) -> None:
        """An answer in background mode was asked for by its id. The tokens that it has cost count once: as those of the
        request that has begun it or, if that is not here, of the step that asks."""
        for each in self:
            if each.said is not None and each.said.id == said.id:
                each.said = msgspec.structs.replace(said, text=each.said.text)
                return
        assert poll.head is not None
        request = f"poll of {said.id}"
        head = msgspec.structs.replace(poll.head, request=request, n=1, at="")  # equal for all polls of it
        bill = ModelAnswer(poll.call, request, head)
        bill.said, bill.is_done, bill.is_kept = msgspec.structs.replace(said, text=""), True, False
        bill.asked, bill.first, bill.ended = poll.asked, poll.first, poll.ended
        bill.taken, bill.heard_in = poll.taken, poll.heard_in
        self.of(bill.step, bill.request).append(bill)

    async def remove(self, wrong: Iterable[ModelAnswer]) -> None:
        """Forget answers. Their files are gone when this returns."""
        if removals := [removed for each in wrong if (removed := self.forget(each)) is not None]:
            await asyncio.wait(removals)

    def forget(self, answer: ModelAnswer, *, reads_on: bool = False) -> asyncio.Future[None] | None:
        """No process will ask for it again. `reads_on`: its client gets the rest; else an answer that still arrives is
        cut off. Returns what is done once its file is gone."""
        answer.is_kept = False
        key = (answer.step, answer.request)
        there = self.all.get(key, [])
        if answer in there:
            there.remove(answer)
        if not there:
            self.all.pop(key, None)
        if answer.task is not None and not answer.is_done and not reads_on:
            answer.task.cancel()
        answer.tell()
        if answer.file is not None and (answer.saving is None or answer.saving.done()):
            return asyncio.get_running_loop().run_in_executor(None, answer.file.remove)
        return answer.saving


def _is_open(redactor: Redactor, answer: ModelAnswer) -> bool:
    """Whether nothing of it is a secret, as far as this can be read."""
    assert answer.head is not None
    body = wire.plain(bytes(answer.data), answer.head.header("content-encoding"))
    if body is None or answer.said is None:
        return False
    return redactor.data(body) == body and redactor.text(answer.said.text) == answer.said.text


async def _named(answer: ModelAnswer, file: answer_files.AnswerFile, create: Callable[[], None]) -> None:
    """Create the file under the next free number."""
    while True:
        file.head = msgspec.structs.replace(answer.head or file.head, n=file.head.n)
        try:
            await asyncio.to_thread(create)
            break
        except FileExistsError:
            file.head = msgspec.structs.replace(file.head, n=file.head.n + 1)
    if answer.head is not None:
        answer.head = msgspec.structs.replace(answer.head, n=file.head.n)


_STARTS = 100


def _grown(store: Store, path: str, at: int) -> tuple[str, bytes]:
    """The path that a file of an answer has by now, and its bytes from a place on. Empty if it is gone."""
    for each in (path, answer_files.whole(path)):
        with suppress(OSError, SatchelError):
            return each, store.part(each, at, HELD)
    return "", b""
