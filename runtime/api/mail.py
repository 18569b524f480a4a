"""Tasks and messages for the inbox of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ...schemas import Problem
from ...workspace.base import InvalidFile, KeyReused, UsageError, arguments, decode, in_force
from ...workspace.formats import yamltext
from ...workspace.inbound import archive, inbox
from ...workspace.inspect import look_beside, transfer_file
from ...workspace.secrets import Redactor, redactor_of
from ..status import Place

_DATA = (".yaml", ".yml", ".json")
_LEAST = 3  # bytes of a value in a list or mapping, as YAML
_APART = "Put large content into a separate file"
UNNAMED = "the text"
"""What an InvalidFile calls a content that has no file."""


class SendResult(Struct, frozen=True):
    """What was put into the inbox. `file` is its path in the workspace. It is on the disk, and not yet taken."""

    file: str
    kind: Literal["task", "message"]


class _Parcel(NamedTuple):
    data: bytes
    extension: Literal["md", "yaml"]
    words: str  # for the file's name


def send(place: Place, contents: Sequence[Any], *, as_message: bool, key: str = "") -> list[SendResult]:
    """Checks all of them before it sends the first."""
    if key and len(contents) != 1:
        raise UsageError("a key is for one task", why=f"there are {len(contents)}", remedy="send each with its own key")
    seen = look_beside(place.store)
    transfer_file.refuse_backup(place.store)
    transfer_file.refuse_overtaken(place.store)
    seen.check_has_agent(place.url)
    earlier = archive.find_keyed(place.store, key) if key else None
    if seen.moment.status == "cancelled" and earlier is None:
        raise UsageError(
            "was cancelled and accepts no tasks",
            path=place.store.url,
            remedy="send the tasks to another run; `satchel new` makes one",
        )
    redactor = redactor_of(seen.definition)
    try:
        parcels = [_packed(redactor.value(content), as_message) for content in contents]
    except RecursionError:
        too_deep = Problem("the value", "hundreds of nested levels", "at most 32", "Use fewer levels")
        raise InvalidFile(UNNAMED, [too_deep]) from None
    if redactor:
        parcels = [_redacted(parcel, redactor) for parcel in parcels]
    for parcel in parcels:
        inbox.parse(f"{parcel.words or UNNAMED}.{parcel.extension}", parcel.data)
    if earlier is None:
        files = [inbox.send(place.store, *parcel, key=key) for parcel in parcels]
    elif earlier.mark == archive.mark_of_key(key, parcels[0].data) and earlier.path.endswith(
        f".{parcels[0].extension}"
    ):
        place.store.settle(earlier.folder)  # its sender may have been killed before the name was durable
        files = [earlier.path]
    else:
        raise KeyReused(
            "the key was used for another task", path=earlier.path, remedy="send a new task with a key of its own"
        )
    if seen.mistake:
        place.tell(f"note: {in_force(seen.mistake)}")
    return [SendResult(file, "message" if as_message else "task") for file in files]


def _redacted(parcel: _Parcel, redactor: Redactor) -> _Parcel:
    """Without secrets. Of data each value is redacted, since what stands for a secret would be a list in YAML."""
    data = redactor.data(parcel.data)
    if parcel.extension == "yaml":
        with suppress(InvalidFile):  # it is refused in a moment
            value = yamltext.load(decode(parcel.data, UNNAMED), UNNAMED).value
            if (clean := redactor.value(value)) is not value:
                data = redactor.data(yamltext.dump(clean).encode())
    return _Parcel(data, parcel.extension, redactor.text(parcel.words))


def _packed(content: Any, as_message: bool) -> _Parcel:
    if isinstance(content, str):
        return _wrapped(content, as_message, "")
    if isinstance(content, os.PathLike):
        return _file(arguments.place("a file to send", content), as_message)
    if as_message:
        raise UsageError("is data, but a message must be a text", path=type(content).__name__)
    if _values(content) * _LEAST > yamltext.LIMIT:  # writing so many takes many seconds, only to refuse them then
        too_large = Problem("the value", f"more than {yamltext.LIMIT >> 10} KiB as YAML", "less", _APART)
        raise InvalidFile(UNNAMED, [too_large])
    try:
        return _Parcel(yamltext.dump(content).encode(), "yaml", "")
    except (TypeError, ValueError) as error:
        raise UsageError(
            "can't be sent", path=type(content).__name__, why=str(error), remedy="send a text, a path, or JSON data"
        ) from error


def _values(content: Any) -> int:
    """How many values there are in lists and mappings."""
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list | tuple) else ()
    return len(inner) + sum(map(_values, inner))


def _file(path: str, as_message: bool) -> _Parcel:
    if os.path.isdir(path):
        raise UsageError("is a folder", path=path, remedy="name the files in it")
    if not os.path.exists(path):
        raise UsageError("no such file", path=path, remedy="to send it as a text, write it to `satchel send WS -`")
    try:
        with open(path, "rb") as file:
            data = file.read(inbox.LIMIT + 1)
    except OSError as error:
        raise UsageError("can't be read", path=path, why=error.strerror or str(error)) from error
    stem, extension = os.path.splitext(os.path.basename(path))
    if extension.lower() not in _DATA:
        return _wrapped(decode(data, path), as_message, stem)
    if as_message:
        raise UsageError("is data, but a message must be a text", path=path)
    return _Parcel(data, "yaml", stem)


def _wrapped(text: str, as_message: bool, words: str) -> _Parcel:
    if not arguments.text("a text to send", text).strip():
        raise UsageError("is empty", path=words or None, remedy="write what to do")
    if as_message:
        return _Parcel(inbox.message(text), "yaml", words)
    return _Parcel(text.encode() if text.endswith("\n") else f"{text}\n".encode(), "md", words)
