"""Take a workspace, open it, pause it, prune it, let a backup follow it, and close it."""

# mypy: implicit-reexport

from .. import deferred

if not deferred(__name__):
    from . import acquire, opening, pausing, recovery, retention
    from .acquire import clock, end_other
    from .follower import FIRST_LOOK, LOOK, Follower, place_for
    from .opening import opened
    from .pausing import PauseWish, said
    from .recovery import Leftover, Truncation
    from .replica import Replica, backup_place
    from .workspace import Workspace
