"""Move a run to another place, make a second copy of it, or export it as a zip file for other people to read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...workspace import transfer
from ...workspace.base import UsageError, arguments, myself, urls
from ...workspace.inspect import ExportResult, Kind
from ...workspace.transfer import Tell, TransferResult
from ..status import Place, use_options


def carry(
    place: Place,
    kind: Kind,
    to: str | os.PathLike[str],
    *,
    by: str | None,
    progress: Tell | None,
    storage_options: Mapping[str, Any] | None,
) -> TransferResult:
    """Copy or move it to `to`."""
    typed = arguments.target("to", to)
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    use_options(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    with transfer.destination(typed, place.store) as there:
        do = transfer.copy if kind == "copy" else transfer.move
        return do(place.store, there, by=by, tell=progress or (lambda *_: None))


def export(place: Place, to: str | os.PathLike[str], progress: Tell | None) -> ExportResult:
    """Write the zip file `to`."""
    typed = arguments.place("to", to)
    arguments.function("progress", progress)
    if urls.is_remote(typed):
        raise UsageError(f"{typed!r} is no file of this machine", remedy="export to a file, and upload that")
    return transfer.export(place.store, typed, progress or (lambda *_: None))
