"""Find the documents and read them: text files, or the descriptions of installed Python distributions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from webpage import without_tags

DISTRIBUTION = "distribution:"
"""The beginning of a place that is a distribution's description; other places are paths."""

MAX_BYTES = 200_000
"""Larger files are usually data, and more than a model reads at once."""

GONE = "the document is gone"

_NO_FOLDER_OF_DOCUMENTS = frozenset(("__pycache__", "node_modules"))


@dataclass(frozen=True)
class Listing:
    """The documents to read. Names are unique; a place is what `read` takes."""

    documents: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # name: the reason
    not_read: int = 0  # files beyond the limit, which were not read


@dataclass(frozen=True)
class Document:
    """A document's text, or the problem with it."""

    text: str = ""
    source: str = ""
    problem: str = ""


def find(paths: list[str], limit: int, folder: str) -> Listing:
    """The first `limit` readable documents under `paths`, which start at `folder` if they are relative; without paths,
    the installed distributions. Skips hidden files. ValueError if a path does not exist, or nothing is found."""
    found = _files(paths, folder) if paths else _distributions()
    documents: dict[str, str] = {}
    left_out: dict[str, str] = {}
    not_read = 0
    for name, place in _named_apart(found):
        if len(documents) == limit:
            not_read += 1
        elif problem := read(place).problem:
            left_out[name] = problem
        else:
            documents[name] = place
    if not documents:
        what = f"nothing to read in {', '.join(paths)}" if paths else "no installed distribution has a description"
        raise ValueError(f"{what}: set `sources` in workspace.yaml to files or folders with text in them")
    return Listing(documents, left_out, not_read)


def read(place: str) -> Document:
    if place.startswith(DISTRIBUTION):
        return _read_distribution(place.removeprefix(DISTRIBUTION))
    return _read_file(Path(place).expanduser())


def _read_file(path: Path) -> Document:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return Document(problem=GONE)
    except OSError as error:
        return Document(problem=f"can't be read: {error.strerror}")
    if len(data) > MAX_BYTES:
        return Document(problem=f"larger than {MAX_BYTES // 1000} kB")
    if b"\0" in data:
        return Document(problem="not text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Document(problem="not UTF-8 text")
    if path.suffix.lower() in (".html", ".htm", ".xhtml"):
        text = without_tags(text)
    return Document(text, str(path)) if text.strip() else Document(problem="empty")


def _read_distribution(name: str) -> Document:
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return Document(problem=GONE)
    description = about["Description"] or str(about.get_payload() or "")  # type: ignore[attr-defined]
    summary = (about["Summary"] or "").strip()
    if summary and summary.rstrip(".") not in description:
        description = f"{summary.rstrip('.')}.\n\n{description}"
    if not description.strip():
        return Document(problem="it has no description")
    return Document(description, f"the description of the installed distribution {name} {about['Version']}")


def _distributions() -> Iterator[tuple[str, str]]:
    names = {name for found in metadata.distributions() if (name := found.metadata["Name"])}
    for name in sorted(names, key=lambda name: (name.casefold(), name)):
        yield name, DISTRIBUTION + name


def _files(paths: list[str], folder: str) -> Iterator[tuple[str, str]]:
    """Each file once, as name and place: sorted within a folder, in the order of `paths` otherwise."""
    seen = set()
    for given in paths:
        path = Path(given).expanduser()
        top = Path(folder, path).resolve()
        if not top.exists():
            hint = "" if path.is_absolute() else f" at {top}: a relative path starts at the workspace's folder"
            raise ValueError(f"`sources` in workspace.yaml names {given!r}, and there is no such file or folder{hint}")
        for path in [top] if top.is_file() else _below(top):
            if path not in seen and _is_nameable(path):
                seen.add(path)
                yield (path.name if path == top else path.relative_to(top).as_posix()), str(path)


def _below(folder: Path) -> Iterator[Path]:
    for top, folders, names in os.walk(folder):
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in _NO_FOLDER_OF_DOCUMENTS)
        for name in sorted(names):
            path = Path(top, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _is_nameable(path: Path) -> bool:
    """Whether the path is text, because todo.md can't contain another one."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _named_apart(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The same with unique names on one line, because an item finds its document by its name."""
    taken = set()
    for name, place in found:
        plain = unique = " ".join(name.split())
        number = 1
        while unique in taken:
            number += 1
            unique = f"{plain} ({number})"
        taken.add(unique)
        yield unique, place
