"""Check whether an answer fits its question. Harmless differences are accepted, a typo never."""

from __future__ import annotations

from typing import Any

from .... import schemas
from ....schemas import Problem, Where, dotted, nearest, short
from ...base import InvalidFile
from .question import Question

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
