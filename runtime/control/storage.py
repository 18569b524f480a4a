"""Options of the storage behind a URL, with the names of fsspec.

They go into the environment, where fsspec reads them. So started processes have them too, and their command lines
contain no secret.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ...workspace.base import UsageError, arguments, urls


def use(place: str, storage_options: Mapping[str, Any] | None) -> None:
    """Apply options to the storage of `place`, from now on. UsageError for a path."""
    options = arguments.mapping("storage_options", storage_options)
    if not options:
        return
    if not urls.is_remote(place):
        raise UsageError(
            "storage options are only for URLs", path=place, why="this is a local folder", remedy="leave them out"
        )
    scheme = urls.protocol(place)
    _put("s3" if scheme == "s3a" else scheme, options)


def _put(scheme: str, options: Mapping[str, Any]) -> None:
    """Merge options into the environment variable of a protocol. They replace its values."""
    name = f"FSSPEC_{scheme.upper()}"
    try:
        merged = json.dumps({**_said(name), **options})
    except (TypeError, ValueError) as error:  # it never shows a value
        raise UsageError(
            "storage_options can't be handed on to other processes",
            why=str(error),
            remedy="give values as JSON has them: texts, numbers, lists, dicts",
        ) from None
    for key in list(os.environ):
        if key.upper() in {f"{name}_{option.upper()}" for option in options}:
            del os.environ[key]  # fsspec would prefer it
    os.environ[name] = merged
    if (config := sys.modules.get("fsspec.config")) is not None:  # it has read the environment already
        config.conf.setdefault(scheme, {}).update(options)


def _said(name: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"the environment variable {name} is not a JSON object", remedy="correct or unset it")
    return found
