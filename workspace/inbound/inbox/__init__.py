"""Tasks and messages that people and programs put into inbox/, and their place afterwards."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from . import archive, forward, inbox
    from .archive import FOLDER
    from .inbox import Arrivals, InboxFile, Offered
