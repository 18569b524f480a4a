"""Tasks and messages that people and programs put into inbox/, and their place afterwards."""

# mypy: implicit-reexport

from ...base.lazy import deferred

if not deferred(__name__):
    from . import archive, firing, forward, inbox, keyed
    from .archive import FOLDER
    from .inbox import Arrivals, Found, Offered
