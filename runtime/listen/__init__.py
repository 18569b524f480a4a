"""`satchel serve --listen`: tasks that arrive by HTTP.

app       the requests
server    a thread that answers them, next to the loop of `serve`
"""

# mypy: implicit-reexport

from ...workspace.base.lazy import on_first_use

with on_first_use(__name__):
    from .server import listening
