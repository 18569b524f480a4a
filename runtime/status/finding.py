"""A finding of `satchel check`: which file, where, what was found, what was expected, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from ...schemas import Problem
from ...workspace.base import InvalidFile, SatchelError, visible


class Finding(Struct, frozen=True):
    """What is wrong with a file, and what to do, as separate texts. `str` of it is one sentence, safe to print."""

    file: str
    place: str
    found: str
    expected: str
    remedy: str

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        expected = f", expected {self.expected}" if self.expected else ""
        remedy = f". {self.remedy[0].upper()}{self.remedy[1:]}" if self.remedy else ""
        found = f"found {self.found}" if self.expected else self.found
        return visible(f"{self.file}{place}: {found}{expected}{remedy}")


def of_problem(file: str, problem: Problem) -> Finding:
    return Finding(file, *problem)


def of_error(error: SatchelError, file: str = "the workspace") -> Iterator[Finding]:
    """An error as findings. `file` is used if the error names none."""
    path = error.path or file
    if isinstance(error, InvalidFile):
        yield from (of_problem(path, problem) for problem in error.problems)
    else:
        found = f"{error.what}: {error.why}" if error.why else error.what
        yield Finding(path, "", found, "", error.remedy or "")
