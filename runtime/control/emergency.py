"""The emergency stop, of one run or of many at once."""

from __future__ import annotations

from collections.abc import Iterable

from ...workspace.base import DEFINITION, UsageError
from ...workspace.formats import pause_file
from ..supervision.emergency import Stopped, stop
from .place import Place, myself


def stop_all(places: Place | Iterable[Place], *, reason: str = "emergency", by: str | None = None) -> list[Stopped]:
    """Kill what runs these workspaces, all at once; see `Handle.stop`. Returns what became of each, in order.

    One handle does for a list of one. UsageError if one of them is not a workspace, or pause.yaml can't have the
    `reason` or `by`: then none is stopped. Those that `open_all` has found count as workspaces.
    """
    by = by or myself()
    given = [places] if isinstance(places, str | bytes) or not isinstance(places, Iterable) else [*places]
    if wrong := [each for each in given if not isinstance(each, Place)]:
        raise UsageError(f"{wrong[0]!r} is no handle", remedy="give what `satchel.open` or `satchel.open_all` returns")
    for place in given:
        if not place.was_found and place.store.version(DEFINITION) is None:
            raise UsageError("is not a workspace", path=place.url, remedy="`satchel ls` finds those under a folder")
        pause_file.check_wish(place.url, reason=reason, by=by)
    elsewhere = next((place for place in given if place.store.abilities.remote), None)
    if elsewhere:
        elsewhere.tell("writing pause.yaml, and waiting for whoever runs them elsewhere: some seconds")
    return stop([place.store for place in given], reason, by)
