"""jsonschema's errors in plain words: what was found, what was expected, what to do."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jsonschema.exceptions import ValidationError

from .problem import Where, nearest, short

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


class Fault(NamedTuple):
    """One error of jsonschema: `found` at `path` does not satisfy the keyword with the value `wanted`."""

    keyword: str
    wanted: Any
    found: Any
    schema: Mapping[str, Any]
    path: Where
    branch: Any  # which alternative it belongs to, if it is part of the context of another
    context: tuple[Fault, ...]


class Told(NamedTuple):
    """A problem whose place is still a path."""

    path: Where
    found: str
    expected: str
    remedy: str


def fault(error: ValidationError) -> Fault:
    return Fault(
        str(error.validator),
        error.validator_value,
        error.instance,
        error.schema if isinstance(error.schema, Mapping) else {},
        tuple(error.absolute_path),
        error.schema_path[0] if error.schema_path else None,
        tuple(fault(part) for part in error.context or ()),
    )


def explain(error: Fault) -> Iterator[Told]:
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
                    yield Told((*path, name), "nothing", f"a value, since there is `{key}`", f"Add `{name}`")
        case "anyOf" | "oneOf":
            yield from _no_alternative(error)
        case _:
            expected, remedy = _expected(error)
            # Where `writeOnly` says so, the value may be a secret that was typed in the wrong place.
            found = "something else" if error.schema.get("writeOnly") is True else short(error.found)
            yield Told(path, found, expected, remedy)


def _missing(error: Fault) -> Iterator[Told]:
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
            yield Told((*path, key), "nothing", _wanted(subschema), remedy)
        elif error.schema.get("additionalProperties") is not False:  # otherwise the stray key is a problem of its own
            yield Told((*path, slip), f"the key {_key(slip)}", f"`{key}`", f"Rename it to `{key}`")


def _unknown(error: Fault) -> Iterator[Told]:
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
        yield Told((*path, key), f"the unknown key {_key(key)}", listed or "no other key", remedy)


def _no_alternative(error: Fault) -> Iterator[Told]:
    path = error.path
    branches: dict[Any, list[Fault]] = {}
    for sub in error.context:
        branches.setdefault(sub.branch, []).append(sub)
    if not branches:  # oneOf with several that fit
        if not isinstance(error.found, Mapping) and error.schema.get("type") == "object":
            return  # that it is no mapping is told
        keys = [key for branch in error.wanted if isinstance(branch, Mapping) for key in branch.get("required", ())]
        keys = keys if isinstance(error.found, Mapping) else []
        both = " and ".join(f"`{key}`" for key in keys if key in error.found) if keys else "more than one of them"
        yield Told(path, both, _listed([f"`{k}`" for k in keys], "only one of ") or "one kind", "Keep one")
        return
    here = len(path)
    reasons = [reason for branch in branches.values() for reason in branch]
    if all(reason.keyword == "required" and len(reason.path) == here for reason in reasons):
        keys = list(dict.fromkeys(key for reason in reasons for key in reason.wanted))
        lacking = [f"`{key}`" for key in keys if key not in error.found]
        yield Told(path, "none of them", _listed(lacking), "Add the one that applies")
    elif all(reason.keyword == "type" and len(reason.path) == here for reason in reasons):
        wanted = _listed([_wanted(reason.schema) for reason in reasons])
        types = [kind for reason in reasons for kind in _types(reason.schema)]
        yield Told(path, short(error.found), wanted, _other_type(types, error.found))
    else:
        # The branch that was meant is the one whose outermost type fits and that got deepest before it failed.
        meant = max(branches.values(), key=lambda branch: min(_depth(reason, here) for reason in branch))
        words = [
            value for reason in reasons if reason.keyword == "enum" and reason not in meant for value in reason.wanted
        ]
        for reason in meant:
            yield from (_or_one_of(words, told) if told.path == path else told for told in explain(reason))


def _or_one_of(words: Sequence[Any], told: Told) -> Told:
    """The same problem, if one of these words would also be valid."""
    if not words:
        return told
    return told._replace(
        expected=f"{_one_of(words)}, or {told.expected}", remedy=_nearest_value(told.found.strip('"'), words)
    )


def _depth(reason: Fault, here: int) -> float:
    depth = len(reason.path) - here
    return depth if reason.keyword not in ("type", "const", "enum") else depth - 0.5


def _expected(error: Fault) -> tuple[str, str]:
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
