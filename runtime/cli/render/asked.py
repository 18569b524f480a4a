"""The open questions of a run, for people and programs: with the command and the file for the answer."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from typing import Any

import msgspec

from ....workspace.base import visible
from ....workspace.inbound.approvals import APPROVE, Question, with_changes
from ....workspace.journal.records import Doubt
from ....workspace.state import DONE, REDO
from ...api import Given, Handle, OpenQuestion, one_line, since

_CONTEXT = 200  # characters
_CHOICES = 6


def as_words(questions: Iterable[OpenQuestion], place: Handle) -> list[str]:
    """Each question in a few lines, indented from the second on."""
    return [_asked(each.question, place) + _typed_words(each) for each in questions]


def _typed(asked: OpenQuestion) -> str:
    """What a person has typed into the question's file and no start has taken yet; empty without."""
    if asked.mistake:
        return f"not a valid answer: {asked.mistake}"
    if asked.reply is None:
        return ""
    said = with_changes(json.dumps(asked.reply.decision, ensure_ascii=False), asked.reply.arguments)
    said += ", for later calls too" if asked.reply.standing else ""
    return f"answered {one_line(said, _CONTEXT)}"


def _typed_words(asked: OpenQuestion) -> str:
    taken = "; the next start reads it" if asked.reply else ""
    said = _typed(asked)
    return visible(f"\n    the file says: {said}{taken}") if said else ""


def _asked(question: Question, place: Handle) -> str:
    where = f" ({_where(question)})" if _where(question) and not question.is_doubt else ""
    lines = [f"{question.id}: {question.text}{where}"]
    if question.may_change:
        lines.append(f"    arguments: {one_line(text_of(question.arguments), _CONTEXT)}")
    if "context" in question.facts:
        lines.append(f"    context: {one_line(text_of(question.facts['context']), _CONTEXT)}")
    if question.asked_at:
        lines.append(f"    asked {since(question.asked_at)}{_expiry(question)}")
    answer = shlex.join(["satchel", "answer", place.typed or ".", question.id])
    if question.is_unclaimed and len(question.choices) <= _CHOICES:
        lines += [f"    {question.meaning(choice)}: {answer} {choice}" for choice in question.choices]
    elif question.is_doubt and not question.is_unclaimed:
        lines += [f"    it has:     {answer} {DONE} --result RESULT", f"    it has not: {answer} {REDO}"]
    elif 0 < len(question.choices) <= _CHOICES:
        lines += [f"    {answer} {shlex.quote(choice)}" for choice in question.choices]
        lines += [f"    {answer} {APPROVE} --set {_first(question)}=VALUE"] * question.may_change
        if question.tool:
            lines.append(f"    each later call of {question.tool}, too: {answer} {APPROVE} --standing")
    else:
        lines.append(f"    {answer} ANSWER")
    lines.append(f"    or write it into {os.path.join(place.typed, question.path)}")
    return visible("\n".join(lines))


def as_json(questions: Iterable[OpenQuestion]) -> list[dict[str, Any]]:
    found = []
    for each in questions:
        question = each.question
        told: dict[str, Any] = {
            "id": question.id,
            "kind": "doubt" if question.is_doubt else "approval",
            "question": question.text,
            "choices": list(question.choices) or None,
            "answer_schema": question.schema,
            "arguments": question.arguments,
            "tool": question.tool or None,
            "context": question.facts.get("context"),
            "agent": question.agent,
            "item": question.item,
            "scope": question.asked.scope,
            "asked_at": question.asked_at or None,
            "expires": question.expires or None,
            "default": question.facts.get("default"),
            "file": question.path,
        }
        if isinstance(question.asked, Doubt):
            doubt = question.asked
            told |= {"step": doubt.step, "call": doubt.call, "why": doubt.why, "cause": doubt.cause}
        if each.command:
            told |= {"command": each.command, "typed": _typed(each) or None}
        found.append(told)
    return found


def _first(question: Question) -> str:
    """The name of its first argument, for a command line."""
    return shlex.quote(next(iter(question.arguments or {}), "NAME"))


def _where(question: Question) -> str:
    parts = [repr(question.item)] if question.item else []
    parts += [f"of the agent {question.agent}"] if question.agent else []
    return ", ".join(parts)


def _expiry(question: Question) -> str:
    if not question.expires:
        return ""
    default = one_line(text_of(question.facts.get("default")), 60)
    return f"; {default!r} once it expires, {since(question.expires)}"


def text_of(value: Any) -> str:
    """A JSON value as a person would type it."""
    from ....workspace.inbound.approvals import answer_text  # most runs ask nothing

    return answer_text(msgspec.Raw(msgspec.json.encode(value)))


def outcome_of(given: Given) -> str:
    """A decision, with the arguments that it changes."""
    return with_changes(text_of(given.decision), given.arguments) + ", for later calls too" * given.standing
