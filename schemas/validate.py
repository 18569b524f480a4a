"""Load the schemas in this folder, and say in words for people what is wrong with a value."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .problem import Problem, Where, dotted
from .quick import Check, accepting

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_FOLDER = os.path.dirname(__file__)  # importlib.resources takes 4 ms, for packages in archives, and this is in none

LIMIT = 20
"""Problems reported for one value. More have a common cause."""

Place = Callable[[Where], str]
"""Makes the text for a path in a message; callers add line numbers with it."""


@functools.cache
def names() -> tuple[str, ...]:
    """The names of all schemas, sorted: `checkpoint`, `data`, `lease`, ..."""
    return tuple(sorted(name.removesuffix(".json") for name in os.listdir(_FOLDER) if name.endswith(".json")))


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """The schema called `name`, loaded once and shared: do not change it. KeyError if there is none."""
    loaded: dict[str, Any] = json.loads(text(name))
    return loaded


@functools.cache
def text(name: str) -> str:
    """The file of a schema, which is copied into workspaces. KeyError if there is none."""
    if name not in names():
        raise KeyError(f"no schema is called {name!r}; there are {', '.join(names())}")
    with open(f"{_FOLDER}/{name}.json", encoding="utf-8") as file:
        return file.read()


def problems(
    name: str, value: Any, *, place: Place | None = None, data_schema: Mapping[str, Any] | bool | None = None
) -> list[Problem]:
    """What is wrong with `value` as a `name`, in the order of the value; at most LIMIT problems, none if it is valid.

    `place` is called with paths that may not exist, such as that of a missing key. `data_schema` replaces data.json:
    the agent's own schema in a workspace. It may be a stranger's, so errors in it are reported, not raised, it fetches
    nothing, and it takes no longer than `checking.LIMIT`.
    """
    if data_schema is None and _accepts(name)(value):
        return []
    # Imported here, since jsonschema takes 28 ms, and most files that are looked at are valid.
    from . import checking

    if data_schema is None:
        return checking.check(_validator(name), value, place or dotted, LIMIT)
    inside = (name, schema)
    return checking.check_foreign(data_schema, value, place or dotted, LIMIT, checking.DATA, inside, _patterns)


def against(schema: Mapping[str, Any] | bool, value: Any, place: Place | None = None) -> list[Problem]:
    """What is wrong with `value` by a schema of an agent. It may be a stranger's, as above."""
    from . import checking

    return checking.check_foreign(schema, value, place or dotted, LIMIT, checking.AGENTS_OWN)


def of_result(schema: Mapping[str, Any] | bool, value: Any, place: Place) -> list[Problem]:
    """The same with a schema of a step's result, as a workspace has it."""
    from . import checking

    return checking.check_foreign(schema, value, place, LIMIT, checking.RESULT)


@functools.cache
def _accepts(name: str) -> Check:
    return accepting(name, schema)


@functools.cache
def _validator(name: str) -> Validator:
    from . import checking

    return checking.validator(name, schema)


@functools.cache
def _patterns() -> frozenset[str]:
    """All regular expressions of our own."""

    def inside(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(pattern := value.get("pattern"), str):
                yield pattern
            value = value.values()
        for each in value if not isinstance(value, str | int | float | None) else ():
            yield from inside(each)

    return frozenset(pattern for name in names() for pattern in inside(schema(name)))
