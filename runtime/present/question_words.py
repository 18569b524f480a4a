"""An open question in words: where it was asked, what its choices mean, what holds once it expires, and what a person
has typed into its file."""

from __future__ import annotations

from typing import Any

import msgspec

from ...workspace.base import one_line, since
from ...workspace.inbound.approvals import Question, with_changes
from ..status import Given, OpenQuestion
from .value_words import json_line

_ANSWER = 200  # characters of an answer
_DEFAULT = 60


def place_asked(question: Question) -> str:
    """`'Letter 3', of the agent reader`; empty for a question of the agent itself."""
    parts = [repr(question.item)] if question.item else []
    parts += [f"of the agent {question.agent}"] if question.agent else []
    return ", ".join(parts)


def choice_meaning(question: Question, choice: str) -> str:
    """What an answer about an effect in doubt means; empty for one that says it itself."""
    if question.is_unclaimed:
        return question.meaning(choice)
    if question.is_doubt:
        return "it has happened" if question.has_happened(choice) else "it has not happened; do it"
    return ""


def expiry_line(question: Question) -> str:
    """`"deny" counts once it expires, 2026-11-28 12:00:00 UTC (in 3 h 0 min)`; empty without."""
    if not question.expires:
        return ""
    return f"{json_line(question.facts.get('default'), _DEFAULT)} counts once it expires, {since(question.expires)}"


def describe_reply(asked: OpenQuestion) -> str:
    """What the file of a question says that no start has taken yet; empty without."""
    if asked.mistake:
        return f"not a valid answer: {asked.mistake}"
    if asked.reply is None:
        return ""
    said = with_changes(json_line(asked.reply.decision, _ANSWER), asked.reply.arguments)
    return f"answered {one_line(said, _ANSWER)}{_standing(asked.reply)}"


def describe_answer(given: Given) -> str:
    """A decision, with the arguments that it changes."""
    return with_changes(typed_value(given.decision), given.arguments) + _standing(given)


def _standing(given: Given) -> str:
    return ", for later calls too" * given.standing


def typed_value(value: Any) -> str:
    """A JSON value as a person would type it."""
    from ...workspace.inbound.approvals import answer_text  # most runs ask nothing

    return answer_text(msgspec.Raw(msgspec.json.encode(value)))


def context_text(value: Any) -> str:
    """A value that a question is about: the keys of an object one a line."""
    if isinstance(value, dict):
        return "\n".join(
            f"{key}: {context_text(each) if isinstance(each, str) else _json(each)}" for key, each in value.items()
        )
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
