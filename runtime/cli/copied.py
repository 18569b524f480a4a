"""Ask at a terminal what to do with files of a checkpoint that a person has copied over those of the run."""

from __future__ import annotations

import sys

import click

from ...workspace.journal.records import ApprovalAsked
from ..control import Handle, OpenQuestion
from .render.words import visible


def ask(place: Handle) -> bool:
    """Ask and record the answer. False where no person can answer, or nothing of the kind is asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = next(filter(_is_about_copies, place.questions()), None)
    if question is None:
        return False
    click.echo(visible(question.text), err=True)
    decision = click.prompt("Your answer", type=click.Choice(question.choices), err=True)
    for remark in place.answer(decision, question.id).report:
        click.echo(visible(f"{remark.kind}  {remark.text}"), err=True)
    return True


def _is_about_copies(question: OpenQuestion) -> bool:
    asked = question.question.asked
    return isinstance(asked, ApprovalAsked) and asked.back is not None
