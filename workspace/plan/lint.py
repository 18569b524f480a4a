"""Likely mistakes in a plan: valid Markdown, but probably not what was intended."""

from __future__ import annotations

from collections.abc import Sequence

from ...schemas import Problem
from .index import Reading
from .markdown import NESTING, Suspect
from .splice import body
from .task import MARKS, mistyped_milestones, unquoted

_KNOWN = "[ ] (open), [/] (begun), [x] (done) or [-] (cancelled)"
_OF_GIT = ("<<<<<<< ", ">>>>>>> ")
_SHOWN = 40


def problems(reading: Reading, suspects: Sequence[Suspect]) -> list[Problem]:
    """In the order of the text: ids used twice, unknown marks, checkboxes without a blank, lists too deep, mistyped
    milestones, conflicts of git."""
    found = _ids_used_twice(reading)
    found += [(number, _conflict(number)) for number, line in enumerate(reading.lines) if line.startswith(_OF_GIT)]
    found += [
        (number, _milestone(reading.lines, number)) for number in mistyped_milestones(reading.lines, reading.rows)
    ]
    found += [(suspect.line, _slip(body(reading.lines[suspect.line]), suspect)) for suspect in suspects]
    return [problem for _, problem in sorted(found, key=lambda one: one[0])]


def _ids_used_twice(reading: Reading) -> list[tuple[int, Problem]]:
    found: list[tuple[int, Problem]] = []
    seen: dict[str, int] = {}
    for task in reading.tasks:
        if task.id is None:
            continue
        first = seen.setdefault(task.id.lower(), task.line)  # folders are named after it, also where case is ignored
        if first != task.line:
            problem = Problem(
                f"line {task.line + 1}",
                f"the id ^{task.id}, which line {first + 1} has already",
                "an id of its own",
                f"Change or remove the ^{task.id} of the new item",
            )
            found.append((task.line, problem))
    return found


def _conflict(number: int) -> Problem:
    return Problem(
        f"line {number + 1}",
        "a conflict that git has left",
        "the plan",
        "Keep the lines that are right, and remove those that begin with <<<<<<<, ======= and >>>>>>>",
    )


def _milestone(lines: Sequence[str], number: int) -> Problem:
    line = body(lines[number])
    said = unquoted(line, line.count(">")).strip()
    return Problem(
        f"line {number + 1}",
        f'"{said}", which makes no milestone',
        '"milestone: true"',
        "Write it like this, or remove the line: else it is a part of the item's text",
    )


def _slip(line: str, suspect: Suspect) -> Problem:
    place = f"line {suspect.line + 1}"
    if suspect.column < 0:
        return Problem(
            place,
            f"more than {NESTING} nested lists and quotes",
            "fewer",
            "Move the items out: Satchel does not read them or what follows in their list",
        )
    if suspect.meant:
        shown = line.strip() if line.strip() != suspect.meant else line.rstrip()  # only its indentation is wrong
        return Problem(
            place,
            f'"{shown[:_SHOWN]}", which looks like an item but is text',
            f'"{suspect.meant[:_SHOWN]}"',
            "Write it like this or, if it is meant as text, put a backslash before the box",
        )
    box = line[suspect.column : line.index("]", suspect.column) + 1]
    if len(box) == 3 and box[1] in MARKS:
        rest = line[suspect.column + len(box) :].lstrip()[:_SHOWN]
        return Problem(
            place, f'"{box}" without a space after it', f'"{box} {rest}"', "Put one space after the checkbox"
        )
    return Problem(place, f'the mark "{box}"', _KNOWN, "Use one of these, or put a backslash before the bracket")
