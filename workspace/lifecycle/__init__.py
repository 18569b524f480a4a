"""Take a workspace, open it, pause it, return to a checkpoint, and close it."""

from typing import TYPE_CHECKING

from ..base.lazy import lazily

if TYPE_CHECKING:
    from . import acquire, completeness, heartbeat, opening, pausing, rewind, salvage, truncate
    from .heartbeat import clock
    from .opening import opened
    from .pausing import Wish, said
    from .rewind import Point
    from .salvage import Leftover
    from .truncate import Cut
    from .workspace import Workspace
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "acquire": ("acquire",),
            "completeness": ("completeness",),
            "heartbeat": ("clock", "heartbeat"),
            "opening": ("opened", "opening"),
            "pausing": ("Wish", "pausing", "said"),
            "rewind": ("Point", "rewind"),
            "salvage": ("Leftover", "salvage"),
            "truncate": ("Cut", "truncate"),
            "workspace": ("Workspace",),
        },
    )

__all__ = [
    "Cut",
    "Leftover",
    "Point",
    "Wish",
    "Workspace",
    "acquire",
    "clock",
    "completeness",
    "heartbeat",
    "opened",
    "opening",
    "pausing",
    "rewind",
    "said",
    "salvage",
    "truncate",
]
