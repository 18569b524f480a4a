"""Finds words that Satchel's text does not use, and says what to write instead.

`python tools/retired_words.py` prints a line for each place, and exits with 1 if there is one. It reads the comments
and strings of Python files, and whole files of other kinds. It does not read tests/. `make lint` runs it.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLACES = (
    "*.md",
    "docs/**/*.md",
    "benchmarks/**/*.md",
    "benchmarks/**/*.py",
    "runtime/**/*.py",
    "schemas/*.json",
    "schemas/*.py",
    "src/**/*.py",
    "tools/*.py",
    "workspace/**/*.py",
    "sample_workspaces/**/*.py",
    "sample_workspaces/**/*.md",
    "sample_workspaces/**/*.yaml",
)
RETIRED = {
    r"\b(?:go|goes|going|gone|went)\s+on\s+with\b": "resume, continue",
    r"\b(?:somebody|nobody|whoever)\b": "name the actor: a person, a process, the run",
    r"\bat\s+work\b": "running",
    r"\bbeside\b": "next to, in addition to",
    r"\banew\b": "again",
    r"\b(?:stands|stood)\b(?!\s+for\b)": "is, was",
    r'\A"""Of an?\b': "begin with what it is or does",
}
THIS_FILE = "tools/retired_words.py"  # it names the words
_PATTERNS = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in RETIRED.items()]
_TEXT = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Found(NamedTuple):
    path: str
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write instead: {self.instead}"


def found_in(path: str, text: str) -> Iterator[Found]:
    """The retired words in the text of the file `path`, which need not exist."""
    for line, part in _parts(path, text):
        for pattern, instead in _PATTERNS:
            for match in pattern.finditer(part):
                at = line + part.count("\n", 0, match.start())
                yield Found(path, at, " ".join(match[0].split()), instead)


def _parts(path: str, text: str) -> Iterator[tuple[int, str]]:
    """What people read in a file, each with its first line."""
    if not path.endswith(".py"):
        yield 1, text
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _TEXT:
            yield token.start[0], token.string


def found(root: Path = ROOT) -> Iterator[Found]:
    for path in sorted({path for place in PLACES for path in root.glob(place)}):
        name = path.relative_to(root).as_posix()
        if name != THIS_FILE:
            yield from found_in(name, path.read_text())


if __name__ == "__main__":
    places = list(found())
    print(*places, sep="\n", end="\n" if places else "")
    sys.exit(bool(places))
