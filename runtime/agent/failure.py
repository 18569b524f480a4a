"""An exception of the agent as text: what it was, and the lines of the agent that it came through."""

from __future__ import annotations

import os
import sysconfig
import traceback

from ...workspace.base import StorageFailed
from ...workspace.journal.records import Failure
from . import code

_LINES = 5
_CHARACTERS = 100_000
_OURS = tuple(
    f"{os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/{folder}/"
    for folder in ("runtime", "workspace", "schemas")
)
_LIBRARY = sysconfig.get_path("stdlib")


def describe(error: BaseException, root: str) -> Failure:
    """`root` is the workspace; lines of code in it are named relative to it.

    The lines are those after the last line of Satchel, without the standard library. For a failed step these are the
    lines of the step.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith((*_OURS, _LIBRARY, "<"))]
    where = tuple(f"{place(frame.filename, root)}:{frame.lineno} in {frame.name}" for frame in theirs[-_LINES:])
    return Failure(type(error).__name__, _message(error), where)


def said(error: BaseException) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {_message(error)}"


def brief(error: BaseException) -> Failure:
    """The error without lines of code, because the failure of a step names its call."""
    return Failure(type(error).__name__, _message(error))


def of_storage(error: BaseException | None) -> StorageFailed | None:
    """The storage failure that an exception is, contains, or was caused by."""
    while error is not None:
        if isinstance(error, StorageFailed):
            return error
        if isinstance(error, BaseExceptionGroup):
            return next((found for each in error.exceptions if (found := of_storage(each))), None)
        error = error.__cause__
    return None


def _message(error: BaseException) -> str:
    """An exception group only says how many errors it has, so this names them."""
    if not isinstance(error, BaseExceptionGroup):
        text = str(error)[:_CHARACTERS]
        return text.encode(errors="backslashreplace").decode()  # half a surrogate pair can't be kept
    inner = "; ".join(f"{type(each).__name__}: {_message(each)}" for each in error.exceptions[:_LINES])
    return f"{error.message}: {inner}"


def place(file: str, root: str) -> str:
    """The name of a code file as people know it."""
    return os.path.relpath(file, root) if file.startswith(f"{root}/") else code.shown(file) or file
