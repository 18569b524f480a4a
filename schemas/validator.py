"""Run jsonschema on a value, and word its errors: what was found, what was expected, what to do.

A module of its own, so that jsonschema is imported only when it is needed. References are resolved offline,
alternatives chosen by their discriminator. A schema of a stranger takes no longer than LIMIT. Its patterns may take
years (`^(a+)+$` for a text of forty characters), and Python can't be told to stop: they are tried in another process,
which is killed.
"""

from __future__ import annotations

import itertools
import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT202012, Schema

from .problem import Problem, Where, ended, nearest, short

_Errors = Iterator[ValidationError]
_Keyword = Callable[..., _Errors]

DATA = ("the schema for data (data.json)", "Remove the file .satchel/schemas/data.json; the next run writes it again")
RESULT = ("the schema of the result", "Remove it from .satchel/schemas/results/; the next run of the step writes it")
AGENTS_OWN = ("the schema of the answer", "Correct it in the agent's code")

MOST = 20
"""Problems reported for one value. More have a common cause."""

LIMIT = 2.0
"""Seconds of work that a check against a stranger's schema may cost, and seconds for trying its patterns."""

_SHORT = 1000  # characters

_VALUES = ("const", "default", "enum", "examples")
_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names, and not keywords."""

_CHILD = """
import json, re, sys
for line in sys.stdin:
    pattern, text = json.loads(line)
    try:
        found = re.search(pattern, text) is not None
    except Exception as error:
        found = str(error)
    print(json.dumps(found), flush=True)
"""

_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of keys to values",
    "null": "nothing (null)",
}
_MANY = 10  # values that are listed in full


def validator(name: str, load: Callable[[str], Schema]) -> Validator:
    """A validator for the schema called `name`, which is one of ours. `load` knows the others."""
    own = load(name)
    checker: Validator = _Discriminating(own, registry=_filled(_registry(load, None), own))
    return checker


def check(checker: Validator, value: Any, place: Callable[[Where], str]) -> list[Problem]:
    """At most MOST problems of `value`, in its order."""
    # A bound on errors as well: one error may be worded as several problems, but never the other way round.
    errors = list(itertools.islice(checker.iter_errors(value), 10 * MOST))
    told = [problem for error in errors for problem in itertools.islice(explain(fault(error)), MOST)]
    told.sort(key=lambda problem: _position(value, problem.path))
    return list(dict.fromkeys(Problem(place(path), *said) for path, *said in told))[:MOST]


def check_foreign(
    schema: Schema,
    value: Any,
    place: Callable[[Where], str],
    of: tuple[str, str],
    inside: tuple[str, Callable[[str], Schema]] | None = None,
    known: Callable[[], Container[str]] = tuple,
) -> list[Problem]:
    """At most MOST problems of `value` by a schema that may be a stranger's: it fetches nothing and takes no longer
    than LIMIT, and an error in the schema is returned as a problem. `inside` names the schema of ours that refers to it
    as data.json, and loads the others; without it `schema` is alone. `known`: patterns that can be searched safely.

    Keys of objects are not compared with patterns (`patternProperties`), nor is what such patterns leave over.
    """
    matcher = Matcher(time.monotonic() + LIMIT)
    try:
        Draft202012Validator.check_schema(schema)
        tamed = _tamed(schema)
        bounded = _bounded(matcher, known)
        if inside is None:
            checker: Validator = bounded(tamed, registry=Registry())
        else:
            checker = bounded(inside[1](inside[0]), registry=_registry(inside[1], tamed))
        return check(checker, value, place)
    except Exception as error:  # by anything that the libraries don't expect of a schema
        return [unusable(error, of)]
    finally:
        matcher.close()


def unusable(error: Exception, of: tuple[str, str]) -> Problem:
    """What is wrong with a schema that is invalid, or refers elsewhere or to itself; `of` says which one it is and what
    to do."""
    said = error.message if isinstance(error, SchemaError) else str(error)
    return Problem(
        of[0],
        f"one that can't be used ({said[:100]})",
        "a JSON Schema of draft 2020-12 without references to other documents",
        of[1],
    )


def _position(value: Any, path: Sequence[str | int]) -> tuple[int, ...]:
    """Sorts paths in the order of their values in the file; a missing value comes first in its container."""
    position = []
    for part in path:
        if isinstance(value, Mapping) and part in value:
            position.append(list(value).index(part))
            value = value[part]
        elif isinstance(part, int):
            position.append(part)
            value = value[part] if isinstance(value, list) and part < len(value) else None
    return tuple(position)


def _registry(load: Callable[[str], Schema], data_schema: Schema | None) -> Registry[Schema]:
    """`data_schema` replaces data.json."""

    def retrieve(uri: str) -> Resource[Schema]:
        if uri == "data.json" and data_schema is not None:
            return DRAFT202012.create_resource(data_schema)
        try:
            return DRAFT202012.create_resource(load(uri.removesuffix(".json")))
        except KeyError:
            raise NoSuchResource(ref=uri) from None  # type: ignore[call-arg]

    return Registry(retrieve=retrieve)  # type: ignore[call-arg]  # attrs hides it


def _filled(registry: Registry[Schema], schema: Any) -> Registry[Schema]:
    """With the other files that a schema refers to, and those to which they refer. A registry is never changed, so one
    that lacks a file loads it again, and looks through all of its files, at each reference."""
    for ref in _references(schema):
        uri = ref.partition("#")[0]
        if uri and uri not in registry:
            found = registry.get_or_retrieve(uri)
            registry = _filled(found.registry, found.value.contents)
    return registry


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        ref = schema.get("$ref")
        if isinstance(ref, str):
            yield ref
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _tamed(schema: Any) -> Any:
    """A copy without what could exceed the limits: keywords of another draft, and patterns for keys."""
    if isinstance(schema, list):
        return [_tamed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {"$schema", "patternProperties"}
    out |= {"additionalProperties", "unevaluatedProperties"} if "patternProperties" in schema else set()
    found = {}
    for key, each in schema.items():
        if key in _NAMED and isinstance(each, dict):
            found[key] = {name: _tamed(inner) for name, inner in each.items()}
        elif key not in out:
            found[key] = each if key in _VALUES else _tamed(each)
    return found


def _bounded(matcher: Matcher, known: Callable[[], Container[str]]) -> type[Validator]:
    """A kind of validator that raises TooLong. Its own work is measured in the time of its thread: on a busy machine a
    good schema must not be refused."""
    spent = time.thread_time() + LIMIT

    def timed(keyword: _Keyword) -> _Keyword:
        def check(checker: Validator, wanted: Any, instance: Any, schema: Any) -> _Errors:
            if time.thread_time() > spent:
                raise TooLong("it takes too long")
            yield from keyword(checker, wanted, instance, schema) or ()

        return check

    def search(pattern: str, text: str) -> bool:
        is_quick = pattern in known() or _is_quick(pattern, text)
        return bool((re.search if is_quick else matcher.search)(ended(pattern), text))

    def pattern(checker: Validator, wanted: str, instance: Any, schema: Any) -> _Errors:
        if isinstance(instance, str) and not search(wanted, instance):
            yield ValidationError("does not match")

    keywords = {key: timed(keyword) for key, keyword in {**_Discriminating.VALIDATORS, "pattern": pattern}.items()}
    made: type[Validator] = extend(_Discriminating, keywords)  # type: ignore[no-untyped-call]
    return made


def _is_quick(pattern: str, text: str) -> bool:
    """Whether a search is always fast, whatever its source: at most one thing in it is repeated."""
    return len(text) <= _SHORT and "(" not in pattern and sum(map(pattern.count, "*+?{")) <= 1


class Matcher:
    """Searches until the time `until` (monotonic). Its process is started by the first search; `close` ends it."""

    def __init__(self, until: float):
        self._until = until
        self._process: subprocess.Popen[str] | None = None

    def search(self, pattern: str, text: str) -> bool:
        """re.error for an invalid pattern; TooLong."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{json.dumps([pattern, text])}\n")
        process.stdin.flush()
        if not select.select([process.stdout], [], [], max(0.0, self._until - time.monotonic()))[0]:
            raise TooLong("its regular expressions take too long")
        found = json.loads(process.stdout.readline())
        if isinstance(found, str):
            raise re.error(found)
        return bool(found)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class TooLong(Exception):
    """All searches together took longer than allowed."""


def _one_branch(
    checker: Validator, branches: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """`oneOf`, but if a `discriminator` names a branch, only that branch is tried.

    Without it a record with one wrong field is "not valid under any of 22 schemas", and each is tried. The keyword and
    its meaning are OpenAPI's; pydantic writes it too.
    """
    match schema.get("discriminator"):
        case {"propertyName": str(key), "mapping": dict(mapping)} if isinstance(instance, Mapping) and key in instance:
            kind = instance[key]
            if isinstance(kind, str) and isinstance(mapping.get(kind), str):
                yield from checker.descend(instance, {"$ref": mapping[kind]})  # type: ignore[attr-defined]
            else:
                yield ValidationError(
                    "unknown kind", validator="enum", validator_value=list(mapping), instance=kind, path=[key]
                )
        case _:
            yield from Draft202012Validator.VALIDATORS["oneOf"](checker, branches, instance, schema)


def _pattern(checker: Validator, pattern: str, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """`pattern` as in the standard: `$` is the end of the text. In Python it is also before a last newline."""
    if isinstance(instance, str) and not re.search(ended(pattern), instance):
        yield ValidationError("does not match")


def _unique(checker: Validator, wanted: bool, instance: Any, schema: Any) -> _Errors:
    """`uniqueItems` in a time that grows with the list, and not with its square."""
    if wanted and isinstance(instance, list):
        seen = {json.dumps(each, sort_keys=True) for each in instance}
        if len(seen) < len(instance):
            yield ValidationError("has equal items")


_Discriminating = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"oneOf": _one_branch, "pattern": _pattern, "uniqueItems": _unique}
)


class SchemaFault(NamedTuple):
    """One error of jsonschema: `found` at `path` does not satisfy the keyword with the value `wanted`."""

    keyword: str
    wanted: Any
    found: Any
    schema: Mapping[str, Any]
    path: Where
    branch: Any  # which alternative it belongs to, if it is part of the context of another
    context: tuple[SchemaFault, ...]


class PathProblem(NamedTuple):
    """A problem whose place is still a path."""

    path: Where
    found: str
    expected: str
    remedy: str


def fault(error: ValidationError) -> SchemaFault:
    return SchemaFault(
        str(error.validator),
        error.validator_value,
        error.instance,
        error.schema if isinstance(error.schema, Mapping) else {},
        tuple(error.absolute_path),
        error.schema_path[0] if error.schema_path else None,
        tuple(fault(part) for part in error.context or ()),
    )


def explain(error: SchemaFault) -> Iterator[PathProblem]:
    """The problems of one fault: usually one, but for example one for each unknown key."""
    path = error.path
    match error.keyword:
        case "required":
            yield from _missing(error)
        case "additionalProperties" | "unevaluatedProperties":
            yield from _unknown(error)
        case "dependentRequired":
            for key, needed in error.wanted.items():
                for name in (name for name in needed if key in error.found and name not in error.found):
                    yield PathProblem((*path, name), "nothing", f"a value, since there is `{key}`", f"Add `{name}`")
        case "anyOf" | "oneOf":
            yield from _no_alternative(error)
        case _:
            expected, remedy = _expected(error)
            # Where `writeOnly` says so, the value may be a secret that was typed in the wrong place.
            found = "something else" if error.schema.get("writeOnly") is True else short(error.found)
            yield PathProblem(path, found, expected, remedy)


def _missing(error: SchemaFault) -> Iterator[PathProblem]:
    path = error.path
    known = error.schema.get("properties", {})
    strays = list(itertools.islice((key for key in error.found if key not in known), 100))
    for key in error.wanted:
        if key in error.found:
            continue
        slip = nearest(key, strays)
        if slip is None:
            subschema = known.get(key, {})
            example = _example(subschema)
            remedy = f"Add `{key}`, for example with the value {example}" if example else f"Add `{key}`"
            yield PathProblem((*path, key), "nothing", _wanted(subschema), remedy)
        elif error.schema.get("additionalProperties") is not False:  # otherwise the stray key is a problem of its own
            yield PathProblem((*path, slip), f"the key {_key(slip)}", f"`{key}`", f"Rename it to `{key}`")


def _unknown(error: SchemaFault) -> Iterator[PathProblem]:
    path = error.path
    known = error.schema.get("properties", {})
    patterns = error.schema.get("patternProperties", {})
    for key in error.found:
        if key in known or any(re.search(pattern, key) for pattern in patterns):
            continue
        meant = nearest(key, (name for name in known if name not in error.found)) or nearest(key, known)
        remedy = f"Did you mean `{meant}`?" if meant else "Remove it"
        if not meant and "^x-" in patterns and key.isprintable():
            remedy = f"Remove it, or call it {_key(f'x-{key}')} if it is a note of your own"
        listed = _listed([f"`{name}`" for name in known if not name.startswith("$")])
        yield PathProblem((*path, key), f"the unknown key {_key(key)}", listed or "no other key", remedy)


def _no_alternative(error: SchemaFault) -> Iterator[PathProblem]:
    path = error.path
    branches: dict[Any, list[SchemaFault]] = {}
    for sub in error.context:
        branches.setdefault(sub.branch, []).append(sub)
    if not branches:  # oneOf with several that fit
        if not isinstance(error.found, Mapping) and error.schema.get("type") == "object":
            return  # that it is no mapping is told
        keys = [key for branch in error.wanted if isinstance(branch, Mapping) for key in branch.get("required", ())]
        keys = keys if isinstance(error.found, Mapping) else []
        both = " and ".join(f"`{key}`" for key in keys if key in error.found) if keys else "more than one of them"
        yield PathProblem(path, both, _listed([f"`{k}`" for k in keys], "only one of ") or "one kind", "Keep one")
        return
    here = len(path)
    reasons = [reason for branch in branches.values() for reason in branch]
    if all(reason.keyword == "required" and len(reason.path) == here for reason in reasons):
        keys = list(dict.fromkeys(key for reason in reasons for key in reason.wanted))
        lacking = [f"`{key}`" for key in keys if key not in error.found]
        yield PathProblem(path, "none of them", _listed(lacking), "Add the one that applies")
    elif all(reason.keyword == "type" and len(reason.path) == here for reason in reasons):
        wanted = _listed([_wanted(reason.schema) for reason in reasons])
        types = [kind for reason in reasons for kind in _types(reason.schema)]
        yield PathProblem(path, short(error.found), wanted, _other_type(types, error.found))
    else:
        # The branch that was meant is the one whose outermost type fits and that got deepest before it failed.
        meant = max(branches.values(), key=lambda branch: min(_depth(reason, here) for reason in branch))
        words = [
            value for reason in reasons if reason.keyword == "enum" and reason not in meant for value in reason.wanted
        ]
        for reason in meant:
            yield from (_or_one_of(words, told) if told.path == path else told for told in explain(reason))


def _or_one_of(words: Sequence[Any], told: PathProblem) -> PathProblem:
    """The problem `told`, if one of these words would also be valid."""
    if not words:
        return told
    return told._replace(
        expected=f"{_one_of(words)}, or {told.expected}", remedy=_nearest_value(told.found.strip('"'), words)
    )


def _depth(reason: SchemaFault, here: int) -> float:
    depth = len(reason.path) - here
    return depth if reason.keyword not in ("type", "const", "enum") else depth - 0.5


def _expected(error: SchemaFault) -> tuple[str, str]:
    """What a simple keyword requires, and what to do."""
    wanted, found = error.wanted, error.found
    match error.keyword:
        case "type":
            return _wanted(error.schema), _other_type(_types(error.schema), found)
        case "const":
            return short(wanted), f"Write {_literal(wanted)}"
        case "enum":
            return _one_of(wanted), _nearest_value(found, wanted)
        case "pattern":
            example = _example(error.schema)
            said = error.schema.get("patternErrorMessage") or f"text that matches {wanted}"
            return said, f"For example {example}" if example else "Correct it"
        case "minimum":
            return f"{wanted} or more", f"Write {wanted} or more"
        case "maximum":
            return f"{wanted} or less", f"Write {wanted} or less"
        case "exclusiveMinimum":
            return f"more than {wanted}", f"Write a number above {wanted}"
        case "exclusiveMaximum":
            return f"less than {wanted}", f"Write a number below {wanted}"
        case "multipleOf":
            return f"a multiple of {wanted}", "Correct it"
        case "minLength":
            return ("some text" if wanted == 1 else f"{wanted} characters or more"), "Write it out"
        case "maxLength":
            return f"{wanted} characters or less", f"Shorten it; it has {len(found)} characters"
        case "minItems" | "minProperties":
            return f"at least {wanted} in it", "Add what is missing"
        case "maxItems" | "maxProperties":
            return f"at most {wanted} in it", "Remove the surplus"
        case "items":  # false, after prefixItems
            return f"{len(error.schema.get('prefixItems', ()))} items", "Remove the surplus"
        case "uniqueItems":
            return "a list without repetitions", "Remove the repetition"
        case "propertyNames":
            return "keys of the right form", "Rename the key"
        case "not" | "None":
            return "something else" + _described(error.schema), "Correct it"
        case other:
            return f"what `{other}` asks for" + _described(error.schema), "Correct it"


def _wanted(subschema: Any) -> str:
    """A value of this schema, in a phrase."""
    if not isinstance(subschema, Mapping):
        return "a value"
    if "const" in subschema:
        return short(subschema["const"])
    if "enum" in subschema:
        return _one_of(subschema["enum"])
    if "patternErrorMessage" in subschema:
        return str(subschema["patternErrorMessage"])
    return _listed([_TYPES.get(kind, kind) for kind in _types(subschema)]) or "a value"


def _key(key: str) -> str:
    """A stranger's key: it may contain anything."""
    return f"`{key}`" if key.isprintable() and len(key) <= 40 else short(key)


def _types(subschema: Mapping[str, Any]) -> list[str]:
    types = subschema.get("type", [])
    return [types] if isinstance(types, str) else types


def _other_type(types: Sequence[str], found: Any) -> str:
    """What to do about a value of another type; first the common mistakes in YAML."""
    text = found.strip() if isinstance(found, str) else None
    if "string" in types and isinstance(found, bool | int | float):
        return "Put it in quotes"
    if "boolean" in types and text is not None:
        return "Write true or false, without quotes"
    if {"integer", "number"} & {*types} and text and text.removeprefix("-").replace(".", "", 1).isdecimal():
        return "Remove the quotes"
    if "array" in types:
        return "Make it a list, even of one item"
    meant = _TYPES.get(types[0], types[0]) if types else "a value"
    return f"Write {meant}, or remove the key" if found is None else f"Write {meant} in its place"


def _one_of(values: Sequence[Any]) -> str:
    shown = [_literal(value) for value in values]
    return _listed(shown) if len(shown) <= _MANY else f"one of {len(shown)} known values"


def _nearest_value(found: Any, values: Sequence[Any]) -> str:
    texts = [value for value in values if isinstance(value, str)]
    meant = nearest(found, texts) if isinstance(found, str) else None
    if meant:
        return f"Did you mean {meant}?"
    return "Choose one of them" if len(values) <= _MANY else f"Known are {', '.join(map(_literal, values))}"


def _example(subschema: Any) -> str | None:
    match subschema:
        case {"const": value}:
            return _literal(value)
        case {"examples": [value, *_]}:
            return _literal(value)
    return None


def _literal(value: Any) -> str:
    return value if isinstance(value, str) and value else short(value)


def _described(subschema: Any) -> str:
    said = subschema.get("description") if isinstance(subschema, Mapping) else None
    return f" ({said})" if said else ""


def _listed(words: Sequence[str], before: str = "") -> str:
    """`a, b or c`."""
    if len(words) < 2:
        return before + words[0] if words else ""
    return f"{before}{', '.join(words[:-1])} or {words[-1]}"
