"""What a run works with besides its data: resources, prompts, and references.

Resources open before the agent is called and are released after it, tier by tier; each outcome is recorded. A prompt is
a file `prompts/NAME.md` with placeholders, and a version that the run may be held to. A placeholder is `{{name}}`, so
the braces of JSON in a prompt have no meaning.

A reference names something outside that the agent needs: a path (relative to the workspace, or absolute), an http or
https address, or any URL that fsspec opens. A start looks whether each still exists, and what tells its content. A
file's content is told by its SHA-256, an object's by its version or ETag, an address' by its ETag; else by the time of
the last change. A folder's, and that of an address without any of these, are not known. What is not known yet is found
out while the agent runs: a large file takes time to read.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial as bind
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct, field

from ...schemas import Problem
from ...workspace import journal
from ...workspace.base import AgentError, InvalidFile, SatchelError, UsageError, decode, place, urls
from ...workspace.journal import Configured, PauseRequested
from ...workspace.lifecycle import Workspace
from ...workspace.state import prompts
from ..agent import (
    TIERS,
    DaemonExecutor,
    HeldResource,
    Prompt,
    Resource,
    ResourceOutcome,
    Tier,
    awaited,
    describe,
    runs_on_loop,
    takes_run,
    unhindered,
)
from ..engine import AgentContext, Context, Session, check_outside_steps, current_call
from ..live import StopRequests, Suspended

ReferenceContent = Mapping[str, Any]
"""What tells the content of a reference, as it is recorded. Empty: nothing is known."""

CONTENTS = "contents"
"""What a `configured` record calls the contents of the references."""

LIMIT = 15.0
"""Seconds until each of them has been found, all at once. Reading a file takes as long as it takes."""

_ANSWER = 5.0
"""Seconds that a server has for an answer."""

_CHUNK = 1 << 20

_IDENTITIES = ("sha256", "etag", "version", "modified")
"""What two contents are told apart by: the first that both have. An object of the same ETag is the same in a new
version."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(://|::)")

_SECRETS = re.compile(r"(?<=://)[^/@\s]*@|\?.*")

_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


class OpenResources:
    """The open resources of one run. They are released by tier, and within a tier the last opened first."""

    def __init__(self, workspace: Workspace, stopping: StopRequests, declared: Iterable[Resource]):
        self._workspace, self._stopping = workspace, stopping
        self._declared = tuple(declared)
        self._held: dict[str, HeldResource] = {}  # in the order in which they were opened
        self._names: set[str] = set()  # names of open resources and of those being opened
        self._is_released = False
        self.unreleased: list[str] = []  # errors of releases, in words

    def find(self, name: str) -> HeldResource | None:
        return self._held.get(name)

    def names(self) -> list[str]:
        return list(self._held)

    async def open(self, run: Any) -> None:
        """Open what the agent has declared and is not open yet, `process` first and `application` last. If one is not
        available, release the others, request a pause, and raise Suspended. After any exception nothing is left
        open."""
        missing = [declared for declared in self._declared if declared.name not in self._held]
        try:
            for declared in sorted(missing, key=lambda each: TIERS.index(each.tier), reverse=True):
                await self.add(declared, run)
        except BaseException:
            await unhindered(self._release_all())
            raise
        if missing:
            self._workspace.journal.flush()

    async def add(self, declared: Resource, run: Any) -> Any:
        """Open one more resource and return the object."""
        if self._is_released:
            raise UsageError(f"the resource {declared.name!r} was entered after the end of the run")
        if declared.name in self._names:
            raise UsageError(
                f"there is a resource {declared.name!r} already",
                remedy="give each its own name, or pass a function: Satchel calls it only if no resource has that name",
            )
        factory = declared.factory
        make = bind(factory, run) if takes_run(factory) else factory
        held = HeldResource(declared, make, on_loop=runs_on_loop(factory))
        self._names.add(declared.name)
        try:
            with self._stopping.drain.working(f"opening {declared.name}"):
                event = await held.open()
        except BaseException:
            self._names.discard(declared.name)
            raise
        self._workspace.journal.add(_record(held, "opened", event))
        if event.outcome == "ok":
            self._held[held.name] = held
            return held.object
        self._names.discard(declared.name)
        if held.is_open:
            await self._release(held)
        error = describe(event.error, self._workspace.store.url) if event.error else None
        reason = f"resource {held.name} is not available: {event.why}"
        self._stopping.pause(PauseRequested(reason=reason, by="satchel"), error)
        raise Suspended from event.error

    async def release(self) -> None:
        """Release all open resources, one after the other. Raises nothing: errors are recorded and listed in
        `unreleased`. A cancellation does not shorten it, because every release has its time limit."""
        self._is_released = True
        await unhindered(self._release_all())

    async def _release_all(self) -> None:
        held, self._held = list(self._held.values()), {}
        self._names.difference_update(each.name for each in held)
        for tier in TIERS:
            for each in reversed(held):
                if each.tier == tier:
                    await self._release(each)

    async def _release(self, held: HeldResource) -> None:
        event = await held.release()
        if event.outcome != "ok":
            self.unreleased.append(f"resource {held.name} was not released properly: {event.why}")
        with suppress(SatchelError):  # the journal may be what has failed
            self._workspace.journal.add(_record(held, "released", event))


class Resources:
    """The open resources as the agent sees them: `run.resources["db"]` is the object. The whole tree of agents shares
    them."""

    def __init__(self, agent: AgentContext, pool: OpenResources):
        self._agent, self._pool = agent, pool

    def __getitem__(self, name: str) -> Any:
        held = self._pool.find(name)
        if held is None and (rehearsal := self._agent.context.rehearsal) is not None:
            rehearsal.at_resource(self._agent.context.stopping, name)
        if held is None:
            there = ", ".join(self._pool.names())
            raise UsageError(
                f"there is no resource {name!r}",
                why=f"there are: {there}" if there else None,
                remedy="declare it with @agent(resources=[...]) at the run's own agent, or enter it",
            )
        return held.object

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._pool.find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._pool.names())

    @awaited("run.resources.enter")
    async def enter(
        self,
        what: Any,
        *,
        name: str,
        tier: Tier = "application",
        check: Callable[[Any], Any] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109 - it is also the time limit of the check and the release
    ) -> Any:
        """Open one more resource and return the object. It stays open until the run stops, even if an item opened it.
        Every start enters it again.

        `what` is a context manager, an object with `aclose()` or `close()`, or a function that makes one, as in a
        `Resource`. If `what` is a function and a resource of that name is open, that one is returned; anything else
        under a used name is a UsageError. If the resource is not available, the run pauses. Not for use in a step,
        because a recorded step does not run.
        """
        check_outside_steps("run.resources.enter() was called")
        self._agent.check_going_on()
        is_function = callable(what) and (isinstance(what, type) or not _is_manager(what))
        if is_function and name in self:
            return self[name]
        if (rehearsal := self._agent.context.rehearsal) is not None:
            rehearsal.at_resource(self._agent.context.stopping, name)
        factory = what if is_function else (lambda: what)
        return await self._pool.add(Resource(name, factory, tier, check, timeout), self._agent.run)


def _is_manager(what: Any) -> bool:
    return hasattr(type(what), "__enter__") or hasattr(type(what), "__aenter__")


def _record(held: HeldResource, event: Any, came: ResourceOutcome) -> journal.ResourceChanged:
    return journal.ResourceChanged(
        name=held.name, tier=held.tier, event=event, outcome=came.outcome, why=came.why, ms=came.ms
    )


def read_prompt(session: Session, loop: asyncio.AbstractEventLoop, name: str, values: dict[str, Any]) -> Prompt:
    """The prompt `name` with `values` in its placeholders, in the version that the run is held to, else as the file is
    now. The text is kept when this returns. May be called from any thread; `loop` is the one of the run.

    UsageError if there is no such prompt, AgentError if it has a secret, InvalidFile if a placeholder has no value.
    """
    workspace, path = session.context.workspace, prompts.path_of(name)
    pinned = prompts.pinned(workspace.moment.config)
    version = (pinned or {}).get(name, "")
    if version:
        text = prompts.prompt_text(session.store, name, version)
    else:
        shelf = prompts.Shelf(session.store, workspace.definition.prompts_folder)
        try:
            found = shelf.read(name)
        except FileNotFoundError:
            raise shelf.missing(name) from None
        text, path = decode(found.data, found.path), found.path
        version = prompts.keep(session.store, name, found.data, workspace.redactor)
    if missing := [match for match in _PLACE.finditer(text) if match[1] not in values]:
        raise InvalidFile(
            path,
            [
                Problem(place(text, each.start()), each[0], "a value for it", f"Call run.prompt(..., {each[1]}=...)")
                for each in missing
            ],
        )
    if pinned is not None and name not in pinned:
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            _pin(workspace, name, version)
        else:  # of a step: what it returns is recorded later
            loop.call_soon_threadsafe(_pin, workspace, name, version)
    if (call := current_call.get()) is not None:
        call.prompts[name] = version
    return Prompt(_PLACE.sub(lambda match: str(values[match[1]]), text), name, version)


def _pin(workspace: Workspace, name: str, version: str) -> None:
    config = workspace.moment.config
    known = prompts.pinned(config)
    if known is not None and name not in known:
        workspace.journal.add(Configured(config={**config, prompts.PINNED: {**known, name: version}}))


def refer(context: Context, reference: str) -> None:
    """Record durably that the agent needs what is at `reference`. What it holds is recorded as soon as that is known.
    AgentError for a secret in it, which no later start could follow."""
    workspace = context.workspace
    for _, rule in workspace.redactor.found_in(reference):
        raise AgentError(
            "a reference has a secret", why=rule, remedy="let the environment have it, as fsspec's options"
        )
    if reference not in workspace.definition.references:
        workspace.journal.flush()  # what it works with may be about to be recorded
        config = workspace.moment.config
        known = config.get("references", [])
        if reference not in known:
            workspace.journal.add(Configured(config={**config, "references": [*known, reference]}))
            workspace.journal.flush()
    context.on_refer(reference)


class Referred(Struct, frozen=True):
    """What was found at the references of a run."""

    dropped: tuple[str, ...] = ()  # they are missing, and a person accepts that
    contents: dict[str, ReferenceContent] = field(default_factory=dict)


async def check_references(workspace: Workspace, stopping: StopRequests, *, accepts: bool) -> Referred:
    """Pause the run and raise Suspended if a reference is missing, or if one has changed under `on_reference: refuse`;
    only if the run had begun before. With `accepts`, report that, and go on."""
    moment, redactor = workspace.moment, workspace.redactor
    named = [*workspace.definition.references, *moment.config.get("references", ())]
    recorded = contents_in(moment.config)
    if moment.attempt < 2 or not named:
        return Referred(contents=recorded)
    known = {each: recorded[redactor.text(each)] for each in named if redactor.text(each) in recorded}
    found = await find_references(named, workspace.store.url, known)
    gone = missing_references(found)
    changes = [changed_reference(each, known[each], found[each].content) for each in found if each in known]
    changed = [text for text in changes if text]
    bars = [*gone]
    if changed and workspace.definition.on_reference == "refuse":
        bars += [
            *changed,
            "`on_reference: refuse` is set: restore it, or accept it with `satchel resume --accept-drift`",
        ]
    if bars and not accepts:
        stopping.pause(PauseRequested(reason="; ".join(bars), by="satchel"))
        raise Suspended
    for text in (*gone, *changed):
        workspace.report.add_late("found", text)
    now = {redactor.text(each): found[each].content for each in found if found[each].content and not found[each].file}
    return Referred(tuple(each for each in named if found[each].why), {**recorded, **now})


class ReferenceState(NamedTuple):
    """What is at a reference."""

    why: str = ""  # it can't be used
    content: ReferenceContent = MappingProxyType({})
    file: str = ""  # whose SHA-256 the content does not have


async def find_references(
    references: Iterable[str], root: str, known: Mapping[str, ReferenceContent]
) -> dict[str, ReferenceState]:
    """What is at each of them. `root` is the folder or URL of the workspace. A file is read if its content was `known`
    and its size or time of change is another now."""
    unique = list(dict.fromkeys(references))
    found = await asyncio.gather(*(look_at_reference(each, root, known.get(each)) for each in unique))
    return dict(zip(unique, found, strict=True))


async def look_at_reference(reference: str, root: str, known: ReferenceContent | None) -> ReferenceState:
    """What is at one reference. A file is not read if nothing is `known`, or if its size and time of change are."""
    apart, given_up = DaemonExecutor("satchel-reference"), threading.Event()
    try:
        try:
            async with asyncio.timeout(LIMIT):
                found = await apart.call(lambda: _found(reference, root))
        except TimeoutError:
            return ReferenceState(f"no answer within {LIMIT:g} s")
        if not found.file or known is None:
            return found
        if all(known.get(key) == value for key, value in found.content.items()) and "sha256" in known:
            return ReferenceState(content=known)
        return await apart.call(lambda: _read(found, given_up))
    finally:
        given_up.set()
        apart.end()


def missing_references(found: Mapping[str, ReferenceState]) -> list[str]:
    """In words, those that do not exist, or can't be checked."""
    return [
        f"reference {shown_reference(reference)} is missing: {each.why}"
        for reference, each in found.items()
        if each.why
    ]


def changed_reference(reference: str, before: ReferenceContent, now: ReferenceContent) -> str:
    """In words, how the content has changed. Empty if it has not, or if nothing tells."""
    by = next((key for key in _IDENTITIES if key in before and key in now), None)
    if by is None or before[by] == now[by]:
        return ""
    return f"reference {shown_reference(reference)} has changed: it is {_said(now)}, and was {_said(before)}"


def shown_reference(reference: str) -> str:
    """A reference that is safe to show: a URL without user, password and query."""
    return _SECRETS.sub("", reference) if _SCHEME.match(reference) else reference


def contents_in(config: Mapping[str, Any]) -> dict[str, ReferenceContent]:
    """What the references held, as a configuration has it."""
    return dict(config.get(CONTENTS, {}))


class ReferenceContents:
    """For one opening. What is not found by its end is not recorded; the next start has nothing to compare then."""

    def __init__(self, context: Context):
        self._context = context
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    def find_unknown(self) -> None:
        """Look at the references whose content is not recorded."""
        workspace = self._context.workspace
        config = workspace.moment.config
        recorded = contents_in(config)
        for reference in (*workspace.definition.references, *config.get("references", ())):
            if workspace.redactor.text(reference) not in recorded:
                self.find(reference)

    def find(self, reference: str) -> None:
        """Look at one, and record it. If that is under way, it is not begun again."""
        if reference not in self._looking and not self._is_over:
            looking = asyncio.create_task(self._find(reference), name=f"reference {shown_reference(reference)}")
            self._looking[reference] = looking
            looking.add_done_callback(lambda _: self._looking.pop(reference))

    async def end(self, *, waits: bool) -> None:
        """Find no more. With `waits`, what is under way has some seconds."""
        self._is_over = True
        if not (looking := list(self._looking.values())):
            return
        if waits:
            await asyncio.wait(looking, timeout=LIMIT)
        for task in looking:
            task.cancel()
        await asyncio.wait(looking)

    async def _find(self, reference: str) -> None:
        workspace = self._context.workspace
        key = workspace.redactor.text(reference)
        known = contents_in(workspace.moment.config).get(key, {})
        found = await look_at_reference(reference, workspace.store.url, known)
        config = workspace.moment.config  # as it is after that
        contents = contents_in(config)
        if not found.content or found.file or contents.get(key) == found.content:
            return
        try:
            workspace.journal.add(Configured(config={**config, CONTENTS: {**contents, key: found.content}}))
        except SatchelError as error:
            self._context.stopping.fail(error)


def _said(content: ReferenceContent) -> str:
    size = f"{content['size']:,} bytes" if "size" in content else ""
    for key, name in (("sha256", "SHA-256 "), ("etag", "ETag "), ("version", "version "), ("modified", "of ")):
        if key in content:
            told = content[key][:8] if key == "sha256" else content[key]
            return f"{size}{', ' if size and key != 'modified' else ' ' if size else ''}{name}{told}"
    return size


def _found(reference: str, root: str) -> ReferenceState:
    scheme = _SCHEME.match(reference)
    if scheme is None:
        try:
            place = urls.resolve(root, reference)
        except UsageError as error:
            return ReferenceState(error.what)
        return _of_url(place) if urls.is_remote(place) else _of_path(place)
    if scheme[1].lower() in ("http", "https"):
        return _of_address(reference)
    return _of_url(reference)


def _of_path(path: str) -> ReferenceState:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return ReferenceState("there is no such file")
    except (OSError, ValueError) as error:
        return ReferenceState(f"it can't be inspected: {getattr(error, 'strerror', None) or error}")
    if not stat.S_ISREG(facts.st_mode):
        return ReferenceState()
    return ReferenceState(content=_stated(facts), file=path)


def _stated(facts: os.stat_result) -> ReferenceContent:
    return {"size": facts.st_size, "mtime_ns": facts.st_mtime_ns}


def _read(found: ReferenceState, given_up: threading.Event) -> ReferenceState:
    """The same with the SHA-256 of the file, unless it can't be read or the wait for it is over."""
    digest = hashlib.sha256()
    try:
        with open(found.file, "rb") as file:
            content = _stated(os.fstat(file.fileno()))  # before: a change meanwhile has a later time
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if given_up.is_set():
                    return found
    except OSError:
        return found
    return ReferenceState(content={**content, "sha256": digest.hexdigest()})


def _of_address(address: str) -> ReferenceState:
    """Some servers don't support or allow HEAD; then the answer to GET counts. Its body is not read."""
    import http.client  # slow, and most runs refer to none
    import urllib.error
    import urllib.request

    why = ""
    for method in ("HEAD", "GET"):
        try:
            request = urllib.request.Request(address, method=method, headers={"User-Agent": "satchel"})
            with urllib.request.urlopen(request, timeout=_ANSWER) as answer:
                told = {"etag": answer.headers["ETag"], "modified": answer.headers["Last-Modified"]}
                return ReferenceState(content={key: value for key, value in told.items() if value})
        except urllib.error.HTTPError as error:
            why = f"the server answers {error.code} {error.reason}"
            error.close()
        except urllib.error.URLError as error:
            return ReferenceState(f"the server can't be reached: {error.reason}")
        except (OSError, ValueError, http.client.HTTPException) as error:
            return ReferenceState(f"the server can't be reached: {type(error).__name__}: {error}".rstrip(": "))
    return ReferenceState(why)


def _of_url(url: str) -> ReferenceState:
    import fsspec  # type: ignore[import-untyped]  # slow, and most runs refer to none
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    try:
        files, path = fsspec.core.url_to_fs(url)
        if isinstance(files, LocalFileSystem):
            return _of_path(path)
        files.invalidate_cache()
        facts = files.info(path)
    except FileNotFoundError:
        return ReferenceState("there is no such file")
    except Exception as error:  # of whichever library opens it
        return ReferenceState(f"it can't be inspected: {type(error).__name__}: {error}")
    return ReferenceState(content=_told_of_object(facts))


def _told_of_object(facts: Mapping[str, Any]) -> ReferenceContent:
    """What the drivers of fsspec call these."""
    if facts.get("type") == "directory":
        return {}
    names = {
        "size": ("size",),
        "version": ("VersionId", "version_id", "generation"),
        "etag": ("ETag", "etag"),
        "modified": ("LastModified", "last_modified", "updated", "mtime", "modified", "created"),
    }
    found = {key: next((facts[name] for name in of if facts.get(name)), None) for key, of in names.items()}
    return {
        key: value if key == "size" else str(value)
        for key, value in found.items()
        if value is not None and (key != "version" or value != "null")
    }
