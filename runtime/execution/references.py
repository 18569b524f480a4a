"""References of a run to things outside: whether each file, object and address still exists.

A reference is a path (relative to the workspace, or absolute), an http or https address, or any URL that fsspec opens.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from ...workspace.base import UsageError, urls
from ..agent import Apart

_ANSWER = 5.0
"""Seconds that a server has for an answer."""

_LIMIT = 15.0
"""Seconds for each of them in total. All are checked at once."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(://|::)")
_SECRETS = re.compile(r"(?<=://)[^/@\s]*@|\?.*")


class Missing(NamedTuple):
    reference: str  # without what may be secret in it
    why: str

    def __str__(self) -> str:
        return f"reference {self.reference} is missing: {self.why}"


async def missing(references: Sequence[str], root: str) -> list[Missing]:
    """The references that do not exist, or can't be checked. `root` is the folder or URL of the workspace."""
    unique = list(dict.fromkeys(references))
    whys = await asyncio.gather(*(_look(reference, root) for reference in unique))
    return [Missing(shown(reference), why) for reference, why in zip(unique, whys, strict=True) if why]


def shown(reference: str) -> str:
    """A reference that is safe to show: a URL without user, password and query."""
    return _SECRETS.sub("", reference) if _SCHEME.match(reference) else reference


async def _look(reference: str, root: str) -> str:
    """Why it does not exist, or nothing."""
    apart = Apart("satchel-reference")
    try:
        async with asyncio.timeout(_LIMIT):
            return await apart.call(lambda: _found(reference, root))
    except TimeoutError:
        return f"no answer within {_LIMIT:g} s"
    finally:
        apart.end()


def _found(reference: str, root: str) -> str:
    scheme = _SCHEME.match(reference)
    if scheme is None:
        try:
            place = urls.resolve(root, reference)
        except UsageError as error:
            return error.what
        return _of_url(place) if urls.is_remote(place) else _of_path(place)
    if scheme[1].lower() in ("http", "https"):
        return _of_address(reference)
    return _of_url(reference)


def _of_path(path: str) -> str:
    try:
        os.stat(path)
    except FileNotFoundError:
        return "there is no such file"
    except (OSError, ValueError) as error:
        return f"it can't be inspected: {getattr(error, 'strerror', None) or error}"
    return ""


def _of_address(address: str) -> str:
    """Some servers don't support or allow HEAD; then the answer to GET counts. Its body is not read."""
    import http.client  # slow, and most runs refer to none
    import urllib.error
    import urllib.request

    why = ""
    for method in ("HEAD", "GET"):
        try:
            request = urllib.request.Request(address, method=method, headers={"User-Agent": "satchel"})
            with urllib.request.urlopen(request, timeout=_ANSWER):
                return ""
        except urllib.error.HTTPError as error:
            why = f"the server answers {error.code} {error.reason}"
            error.close()
        except urllib.error.URLError as error:
            return f"the server can't be reached: {error.reason}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            return f"the server can't be reached: {type(error).__name__}: {error}".rstrip(": ")
    return why


def _of_url(url: str) -> str:
    import fsspec  # type: ignore[import-untyped]  # slow, and most runs refer to none

    try:
        files, path = fsspec.core.url_to_fs(url)
        files.invalidate_cache()
        files.info(path)
    except FileNotFoundError:
        return "there is no such file"
    except Exception as error:  # of whichever library opens it
        return f"it can't be inspected: {type(error).__name__}: {error}"
    return ""
