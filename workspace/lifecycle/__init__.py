"""Take a workspace, open it, pause it, return to a checkpoint, and close it."""

# mypy: implicit-reexport

from ..base.lazy import on_first_use

with on_first_use(__name__):
    from . import acquire, adopt, completeness, heartbeat, opening, pausing, rewind, salvage, truncate, withdrawing
    from .ending import end_other
    from .heartbeat import clock
    from .opening import opened
    from .pausing import Wish, said
    from .rewind import Point, Return
    from .salvage import Leftover
    from .truncate import Cut
    from .workspace import Workspace
