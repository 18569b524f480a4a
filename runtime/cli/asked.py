"""The open questions of a run, as people and programs are told of them: with the command and the file to answer in."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

import msgspec

from ...workspace.approvals import Question, answer_text, open_questions
from ...workspace.approvals.reading import read
from ...workspace.errors import SatchelError
from ...workspace.moment import Moment
from ...workspace.questions import DONE, REDO, Answered
from ...workspace.record import Doubt
from .place import Place
from .words import one_line, since, visible

_CONTEXT = 200  # characters
_CHOICES = 6


def as_words(moment: Moment, place: Place) -> list[str]:
    """Each question in a few lines, indented from the second on."""
    return [asked(question, place) + _typed_words(question, moment, place) for question in open_questions(moment)]


def typed(question: Question, moment: Moment, place: Place) -> str:
    """What a person has typed into the question's file and no start has taken yet; empty if nothing."""
    try:
        reply = read(question, moment.run_id, place.store.read(question.path).data)
    except FileNotFoundError:
        return ""
    except SatchelError as error:
        return f"not a valid answer: {error}"
    return f"answered {one_line(json.dumps(reply.decision, ensure_ascii=False), _CONTEXT)}" if reply else ""


def _typed_words(question: Question, moment: Moment, place: Place) -> str:
    said = typed(question, moment, place)
    if not said:
        return ""
    taken = "; the next start takes it" if said.startswith("answered") else ""
    return visible(f"\n    the file says: {said}{taken}")


def asked(question: Question, place: Place) -> str:
    where = f" ({_where(question)})" if _where(question) and not question.is_doubt else ""
    lines = [f"{question.id}: {question.text}{where}"]
    if "context" in question.facts:
        lines.append(f"    context: {one_line(answer_text(_raw(question.facts['context'])), _CONTEXT)}")
    if question.asked_at:
        lines.append(f"    asked {since(question.asked_at)}{_expiry(question)}")
    answer = shlex.join(["satchel", "answer", place.typed or ".", question.id])
    if question.is_unclaimed and len(question.choices) <= _CHOICES:
        lines += [f"    {question.meaning(choice)}: {answer} {choice}" for choice in question.choices]
    elif question.is_doubt and not question.is_unclaimed:
        lines += [f"    it has:     {answer} {DONE} --result RESULT", f"    it has not: {answer} {REDO}"]
    elif 0 < len(question.choices) <= _CHOICES:
        lines += [f"    {answer} {shlex.quote(choice)}" for choice in question.choices]
    else:
        lines.append(f"    {answer} ANSWER")
    lines.append(f"    or type it into {os.path.join(place.typed, question.path)}")
    return visible("\n".join(lines))


def as_json(moment: Moment, place: Place | None) -> list[dict[str, Any]]:
    found = []
    for question in open_questions(moment):
        told: dict[str, Any] = {
            "id": question.id, "kind": "doubt" if question.is_doubt else "approval", "question": question.text,
            "choices": list(question.choices) or None, "answer_schema": question.schema,
            "context": question.facts.get("context"), "agent": question.agent, "item": question.item,
            "scope": question.asked.scope, "asked_at": question.asked_at or None, "expires": question.expires or None,
            "default": question.facts.get("default"), "file": question.path,
        }  # fmt: skip
        if isinstance(question.asked, Doubt):
            doubt = question.asked
            told |= {"step": doubt.step, "call": doubt.call, "why": doubt.why, "cause": doubt.cause}
        if place is not None:
            told["command"] = place.command("answer", question.id)
            told["typed"] = typed(question, moment, place) or None
        found.append(told)
    return found


def answered_text(answer: Answered) -> str:
    """`approve, by ada@laptop, 2026-11-21 23:10:04 UTC (3 min 5 s ago)`."""
    by = "nobody: it had expired" if answer.how == "expired" else answer.by
    note = f" ({one_line(answer.note, _CONTEXT)})" if answer.note else ""
    return visible(f"{one_line(answer_text(answer.decision), _CONTEXT)}, by {by}{note}, {since(answer.at)}")


def _where(question: Question) -> str:
    parts = [repr(question.item)] if question.item else []
    parts += [f"of the agent {question.agent}"] if question.agent else []
    return ", ".join(parts)


def _expiry(question: Question) -> str:
    if not question.expires:
        return ""
    default = one_line(answer_text(_raw(question.facts.get("default"))), 60)
    return f"; {default!r} once it expires, {since(question.expires)}"


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
