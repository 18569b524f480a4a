"""Read a person's answer from approvals/ID.yaml. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from .... import schemas
from ....schemas import Problem, short
from ...base import InvalidFile, decode
from ...formats import yamltext
from ...journal.records import NOTHING
from ...state import same
from . import render
from .question import Question
from .validate import check_standing, fit, fit_arguments

if TYPE_CHECKING:
    from ...formats import Document

_NOT_THIS = "Move this file away; the run then writes the question again"


class Reply(NamedTuple):
    """A typed answer. `by` and `note` are empty if they were left out; `result` is for a doubt, as JSON. `how`: typed
    into the file by a person, or written there by a command while another process had the run. `arguments` are those
    that it changes. `standing`: it also counts for later calls of the tool."""

    decision: Any
    by: str
    note: str
    result: msgspec.Raw
    how: Literal["file", "command"] = "file"
    arguments: Mapping[str, Any] = MappingProxyType({})
    standing: bool = False


def read(question: Question, run_id: str, data: bytes) -> Reply | None:
    """The answer in the file; None if there is none yet. InvalidFile if it can't be taken: its lines are those of the
    file without Satchel's remarks."""
    path = question.path
    text = render.words(decode(data, path))
    document = yamltext.load(text, path)
    said = document.value
    if not isinstance(said, dict):
        found = "nothing" if said is None else short(said)
        raise InvalidFile(path, [Problem("line 1", found, "the question and its answer", _NOT_THIS)])
    if problems := schemas.problems("approval", said, place=document.place):
        raise InvalidFile(path, problems)
    _check_question(question, run_id, said, document)
    if said.get("status", "open") != "open":
        problem = Problem(
            document.place(("status",)), short(said["status"]), "open: no answer is recorded yet", "Put `open` back"
        )
        raise InvalidFile(question.path, [problem])
    decision = said.get("decision")
    written = _written(text, document, "decision")
    if (decision is None and written not in question.choices) or decision == "":
        _check_result(question, said, None, document)
        return None
    answer = fit(question, decision, written, file=path, place=document.place)
    result = _check_result(question, said, answer, document)
    changes = _changes(question, said.get("arguments"), answer, text, document)
    by, note = (said.get("by") or "").strip(), (said.get("note") or "").strip()
    standing = said.get("standing") is True
    if standing:
        check_standing(question, answer, changes, file=path, place=document.place)
    return Reply(answer, by, note, result, said.get("how") or "file", changes, standing)


def typed_arguments(data: bytes) -> Any:
    """The arguments in a form, whether or not they are valid; None if there are none, or it can't be read."""
    said = _said(data)
    return said.get("arguments") if isinstance(said, dict) else None


def _said(data: bytes) -> Any:
    try:
        return yamltext.load(render.words(decode(data, "")), "").value
    except InvalidFile:
        return None


def revoked_by(run_id: str, id: str, data: bytes) -> str | None:
    """Whether the file of a standing approval says that it does not stand any more: by whom, or an empty text. None if
    it does not say so, or can't be read."""
    said = _said(data)
    if not isinstance(said, dict) or said.get("standing") is not False:
        return None
    if not same([said.get("run_id"), said.get("id")], [run_id, id]):
        return None
    by = said.get("revoked_by")
    return by.strip() if isinstance(by, str) else ""


def check_asked(question: Question, run_id: str, data: bytes) -> None:
    """InvalidFile if a form does not show the question as it was asked."""
    document = yamltext.load(render.words(decode(data, question.path)), question.path)
    _check_question(question, run_id, document.value, document)
    if question.is_doubt and not same(document.value.get("question"), question.text):
        place, found = document.place(("question",)), short(document.value.get("question"))
        expected = f"{short(question.text)}, as it was asked"
        raise InvalidFile(question.path, [Problem(place, found, expected, "")])


def form_problems(path: str, data: bytes) -> list[Problem]:
    """What is wrong with a file in approvals/, whatever its question is. InvalidFile if it is not YAML."""
    document = yamltext.load(decode(data, path), path)
    return schemas.problems("approval", document.value, place=document.place)


def check_form(path: str, data: bytes) -> None:
    """InvalidFile if it is no form."""
    if problems := form_problems(path, data):
        raise InvalidFile(path, problems)


def _written(text: str, document: Document, *path: str) -> str:
    """A value as it is in the file, if it has no quotes."""
    node = document.root
    for key in path:
        node = node.items.get(key) if node else None
    return text[node.start : node.end].strip() if node and node.kind == "scalar" and node.style == "plain" else ""


def _changes(question: Question, said: Any, answer: Any, text: str, document: Document) -> dict[str, Any]:
    """The arguments that the answer changes."""
    if said is None:
        return {}
    written = {name: _written(text, document, "arguments", name) for name in said} if isinstance(said, dict) else {}
    return fit_arguments(question, said, written, answer, file=question.path, place=document.place)


def _check_question(question: Question, run_id: str, said: dict[str, Any], document: Document) -> None:
    """It must still be the question that was asked: an answer to another one does not count."""
    asked: dict[str, Any] = {"run_id": run_id, "id": question.id, "asked_at": question.asked_at}
    if not question.is_doubt:  # these are Satchel's own text, which may differ in another version
        asked |= {
            "question": question.text,
            "choices": list(question.choices) or None,
            "answer_schema": question.schema,
            "asked_arguments": question.arguments,
            "tool": question.tool or None,
            "context": question.facts.get("context"),
        }
    for key, value in asked.items():
        if not same(said.get(key), value):
            found = f"{short(said[key])} as `{key}`" if key in said else f"no `{key}`"
            remedy = f"Put it back. {_NOT_THIS}" if key in said else _NOT_THIS
            expected = f"{short(value)}, as it was asked: an answer to another question does not count"
            raise InvalidFile(question.path, [Problem(document.place((key,)), found, expected, remedy)])


def _check_result(question: Question, said: dict[str, Any], answer: Any, document: Document) -> msgspec.Raw:
    """For an effect in doubt: its result, if it has happened."""
    result = said.get("result")
    if result is None:
        return NOTHING
    if not (question.is_doubt and (answer is None or question.has_happened(answer))):
        expected = "no result, unless `decision` is done" if question.is_doubt else "no result: no effect is in doubt"
        remedy = "Leave it empty, or correct `decision`"
        problem = Problem(document.place(("result",)), "a result", expected, remedy)
        raise InvalidFile(question.path, [problem])
    return msgspec.Raw(msgspec.json.encode(result))
