"""Load the schemas in this folder, and say in words for people what is wrong with a value.

Most values are valid, so that is found out quickly: a schema becomes functions, one for each keyword. jsonschema
accepts everything that they accept. What they refuse may still be valid (`1.0` is an integer in the standard): then
jsonschema decides, and gives the reason. An unknown keyword makes them refuse everything.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .problem import Problem, Where, dotted, ended

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


_FOLDER = os.path.dirname(__file__)  # importlib.resources takes 4 ms, for packages in archives, and this is in none

Place = Callable[[Where], str]
"""Makes the text for a path in a message; callers add line numbers with it."""

_Check = Callable[[Any], bool]
_Load = Callable[[str], Mapping[str, Any]]

_WORDS = frozenset(
    (
        "$schema",
        "$id",
        "$defs",
        "title",
        "description",
        "examples",
        "default",
        "discriminator",
        "patternErrorMessage",
        "writeOnly",
    )
)
"""Keywords that refuse nothing."""

_OF_KEYS = frozenset(("properties", "patternProperties", "additionalProperties"))
_OF_ITEMS = frozenset(("prefixItems", "items"))
_OF_IF = frozenset(("if", "then", "else"))

_TYPES: dict[str, _Check] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) is int or type(value) is float,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}

_PLAIN = frozenset((str, int, float, bool, type(None)))


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
    """What is wrong with `value` as a `name`, in the order of the value; at most `validator.MOST`, none if valid.

    `place` is called with paths that may not exist, such as that of a missing key. `data_schema` replaces data.json:
    the agent's own schema in a workspace. It may be a stranger's, so errors in it are reported, not raised, it fetches
    nothing, and it takes no longer than `validator.LIMIT`.
    """
    if data_schema is None and _accepts(name)(value):
        return []
    # Imported here, since jsonschema takes 28 ms, and most files that are looked at are valid.
    from . import validator

    if data_schema is None:
        return validator.check(_validator(name), value, place or dotted)
    inside = (name, schema)
    return validator.check_foreign(data_schema, value, place or dotted, validator.DATA, inside, _patterns)


def against(schema: Mapping[str, Any] | bool, value: Any, place: Place | None = None) -> list[Problem]:
    """What is wrong with `value` by a schema of an agent. It may be a stranger's, as above."""
    from . import validator

    return validator.check_foreign(schema, value, place or dotted, validator.AGENTS_OWN)


def of_result(schema: Mapping[str, Any] | bool, value: Any, place: Place) -> list[Problem]:
    """What is wrong with `value` by the schema of a step's result, as a workspace has it."""
    from . import validator

    return validator.check_foreign(schema, value, place, validator.RESULT)


@functools.cache
def _accepts(name: str) -> _Check:
    return accepting(name, schema)


@functools.cache
def _validator(name: str) -> Validator:
    from . import validator

    return validator.validator(name, schema)


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


def accepting(name: str, load: _Load) -> _Check:
    """A function that accepts values valid under the schema `name`. `load` loads it and those that it refers to."""
    try:
        check = _Schemas(load).at(name, "")
    except _NotKnown:
        return _nothing

    def accepts(value: Any) -> bool:
        try:
            return check(value)
        except RecursionError:
            return False

    return accepts


class _NotKnown(Exception):
    """A schema contains something that this module does not support."""


class _Schemas:
    def __init__(self, load: _Load):
        self._load = load
        self._made: dict[tuple[str, str], _Check] = {}

    def at(self, name: str, pointer: str) -> _Check:
        """The function for a schema, or for the part of it at `pointer`."""
        key = (name, pointer)
        if key not in self._made:
            node: Any = self._load(name)
            for part in pointer.split("/")[1:]:
                node = node[part]
            self._made[key] = lambda value: made(value)  # it may refer to itself
            try:
                made = self._made[key] = self._all(node, name)
            except _NotKnown:
                del self._made[key]
                raise
        return self._made[key]

    def _all(self, schema: Any, name: str) -> _Check:
        if isinstance(schema, bool):
            return lambda value: schema
        grouped = _OF_KEYS | _OF_ITEMS | _OF_IF | _WORDS
        checks = [self._one(keyword, schema, name) for keyword in schema if keyword not in grouped]
        if _OF_KEYS & schema.keys():
            checks.append(self._keys(schema, name))
        if _OF_ITEMS & schema.keys():
            checks.append(self._items(schema, name))
        if "if" in schema:
            checks.append(self._if(schema, name))
        return _every(checks)

    def _one(self, keyword: str, schema: Mapping[str, Any], name: str) -> _Check:
        wanted: Any = schema[keyword]
        match keyword:
            case "$ref":
                file, _, pointer = wanted.partition("#")
                return self.at(file.removesuffix(".json") or name, pointer)
            case "type":
                kinds = [_TYPES[kind] for kind in ([wanted] if isinstance(wanted, str) else wanted)]
                return kinds[0] if len(kinds) == 1 else lambda value: any(kind(value) for kind in kinds)
            case "const" | "enum":
                known = {(type(each), each) for each in ([wanted] if keyword == "const" else wanted)}
                return lambda value: type(value) in _PLAIN and (type(value), value) in known
            case "minimum":
                return lambda value: not _is_number(value) or value >= wanted
            case "maximum":
                return lambda value: not _is_number(value) or value <= wanted
            case "exclusiveMinimum":
                return lambda value: not _is_number(value) or value > wanted
            case "minLength":
                return lambda value: not isinstance(value, str) or len(value) >= wanted
            case "pattern":
                search = re.compile(ended(wanted)).search
                return lambda value: not isinstance(value, str) or search(value) is not None
            case "minItems":
                return lambda value: not isinstance(value, list) or len(value) >= wanted
            case "maxItems":
                return lambda value: not isinstance(value, list) or len(value) <= wanted
            case "required":
                needed = frozenset(wanted)
                return lambda value: not isinstance(value, dict) or needed <= value.keys()
            case "anyOf":
                branches = [self._all(each, name) for each in wanted]
                return lambda value: any(branch(value) for branch in branches)
            case "oneOf" if "discriminator" in schema:
                return self._discriminated(schema["discriminator"], name)
            case "oneOf" if all(each.keys() == {"required"} for each in wanted):
                needs = [frozenset(each["required"]) for each in wanted]
                return lambda value: isinstance(value, dict) and sum(need <= value.keys() for need in needs) == 1
        raise _NotKnown(keyword)

    def _keys(self, schema: Mapping[str, Any], name: str) -> _Check:
        known = {key: self._all(each, name) for key, each in schema.get("properties", {}).items()}
        patterns = [
            (re.compile(pattern).search, self._all(each, name))
            for pattern, each in schema.get("patternProperties", {}).items()
        ]
        rest = self._all(schema.get("additionalProperties", True), name)

        def check(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            for key, each in value.items():
                own = known.get(key)
                if own is not None and not own(each):
                    return False
                if patterns and not isinstance(key, str):
                    return False
                found = [of for search, of in patterns if search(key)] if patterns else ()
                if not all(of(each) for of in found) or (own is None and not found and not rest(each)):
                    return False
            return True

        def check_known(value: Any) -> bool:
            if isinstance(value, dict):
                for key, each in value.items():
                    if (own := known.get(key)) is not None and not own(each):
                        return False
            return True

        return check if patterns or "additionalProperties" in schema else check_known

    def _items(self, schema: Mapping[str, Any], name: str) -> _Check:
        first = [self._all(each, name) for each in schema.get("prefixItems", ())]
        rest = self._all(schema.get("items", True), name)

        def check(value: Any) -> bool:
            if not isinstance(value, list):
                return True
            return all(of(each) for of, each in zip(first, value, strict=False)) and all(map(rest, value[len(first) :]))

        return check

    def _discriminated(self, wanted: Mapping[str, Any], name: str) -> _Check:
        """As `oneOf` in validator.py: only the branch that a key names is tried."""
        key, branches = wanted["propertyName"], wanted["mapping"]
        made: dict[str, _Check] = {}

        def check(value: Any) -> bool:
            kind = value.get(key) if isinstance(value, dict) else None
            if not isinstance(kind, str) or kind not in branches:
                return False
            if kind not in made:  # most journals have a few kinds only
                try:
                    made[kind] = self.at(name, branches[kind][1:])
                except _NotKnown:
                    made[kind] = _nothing
            return made[kind](value)

        return check

    def _if(self, schema: Mapping[str, Any], name: str) -> _Check:
        """Its condition must be decided exactly: that some properties are certain texts."""
        condition = schema["if"]
        if condition.keys() != {"properties"}:
            raise _NotKnown("if")
        texts = {key: each.get("const") for key, each in condition["properties"].items()}
        if any(not isinstance(text, str) or len(condition["properties"][key]) > 1 for key, text in texts.items()):
            raise _NotKnown("if")
        then, otherwise = self._all(schema.get("then", True), name), self._all(schema.get("else", True), name)

        def check(value: Any) -> bool:
            holds = not isinstance(value, dict) or all(value.get(key, text) == text for key, text in texts.items())
            return then(value) if holds else otherwise(value)

        return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _nothing(value: Any) -> bool:
    return False


def _every(checks: list[_Check]) -> _Check:
    match checks:
        case [one]:
            return one
        case [one, other]:
            return lambda value: one(value) and other(value)
    return lambda value: all(check(value) for check in checks)
