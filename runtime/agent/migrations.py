"""`@migration`: converts data of an earlier version of an agent to the current state type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from ...schemas import Where, dotted
from ...workspace.base import NotSerializable, Refused, UsageError
from ..steps import Codec, encode

if TYPE_CHECKING:
    from ...workspace.journal import Patch


class Migration(Struct, frozen=True):
    """A function that converts data of the version before to version `to`."""

    to: int
    function: Callable[[dict[str, Any]], dict[str, Any]]

    def __call__(self, data: dict[str, Any]) -> dict[str, Any]:
        return self.function(data)


def migration(to: int) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Migration]:
    """Make `def f(data) -> data` the conversion from version `to - 1` of an agent's state type to version `to`.

    Satchel calls it with the JSON data of a run with the older version, before it enters the agent. It may change and
    return the data. It should do nothing else, because it may be called more than once. The first version of a state
    type is 1, so the first migration leads to 2.
    """
    if isinstance(to, bool) or not isinstance(to, int) or to < 2:
        raise UsageError(
            f"a migration can't lead to version {to!r}",
            remedy="the first migration leads to version 2: `@migration(2)`",
        )
    return lambda function: Migration(to, function)


def chain(migrations: Iterable[Migration]) -> tuple[Migration, ...]:
    """The migrations in order. UsageError if one is not a migration, or two lead to the same version."""
    found = tuple(migrations)
    for each in found:
        if not isinstance(each, Migration):
            raise UsageError(f"{each!r} is not a migration", remedy="decorate it with @migration(2)")
    found = tuple(sorted(found, key=lambda each: each.to))
    for one, other in pairwise(found):
        if one.to == other.to:
            raise UsageError(f"two migrations lead to version {one.to}")
    return found


class MigrationStep(NamedTuple):
    """One version further."""

    to: int
    patch: Patch


class MigrationResult(NamedTuple):
    steps: list[MigrationStep]
    data: Any


def migrate(
    data: Any, version: int, migrations: tuple[Migration, ...], codec: Codec, folder: str = ""
) -> MigrationResult:
    """Convert `data` from `version` to that of the last of `migrations`. Refused if there is no way, if a migration
    fails, or if the result does not fit the state type. Changes nothing."""
    from ...workspace.state import json_patch as patch
    from ...workspace.views import STATE

    path, newest = folder + STATE, migrations[-1].to if migrations else 1
    if version > newest:
        raise Refused(
            f"the data is of version {version}, but this agent knows only version {newest}",
            path=path,
            why="a newer version of the agent has written them",
            remedy="run it with that version of the agent",
        )
    steps: list[MigrationStep] = []
    for to in range(version + 1, newest + 1):
        found = next((each for each in migrations if each.to == to), None)
        if found is None:
            raise Refused(
                f"no migration leads from version {to - 1} to {to}",
                path=path,
                why=f"the data is of version {version}, but this agent needs version {newest}",
                remedy=f"give the agent the migration `@migration({to})`",
            )
        after = _once(data, found, path)
        steps.append(MigrationStep(to, patch.diff(data, after, ordered=True)))
        data = after
    if steps:
        try:
            codec.decode(msgspec.json.encode(data))
        except UsageError as error:
            raise Refused(
                f"after the migration to version {newest}, the data does not fit the state type",
                path=path,
                why=error.why,
                remedy="correct the migration; the data has not changed",
            ) from error
    return MigrationResult(steps, data)


def dropped(data: Any, codec: Codec, drop: Sequence[str]) -> Patch:
    """The removal of the keys that the type does not have and the agent drops."""
    return _removal([each.path for each in codec.unknown_keys(data) if _is_dropped(each.path, drop)])


def check_known(
    data: Any,
    codec: Codec,
    drop: Sequence[str],
    unknown: str,
    folder: str = "",
    written_by: Callable[[Where], str] | None = None,
) -> Patch:
    """The removal of the same keys. Refused if the state type does not have a key of `data`, and the agent does not say
    what to do with it: the next commit would lose it. `written_by`: who has written a key, in words."""
    from ...workspace.views import STATE

    found: list[Where] = []
    for each in codec.unknown_keys(data):
        if _is_dropped(each.path, drop):
            found.append(each.path)
            continue
        in_list = any(isinstance(part, int) for part in each.path)
        if unknown == "keep" and not in_list:
            continue
        name = dotted(each.path)
        kept = (
            'in a list even `@agent(unknown="keep")` can\'t keep it' if in_list else '`@agent(unknown="keep")` keeps it'
        )
        raise Refused(
            f"the agent's state type has no key `{name}`, which is on record",
            path=folder + STATE,
            why=f"the next commit would lose it{written_by(each.path) if written_by else ''}",
            remedy=f"write a migration (`@migration`), or let it go with `@agent(drop=({name!r},))`; {kept}",
        )
    return _removal(found)


def _removal(found: Sequence[Where]) -> Patch:
    from ...workspace.state import json_patch as patch

    return [{"op": "remove", "path": "".join(f"/{patch.escape(str(part))}" for part in path)} for path in found[::-1]]


def _is_dropped(path: Where, drop: Sequence[str]) -> bool:
    """Whether the agent lets a key go, or one above it."""
    names = ".".join(part for part in path if isinstance(part, str))
    return any(names == each or names.startswith(f"{each}.") for each in drop)


def check_migrated(data: Any, version: int, migrations: tuple[Migration, ...], codec: Codec) -> None:
    """UsageError if data of `version` do not lead to data that fits the state type."""
    try:
        migrated = migrate(data, version, migrations, codec)
    except Refused as error:
        raise UsageError(error.what, why=error.why) from error
    if not migrated.steps:
        codec.decode(encode(data, "data"))


def _once(data: Any, migration: Migration, path: str) -> Any:
    """What a migration returns for a copy of `data`."""
    what, remedy = f"the migration to version {migration.to}", "correct the migration; the data has not changed"
    try:
        after = migration(msgspec.json.decode(msgspec.json.encode(data)))
    except Exception as error:
        from .code import said

        raise Refused(f"{what} has failed", path=path, why=said(error), remedy=remedy) from error
    if not isinstance(after, dict):
        raise Refused(
            f"{what} has not returned the data",
            path=path,
            why=f"it has returned {after!r:.60}",
            remedy="let it return a dict",
        )
    try:
        return msgspec.json.decode(encode(after, "the data"))
    except NotSerializable as error:
        raise Refused(
            f"{what} has made something that is not JSON", path=path, why=str(error), remedy=remedy
        ) from error
