"""The `run` object that an agent gets."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from .ask import Answer
    from .resources import OpenResources
    from .run import Item, Run
    from .run_inbox import InboxTask, Offer
