"""`satchel serve`: many workspaces, a few at a time.

judging.py   which workspaces may be started, as their files say
roots.py     where workspaces are looked for
schedule.py  the tasks of times that have come
cores.py     how many processors there are
server.py    starts what may be started
"""

from typing import TYPE_CHECKING

from ....workspace.base.lazy import lazily

if TYPE_CHECKING:
    from . import cores
    from .server import Event, Server, serve
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "cores": ("cores",),
            "server": ("Event", "Server", "serve"),
        },
    )

__all__ = ["Event", "Server", "cores", "serve"]
