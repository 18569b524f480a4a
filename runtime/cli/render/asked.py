"""The open questions of a run, for people and programs: with the command and the file for the answer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import Any

from ....workspace.base import visible
from ....workspace.inbound.approvals import APPROVE, Question
from ....workspace.journal.records import Doubt
from ....workspace.state import DONE
from ...api import Handle, OpenQuestion
from ...present import choice_meaning, describe_reply, expiry_line, one_line, place_asked, since, typed_value

_CONTEXT = 200  # characters
_CHOICES = 6


def as_words(questions: Iterable[OpenQuestion], place: Handle) -> list[str]:
    """Each question in a few lines, indented from the second on."""
    return [_asked(each.question, place) + _typed_words(each) for each in questions]


def _typed_words(asked: OpenQuestion) -> str:
    taken = "; the next start reads it" if asked.reply else ""
    said = describe_reply(asked)
    return visible(f"\n    the file says: {said}{taken}") if said else ""


def _asked(question: Question, place: Handle) -> str:
    where = f" ({place_asked(question)})" if place_asked(question) and not question.is_doubt else ""
    lines = [f"{question.id}: {question.text}{where}"]
    if question.may_change:
        lines.append(f"    arguments: {one_line(typed_value(question.arguments), _CONTEXT)}")
    if "context" in question.facts:
        lines.append(f"    context: {one_line(typed_value(question.facts['context']), _CONTEXT)}")
    if question.asked_at:
        lines.append("; ".join(filter(None, (f"    asked {since(question.asked_at)}", expiry_line(question)))))
    answer = shlex.join(["satchel", "answer", place.typed or ".", question.id])
    if question.is_doubt and len(question.choices) <= _CHOICES:
        result = {DONE: " --result RESULT"} if not question.is_unclaimed else {}
        lines += [
            f"    {choice_meaning(question, choice)}: {answer} {choice}{result.get(choice, '')}"
            for choice in question.choices
        ]
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
            told |= {"command": each.command, "typed": describe_reply(each) or None}
        found.append(told)
    return found


def _first(question: Question) -> str:
    """The name of its first argument, for a command line."""
    return shlex.quote(next(iter(question.arguments or {}), "NAME"))
