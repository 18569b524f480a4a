"""`satchel serve`: many workspaces, a few at a time.

judging.py   decides which workspaces may be started, by their files
roots.py     finds workspaces below a folder or URL
schedule.py  creates the tasks of schedules
cores.py     the number of available cores
server.py    starts the workspaces that may be started
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
