"""Run jsonschema on a value: references resolved offline, alternatives chosen by their discriminator.

A module of its own, so that jsonschema is imported only when it is needed.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import jsonschema.exceptions
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource
from referencing.jsonschema import DRAFT202012, Schema

from .matching import Matcher, TooLong
from .problem import Problem, Where
from .quick import ended
from .wording import explain, fault

_Errors = Iterator[jsonschema.exceptions.ValidationError]
_Keyword = Callable[..., _Errors]

DATA = ("the schema for data (data.json)", "Remove the file .satchel/schemas/data.json; the next run writes it again")
RESULT = ("the schema of the result", "Remove it from .satchel/schemas/results/; the next run of the step writes it")
AGENTS_OWN = ("the schema of the answer", "Correct it in the agent's code")


LIMIT = 2.0
"""Seconds of work that a check against a stranger's schema may cost, and seconds for trying its patterns."""

_SHORT = 1000  # characters

_VALUES = ("const", "default", "enum", "examples")
_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names, and not keywords."""


def validator(name: str, load: Callable[[str], Schema]) -> Validator:
    """A validator for the schema called `name`, which is one of ours. `load` knows the others."""
    own = load(name)
    checker: Validator = _Discriminating(own, registry=_filled(_registry(load, None), own))
    return checker


def check(checker: Validator, value: Any, place: Callable[[Where], str], limit: int) -> list[Problem]:
    """At most `limit` problems of `value`, in its order."""
    # A bound on errors as well: one error may be worded as several problems, but never the other way round.
    errors = list(itertools.islice(checker.iter_errors(value), 10 * limit))
    told = [problem for error in errors for problem in itertools.islice(explain(fault(error)), limit)]
    told.sort(key=lambda problem: _position(value, problem.path))
    return list(dict.fromkeys(Problem(place(path), *said) for path, *said in told))[:limit]


def check_foreign(
    schema: Schema,
    value: Any,
    place: Callable[[Where], str],
    limit: int,
    of: tuple[str, str],
    inside: tuple[str, Callable[[str], Schema]] | None = None,
    known: Callable[[], Container[str]] = tuple,
) -> list[Problem]:
    """The same with a schema that may be a stranger's: it fetches nothing and takes no longer than LIMIT, and an error
    in the schema is returned as a problem. `inside` names the schema of ours that refers to it as data.json, and loads
    the others; without it `schema` is alone. `known`: patterns that can be searched safely.

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
        return check(checker, value, place, limit)
    except Exception as error:  # by anything that the libraries don't expect of a schema
        return [unusable(error, of)]
    finally:
        matcher.close()


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
            yield jsonschema.exceptions.ValidationError("does not match")

    keywords = {key: timed(keyword) for key, keyword in {**_Discriminating.VALIDATORS, "pattern": pattern}.items()}
    made: type[Validator] = extend(_Discriminating, keywords)  # type: ignore[no-untyped-call]
    return made


def unusable(error: Exception, of: tuple[str, str]) -> Problem:
    """What is wrong with a schema that is invalid, or refers elsewhere or to itself; `of` says which one it is and what
    to do."""
    said = error.message if isinstance(error, jsonschema.exceptions.SchemaError) else str(error)
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


def _one_of(
    checker: Validator, branches: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[jsonschema.exceptions.ValidationError]:
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
                yield jsonschema.exceptions.ValidationError(
                    "unknown kind", validator="enum", validator_value=list(mapping), instance=kind, path=[key]
                )
        case _:
            yield from Draft202012Validator.VALIDATORS["oneOf"](checker, branches, instance, schema)


def _pattern(
    checker: Validator, pattern: str, instance: Any, schema: Mapping[str, Any]
) -> Iterator[jsonschema.exceptions.ValidationError]:
    """`pattern` as in the standard: `$` is the end of the text. In Python it is also before a last newline."""
    if isinstance(instance, str) and not re.search(ended(pattern), instance):
        yield jsonschema.exceptions.ValidationError("does not match")


def _is_quick(pattern: str, text: str) -> bool:
    """Whether a search is always fast, whatever its source: at most one thing in it is repeated."""
    return len(text) <= _SHORT and "(" not in pattern and sum(map(pattern.count, "*+?{")) <= 1


def _unique(checker: Validator, wanted: bool, instance: Any, schema: Any) -> _Errors:
    """`uniqueItems` in a time that grows with the list, and not with its square."""
    if wanted and isinstance(instance, list):
        seen = {json.dumps(each, sort_keys=True) for each in instance}
        if len(seen) < len(instance):
            yield jsonschema.exceptions.ValidationError("has equal items")


_Discriminating = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"oneOf": _one_of, "pattern": _pattern, "uniqueItems": _unique}
)
