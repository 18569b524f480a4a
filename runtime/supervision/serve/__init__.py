"""`satchel serve`: many workspaces, a few at a time.

judging.py     decides which workspaces may be started, by their files
roots.py       finds workspaces below a folder or URL
schedule.py    creates the tasks of schedules
run_server.py  starts the workspaces that may be started, as many at a time as there are cores
"""

# mypy: implicit-reexport

from ....workspace.base.lazy import deferred

if not deferred(__name__):
    from .judging import Going, Known
    from .roots import FolderRoot, Root, RootSignature, UrlRoot
    from .run_server import ServeEvent, Server, serve, usable_cores
