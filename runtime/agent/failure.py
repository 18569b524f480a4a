"""An exception of the agent, as text that can be kept: what it was, and the agent's own lines it came through."""

from __future__ import annotations

import os
import sysconfig
import traceback

from ...workspace.base import StorageFailed
from ...workspace.journal.records import Failure
from . import download

_LINES = 5
_CHARACTERS = 100_000
_OURS = tuple(
    f"{os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/{folder}/"
    for folder in ("runtime", "workspace", "schemas")
)
_LIBRARY = sysconfig.get_path("stdlib")


def describe(error: BaseException, root: str) -> Failure:
    """`root` is the workspace; the lines of code in it are named relative to it.

    The lines are those after the last one of Satchel's, without the standard library's: of a step's failure the step's.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*_OURS, _LIBRARY, "<"))]
    where = tuple(f"{place(frame.filename, root)}:{frame.lineno} in {frame.name}" for frame in theirs[-_LINES:])
    return Failure(type(error).__name__, _message(error), where)


def said(error: BaseException) -> str:
    """In one line."""
    return f"{type(error).__name__}: {_message(error)}"


def brief(error: BaseException) -> Failure:
    """Without the lines of code: a step's failure names its call."""
    return Failure(type(error).__name__, _message(error))


def of_storage(error: BaseException | None) -> StorageFailed | None:
    """The failure of the storage that an exception is, holds, or was raised for."""
    while error is not None:
        if isinstance(error, StorageFailed):
            return error
        if isinstance(error, BaseExceptionGroup):
            return next((found for each in error.exceptions if (found := of_storage(each))), None)
        error = error.__cause__
    return None


def _message(error: BaseException) -> str:
    """A group says only how many it holds, so they are named."""
    if not isinstance(error, BaseExceptionGroup):
        text = str(error)[:_CHARACTERS]
        return text.encode(errors="backslashreplace").decode()  # half a surrogate pair can't be kept
    inner = "; ".join(f"{type(each).__name__}: {_message(each)}" for each in error.exceptions[:_LINES])
    return f"{error.message}: {inner}"


def place(file: str, root: str) -> str:
    """The name of a file with code, as people know it."""
    return os.path.relpath(file, root) if file.startswith(f"{root}/") else download.shown(file) or file
