"""Tells clients which resources and tasks have changed. Looks only while a client waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import mcp_types as types
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from pydantic import ConfigDict

from ....workspace.base import SatchelError
from ....workspace.inspect import lease, signature
from ...api import Handle
from . import describing
from .run_names import Asking
from .tasks import EXTENSION, Client, Tasks

_LOOK = 0.5
_LOOK_REMOTELY = 4.0
"""Seconds between two looks; in a bucket for each request that the last listing took, as `satchel serve` does."""

MOST = 1000  # of what one client may watch


class Watched(NamedTuple):
    """What a client waits for: resources by URI, and tasks by id."""

    uris: frozenset[str]
    tasks: frozenset[str]

    @property
    def runs(self) -> set[str]:
        places = filter(None, map(describing.of_uri, self.uris))
        return {run for run, _ in places} | {*map(describing.run_of_task, self.tasks)}


class Change(NamedTuple):
    """A resource that has changed, or a task with its new details."""

    uri: str = ""
    task: dict[str, Any] | None = None


class TaskParams(types.NotificationParams):
    """A task, with the names of the protocol."""

    model_config = ConfigDict(extra="allow")


class TaskChanged(types.Notification[TaskParams, str]):
    method: str = "notifications/tasks"


class _Look:
    """One look after the other at what a client waits for."""

    def __init__(self, asking: Asking, tasks: Tasks, client: Client):
        self._asking, self._tasks, self._client = asking, tasks, client
        self._handles: dict[str, Handle] = {}
        self._known: dict[str, object] = {}
        self._sought: set[str] = set()
        self.rest = _LOOK_REMOTELY if asking.runs.is_remote else _LOOK

    def changes(self, watched: Watched) -> list[Change]:
        """What has changed since the last look. The first look at a task tells how it is, at a file nothing."""
        pages = 0
        for run in watched.runs:
            with suppress(SatchelError, OSError):
                if (handle := self._handles.get(run) or self._found(run)) is None:
                    continue
                self._handles[run] = handle
                handle.store.refresh()
                pages += handle.store.pages
        if self._asking.runs.is_remote:
            self.rest = _LOOK_REMOTELY * max(1, pages)
        found = [Change(uri=uri) for uri in sorted(watched.uris) if self._has_changed(uri, partial(self._version, uri))]
        for task in sorted(watched.tasks):
            is_first = task not in self._known
            if self._has_changed(task, partial(self._signs, task)) or is_first:
                found += self._detailed(task)
        return found

    def _found(self, run: str) -> Handle | None:
        """A look at all runs, for a name that may be a run_id, is for the first time only: it costs too much."""
        if run in self._sought:
            return self._asking.runs.at(run)
        self._sought.add(run)
        return self._asking.runs.find(run)

    def _has_changed(self, key: str, look: Callable[[], object]) -> bool:
        try:
            now = look()
        except (SatchelError, OSError):
            return False
        before = self._known.setdefault(key, now)
        self._known[key] = now
        return before != now

    def _version(self, uri: str) -> str | None:
        place = describing.of_uri(uri)
        handle = self._handles.get(place[0]) if place else None
        return handle.store.version(place[1]) if handle and place else None

    def _signs(self, task: str) -> object:
        handle = self._handles.get(describing.run_of_task(task))
        return (signature(handle.store), handle.store.version(lease.PATH)) if handle else None

    def _detailed(self, task: str) -> list[Change]:
        """The task, unless it is as it was told."""
        try:
            found = self._tasks.get(self._asking, task, self._client)
        except (MCPError, SatchelError):
            return []
        told = (found["status"], found["statusMessage"], [*found.get("inputRequests", ())])
        key = f"told of {task}"
        if self._known.get(key) == told:
            return []
        self._known[key] = told
        return [Change(task=found)]


def agreed(asking: Asking, tasks: Tasks, wanted: Watched) -> Watched:
    """What of it can be watched: files that a client may read, also those to come, and the tasks that there are."""
    known = frozenset(task for task in wanted.tasks if tasks.is_known(asking, task))
    return Watched(frozenset(filter(describing.is_resource, wanted.uris)), known)


async def follow(asking: Asking, tasks: Tasks, client: Client, wanted: Callable[[], Watched]) -> AsyncIterator[Change]:
    """The changes of what is wanted, as they come, until nothing is wanted any more: that is asked before each look."""
    look = _Look(asking, tasks, client)
    while any(now := wanted()):
        for change in await anyio.to_thread.run_sync(look.changes, now):
            yield change
        await anyio.sleep(look.rest)


async def listen(
    ctx: ServerRequestContext[Any, Any], asking: Asking, tasks: Tasks, client: Client, wanted: types.SubscriptionFilter
) -> types.SubscriptionsListenResult:
    """Serve one subscription of the protocol of 2026-07-28: the answer is a stream that lasts until the client leaves.

    Only resources and tasks: the list of the tools never changes, and that of the files is not watched.
    """
    ids = (wanted.model_extra or {}).get("taskIds") or ()
    if ids and not client.has_tasks:
        raise needs_tasks()
    asked = Watched(_texts(wanted.resource_subscriptions or ()), _texts(ids))
    watched = await anyio.to_thread.run_sync(agreed, asking, tasks, asked)
    meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: ctx.request_id}
    honoured = types.SubscriptionFilter(
        resource_subscriptions=sorted(watched.uris) or None,
        **({"taskIds": sorted(watched.tasks)} if watched.tasks else {}),  # type: ignore[arg-type]
    )
    params = types.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
    await ctx.session.send_notification(
        types.SubscriptionsAcknowledgedNotification(params=params), related_request_id=ctx.request_id
    )
    if not watched.uris and not watched.tasks:
        await anyio.sleep_forever()
    async for change in follow(asking, tasks, client, lambda: watched):
        await ctx.session.send_notification(_notification(change, meta), related_request_id=ctx.request_id)
    return types.SubscriptionsListenResult(_meta=meta)


def _notification(change: Change, meta: dict[str, Any]) -> types.ServerNotification:
    if change.task is not None:
        return TaskChanged(params=TaskParams(_meta=meta, **change.task))  # type: ignore[return-value]
    return types.ResourceUpdatedNotification(params=types.ResourceUpdatedNotificationParams(uri=change.uri, _meta=meta))


def _texts(values: Iterable[Any]) -> frozenset[str]:
    found = frozenset(each for each in values if isinstance(each, str))
    if len(found) > MOST:
        raise MCPError(types.INVALID_PARAMS, f"at most {MOST} can be watched at a time")
    return found


def needs_tasks() -> MCPError:
    """The error for a client that asks about tasks without saying that it handles them."""
    return MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        "Missing required client capability",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )
