"""Start the server: on stdin and stdout, or over HTTP, with what clients may do besides reading. Imports the package
`mcp` only then."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ....workspace.base import UsageError

ACTIONS = ("start", "answer", "send", "pause", "resume", "cancel", "stop", "fork")
"""The tools that change a run. None is there unless it is allowed."""

ALL = "all"


def allowed_of(words: str) -> frozenset[str]:
    """The actions in a list such as `answer,pause`. UsageError for an unknown one."""
    named = [word.strip() for word in words.split(",") if word.strip()]
    if unknown := [word for word in named if word not in (*ACTIONS, ALL)]:
        raise UsageError(
            f"can't allow {unknown[0]!r}",
            why=f"there are {', '.join(ACTIONS)}, and {ALL}",
            remedy="reading needs no permission",
        )
    return frozenset(ACTIONS) if ALL in named else frozenset(named)


def serve_mcp(
    root: str | os.PathLike[str],
    *,
    allow: str = "",
    http: str | None = None,
    token: str = "",
    storage_options: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> None:
    """Serve the runs below `root` to clients of the Model Context Protocol, until stdin ends, or a signal comes.

    `allow`: what clients may do besides reading, as a list such as `answer,pause`, or `all`. `http`: listen there (see
    `address_of`) instead of stdin and stdout. `token`: what clients must send as `Authorization: Bearer`; needed for an
    address that other machines can reach. `tell` is called with the address. UsageError if something is missing.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("`satchel mcp` needs the package mcp", remedy="install it with `pip install 'satchel[mcp]'`")
    from ..web import address_of, tokens_of
    from .run_names import Runs
    from .transports import over_http, over_stdio

    place = address_of(http) if http is not None else None
    tokens = tokens_of(token)
    if place is not None and not tokens and not place.is_local:
        raise UsageError(
            f"other machines can reach {place.host}",
            why="a program that does could read all runs",
            remedy="set SATCHEL_MCP_TOKEN or --token-file, which clients have to send, or leave the host out",
        )
    runs, allowed = Runs(root, storage_options), allowed_of(allow)

    if place is None:
        over_stdio(runs, allowed)
    else:
        over_http(runs, allowed, place, tokens, tell or (lambda line: print(line, file=sys.stderr)))
