"""Move a run to another place, or make a second copy of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...workspace import transfer
from ...workspace.base import arguments, myself, urls
from ...workspace.inspect import Kind
from ...workspace.transfer import Journey, Tell
from . import storage
from .place import Place


def carry(
    place: Place,
    kind: Kind,
    to: str | os.PathLike[str],
    *,
    by: str | None,
    progress: Tell | None,
    storage_options: Mapping[str, Any] | None,
) -> Journey:
    """Copy or move it to `to`."""
    typed = arguments.target("to", to)
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    storage.use(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    with transfer.destination(typed, place.store) as there:
        do = transfer.copy if kind == "copy" else transfer.move
        return do(place.store, there, by=by, tell=progress or (lambda *_: None))
