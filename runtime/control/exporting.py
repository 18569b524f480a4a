"""Export a run as a zip file, for other people to read."""

from __future__ import annotations

import os

from ...workspace import transfer
from ...workspace.base import UsageError, arguments, urls
from ...workspace.inspect import Exported
from ...workspace.transfer import Tell
from .place import Place


def export(place: Place, to: str | os.PathLike[str], progress: Tell | None) -> Exported:
    """Write the zip file `to`."""
    typed = arguments.place("to", to)
    arguments.function("progress", progress)
    if urls.is_remote(typed):
        raise UsageError(f"{typed!r} is no file of this machine", remedy="export to a file, and upload that")
    return transfer.export(place.store, typed, progress or (lambda *_: None))
