"""`satchel serve`: many workspaces, a few at a time.

judging.py     decides which workspaces may be started, by their files
roots.py       finds workspaces below a folder or URL
schedule.py    creates the tasks of schedules
cores.py       the number of available cores
run_server.py  starts the workspaces that may be started
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from . import cores
    from .judging import Going, Known
    from .roots import FolderRoot, Root, RootSignature, UrlRoot
    from .run_server import ServeEvent, Server, serve
