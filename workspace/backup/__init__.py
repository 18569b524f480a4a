"""Let a copy of a run follow its journal, at another place, while it lies on a disk."""

# mypy: implicit-reexport

from ..base.lazy import deferred

if not deferred(__name__):
    from .follower import FIRST_LOOK, LOOK, Follower, following, place_for
    from .replica import Replica, backup_place
