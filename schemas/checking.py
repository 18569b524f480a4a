"""Runs jsonschema over a value: references resolved offline, alternatives chosen by their discriminator.

Apart from `validate`, so that jsonschema is imported only when something is validated.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jsonschema.exceptions
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT202012, Schema

from .problem import Problem, Where
from .wording import explain, fault

DATA = (
    "the schema for data (data.json)",
    "Remove the file .satchel/schemas/data.json; the next run writes it anew",
)
AGENTS_OWN = ("the schema of the answer", "Correct it in the agent's code")


def validator(name: str, load: Callable[[str], Schema], data_schema: Schema | None) -> Validator:
    """A validator for the schema called `name`. `load` knows the others, `data_schema` stands in for data.json.

    SchemaError if `data_schema` is not a schema.
    """
    if data_schema is not None:
        Draft202012Validator.check_schema(data_schema)

    def retrieve(uri: str) -> Resource[Schema]:
        if uri == "data.json" and data_schema is not None:
            return DRAFT202012.create_resource(data_schema)
        try:
            return DRAFT202012.create_resource(load(uri.removesuffix(".json")))
        except KeyError:
            raise NoSuchResource(ref=uri) from None  # type: ignore[call-arg]

    registry: Registry[Schema] = Registry(retrieve=retrieve)  # type: ignore[call-arg]  # attrs hides it
    checker: Validator = _Discriminating(load(name), registry=registry)
    return checker


def alone(schema: Schema) -> Validator:
    """A validator for a schema that refers to nothing outside itself. SchemaError if it is not a schema."""
    Draft202012Validator.check_schema(schema)
    nothing: Registry[Schema] = Registry()
    checker: Validator = _Discriminating(schema, registry=nothing)
    return checker


def check(
    checker: Validator, value: Any, place: Callable[[Where], str], limit: int, of: tuple[str, str] = DATA
) -> list[Problem]:  # fmt: skip
    """At most `limit` problems of `value`, in its own order."""
    try:
        # A bound on errors as well: one error may be worded as several problems, but never the other way round.
        errors = list(itertools.islice(checker.iter_errors(value), 10 * limit))
    except (Unresolvable, RecursionError, re.error) as error:
        # Reached only with a stranger's data.json: the schemas beside this file are tested.
        return [unusable(error, of)]
    told = [problem for error in errors for problem in itertools.islice(explain(fault(error)), limit)]
    told.sort(key=lambda problem: _position(value, problem.path))
    return list(dict.fromkeys(Problem(place(path), *said) for path, *said in told))[:limit]


def unusable(error: Exception, of: tuple[str, str] = DATA) -> Problem:
    """What is wrong with a schema that is none, or one that refers to elsewhere or to itself; `of` says which one it is
    and what to do."""
    said = error.message if isinstance(error, jsonschema.exceptions.SchemaError) else str(error)
    return Problem(
        of[0],
        f"one that can't be used ({said[:100]})",
        "a JSON Schema of draft 2020-12 that refers to nothing outside itself",
        of[1],
    )


def _position(value: Any, path: Sequence[str | int]) -> tuple[int, ...]:
    """Sorts paths as their values stand in the file; what is missing comes first in what it is missing from."""
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
    """`oneOf`, but where a `discriminator` says which branch is meant, only that branch is tried.

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
    """`pattern` as the standard means it: `$` is the end of the text. In Python it is also before a last newline."""
    if pattern.endswith("$") and not pattern.endswith("\\$"):
        pattern = pattern[:-1] + r"\Z"
    if isinstance(instance, str) and not re.search(pattern, instance):
        yield jsonschema.exceptions.ValidationError("does not match")


_Discriminating = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"oneOf": _one_of, "pattern": _pattern}
)
