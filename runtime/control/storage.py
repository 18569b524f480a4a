"""What the storage behind a URL needs to know, as fsspec calls it.

It goes into the environment, as fsspec reads it there: so it holds for the processes that are started, too, and no
secret stands in their command lines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ...workspace.base import UsageError, arguments, urls


def use(place: str, storage_options: Mapping[str, Any] | None) -> None:
    """Let options count for the storage of `place`, from now on. UsageError for a path, and for what is no option."""
    options = arguments.mapping("storage_options", storage_options)
    if not options:
        return
    if not urls.is_remote(place):
        raise UsageError("--storage-option is for URLs", path=place, why="this is a local folder",
                         remedy="leave it out")  # fmt: skip
    scheme = urls.protocol(place)
    _put("s3" if scheme == "s3a" else scheme, options)


def _put(scheme: str, options: Mapping[str, Any]) -> None:
    """Merge options into what the environment says for a protocol. They win over it."""
    name = f"FSSPEC_{scheme.upper()}"
    try:
        merged = json.dumps({**_said(name), **options})
    except (TypeError, ValueError) as error:  # it never shows a value
        raise UsageError("storage_options can't be handed on to other processes", why=str(error),
                         remedy="give values as JSON has them: texts, numbers, lists, dicts") from None  # fmt: skip
    for key in list(os.environ):
        if key.upper() in {f"{name}_{option.upper()}" for option in options}:
            del os.environ[key]  # fsspec would let it win
    os.environ[name] = merged
    if (config := sys.modules.get("fsspec.config")) is not None:  # it has read the environment already
        config.conf.setdefault(scheme, {}).update(options)


def _said(name: str) -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"the environment variable {name} is not a JSON object", remedy="mend it, or unset it")
    return found
