"""Do one item of a run again in a fork, with other prompts or settings, and compare it with the first time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...schemas import nearest
from ...workspace.base import SatchelError, UsageError, arguments, urls
from ...workspace.history import Work, Worked, gone, no_such_item, story, worked
from ...workspace.inspect import define, look
from ...workspace.secrets import redactor_of
from ...workspace.state import is_of_item, prompts
from ...workspace.store import Store, open_store
from ...workspace.transfer import Forked, Tell
from ..agent import Agent
from ..execution import Outcome, Start, running
from ..live import Interruption, ReplayTarget, Watch
from . import forking, storage, template
from .item_calls import Time
from .place import Place
from .replayed import Replayed, compared
from .running import no_exit

Text = str | os.PathLike[str]
"""A prompt, or the file that has it."""


class Wish(NamedTuple):
    """The arguments of `Handle.replay`."""

    item: str
    to: str | os.PathLike[str]
    settings: Mapping[str, Any]
    prompts: Mapping[str, Text] | Text | None
    agent: Agent | None
    watch: Watch | None
    run_id: str
    by: str | None
    progress: Tell | None
    storage_options: Mapping[str, Any] | None


class Ready(NamedTuple):
    """A fork in which the item can begin."""

    place: Place
    first: Time
    wish: Wish
    prompts: dict[str, str]  # the versions of those that were chosen
    forked: Forked
    start: Start


def replay(place: Place, wish: Wish) -> Replayed:
    """See `Handle.replay`."""
    arguments.no_loop("replay")
    ready = prepare(place, wish)
    with no_exit(place):
        outcome = running.with_signals(ready.start).outcome
    return result(ready, outcome)


async def replay_async(place: Place, wish: Wish) -> Replayed:
    """The same in a loop that is running."""
    import asyncio

    ready = await asyncio.to_thread(prepare, place, wish)
    with no_exit(place):
        outcome = (await running.until_stop(ready.start)).outcome
    return await asyncio.to_thread(result, ready, outcome)


def prepare(place: Place, wish: Wish) -> Ready:
    """Make the fork. UsageError, before anything is made, for an item that can't be replayed and for a name that is
    not known."""
    told = story(place.store)
    found = worked(place.store, told=told)
    work = _find(found, wish.item)
    if work.state == "undone" and work.ended:  # so calls of its sub-agents may be gone; they are as of then
        found = worked(place.store, work.ended, told=told)
        work = next(each for each in found.work if (each.agent, each.begun) == ("", work.begun))
    first = Time(found, told.records.lines, work)
    used = {name: version for call in first.calls for name, version in call.prompts.items()}
    definition = define(place.store)
    redactor, settings = redactor_of(definition), definition.settings
    shelf = prompts.Shelf(place.store, definition.prompts_folder)
    texts = _chosen(shelf, wish, used)
    for name, data in texts.items():
        prompts.check_no_secret(name, data, redactor)
    versions = {name: prompts.version_of(data) for name, data in texts.items()}
    for key in wish.settings:
        if template.where_of(key, settings) is None:
            raise _unknown(f"setting {key!r}", key, settings, _names(shelf, used))
    forked = forking.fork(
        place,
        wish.to,
        work.begun - 1,
        run_id=wish.run_id,
        effects=False,
        reuse=False,
        by=wish.by,
        progress=wish.progress,
        storage_options=wish.storage_options,
        edit=lambda text: template.with_settings(text, wish.settings),
        texts=_as_used(place.store, shelf, used) | texts,
        is_replay=True,
        again=work if work.scope.startswith("_inbox-") and work.ended else None,
    )
    storage.use(urls.checked(forked.to), wish.storage_options)
    store = open_store(urls.checked(forked.to))
    is_known = work.scope.startswith("_") or look(store).moment.root.plan.task(work.scope) is not None
    only = ReplayTarget(work.scope if is_known else "", work.title)
    start = Start(store, wish.agent, wish.watch, Interruption(), True, True, None, False, False, False, only=only)
    return Ready(place, first, wish, versions, forked, start)


def result(ready: Ready, outcome: Outcome) -> Replayed:
    """The comparison."""
    store, only = ready.start.store, ready.start.only
    assert only is not None
    told = story(store)
    found = worked(store, told=told)
    is_it = (work for work in found.work if not work.agent and work.begun and only.is_it(work.scope, work.title))
    second = next((Time(found, told.records.lines, work) for work in is_it), None)
    settings = redactor_of(define(store)).value(dict(ready.wish.settings))
    return compared(
        (ready.place, ready.first),
        (Place(store, ready.forked.to), second),
        only,
        outcome,
        settings=settings,
        prompts=ready.prompts,
        seq=ready.forked.seq,
    )


def _find(found: Worked, item: str) -> Work:
    """The item, as it was done the last time."""
    wanted = f"^{item}" if item.isdecimal() else item.strip().rstrip("/")
    works = [work for work in found.work if wanted in work.names]
    if not works:
        if found.problem:
            raise found.problem
        raise no_such_item(wanted, (name for each in found.work for name in each.names), found.since)
    work = works[-1]
    if work.agent:
        above = found.moment.agents[work.agent.partition("/")[0]].spawned_in
        raise UsageError(
            f"{wanted!r} is an item of a sub-agent",
            why="a replay does an item of the run's own agent",
            remedy=f"replay the item that has started it: ^{above}" if is_of_item(above) else None,
        )
    if not work.begun:
        raise gone(found.since - 1, found.since)
    return work


def _chosen(shelf: prompts.Shelf, wish: Wish, used: Mapping[str, str]) -> dict[str, bytes]:
    """The content of the prompts that were given, by name."""
    if wish.prompts is None:
        return {}
    given = wish.prompts if isinstance(wish.prompts, Mapping) else {"": wish.prompts}
    found = {}
    for name, text in given.items():
        if not name and len(used) != 1:
            said = f"it has used {', '.join(sorted(used))}" if used else "no step of it has used one"
            there = _names(shelf, used)
            remedy = f"name it, as in `--set prompt.{there[0]}=@FILE`" if there else "write one in prompts/"
            raise UsageError(f"the item {wish.item!r} has not used exactly one prompt", why=said, remedy=remedy)
        name = name or next(iter(used))
        if name not in used and name not in (known := _names(shelf, used)):
            raise _unknown(f"prompt {name!r}", f"prompt.{name}", {}, known)
        found[name] = _content(text)
    return found


def _content(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    try:
        return Path(text).read_bytes()
    except OSError as error:
        raise UsageError("can't be read", path=os.fspath(text), why=error.strerror) from error


def _as_used(store: Store, shelf: prompts.Shelf, used: Mapping[str, str]) -> dict[str, bytes]:
    """The prompts of which the item has used another version than the file has now. One that is not kept stays as it
    is; then the start reports it as changed."""
    found = {}
    for name, version in used.items():
        try:
            if prompts.version_of(shelf.read(name).data) == version:
                continue
        except FileNotFoundError:
            pass  # it has been removed since
        with suppress(SatchelError):
            found[name] = prompts.prompt_text(store, name, version).encode()
    return found


def _names(shelf: prompts.Shelf, used: Iterable[str]) -> list[str]:
    return sorted({*used, *shelf.files()})


def _unknown(what: str, name: str, settings: Mapping[str, Any], names: Iterable[str]) -> UsageError:
    known = [*settings, *(f"prompt.{each}" for each in names)]
    close = nearest(name, known)
    listed = f"there are {', '.join(known)}" if known else "the run has no settings and no prompts"
    return UsageError(f"there is no {what}", why=listed, remedy=f"did you mean {close!r}?" if close else None)


def typed_changes(place: Place, words: Iterable[str]) -> tuple[dict[str, Any], dict[str, Text]]:
    """Settings and prompts from the command line: `KEY=VALUE`, `prompt=TEXT`, `prompt.NAME=@FILE`. A setting that is
    called `prompt` goes first."""
    settings, texts = dict[str, Any](), dict[str, Text]()
    known = define(place.store).settings
    for key, value in template.pairs(words, "--set prompt.NAME=@FILE"):
        first, _, name = key.partition(".")
        if first != "prompt" or template.where_of(key, known) is not None:
            settings[key] = template.value_of(value)
        else:
            texts[name] = _typed_text(key, value)
    return settings, texts


def changes(place: Place) -> list[str]:
    """The beginnings of what `typed_changes` takes."""
    definition = define(place.store)
    names = prompts.Shelf(place.store, definition.prompts_folder).files()
    return [*(f"{key}=" for key in definition.settings), *(f"prompt.{name}=@" for name in sorted(names))]


def _typed_text(key: str, value: str) -> Text:
    """`@FILE`, or the text itself. The name of a file is no prompt."""
    if value.startswith("@"):
        return Path(value[1:]).expanduser()
    if not value.strip() or (value.endswith((".md", ".txt")) and " " not in value) or os.path.isfile(value):
        raise UsageError(
            f"--set {key}={value} has no text", remedy=f"name a file with @: --set {key}=@{value or 'FILE'}"
        )
    return value
