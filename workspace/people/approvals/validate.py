"""Check whether an answer fits its question. Harmless differences are accepted, a typo never."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .... import schemas
from ....schemas import Problem, Where, dotted, nearest, short
from ...base import InvalidFile
from ...state import same
from .question import APPROVE, Question

_LISTED = 20


def fit(question: Question, value: Any, written: str = "", *, file: str, place: schemas.validate.Place = dotted) -> Any:
    """`value` as a valid answer in JSON. InvalidFile, naming `file`, if it is none.

    `written` is its text in the file, if it has no quotes there: `3` and `true` are texts, too.
    """
    if question.choices:
        return _chosen(question, value, written.strip(), file, place)
    if question.schema is not None:
        return _valid(question.schema, value, written, file, place)
    text = value if isinstance(value, str) else written
    if not text.strip():
        raise InvalidFile(file, [Problem(place(("decision",)), short(value), "a text", "Write it in quotes")])
    return text.strip()


def fit_arguments(
    question: Question,
    said: Any,
    written: Mapping[str, str],
    decision: Any,
    *,
    file: str,
    place: schemas.validate.Place = dotted,
) -> dict[str, Any]:
    """The arguments that an answer changes, by name, in JSON. InvalidFile, naming `file`, if it may change none, or if
    they do not fit together with the others.

    `said` are the new values, and `written` their texts in the file, if they have no quotes there.
    """
    if not question.may_change:
        expected = "no arguments: the question was asked without any"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(said), expected, "Remove them")])
    asked, schema = question.arguments or {}, question.schema
    if not isinstance(said, dict):
        expected = f"the arguments to change, such as {{{next(iter(asked), 'name')}: ...}}"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(said), expected, "Write names and values")])
    known = [*asked, *(name for name in properties_of(schema) if name not in asked)]
    if unknown := [name for name in said if name not in known]:
        raise InvalidFile(file, [_unknown(name, known, place) for name in unknown[:_LISTED]])
    made = {**said}
    problems = _problems(question, made, place)
    for name, text in written.items():
        if problems and text and not isinstance(made[name], str):
            as_text = {**made, name: text}
            if len(left := _problems(question, as_text, place)) < len(problems):
                made, problems = as_text, left
    if problems:
        raise InvalidFile(file, problems)
    changes = {name: value for name, value in made.items() if name not in asked or not same(value, asked[name])}
    if changes and decision != APPROVE:
        expected = f"none, unless the decision is {APPROVE}"
        remedy = "Remove them, or correct the decision"
        raise InvalidFile(file, [Problem(place(("arguments",)), short(changes), expected, remedy)])
    return changes


def check_standing(
    question: Question, decision: Any, changes: Mapping[str, Any], *, file: str, place: schemas.validate.Place = dotted
) -> None:
    """InvalidFile, naming `file`, if the answer can't stand for later calls, too."""
    if not question.tool:
        expected, remedy = "nothing: the agent has not said which tool it is about", "Remove it"
    elif decision != APPROVE:
        expected, remedy = f"nothing, unless the decision is {APPROVE}", "Remove it, or correct the decision"
    elif changes:
        expected, remedy = (
            "nothing together with changed arguments: later calls have their own",
            "Leave one of them out",
        )
    else:
        return
    raise InvalidFile(file, [Problem(place(("standing",)), "true", expected, remedy)])


def properties_of(schema: Any) -> dict[str, Any]:
    """The schemas of the values that an object may have, by name, as far as the top of its schema names them."""
    if isinstance(schema, dict) and isinstance(ref := schema.get("$ref"), str) and ref.startswith("#/$defs/"):
        schema = (schema.get("$defs") or {}).get(ref.removeprefix("#/$defs/"))
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _problems(question: Question, made: dict[str, Any], place: schemas.validate.Place) -> list[Problem]:
    def inside(path: Where) -> str:
        return place(("arguments", *path))

    schema = True if question.schema is None else question.schema
    return schemas.against(schema, {**(question.arguments or {}), **made}, inside)


def _unknown(name: str, known: list[str], place: schemas.validate.Place) -> Problem:
    meant = nearest(name, known)
    remedy = f"Did you mean {meant}?" if meant else "Remove it"
    return Problem(place(("arguments", name)), f"the argument {short(name)}", f"one of: {', '.join(known)}", remedy)


def _chosen(question: Question, value: Any, written: str, file: str, place: schemas.validate.Place) -> str:
    said = value.strip() if isinstance(value, str) else written
    if said in question.choices:
        return said
    alike = [choice for choice in question.choices if choice.casefold() == said.casefold()]
    if len(alike) == 1:
        return alike[0]
    meant = nearest(said, question.choices) if said else None
    shown = ", ".join(question.choices[:_LISTED]) + (", ..." if len(question.choices) > _LISTED else "")
    remedy = f"Did you mean {meant}?" if meant else "Write one of them"
    raise InvalidFile(file, [Problem(place(("decision",)), short(value), f"one of: {shown}", remedy)])


def _valid(schema: dict[str, Any] | bool, value: Any, written: str, file: str, place: schemas.validate.Place) -> Any:
    def inside(path: Where) -> str:
        return place(("decision", *path))

    problems = schemas.against(schema, value, inside)
    if problems and written and not isinstance(value, str) and not schemas.against(schema, written):
        return written
    if problems:
        raise InvalidFile(file, problems)
    return value
