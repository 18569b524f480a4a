"""The `run` object that an agent gets."""

# mypy: implicit-reexport

from ...workspace.base.lazy import deferred

if not deferred(__name__):
    from .ask import Answer
    from .inbox import InboxTask, Offer
    from .plan import Item
    from .resources import OpenResources
    from .run import Run
